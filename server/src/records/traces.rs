//! Traces: one span for each request, sent to a collector of OpenTelemetry as OTLP over HTTP in JSON.
//!
//! A caller that sends `traceparent` (W3C Trace Context) continues its trace here, and requests of this
//! server to others continue it there. Spans wait in memory until the next batch is sent; a collector that
//! cannot be reached costs spans, and never a request.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request};
use identity::Random;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::records::otlp::{resource, text};

/// The header with the parent of a request.
pub const TRACEPARENT: &str = "traceparent";
/// Maximum number of spans that wait; further ones are counted and dropped.
const MAX_WAITING: usize = 10_000;
/// Number of spans in one request to the collector.
const BATCH: usize = 1_000;
/// Bit of the flags that says that a caller records the trace.
const SAMPLED: u8 = 1;

/// The place of a request in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    parent: Option<[u8; 8]>,
    is_sampled: bool,
}

impl TraceContext {
    /// Id of the trace, in hexadecimal digits.
    pub fn trace_id(&self) -> String {
        hex(&self.trace)
    }

    /// The header for a request that this one causes.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), u8::from(self.is_sampled))
    }
}

/// The trace, the parent and the flags of a `traceparent` header. Later versions of the format may have
/// further parts (W3C Trace Context, 3.2 and 4).
fn read_parent(header: &str) -> Option<([u8; 16], [u8; 8], u8)> {
    let mut parts = header.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let [version] = bytes(version)?;
    let is_known = version == 0 && parts.next().is_none() || (1..u8::MAX).contains(&version);
    let (trace, parent): ([u8; 16], [u8; 8]) = (bytes(trace)?, bytes(parent)?);
    let [flags] = bytes(flags)?;
    (is_known && trace != [0; 16] && parent != [0; 8]).then_some((trace, parent, flags))
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 2 * N || !text.bytes().all(is_hex) {
        return None;
    }
    let mut decoded = [0; N];
    for (index, byte) in decoded.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(decoded)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A request that has ended.
pub struct EndedRequest<'a> {
    /// The place of the request in its trace.
    pub context: TraceContext,
    /// The method.
    pub method: &'a str,
    /// The route, such as `fhir/R4/{kind}/{id}`; `None` if no route fits.
    pub route: Option<&'a str>,
    /// Status of the response.
    pub status: u16,
    /// Time of arrival.
    pub began: Timestamp,
    /// Time to the head of the response.
    pub took: Duration,
    /// Id of the request, as in the response and the logs.
    pub request_id: &'a str,
    /// Address of the caller, if it is known.
    pub address: Option<IpAddr>,
    /// Id of the client, if it is known.
    pub client: Option<&'a str>,
}

impl EndedRequest<'_> {
    /// The span in the JSON form of OTLP. The path is not in it: it may name a patient.
    fn span(&self) -> Value {
        let name = match self.route {
            Some(route) => format!("{} /{route}", self.method),
            None => self.method.to_owned(),
        };
        let began = self.began.as_nanosecond();
        let mut attributes = vec![
            text("http.request.method", self.method),
            json!({ "key": "http.response.status_code", "value": { "intValue": self.status.to_string() } }),
            text("trefoil.request_id", self.request_id),
        ];
        attributes.extend(self.route.map(|route| text("http.route", &format!("/{route}"))));
        attributes.extend(self.address.map(|address| text("client.address", &address.to_string())));
        attributes.extend(self.client.map(|client| text("trefoil.client_id", client)));
        let mut span = json!({
            "traceId": hex(&self.context.trace),
            "spanId": hex(&self.context.span),
            "name": name,
            "kind": 2, // a server
            "startTimeUnixNano": began.to_string(),
            "endTimeUnixNano": (began + self.took.as_nanos().cast_signed()).to_string(),
            "attributes": attributes,
            // An error of the client is not an error of the server (OpenTelemetry, HTTP spans, status).
            "status": if self.status >= 500 { json!({ "code": 2 }) } else { json!({}) },
        });
        if let Some(parent) = &self.context.parent {
            span["parentSpanId"] = hex(parent).into();
        }
        span
    }
}

/// The collector, and the spans that wait for it.
pub struct Traces {
    /// Address for traces; `None` if there is no collector.
    collector: Option<String>,
    /// Percentage of the requests without a parent that are sampled.
    percent: u8,
    node: String,
    waiting: Mutex<Vec<Value>>,
    dropped: AtomicU64,
}

impl Traces {
    /// Traces for a collector with this address, such as `http://localhost:4318`.
    pub fn new(collector: Option<&str>, percent: u8, node: String) -> Self {
        let collector = collector.map(|address| format!("{}/v1/traces", address.trim_end_matches('/')));
        let (waiting, dropped) = Default::default();
        Self { collector, percent, node, waiting, dropped }
    }

    /// Returns whether spans are sent to a collector.
    pub fn are_sent(&self) -> bool {
        self.collector.is_some()
    }

