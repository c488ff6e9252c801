//! Progress reports of an import: bytes on disk.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use trefoil_terminology_import::{Release, group_releases};

use crate::releases::zipped;
use crate::support::release_path;

/// Reports, each with the current file, the bytes read so far and the total.
type Reports = Vec<(String, u64, u64)>;

/// Returns the reports of an import and those of a content hash.
fn reported(release: &Release) -> [Reports; 2] {
    let [mut read, mut hashed] = [Reports::new(), Reports::new()];
    release.import(&mut |step| read.push((step.file.to_owned(), step.bytes, step.of))).unwrap();
    release.content_hash(&mut |step| hashed.push((step.file.to_owned(), step.bytes, step.of))).unwrap();
    [read, hashed]
}

/// Checks that the bytes in the reports never decrease and end with the total `bytes`.
#[track_caller]
fn check(reported: &Reports, bytes: u64) {
    assert!(reported.is_sorted_by_key(|(_, bytes, _)| bytes), "{reported:?}");
    assert!(reported.iter().all(|(_, _, of)| *of == bytes), "{bytes}: {reported:?}");
    assert_eq!(reported.last().unwrap().1, bytes, "{reported:?}");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Returns the size of all files in a folder.
fn size_below(path: &Path) -> u64 {
    let of = |path: PathBuf| if path.is_dir() { size_below(&path) } else { size(&path) };
    fs::read_dir(path).unwrap().map(|entry| of(entry.unwrap().path())).sum()
}

fn one(path: &Path) -> Release {
    group_releases(vec![path.to_owned()]).remove(0)
}

#[test]
fn each_byte_of_a_folder_and_of_an_archive_is_counted_once() {
    for name in [
        "SnomedCT_GardenInternationalRF2_20250101T120000Z",
        "SnomedCT_GardenEditionRF2_20250301T120000Z",
        "Loinc_0.1",
        "icd10cm-garden",
        "claml-garden",
    ] {
        let folder = release_path(name);
        let [read, hashed] = reported(&one(&folder));
        check(&read, size_below(&folder));
        check(&hashed, size_below(&folder));
        let archive = zipped(&folder);
        let mut zip = zip::ZipArchive::new(archive.reopen().unwrap()).unwrap();
        let packed: u64 = (0..zip.len()).map(|at| zip.by_index_raw(at).unwrap().compressed_size()).sum();
        let [read, hashed] = reported(&one(archive.path()));
        check(&read, packed);
        check(&hashed, size(archive.path()));
    }
}

#[test]
fn files_that_are_not_read_are_not_counted() {
    // The name of the folder contains the version, so the table of sources is not read.
    let folder = release_path("RxNorm_full_01012025");
    check(&reported(&one(&folder))[0], size_below(&folder) - size(&folder.join("rrf/RXNSAB.RRF")));
}

#[test]
fn the_progress_of_an_extension_includes_its_base() {
    let paths =
        ["SnomedCT_GardenInternationalRF2_20250101T120000Z", "SnomedCT_GardenExtensionRF2_20250401T120000Z"]
            .map(release_path);
    let sizes = paths.each_ref().map(|path| size_below(path));
    let releases = group_releases(paths.to_vec());
    for (release, bytes) in releases.iter().zip([sizes[0], sizes[0] + sizes[1]]) {
        reported(release).iter().for_each(|reported| check(reported, bytes));
    }
}

#[test]
fn a_large_file_is_reported_in_steps_of_its_compressed_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = "# url: urn:x\ncode,display\n".to_owned();
    let mut random = fastrand::Rng::with_seed(7);
    for code in 0..100_000 {
        writeln!(text, "{code},{:x}", random.u128(..)).unwrap();
    }
    let plain = folder.path().join("plain.csv");
    fs::write(&plain, &text).unwrap();
    let gzip = folder.path().join("packed.csv.gz");
    let mut packed = GzEncoder::new(fs::File::create(&gzip).unwrap(), Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap();
    for path in [plain, gzip] {
        let bytes = size(&path);
        assert!(bytes > 2 << 20);
        for reported in reported(&one(&path)) {
            check(&reported, bytes);
            assert!(reported.len() as u64 >= bytes >> 20, "{reported:?}");
            assert!(reported.iter().all(|(file, ..)| path.ends_with(file)), "{reported:?}");
        }
    }
    fs::remove_file(folder.path().join("packed.csv.gz")).unwrap();
    let archive = zipped(folder.path());
    let [read, _] = reported(&one(archive.path()));
    assert!(read.len() >= 2 && read.last().unwrap().2 < text.len() as u64, "{read:?}");
    check(&read, read[0].2);
}
