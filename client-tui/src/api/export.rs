//! Bulk Data export: kick-off, status and deletion (Bulk Data Access 2.0.0). [`crate::export`] combines them.

use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::discovery::check_safe;
use super::retry_after::retry_after_s;
use super::terminology::path_segment;
use super::{Answer, Api, ApiError, Bearer};

/// Time between two polls if the server sends no `Retry-After`, in seconds.
const DEFAULT_POLL_S: i64 = 2;

/// Parameters of an export. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct KickOff {
    pub level: ExportLevel,
    /// Resource types, separated by commas; empty for all types.
    pub types: String,
    /// Instant; only resources that changed after it are exported.
    pub since: String,
    /// Instant; only resources that changed before it are exported.
    pub until: String,
    /// Searches, separated by spaces, such as `Observation?status=final`.
    pub type_filter: String,
    pub elements: String,
    /// Ids of patients, separated by commas. They are sent by POST.
    pub patients: String,
    /// Associated data, separated by commas, such as `LatestProvenanceResources`.
    pub associated_data: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportLevel {
    #[default]
    System,
    Patients,
    /// The compartments of the members of a Group.
    Group(String),
}

impl ExportLevel {
    /// Reads the text of a form: `Group/ID`, `Patient`, or nothing for the whole server.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim().split_once('/') {
            None if text.trim().is_empty() => Ok(Self::System),
            None if text.trim() == "Patient" => Ok(Self::Patients),
            Some(("Group", id)) if !id.is_empty() => Ok(Self::Group(id.to_owned())),
            _ => Err(format!("level '{text}' is not Group/ID, Patient, or empty for the whole server")),
        }
    }

    pub fn text(&self) -> String {
        match self {
            Self::System => String::new(),
            Self::Patients => "Patient".to_owned(),
            Self::Group(id) => format!("Group/{id}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportStatus {
    /// The export is not complete.
    Running {
        /// Progress text of the server (`X-Progress`).
        progress: Option<String>,
        /// Time until the next poll, in seconds.
        retry_after_s: i64,
    },
    /// The export is complete; the value is the first page of the manifest.
    Complete(ManifestPage),
}

/// One page of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPage {
    /// The page exactly as the server sent it.
    pub bytes: Bytes,
    pub manifest: ExportManifest,
    pub next: Option<String>,
}

/// Members of a manifest that the client uses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportManifest {
    /// Time of the snapshot: the export contains all changes before this instant.
    pub transaction_time: String,
    /// Whether downloads need the access token.
    pub requires_access_token: bool,
    pub output: Vec<OutputFile>,
    /// Files with Bundles that name the resources deleted since `_since`.
    #[serde(default)]
    pub deleted: Vec<OutputFile>,
    #[serde(default)]
    pub error: Vec<OutputFile>,
    #[serde(default)]
    pub link: Vec<ManifestLink>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ManifestLink {
    /// `next` for the next page.
    #[serde(default)]
    pub relation: String,
    #[serde(default)]
    pub url: String,
}

/// The part of a file that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRange {
    /// First byte of the representation, which is compressed if `gzip` is set.
    pub start: u64,
    /// Strong entity tag of the bytes before `start`.
    pub validator: Option<String>,
    /// Whether the representation may be compressed.
    pub gzip: bool,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OutputFile {
    /// Type of the resources in the file.
    #[serde(rename = "type")]
    pub kind: String,
    pub url: String,
    /// Number of resources in the file; `None` if the server states none, or no number of resources.
    #[serde(default, deserialize_with = "stated_count")]
    pub count: Option<u64>,
}

/// A count of a manifest. A wrong one must not prevent the download, which counts the lines itself.
fn stated_count<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Option<u64>, D::Error> {
    Ok(serde_json::Value::deserialize(reader)?.as_u64())
}

impl KickOff {
    /// A short description of what is exported: `Group/g1`, `all patients` or `everything`.
    pub fn scope(&self) -> String {
        match &self.level {
            ExportLevel::System => "everything".to_owned(),
            ExportLevel::Patients => "all patients".to_owned(),
            ExportLevel::Group(id) => format!("Group/{id}"),
        }
    }

    /// Checks the values before they are sent.
    ///
    /// # Errors
    /// The reason why the server would reject a value.
    pub fn check(&self) -> Result<(), String> {
        for (name, instant) in [("_since", &self.since), ("_until", &self.until)] {
            if !instant.is_empty() && instant.parse::<Timestamp>().is_err() {
                return Err(format!("{name} '{instant}' is not an instant like 2024-01-31T08:00:00Z"));
            }
        }
        let is_type = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric())
        };
        if let Some(wrong) = list(&self.types).find(|name| !is_type(name)) {
            return Err(format!("_type '{wrong}' is not a resource type like Patient"));
        }
        let is_search = |search: &str| {
            search.split_once('?').is_some_and(|(kind, query)| is_type(kind) && query.contains('='))
        };
        if let Some(wrong) = self.type_filter.split_whitespace().find(|search| !is_search(search)) {
            return Err(format!("_typeFilter '{wrong}' is not a search like Observation?status=final"));
        }
        if !self.patients.is_empty() && self.level == ExportLevel::System {
            return Err("patient needs the level Patient or Group/ID".to_owned());
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let single = [
            ("_outputFormat", "ndjson"),
            ("_type", &self.types),
            ("_since", &self.since),
            ("_until", &self.until),
            ("_elements", &self.elements),
            ("includeAssociatedData", &self.associated_data),
        ];
        let single = single.into_iter().filter(|(_, value)| !value.is_empty());
        let filters = self.type_filter.split_whitespace().map(|search| ("_typeFilter", search));
        single.chain(filters).map(|(name, value)| (name, value.to_owned())).collect()
    }

    /// The parameters as a Parameters resource, for a kick-off by POST.
    fn body(&self) -> serde_json::Value {
        let parameter = |(name, value): (&str, String)| {
            let kind = if matches!(name, "_since" | "_until") { "valueInstant" } else { "valueString" };
            serde_json::json!({ "name": name, kind: value })
        };
        let patient = |id: &str| {
            let reference = if id.contains('/') { id.to_owned() } else { format!("Patient/{id}") };
            serde_json::json!({ "name": "patient", "valueReference": { "reference": reference } })
        };
        let all = self.parameters().into_iter().map(parameter).chain(list(&self.patients).map(patient));
        serde_json::json!({ "resourceType": "Parameters", "parameter": all.collect::<Vec<_>>() })
    }
}

