//! The lines about requests in the log of the server. Requests with valid credentials have a line each. Of
//! those without, the first of each network and minute have one, and the others are counted: a stranger
//! cannot fill the disk.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde::Serialize;
use tracing::Level;

use super::audit::source_network;
use super::minute_counts::{Counted, MinuteCounts};
use super::server_log::{self, LineHead, REQUESTS};
use super::traces::TraceContext;
use crate::config::LogFormat;

/// Number of lines of one network in a minute, for requests without credentials.
const LINES: u64 = 60;
/// Maximum number of networks that are counted in a minute.
const MAX_NETWORKS: usize = 200;

/// Decides which requests have a line of their own.
pub struct RequestLog {
    networks: MinuteCounts<Option<IpAddr>>,
    /// Number of requests of networks that are not counted separately.
    others: AtomicU64,
    /// Duration from which the line of a request is a warning; zero for none.
    slow: Duration,
}

/// The line of a request.
pub struct RequestLine<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path without its query, which contains codes, tokens and states.
    pub path: &'a str,
    /// Status of the response.
    pub status: u16,
    /// Time to the head of the response.
    pub took: Duration,
    /// Id of the request, which is also in the response and in the audit log.
    pub request_id: &'a str,
    /// Address of the caller, if it is known.
    pub address: Option<IpAddr>,
    /// Id of the client, if its credentials or its token are known.
    pub client: Option<&'a str>,
    /// The place of the request in a trace.
    pub trace: Option<TraceContext>,
}

impl RequestLine<'_> {
    /// Writes the line as the formatters of the log write their lines. They ask each field for its text
    /// through several layers, which costs more than many requests do.
    fn write(&self, format: LogFormat, head: &LineHead<'_>, message: &str, out: &mut String) -> fmt::Result {
        match format {
            LogFormat::Text => self.write_text(head, message, out),
            LogFormat::Json => self.write_json(head, message, out),
        }
    }

    fn write_text(&self, head: &LineHead<'_>, message: &str, out: &mut String) -> fmt::Result {
        let level = head.level.as_str();
        let indent = if level.len() < "ERROR".len() { "  " } else { " " };
        let (mut status, mut took) = (itoa::Buffer::new(), itoa::Buffer::new());
        out.extend([head.time, indent, level, " ", REQUESTS, ": ", message]);
        out.extend([" method=", self.method.as_str(), " path="]);
        write_quoted(self.path, out)?;
        out.extend([" status=", status.format(self.status), " took_us=", took.format(self.took_us())]);
        match self.address {
            Some(IpAddr::V4(address)) => {
                let mut separator = " address=";
                for octet in address.octets() {
                    out.extend([separator, itoa::Buffer::new().format(octet)]);
                    separator = ".";
                }
            }
            Some(address) => write!(out, " address={address}")?,
            None => {}
        }
        if let Some(client) = self.client {
            out.push_str(" client=");
            write_quoted(client, out)?;
        }
        out.push_str(" request_id=");
        out.push_str(self.request_id);
        if let Some(trace) = &self.trace {
            write!(out, " trace_id={:?}", trace.trace_id())?;
        }
        out.push('\n');
        Ok(())
    }

    fn write_json(&self, head: &LineHead<'_>, message: &str, out: &mut String) -> fmt::Result {
        let line = JsonLine {
            timestamp: head.time,
            level: head.level.as_str(),
            message,
            method: self.method.as_str(),
            path: self.path,
            status: self.status,
            took_us: self.took_us(),
            address: self.address,
            client: self.client,
            request_id: self.request_id,
            trace_id: self.trace.as_ref().map(TraceContext::trace_id),
            target: REQUESTS,
        };
        out.push_str(&serde_json::to_string(&line).map_err(|_| fmt::Error)?);
        out.push('\n');
        Ok(())
    }

    /// Microseconds to the head of the response.
    fn took_us(&self) -> u64 {
        u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)
    }
}

/// Writes a text in quotes, as [`fmt::Debug`] does. Nearly all texts need no escapes.
fn write_quoted(text: &str, out: &mut String) -> fmt::Result {
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        return write!(out, "{text:?}");
    }
    out.extend(["\"", text, "\""]);
    Ok(())
}

/// A line of the log in JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    timestamp: &'a str,
    level: &'static str,
    message: &'a str,
    method: &'a str,
    path: &'a str,
    status: u16,
    took_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    target: &'static str,
}

impl RequestLog {
    /// A log in which the requests that take this long or longer are warnings; zero for none.
    pub fn new(slow: Duration) -> Self {
        Self { networks: MinuteCounts::new(MAX_NETWORKS), others: AtomicU64::new(0), slow }
    }

    /// Logs a request, unless it is one of many without valid credentials.
    pub fn log(&self, line: &RequestLine<'_>, is_authenticated: bool, now: Timestamp) {
        let level = self.level(line);
        let is_enabled = match level {
            Level::WARN => tracing::enabled!(target: REQUESTS, Level::WARN),
            Level::INFO => tracing::enabled!(target: REQUESTS, Level::INFO),
            _ => tracing::enabled!(target: REQUESTS, Level::DEBUG),
        };
        if !is_enabled || !(is_authenticated || self.has_line(line.address, now)) {
            return;
        }
        let message = if level == Level::WARN { "slow request" } else { "request" };
        server_log::add_line(level, |format, head, out| line.write(format, head, message, out));
    }

