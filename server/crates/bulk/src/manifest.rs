//! The manifest of a job: SPEC, bulk export status result. A writer for each version of the guide: 2.0.0, and 3.0.0,
//! which adds `outputOrganizedBy`, `continuesInFile` and pages with a `link` to the next one.

use std::ops::Range;

use serde_json::{Value, json};

use crate::Guide;
use crate::job::{Job, OutputFile, Section};

/// A page of a manifest.
pub(crate) struct Page<'a> {
    pub job: &'a Job,
    /// The files that it lists, beside those of errors, which stand on each page.
    pub files: Range<usize>,
    /// Where the next page is.
    pub next: Option<String>,
    /// Do files want a token?
    pub requires_token: bool,
}

/// Writes a page; `address` gives the address of a file.
pub(crate) fn write(page: &Page<'_>, address: impl Fn(&OutputFile) -> String) -> Vec<u8> {
    let manifest = match page.job.guide {
        Guide::V2 => version_2(page, &address),
        Guide::V3 => version_3(page, &address),
    };
    manifest.to_string().into_bytes()
}

type Address<'a> = &'a dyn Fn(&OutputFile) -> String;

impl Page<'_> {
    /// The entries of a list.
    fn list(&self, section: Section, entry: impl Fn(usize, &OutputFile) -> Value) -> Value {
        let all = self.job.files.iter().enumerate();
        let of_section = all.filter(|(at, file)| {
            file.section == section && (section == Section::Error || self.files.contains(at))
        });
        of_section.map(|(at, file)| entry(at, file)).collect::<Vec<_>>().into()
    }
}

fn version_2(page: &Page<'_>, address: Address<'_>) -> Value {
    let job = page.job;
    let entry =
        |_, file: &OutputFile| json!({ "type": file.kind, "url": address(file), "count": file.count });
    let mut manifest = json!({
        "transactionTime": fhir::instant::format(job.transaction_time),
        "request": job.request_url,
        "requiresAccessToken": page.requires_token,
        "output": page.list(Section::Output, entry),
        "error": page.list(Section::Error, entry),
    });
    // Without _since there is nothing that a client could still have.
    if job.parameters.since.is_some() {
        manifest["deleted"] = page.list(Section::Deleted, entry);
    }
    manifest
}

fn version_3(page: &Page<'_>, address: Address<'_>) -> Value {
    let mut manifest = version_2(page, address);
    if let Some(by) = &page.job.parameters.organize_by {
        manifest["outputOrganizedBy"] = by.as_str().into();
        // Such files hold several types.
        manifest["output"] = page.list(Section::Output, |at, file| {
            let mut entry = json!({ "url": address(file), "count": file.count });
            if let Some(next) = page.job.files.get(at + 1).filter(|_| file.continues) {
                entry["continuesInFile"] = address(next).into();
            }
            entry
        });
    }
    if let Some(next) = &page.next {
        manifest["link"] = json!([{ "relation": "next", "url": next }]);
    }
    manifest
}