/// Splits a list of values that are separated by commas.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|value| !value.is_empty())
}

impl Api {
    /// Starts an export and returns the address of its status.
    ///
    /// # Errors
    /// An error for any status except 202. In that case, no export was started.
    pub async fn kick_off(&self, query: &KickOff, bearer: &Bearer) -> Result<String, ApiError> {
        let base = &self.profile().fhir_base;
        let url = match &query.level {
            ExportLevel::System => format!("{base}/$export"),
            ExportLevel::Patients => format!("{base}/Patient/$export"),
            ExportLevel::Group(id) => format!("{base}/Group/{}/$export", path_segment(id)?),
        };
        let request = if query.patients.is_empty() {
            self.http().get(&url).query(&query.parameters())
        } else {
            let body = query.body().to_string();
            self.http().post(&url).header("content-type", "application/fhir+json").body(body)
        };
        let request = self.authorize(request, &url, bearer).await?;
        let request = request.header("accept", "application/fhir+json").header("prefer", "respond-async");
        let response = self.call(request).await?;
        if response.status != StatusCode::ACCEPTED {
            let requested = self.requested_scope(bearer).await;
            return Err(ApiError::refused(&url, &response).explain_scope(requested.as_deref()));
        }
        let missing = || ApiError::Unexpected {
            url: url.clone(),
            reason: "Content-Location, the address of the status, is missing in the 202 response".to_owned(),
        };
        let location = response.header("content-location").ok_or_else(missing)?;
        let location = url::Url::parse(&url).and_then(|base| base.join(location)).map_err(|_| missing())?;
        if *bearer != Bearer::Anonymous {
            check_safe(location.as_str())?;
        }
        Ok(location.into())
    }