    /// Returns the level of a line. A slow request is a warning, and one for the health of the server, which
    /// a load balancer asks for all the time, a detail.
    fn level(&self, line: &RequestLine<'_>) -> Level {
        if !self.slow.is_zero() && line.took >= self.slow {
            Level::WARN
        } else if line.path.starts_with("/health/") {
            Level::DEBUG
        } else {
            Level::INFO
        }
    }

    /// Returns whether a request without valid credentials has a line, and counts it otherwise.
    fn has_line(&self, address: Option<IpAddr>, now: Timestamp) -> bool {
        match self.networks.count(&address.map(source_network), LINES, now) {
            Counted::Written => true,
            Counted::Further => false,
            Counted::TooMany => {
                self.others.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Logs the counts of the minutes that have ended. Call it a few times a minute.
    pub fn write_counts(&self, now: Timestamp) {
        for minute_count in self.networks.take_ended(LINES, now) {
            let network = minute_count.key.map(|network| network.to_string()).unwrap_or_default();
            let minute = fhir::instant::format(minute_count.minute);
            tracing::info!(
                network,
                minute,
                count = minute_count.further,
                "further requests without credentials"
            );
        }
        let others = self.others.swap(0, Ordering::Relaxed);
        if others > 0 {
            tracing::info!(count = others, "requests without credentials from many other networks");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use http::{HeaderMap, HeaderName, HeaderValue};
    use proptest::prelude::*;
    use tracing_subscriber::fmt::format::Writer;
    use tracing_subscriber::fmt::time::FormatTime;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::records::traces::{TRACEPARENT, Traces};

    #[test]
    fn one_network_has_a_number_of_lines() {
        let log = RequestLog::new(Duration::ZERO);
        let now = Timestamp::UNIX_EPOCH;
        let address = |text: &str| Some(text.parse().unwrap());
        let lines = (0..1_000).filter(|_| log.has_line(address("2001:db8::1"), now)).count();
        assert_eq!(lines as u64, LINES);
        assert!(!log.has_line(address("2001:db8::ffff:0:0:2"), now), "the network is the same");
        assert!(log.has_line(address("2001:db8:0:1::1"), now));
        assert!(log.has_line(address("192.0.2.1"), now));
    }

    /// The line as the formatters of the log write it.
    fn formatted(line: &RequestLine<'_>, format: LogFormat) -> String {
        let (written, lines) = (Arc::new(Mutex::new(Vec::new())), tracing_subscriber::fmt::layer());
        let out = Arc::clone(&written);
        let lines = lines.with_timer(FixedTime).with_ansi(false).with_writer(move || Shared(out.clone()));
        let log = tracing_subscriber::registry();
        let log_it = || {
            let RequestLine { method, path, status, took, request_id, address, client, trace } = line;
            let (took_us, address) = (took.as_micros() as u64, address.as_ref().map(tracing::field::display));
            let trace_id = trace.as_ref().map(TraceContext::trace_id);
            tracing::info!(
                target: REQUESTS, %method, path, status, took_us, address, client, %request_id, trace_id, "request"
            );
        };
        match format {
            LogFormat::Text => tracing::subscriber::with_default(log.with(lines), log_it),
            LogFormat::Json => {
                tracing::subscriber::with_default(log.with(lines.json().flatten_event(true)), log_it);
            }
        }
        let text = written.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const TIME: &str = "2026-11-29T08:00:00.000001Z";

    struct FixedTime;

    impl FormatTime for FixedTime {
        fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
            out.write_str(TIME)
        }
    }

    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_line_is_what_the_formatters_of_the_log_write(
            path in "\\PC{0,20}|[ -~\n\u{7f}é]{0,20}",
            status in 100..600_u16,
            took in any::<u32>(),
            address in prop::option::of(any::<IpAddr>()),
            client in prop::option::of("[ -~\n\u{7f}é]{0,10}"),
            has_trace in any::<bool>(),
        ) {
            let parent = HeaderMap::from_iter([(
                HeaderName::from_static(TRACEPARENT),
                HeaderValue::from_static(PARENT),
            )]);
            let trace = Traces::new(None, 100, String::new()).begin(&parent, &*Clock::system().random);
            let line = RequestLine {
                method: &Method::POST,
                path: &path,
                status,
                took: Duration::from_micros(took.into()),
                request_id: "r-1",
                address,
                client: client.as_deref(),
                trace: trace.filter(|_| has_trace),
            };
            let head = LineHead { time: TIME, level: Level::INFO };
            for format in [LogFormat::Text, LogFormat::Json] {
                let mut own = String::new();
                line.write(format, &head, "request", &mut own).unwrap();
                prop_assert_eq!(own, formatted(&line, format));
            }
        }
    }

    #[test]
    fn slow_requests_are_warnings_and_health_checks_are_details() {
        let level = |slow, path, took| {
            let took = Duration::from_millis(took);
            let (method, request_id) = (&Method::GET, "");
            let line = RequestLine {
                method,
                path,
                status: 200,
                took,
                request_id,
                address: None,
                client: None,
                trace: None,
            };
            RequestLog::new(Duration::from_millis(slow)).level(&line)
        };
        assert_eq!(level(10, "/health/ready", 9), Level::DEBUG);
        assert_eq!(level(10, "/health/ready", 10), Level::WARN);
        assert_eq!(level(10, "/fhir/R4/Patient", 9), Level::INFO);
        assert_eq!(level(10, "/fhir/R4/Patient", 10), Level::WARN);
        assert_eq!(level(0, "/fhir/R4/Patient", 10), Level::INFO);
    }
}
