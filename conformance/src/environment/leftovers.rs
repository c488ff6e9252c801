//! Exports and resources that a run has created on a target. They are deleted at the end of the run.

use std::sync::Mutex;

use http::{Method, StatusCode, header};
use url::Url;

use crate::environment::page_request::get;
use crate::wire::exchange::{Answer, SentRequest};

/// Requests that delete what the run has created.
#[derive(Debug, Default)]
pub struct Leftovers(Mutex<Vec<SentRequest>>);

impl Leftovers {
    /// Notes what a request has created or deleted: an export has a status URL in `Content-Location`, and a
    /// resource its own URL in `Location`.
    pub fn note(&self, sent_request: &SentRequest, response: &Answer, fhir_base: Option<&str>) {
        let mut all = self.0.lock().expect("no thread panics while it holds the lock");
        if sent_request.method == Method::DELETE && response.status.is_success() {
            all.retain(|request| request.url != sent_request.url);
            return;
        }
        if let Some(deletion) = deletion_of_export(sent_request, response) {
            all.push(deletion);
        }
        let created = match response.status {
            StatusCode::CREATED => response.header("location").filter(|location| {
                fhir_base.is_some_and(|base| location.starts_with(base) || !location.contains("://"))
            }),
            _ => None,
        };
        let url = created.and_then(|url| sent_request.url.join(url.split("/_history").next()?).ok());
        if let Some(url) = url {
            all.push(deletion(url, sent_request));
        }
    }

    /// The requests, the latest first, because later resources refer to earlier ones.
    pub fn take(&self) -> Vec<SentRequest> {
        let mut all = std::mem::take(&mut *self.0.lock().expect("no thread panics while it holds the lock"));
        all.reverse();
        all
    }
}

/// The request that deletes the export that a kick-off has started.
pub fn deletion_of_export(sent_request: &SentRequest, response: &Answer) -> Option<SentRequest> {
    let is_started = response.status == StatusCode::ACCEPTED && sent_request.url.path().contains("$export");
    let url = response.header("content-location").filter(|_| is_started)?;
    Some(deletion(sent_request.url.join(&url).ok()?, sent_request))
}

/// The request that deletes `url` with the credentials of `sent_request`.
fn deletion(url: Url, sent_request: &SentRequest) -> SentRequest {
    let mut request = get(url);
    request.method = Method::DELETE;
    if let Some(value) = sent_request.headers.get(header::AUTHORIZATION) {
        request.headers.insert(header::AUTHORIZATION, value.clone());
    }
    request
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    #[test]
    fn exports_and_resources_are_noted_until_they_are_deleted() {
        let base = "https://a.example/fhir";
        let leftovers = Leftovers::default();
        let send = |method: Method, path: &str, status: u16, header: &'static str, value: &str| {
            let mut sent_request = get(Url::parse(&format!("{base}/{path}")).unwrap());
            sent_request.method = method;
            sent_request.headers.insert(header::AUTHORIZATION, "Bearer t".parse().unwrap());
            let headers = HeaderMap::from_iter([(header.parse().unwrap(), value.parse().unwrap())]);
            let response =
                Answer { status: StatusCode::from_u16(status).unwrap(), headers, body: Bytes::new() };
            leftovers.note(&sent_request, &response, Some(base));
        };
        send(Method::GET, "Patient/$export", 202, "content-location", "https://a.example/fhir/job/1");
        send(Method::GET, "job/1", 202, "x-progress", "half");
        send(Method::POST, "Group", 201, "location", "https://a.example/fhir/Group/7/_history/1");
        send(Method::POST, "Group", 201, "location", "https://a.example/fhir/Group/8");
        send(Method::DELETE, "Group/8", 204, "x-any", "1");
        let urls: Vec<_> = leftovers.take().into_iter().map(|request| request.url.to_string()).collect();
        assert_eq!(urls, [format!("{base}/Group/7"), format!("{base}/job/1")]);
        assert!(leftovers.take().is_empty());
    }
}
