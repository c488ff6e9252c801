//! Erasure of the texts about a patient in the audit log.
//!
//! The lines stay: they say who has read or changed what, which the law may require for longer than the
//! record itself. The URL of a search may contain a name or a date of birth. It is overwritten where it
//! stands, with the same length, so that the log can be written meanwhile and no line moves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The member before a search in a line, and the text that replaces its URL.
const MEMBER: &str = r#""query":""#;
const ERASED: &str = "erased";

/// Overwrites the searches in all lines of the log in `folder` that name the patient (`Patient/p1`), and
/// returns their number.
///
/// # Errors
/// Returns an error if a file cannot be read or written.
pub fn erase_searches(folder: &Path, patient: &str) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "ndjson") {
            count += erase_in_file(&path, patient)?;
        }
    }
    Ok(count)
}

fn erase_in_file(path: &Path, patient: &str) -> io::Result<usize> {
    let mut erased = Vec::new();
    let (mut source, mut line, mut start) = (BufReader::new(File::open(path)?), Vec::new(), 0);
    loop {
        line.clear();
        let length = source.read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        // A crash may have cut off a line within a character.
        if let Ok(text) = str::from_utf8(&line) {
            erased.extend(search_of(text, patient).map(|(at, text)| (start + at as u64, text)));
        }
        start += length as u64;
    }
    if erased.is_empty() {
        return Ok(0);
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    for (at, text) in &erased {
        file.seek(SeekFrom::Start(*at))?;
        file.write_all(text.as_bytes())?;
    }
    file.sync_all()?;
    Ok(erased.len())
}

/// The position of a search in a line that names the patient, and what replaces it.
fn search_of(line: &str, patient: &str) -> Option<(usize, String)> {
    let at = line.find(MEMBER)? + MEMBER.len();
    let encoded = &line[at..at + line[at..].find('"')?];
    let decoded = STANDARD.decode(encoded).ok()?;
    let (_, id) = patient.split_once('/')?;
    let names = |text: &str| {
        text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.')).any(|word| word == id)
    };
    let is_about = line.contains(&format!(r#""reference":"{patient}""#))
        || names(&String::from_utf8_lossy(&decoded).replace("%2F", "/").replace("%2f", "/"));
    if !is_about || decoded.starts_with(ERASED.as_bytes()) {
        return None;
    }
    let mut text = ERASED.as_bytes().to_vec();
    text.resize(decoded.len(), b' ');
    Some((at, STANDARD.encode(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_about_the_patient_are_overwritten_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let line = |query: &str, patient: &str| {
            let query = STANDARD.encode(query);
            format!(r#"{{"entity":[{{"query":"{query}"}},{{"what":{{"reference":"{patient}"}}}}]}}"#)
        };
        let other_lines = [
            line("GET https://h/Observation?subject=Patient/p10", "Patient/p10"),
            r#"{"entity":[{"what":{"reference":"Patient/p1"}}]}"#.to_owned(),
            r#"{"query":"cut off"#.to_owned(),
        ];
        let lines_of_patient = [
            line("GET https://h/Patient?name=Example&birthdate=1970-01-01", "Patient/p1"),
            line("GET https://h/Observation?subject=Patient%2Fp1", "Patient/none"),
        ];
        let all: Vec<_> = other_lines.iter().chain(&lines_of_patient).cloned().collect();
        let path = folder.path().join("audit-2026-01-31.ndjson");
        fs::write(&path, all.join("\n")).unwrap();
        assert_eq!(erase_searches(folder.path(), "Patient/p1").unwrap(), 2);
        let after = fs::read_to_string(&path).unwrap();
        assert_eq!(after.len(), all.join("\n").len());
        let lines: Vec<_> = after.lines().collect();
        assert_eq!(lines[..3], other_lines);
        for (line, before) in lines[3..].iter().zip(&lines_of_patient) {
            let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
            let query = STANDARD.decode(parsed["entity"][0]["query"].as_str().unwrap()).unwrap();
            assert_eq!(String::from_utf8(query).unwrap().trim_end(), ERASED);
            assert_eq!(line.len(), before.len());
        }
        assert_eq!(erase_searches(folder.path(), "Patient/p1").unwrap(), 0, "a repeated call finds nothing");
    }
}
