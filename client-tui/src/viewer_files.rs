//! Effects of the viewer of exported files: reading, search, references, and validation of codes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem;
use serde_json::Value;

use super::ndjson::resource::MAX_LINE;
use crate::api::{Api, Bearer, ValidateCode};
use crate::exact_json;
use crate::json_path::{Selector, is_path};
use crate::model::{CodeCheck, PAGE_LINES, ResourceDetail, ViewedFile, ViewerPage};
use crate::msg::{Answered, FoundResource};
use crate::ndjson::NdjsonFile;
use crate::ndjson::resource::{bound_codes, references, split_reference, summary};

/// The file that the viewer shows. Clones share it.
#[derive(Clone, Default)]
pub struct OpenFile(Arc<Mutex<Option<IndexedFile>>>);

enum LineFilter {
    All,
    Text(String),
    /// Lines of which the path selects a part.
    Path(Selector),
}

impl LineFilter {
    /// Parses the text of the field. A JSONPath begins with `$`.
    fn parse(text: &str) -> Answered<Self> {
        Ok(match text {
            "" => Self::All,
            path if is_path(path) => Self::Path(Selector::parse(path)?),
            text => Self::Text(text.to_owned()),
        })
    }
}

/// A file with its index and the lines of the last filter.
struct IndexedFile {
    path: PathBuf,
    file: NdjsonFile,
    text: String,
    filter: LineFilter,
    /// Numbers of the lines that match the filter; unused without a filter.
    matches: Vec<u64>,
}

impl IndexedFile {
    fn open(path: &Path, text: &str, filter: LineFilter) -> std::io::Result<Self> {
        let mut file = NdjsonFile::open(path)?;
        let matches = match &filter {
            LineFilter::All => Vec::new(),
            LineFilter::Text(text) => {
                let finder = memmem::Finder::new(text);
                file.search(|line| finder.find(line).is_some())?
            }
            LineFilter::Path(path) => file.search(|line| path.selects(line))?,
        };
        Ok(Self { path: path.to_owned(), file, text: text.to_owned(), filter, matches })
    }

    /// The number of lines of the list.
    fn lines(&self) -> u64 {
        if matches!(self.filter, LineFilter::All) { self.file.lines() } else { self.matches.len() as u64 }
    }

    fn selector(&self) -> Option<&Selector> {
        match &self.filter {
            LineFilter::Path(selector) => Some(selector),
            LineFilter::All | LineFilter::Text(_) => None,
        }
    }

    fn read(&mut self, first: u64, count: usize) -> std::io::Result<Vec<Vec<u8>>> {
        if matches!(self.filter, LineFilter::All) {
            return self.file.read(first, count);
        }
        let from = (first as usize).min(self.matches.len());
        let to = from.saturating_add(count).min(self.matches.len());
        let mut lines = Vec::new();
        for number in &self.matches[from..to] {
            lines.extend(self.file.read(*number, 1)?);
        }
        Ok(lines)
    }
}

impl OpenFile {
    /// Calls a function with the file, which is opened first if another one is open.
    fn with<T>(
        &self,
        path: &Path,
        filter: &str,
        f: impl FnOnce(&mut IndexedFile) -> std::io::Result<T>,
    ) -> Answered<T> {
        let failed = |error: std::io::Error| format!("failed to read {}: {error}", path.display());
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *open {
            Some(file) if file.path == path && file.text == filter => f(file).map_err(failed),
            _ => {
                let parsed = LineFilter::parse(filter)?;
                f(open.insert(IndexedFile::open(path, filter, parsed).map_err(failed)?)).map_err(failed)
            }
        }
    }

    /// The number of lines of the list and one page of it.
    pub fn page(&self, path: &Path, filter: &str, first: u64) -> Answered<(u64, ViewerPage)> {
        self.with(path, filter, |file| {
            let lines = file.read(first, PAGE_LINES)?;
            let selector = file.selector();
            let rows = lines.iter().map(|line| summary(line, selector)).collect();
            Ok((file.lines(), ViewerPage { first, rows }))
        })
    }