    /// Number of spans that were dropped, because the collector could not be reached.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The place of a request in a trace: that of its parent, or a new trace. Returns `None` without a parent
    /// and a collector.
    pub fn begin(&self, headers: &HeaderMap, random: &dyn Random) -> Option<TraceContext> {
        let header = headers.get(TRACEPARENT).and_then(|header| header.to_str().ok());
        let parent = header.and_then(read_parent);
        if parent.is_none() && self.collector.is_none() {
            return None;
        }
        let mut fresh = [0; 25];
        random.fill(&mut fresh);
        let (trace, rest) = fresh.split_first_chunk::<16>().expect("25 bytes are enough");
        let (span, rest) = rest.split_first_chunk::<8>().expect("9 bytes are left");
        Some(match parent {
            Some((trace, parent, flags)) => {
                TraceContext { trace, span: *span, parent: Some(parent), is_sampled: flags & SAMPLED != 0 }
            }
            None => {
                let is_sampled = u32::from(rest[0]) * 100 < u32::from(self.percent) * 256;
                TraceContext { trace: *trace, span: *span, parent: None, is_sampled }
            }
        })
    }

    /// Adds the span of a request. Never waits.
    pub fn end(&self, request: &EndedRequest<'_>) {
        if self.collector.is_none() || !request.context.is_sampled {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() < MAX_WAITING {
            waiting.push(request.span());
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The next batch as a request to the collector; `None` if no span waits.
    pub fn next_batch(&self) -> Option<Request<Bytes>> {
        let collector = self.collector.as_ref()?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(BATCH);
        let spans: Vec<Value> = waiting.drain(..count).collect();
        drop(waiting);
        if spans.is_empty() {
            return None;
        }
        let scope = json!({ "name": "trefoil" });
        let body = json!({ "resourceSpans": [{
            "resource": resource(&self.node),
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }] });
        let request = Request::post(collector).header(CONTENT_TYPE, "application/json");
        Some(request.body(body.to_string().into()).expect("the address was checked with the configuration"))
    }

    /// Counts the spans of a batch that the collector has not received.
    pub fn count_lost(&self, batch: &Request<Bytes>) {
        let body: Value = serde_json::from_slice(batch.body()).unwrap_or_default();
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().map_or(0, Vec::len);
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn begin(traces: &Traces, parent: &str) -> Option<TraceContext> {
        let mut headers = HeaderMap::new();
        if !parent.is_empty() {
            headers.insert(TRACEPARENT, parent.parse().unwrap());
        }
        traces.begin(&headers, &*Clock::system().random)
    }

    fn ended(context: TraceContext, status: u16) -> EndedRequest<'static> {
        EndedRequest {
            context,
            method: "GET",
            route: Some("fhir/R4/{kind}/{id}"),
            status,
            began: Timestamp::from_second(1_800_000_000).unwrap(),
            took: Duration::from_micros(1_500),
            request_id: "r-1",
            address: Some("192.0.2.1".parse().unwrap()),
            client: Some("app"),
        }
    }

    #[test]
    fn a_trace_is_continued_or_begun() {
        let traces = Traces::new(Some("http://collector:4318/"), 100, "node-1".to_owned());
        let continued = begin(&traces, PARENT).unwrap();
        assert_eq!(continued.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        let next = continued.traceparent();
        assert!(next.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && next.ends_with("-01"), "{next}");
        assert!(!next.contains("b7ad6b7169203331"), "the request has a span of its own");
        let unsampled = begin(&traces, &PARENT.replace("-01", "-00")).unwrap();
        assert!(unsampled.traceparent().ends_with("-00"));
        // A later version may have further parts, and the first has none.
        assert_eq!(
            begin(&traces, &format!("{}-more", PARENT.replacen("00", "cc", 1))).unwrap().parent,
            continued.parent
        );
        for wrong in [
            "",
            "00",
            &format!("{PARENT}-more"),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(begin(&traces, wrong).unwrap().parent, None, "{wrong}");
        }
        let without_collector = Traces::new(None, 100, String::new());
        assert_eq!(begin(&without_collector, ""), None);
        assert!(begin(&without_collector, PARENT).is_some(), "the trace is in the log");
    }

    #[test]
    fn sampled_requests_are_spans_of_a_batch() {
        let traces = Traces::new(Some("http://collector:4318/"), 0, "node-1".to_owned());
        traces.end(&ended(begin(&traces, "").unwrap(), 200));
        assert!(traces.next_batch().is_none(), "0 percent are sampled");
        traces.end(&ended(begin(&traces, PARENT).unwrap(), 503));
        let batch = traces.next_batch().unwrap();
        assert_eq!(batch.uri(), "http://collector:4318/v1/traces");
        let mut body: Value = serde_json::from_slice(batch.body()).unwrap();
        let span = &mut body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let id = span["spanId"].take();
        assert!(bytes::<8>(id.as_str().unwrap()).is_some());
        let attributes = &mut body["resourceSpans"][0]["resource"]["attributes"];
        let mut attributes = attributes.as_array_mut().unwrap().iter_mut();
        let version = attributes.find(|attribute| attribute["key"] == "service.version").unwrap();
        assert_eq!(version["value"]["stringValue"].take(), env!("CARGO_PKG_VERSION"));
        insta::assert_json_snapshot!(body);
        assert!(traces.next_batch().is_none());
        traces.count_lost(&batch);
        assert_eq!(traces.dropped(), 1);
    }

    #[test]
    fn waiting_spans_are_limited() {
        let traces = Traces::new(Some("http://collector"), 100, String::new());
        let context = begin(&traces, PARENT).unwrap();
        for _ in 0..MAX_WAITING + 5 {
            traces.end(&ended(context, 200));
        }
        assert_eq!(traces.dropped(), 5);
        let batches = std::iter::from_fn(|| traces.next_batch()).count();
        assert_eq!(batches, MAX_WAITING / BATCH);
    }
}
