//! Manifests for both versions of the guide. Version 3.0.0 adds pages with a `link` to the next page.

use std::ops::Range;

use serde_json::{Value, json};

use crate::GuideVersion;
use crate::job::{Job, ManifestSection, OutputFile};

pub(crate) struct ManifestPage<'a> {
    pub job: &'a Job,
    /// Range of the files that the page lists, without the files with errors, which every page lists.
    pub files: Range<usize>,
    /// URL of the next page, if there is one.
    pub next: Option<String>,
    /// `true` if a token is required to read the files.
    pub requires_token: bool,
}

/// Writes a page as JSON. `address` returns the URL of a file.
pub(crate) fn write(page: &ManifestPage<'_>, address: impl Fn(&OutputFile) -> String) -> Vec<u8> {
    let manifest = match page.job.guide {
        GuideVersion::V2 => version_2(page, &address),
        GuideVersion::V3 => version_3(page, &address),
    };
    manifest.to_string().into_bytes()
}

type Address<'a> = &'a dyn Fn(&OutputFile) -> String;

impl ManifestPage<'_> {
    /// The entries of one list of the manifest.
    fn list(&self, section: ManifestSection, entry: impl Fn(&OutputFile) -> Value) -> Value {
        let all = self.job.files.iter().enumerate();
        let of_section = all.filter(|(index, file)| {
            file.section == section && (section == ManifestSection::Error || self.files.contains(index))
        });
        of_section.map(|(_, file)| entry(file)).collect::<Vec<_>>().into()
    }
}

fn version_2(page: &ManifestPage<'_>, address: Address<'_>) -> Value {
    let job = page.job;
    let entry = |file: &OutputFile| json!({ "type": file.kind, "url": address(file), "count": file.count });
    let mut manifest = json!({
        "transactionTime": fhir::instant::format(job.transaction_time),
        "request": job.request_url,
        "requiresAccessToken": page.requires_token,
        "output": page.list(ManifestSection::Output, entry),
        "error": page.list(ManifestSection::Error, entry),
    });
    // Without `_since`, the client has no earlier export from which resources must be deleted.
    if job.parameters.since.is_some() {
        manifest["deleted"] = page.list(ManifestSection::Deleted, entry);
    }
    manifest
}

fn version_3(page: &ManifestPage<'_>, address: Address<'_>) -> Value {
    let mut manifest = version_2(page, address);
    if let Some(next) = &page.next {
        manifest["link"] = json!([{ "relation": "next", "url": next }]);
    }
    manifest
}