    /// Polls the status of an export.
    ///
    /// # Errors
    /// The error of the request. [`ApiError::is_final_export_status`] says whether the export failed.
    pub async fn poll(&self, status_url: &str, bearer: &Bearer) -> Result<ExportStatus, ApiError> {
        let response = self.get_with_token(status_url, bearer).await?;
        if response.status == StatusCode::ACCEPTED {
            return Ok(ExportStatus::Running {
                progress: response.header("x-progress").map(str::to_owned),
                retry_after_s: retry_after_s(&response).unwrap_or(DEFAULT_POLL_S),
            });
        }
        manifest_page(status_url, response).map(ExportStatus::Complete)
    }

    /// Reads a further page of a manifest.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn manifest_page(&self, url: &str, bearer: &Bearer) -> Result<ManifestPage, ApiError> {
        manifest_page(url, self.get_with_token(url, bearer).await?)
    }

    async fn get_with_token(&self, url: &str, bearer: &Bearer) -> Result<Answer, ApiError> {
        self.check_token_host(url, bearer)?;
        let request = self.http().get(url).header("accept", "application/json");
        self.call(self.authorize(request, url, bearer).await?).await
    }

    /// Requests a file of an export, or the rest of it. The body of the response is not read.
    ///
    /// # Errors
    /// An error for any status except 200, 206 and 416.
    pub async fn request_file(
        &self,
        url: &str,
        range: &FileRange,
        bearer: Option<&Bearer>,
    ) -> Result<reqwest::Response, ApiError> {
        let mut request = self.http().get(url).header("accept", "application/fhir+ndjson");
        request = request.header("accept-encoding", if range.gzip { "gzip" } else { "identity" });
        if range.start > 0 {
            request = request.header("range", format!("bytes={}-", range.start));
            if let Some(validator) = &range.validator {
                request = request.header("if-range", validator);
            }
        }
        if let Some(bearer) = bearer {
            self.check_token_host(url, bearer)?;
            request = self.authorize(request, url, bearer).await?;
        }
        let response = self.stream(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status.is_success() || (status == StatusCode::RANGE_NOT_SATISFIABLE && range.start > 0) {
            return Ok(response);
        }
        let body = response.bytes().await.unwrap_or_default();
        Err(ApiError::refused(
            url,
            &Answer { status, headers, body, received_at: self.now(), certificate_ends_at: None },
        ))
    }

    /// Cancels an export, or deletes its files if it is completed.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn delete_export(&self, status_url: &str, bearer: &Bearer) -> Result<(), ApiError> {
        self.check_token_host(status_url, bearer)?;
        let response =
            self.call(self.authorize(self.http().delete(status_url), status_url, bearer).await?).await?;
        if response.status.is_success() { Ok(()) } else { Err(ApiError::refused(status_url, &response)) }
    }
}

/// Reads a page of a manifest.
fn manifest_page(url: &str, response: Answer) -> Result<ManifestPage, ApiError> {
    let manifest: ExportManifest = response.json(url)?;
    let next = manifest.link.iter().find(|link| link.relation == "next" && !link.url.is_empty());
    let absolute = |next: &ManifestLink| {
        let joined = url::Url::parse(url).and_then(|base| base.join(&next.url));
        joined.map(String::from).map_err(|error| ApiError::Unexpected {
            url: url.to_owned(),
            reason: format!("the address '{}' of the next page is invalid: {error}", next.url),
        })
    };
    let next = next.map(absolute).transpose()?;
    Ok(ManifestPage { bytes: response.body, manifest, next })
}

