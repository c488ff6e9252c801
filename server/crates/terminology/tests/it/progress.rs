//! What is told while a release is read: bytes of all bytes, as they lie on the disk.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use trefoil_terminology::load::{self, Release};

use crate::releases::{release, zipped};

/// What was told: the file, bytes and of how many.
type Told = Vec<(String, u64, u64)>;

/// What is told of a release, by reading and by hashing.
fn told(release: &Release) -> [Told; 2] {
    let [mut read, mut hashed] = [Told::new(), Told::new()];
    release.load(&mut |step| read.push((step.file.to_owned(), step.bytes, step.of))).unwrap();
    release.content_hash(&mut |step| hashed.push((step.file.to_owned(), step.bytes, step.of))).unwrap();
    [read, hashed]
}

/// What is told only rises, and ends with these bytes.
#[track_caller]
fn check(told: &Told, bytes: u64) {
    assert!(told.is_sorted_by_key(|(_, bytes, _)| bytes), "{told:?}");
    assert!(told.iter().all(|(_, _, of)| *of == bytes), "{bytes}: {told:?}");
    assert_eq!(told.last().unwrap().1, bytes, "{told:?}");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// Bytes of all files below a folder.
fn size_below(path: &Path) -> u64 {
    let of = |path: PathBuf| if path.is_dir() { size_below(&path) } else { size(&path) };
    fs::read_dir(path).unwrap().map(|entry| of(entry.unwrap().path())).sum()
}

fn one(path: &Path) -> Release {
    load::arrange(vec![path.to_owned()]).remove(0)
}

#[test]
fn each_byte_of_a_folder_and_of_an_archive_counts_once() {
    for name in [
        "SnomedCT_GardenInternationalRF2_20250101T120000Z",
        "SnomedCT_GardenEditionRF2_20250301T120000Z",
        "Loinc_0.1",
        "icd10cm-garden",
        "claml-garden",
    ] {
        let folder = release(name);
        let [read, hashed] = told(&one(&folder));
        check(&read, size_below(&folder));
        check(&hashed, size_below(&folder));
        let archive = zipped(&folder);
        let mut zip = zip::ZipArchive::new(archive.reopen().unwrap()).unwrap();
        let packed: u64 = (0..zip.len()).map(|at| zip.by_index_raw(at).unwrap().compressed_size()).sum();
        let [read, hashed] = told(&one(archive.path()));
        check(&read, packed);
        check(&hashed, size(archive.path()));
    }
}

#[test]
fn what_is_not_read_does_not_count() {
    // The name of the folder tells the version, so that the list of sources is not needed.
    let folder = release("RxNorm_full_01012025");
    check(&told(&one(&folder))[0], size_below(&folder) - size(&folder.join("rrf/RXNSAB.RRF")));
}

#[test]
fn an_extension_counts_with_its_base() {
    let paths =
        ["SnomedCT_GardenInternationalRF2_20250101T120000Z", "SnomedCT_GardenExtensionRF2_20250401T120000Z"]
            .map(release);
    let sizes = paths.each_ref().map(|path| size_below(path));
    let releases = load::arrange(paths.to_vec());
    for (release, bytes) in releases.iter().zip([sizes[0], sizes[0] + sizes[1]]) {
        told(release).iter().for_each(|told| check(told, bytes));
    }
}

#[test]
fn a_large_file_is_told_in_steps_of_its_packed_bytes() {
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
        for told in told(&one(&path)) {
            check(&told, bytes);
            assert!(told.len() as u64 >= bytes >> 20, "{told:?}");
            assert!(told.iter().all(|(file, ..)| path.ends_with(file)), "{told:?}");
        }
    }
    fs::remove_file(folder.path().join("packed.csv.gz")).unwrap();
    let archive = zipped(folder.path());
    let [read, _] = told(&one(archive.path()));
    assert!(read.len() >= 2 && read.last().unwrap().2 < text.len() as u64, "{read:?}");
    check(&read, read[0].2);
}