    /// The resource at a position of the list.
    pub fn resource(&self, path: &Path, filter: &str, index: u64) -> Answered<ResourceDetail> {
        let (lines, selector) =
            self.with(path, filter, |file| Ok((file.read(index, 1)?, file.selector().cloned())))?;
        let line = lines.first().ok_or_else(|| "the file does not have this line".to_owned())?;
        if line.len() >= MAX_LINE {
            return Err(format!("the line is longer than {} MiB and is not shown", MAX_LINE >> 20));
        }
        let detail = |text: String, selection, references: Vec<String>| ResourceDetail {
            text,
            selection,
            references,
            selected_reference: 0,
            codes: None,
            scroll: 0,
        };
        let line = String::from_utf8_lossy(line);
        Ok(match exact_json::parse(&line) {
            Ok(json) => {
                let selection = selector.and_then(|selector| selector.text(&line));
                detail(exact_json::text(&json), selection, references(&json))
            }
            Err(error) => detail(format!("not JSON: {error}\n\n{line}"), None, Vec::new()),
        })
    }
}

/// Looks for the resource of a reference in the files of its type.
///
/// # Errors
/// A message for the user if there is no such resource.
pub fn find(files: &[ViewedFile], reference: &str) -> Answered<FoundResource> {
    let (kind, id) = split_reference(reference)
        .ok_or_else(|| format!("'{reference}' is not a reference to a resource"))?;
    for (index, file) in files.iter().enumerate().filter(|(_, file)| file.kind == kind) {
        let failed = |error: std::io::Error| format!("failed to read {}: {error}", file.path.display());
        let mut lines = NdjsonFile::open(&file.path).map_err(failed)?;
        if let Some(line) = lines.find_id(id).map_err(failed)? {
            return Ok(FoundResource { file: index, line });
        }
    }
    Err(format!("the export contains no {reference}"))
}

/// Validates the codes of a resource with the terminology server.
///
/// # Errors
/// A message for the user if the text is not a resource.
pub async fn check_codes(api: &Api, resource: &str, bearer: &Bearer) -> Answered<Vec<CodeCheck>> {
    let json: Value = serde_json::from_str(resource).map_err(|error| format!("not JSON: {error}"))?;
    let mut checks = Vec::new();
    for code in bound_codes(&json) {
        let query = ValidateCode {
            url: code.value_set.to_owned(),
            system: code.system,
            code: code.code.clone(),
            ..ValidateCode::default()
        };
        let result = api.validate_code(&query, bearer).await;
        checks.push(CodeCheck {
            path: code.path,
            code: code.code,
            value_set: code.value_set,
            result: result.map(|result| result.result).map_err(|error| error.to_string()),
        });
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_a_text_or_a_jsonpath() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ndjson");
        let lines = [
            r#"{"id":"a","status":"final","code":{"text":"one"}}"#,
            r#"{"id":"b","status":"amended","code":{"text":"final"}}"#,
            r#"{"id":"c","status":"final""#,
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let file = OpenFile::default();
        let page_of = |filter: &str| {
            let (lines, page) = file.page(&path, filter, 0).unwrap();
            let rows: Vec<_> = page.rows.into_iter().map(|row| (row.id, row.text)).collect();
            assert_eq!(lines, rows.len() as u64);
            rows
        };
        let ids = |filter: &str| page_of(filter).into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids("final"), ["a", "b", ""]);
        assert_eq!(ids("$[?$.status == 'final']"), ["a"]);
        let rows = page_of("$.code.text");
        assert_eq!(rows, [("a".to_owned(), "\"one\"".to_owned()), ("b".to_owned(), "\"final\"".to_owned())]);
        let resource = file.resource(&path, "$.code", 1).unwrap();
        assert_eq!(resource.selection.as_deref(), Some("{\n  \"text\": \"final\"\n}"));
        assert!(
            resource.text.contains("amended"),
            "the resource is complete, for the validation of its codes"
        );
        assert!(file.page(&path, "$[", 0).unwrap_err().contains("is not a JSONPath"));
        assert_eq!(ids(""), ["a", "b", ""]);
    }
}