/// The percentage in the progress text of the server, if it contains one.
pub fn percent(progress: &str) -> Option<u16> {
    let before = progress.split_once('%')?.0.trim_end();
    let start = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |index| index + 1);
    let number: f64 = before[start..].parse().ok()?;
    Some(number.clamp(0.0, 100.0) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_none_is_ignored() {
        #[track_caller]
        fn check(count: &str, expected: Option<u64>) {
            let file = format!(r#"{{"type":"Patient","url":"https://s.example/f"{count}}}"#);
            assert_eq!(serde_json::from_str::<OutputFile>(&file).unwrap().count, expected, "{file}");
        }
        check(r#","count":7"#, Some(7));
        check("", None);
        for wrong in ["-1", "\"7\"", "1.5", "null", "[]"] {
            check(&format!(r#","count":{wrong}"#), None);
        }
    }

    #[test]
    fn parameters_are_checked_before_they_are_sent() {
        #[track_caller]
        fn check(change: impl FnOnce(&mut KickOff), says: &str) {
            let mut query = KickOff { level: ExportLevel::Patients, ..KickOff::default() };
            change(&mut query);
            let error = query.check().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        check(|query| query.since = "yesterday".to_owned(), "_since 'yesterday'");
        check(|query| query.until = "2024".to_owned(), "_until '2024'");
        check(|query| query.types = "Patient,observation".to_owned(), "_type 'observation'");
        check(|query| query.type_filter = "Patient?a=b Observation".to_owned(), "_typeFilter 'Observation'");
        check(
            |query| {
                query.patients = "p1".to_owned();
                query.level = ExportLevel::System;
            },
            "patient needs the level",
        );
        assert_eq!(ExportLevel::parse("Group/a/b").unwrap().text(), "Group/a/b");
        assert!(ExportLevel::parse("group").is_err());
    }

    #[test]
    fn patients_are_sent_in_a_parameters_resource() {
        let query = KickOff {
            level: ExportLevel::Patients,
            type_filter: "Patient?a=b Observation?c=d".to_owned(),
            patients: "p1, Patient/p2".to_owned(),
            ..KickOff::default()
        };
        let names: Vec<_> = query.parameters().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["_outputFormat", "_typeFilter", "_typeFilter"]);
        let references: Vec<_> = query.body()["parameter"].as_array().unwrap()[3..]
            .iter()
            .map(|parameter| parameter["valueReference"]["reference"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(references, ["Patient/p1", "Patient/p2"]);
    }

    #[track_caller]
    fn check_retry(header: Option<&str>, expected: Option<i64>) {
        let mut headers = http::HeaderMap::new();
        if let Some(header) = header {
            headers.insert("retry-after", header.parse().unwrap());
        }
        let received_at = "1994-11-06T08:49:37Z".parse().unwrap();
        let response = Answer {
            status: StatusCode::ACCEPTED,
            headers,
            body: Bytes::new(),
            received_at,
            certificate_ends_at: None,
        };
        assert_eq!(retry_after_s(&response), expected, "{header:?}");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        check_retry(Some("7"), Some(7));
        check_retry(Some("0"), Some(1));
        check_retry(Some("-3"), Some(1));
        check_retry(Some("99999999"), Some(3600));
        check_retry(Some("Sun, 06 Nov 1994 08:50:07 GMT"), Some(30));
        check_retry(Some("Sun, 06 Nov 1994 08:00:00 GMT"), Some(1));
        check_retry(Some("soon"), None);
        check_retry(None, None);
    }

    #[track_caller]
    fn check_percent(text: &str, expected: Option<u16>) {
        assert_eq!(percent(text), expected, "{text}");
    }

    #[test]
    fn a_percentage_is_found_in_a_progress_text() {
        check_percent("42% (3 of 7 types)", Some(42));
        check_percent("about 12.5 % done", Some(12));
        check_percent("250%", Some(100));
        check_percent("almost done", None);
        check_percent("%", None);
    }
}
