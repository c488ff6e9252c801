//! Tables whose last line is truncated are rejected with file and line. A missing line end is accepted,
//! because some publishers omit it.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;

use trefoil_terminology_import::import_files;

use crate::support::release_path;

/// Returns the files of a release as pairs of path within the release and content.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    fn collect(root: &Path, at: &Path, files: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, files);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    let mut files = Vec::new();
    collect(root, root, &mut files);
    files
}

/// Imports these files with one file replaced, and returns a hash of the index.
fn read(files: &[(String, Vec<u8>)], name: &str, content: &[u8]) -> Result<u64, String> {
    let change = |(known, bytes): &(String, Vec<u8>)| match known == name {
        true => (known.clone(), content.to_vec()),
        false => (known.clone(), bytes.clone()),
    };
    let loaded = import_files(files.iter().map(change).collect()).map_err(|error| error.to_string())?;
    let mut saved = Vec::new();
    loaded.index.save(&mut saved).unwrap();
    let mut hasher = DefaultHasher::new();
    saved.hash(&mut hasher);
    Ok(hasher.finish())
}

/// Truncates the last line of each table of a release at each of its separators, and checks the errors.
#[track_caller]
fn check(release_name: &str, ending: &str, separator: u8, tables: usize) {
    let files = files(&release_path(release_name));
    let whole = read(&files, "", b"").unwrap();
    let mut count = 0;
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(ending)) {
        count += 1;
        let text = bytes.trim_ascii_end();
        assert_eq!(read(&files, name, text).as_ref(), Ok(&whole), "{name} without the last line end");
        let line = text.split(|byte| *byte == b'\n').count();
        let start = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        for at in (start + 1..text.len()).filter(|at| text[*at] == separator) {
            let error = read(&files, name, &text[..at]).expect_err(name);
            let place = format!("{name}:{line}: ");
            assert!(error.starts_with(&place) && error.contains(" fields"), "{place} cut at {at}: {error}");
        }
        // An empty file, which lacks the headings, is rejected. RRF tables have no headings.
        assert!(read(&files, name, b"").is_err() || ending == ".RRF", "{name}");
    }
    assert_eq!(count, tables, "{release_name}");
}

#[test]
fn truncated_tables_of_rf2_are_rejected() {
    check("SnomedCT_GardenEditionRF2_20250301T120000Z", ".txt", b'\t', 8);
}

#[test]
fn truncated_tables_of_loinc_are_rejected() {
    check("Loinc_0.1", ".csv", b',', 9);
}

#[test]
fn truncated_tables_of_rxnorm_are_rejected() {
    check("RxNorm_full_01012025", ".RRF", b'|', 4);
}

#[test]
fn a_row_with_more_fields_than_headings_is_rejected() {
    let files = files(&release_path("SnomedCT_GardenInternationalRF2_20250101T120000Z"));
    for (name, bytes) in &files {
        let text = std::str::from_utf8(bytes).unwrap().trim_end();
        let (rest, last) = text.rsplit_once('\n').unwrap();
        let error = read(&files, name, format!("{rest}\n{last}\t{last}\r\n").as_bytes()).expect_err(name);
        assert!(error.contains(" fields instead of "), "{error}");
        // A tab at the end of a line does not add a column.
        assert!(read(&files, name, format!("{rest}\n{last}\t\r\n").as_bytes()).is_ok(), "{name}");
    }
}

#[test]
fn truncated_csv_tables_are_rejected_with_any_line_ends() {
    let text = fs::read_to_string(release_path("plants.csv")).unwrap();
    let text = text.trim_end();
    let read = |text: &str| import_files(vec![("plants.csv".to_owned(), text.as_bytes().to_vec())]);
    for end in ["\n", "\r\n"] {
        let text = text.replace('\n', end);
        assert!(read(&text).is_ok());
        let (cut, _) = text.rsplit_once(',').unwrap();
        let error = read(cut).unwrap_err().to_string();
        assert!(error.starts_with(&format!("plants.csv:{}: the row has ", text.lines().count())), "{error}");
        let (rest, last) = text.rsplit_once(end).unwrap();
        let error = read(&[rest, last, last].join(end)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("plants.csv:{}: the code ", text.lines().count() + 1)), "{error}");
    }
}
