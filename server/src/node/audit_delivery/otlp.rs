//! Audit events as log records of OpenTelemetry: OTLP over HTTP in JSON (OpenTelemetry Protocol 1.x,
//! "OTLP/HTTP").

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::outcome::{Delivered, DeliveryError};
use crate::config::audit::HiddenText;
use crate::node::outbound::HttpCaller;
use crate::records::otlp::{resource, text};

/// Longest time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Part of an answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Numbers of the severities INFO, WARN and ERROR (OpenTelemetry, Logs Data Model).
const INFO: u8 = 9;
const WARN: u8 = 13;
const ERROR: u8 = 17;

/// A collector of OpenTelemetry.
pub(super) struct Collector {
    pub http: Arc<dyn HttpCaller>,
    /// Address for logs.
    pub address: String,
    /// Value of the header `Authorization`.
    pub authorization: Option<HiddenText>,
    /// Name of this server.
    pub node: String,
}

impl Collector {
    /// Sends lines, and returns once the collector has accepted them.
    pub(super) async fn send(&self, lines: &[String]) -> Result<Delivered, DeliveryError> {
        let mut request = Request::post(&self.address).header(CONTENT_TYPE, "application/json");
        if let Some(HiddenText(value)) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Bytes::from(body(&self.node, lines).to_string()));
        let request =
            request.map_err(|error| DeliveryError::failed(format!("the request is invalid: {error}")))?;
        let response = tokio::time::timeout(TIMEOUT, async {
            let response = self.http.send(request).await.map_err(DeliveryError::failed)?;
            let (head, mut pieces) = response.into_parts();
            let mut text = Vec::new();
            while let Some(piece) = pieces.try_next().await.map_err(DeliveryError::failed)? {
                text.extend_from_slice(&piece[..piece.len().min(MAX_ANSWER - text.len())]);
            }
            Ok((head, text))
        });
        let (head, text) = response
            .await
            .map_err(|_| DeliveryError::failed(format!("no answer within {} s", TIMEOUT.as_secs())))??;
        if head.status.is_success() {
            return Ok(Delivered { rejected: rejected(&text) });
        }
        let reason = format!("the collector answered {}", head.status);
        Err(match head.status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                DeliveryError::Refused(reason)
            }
            _ => {
                let pause = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                DeliveryError::Failed { reason, pause: pause.map(Duration::from_secs) }
            }
        })
    }
}

/// The number of records that the collector does not keep, and its reason (`partial_success`).
fn rejected(body: &[u8]) -> Option<(u64, String)> {
    let response: Value = serde_json::from_slice(body).ok()?;
    let partial = &response["partialSuccess"];
    // A number of 64 bits is a string in the JSON form of Protocol Buffers, but not everyone writes it so.
    let count = &partial["rejectedLogRecords"];
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok())?;
    let message = partial["errorMessage"].as_str().unwrap_or("without a reason");
    (count > 0).then(|| (count, message.to_owned()))
}

fn body(node: &str, lines: &[String]) -> Value {
    let records: Vec<_> = lines.iter().map(|line| record(line)).collect();
    json!({ "resourceLogs": [{
        "resource": resource(node),
        "scopeLogs": [{ "scope": { "name": "trefoil.audit" }, "logRecords": records }],
    }] })
}

/// An event as a record: the AuditEvent is its body, and what people filter by are its attributes.
fn record(line: &str) -> Value {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let (severity, name) = match event["outcome"].as_str() {
        Some("0") | None => (INFO, "INFO"),
        Some("4") => (WARN, "WARN"),
        Some(_) => (ERROR, "ERROR"),
    };
    let members = [
        // With this id a receiver recognizes an event that was sent twice.
        ("log.record.uid", &event["id"]),
        ("fhir.audit_event.type", &event["type"]["code"]),
        ("fhir.audit_event.subtype", &event["subtype"][0]["code"]),
        ("fhir.audit_event.action", &event["action"]),
        ("fhir.audit_event.outcome", &event["outcome"]),
    ];
    let attributes: Vec<_> =
        members.iter().filter_map(|(key, value)| Some(text(key, value.as_str()?))).collect();
    let recorded = event["recorded"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let time = recorded.map(|time| time.as_nanosecond().to_string());
    json!({
        "timeUnixNano": time.as_deref().unwrap_or("0"),
        "observedTimeUnixNano": time.as_deref().unwrap_or("0"),
        "severityNumber": severity,
        "severityText": name,
        "eventName": "fhir.audit_event",
        "body": { "stringValue": line },
        "attributes": attributes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_record_with_its_whole_text() {
        let line = r#"{"resourceType":"AuditEvent","id":"a1","type":{"code":"110114"},"subtype":[{"code":"110122"}],"action":"E","recorded":"2026-03-01T02:30:00.250Z","outcome":"4"}"#;
        let mut body = body("node-1", &[line.to_owned(), "cut off".to_owned()]);
        let attributes = body["resourceLogs"][0]["resource"]["attributes"].as_array_mut().unwrap();
        attributes.retain(|attribute| attribute["key"] != "service.version");
        insta::assert_json_snapshot!(body);
    }

    #[test]
    fn a_partial_success_names_what_is_not_kept() {
        for (answer, expected) in [
            ("", None),
            ("{}", None),
            (r#"{"partialSuccess":{}}"#, None),
            (r#"{"partialSuccess":{"rejectedLogRecords":"0","errorMessage":"a hint"}}"#, None),
            (
                r#"{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}"#,
                Some((2, "too old")),
            ),
            (r#"{"partialSuccess":{"rejectedLogRecords":3}}"#, Some((3, "without a reason"))),
        ] {
            let expected = expected.map(|(count, reason)| (count, reason.to_owned()));
            assert_eq!(rejected(answer.as_bytes()), expected, "{answer}");
        }
    }
}
