//! The lines about requests in the log of the server. Requests with valid credentials have a line each. Of
//! those without, the first of each network and minute have one, and the others are counted: a stranger
//! cannot fill the disk.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use tracing::Level;

use super::audit::source_network;
use super::minute_counts::{Counted, MinuteCounts};
use super::server_log::REQUESTS;
use super::traces::TraceContext;

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

/// Logs a line with a level.
macro_rules! log_line {
    ($line:expr, $level:ident, $text:literal) => {{
        let RequestLine { method, path, status, took, request_id, address, client, trace } = $line;
        let (took_us, address) = (took.as_micros(), address.as_ref().map(tracing::field::display));
        let trace_id = trace.as_ref().map(TraceContext::trace_id);
        tracing::$level!(
            target: REQUESTS, %method, path, status, took_us, address, client, %request_id, trace_id, $text
        );
    }};
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
        match level {
            Level::WARN => log_line!(line, warn, "slow request"),
            Level::INFO => log_line!(line, info, "request"),
            _ => log_line!(line, debug, "request"),
        }
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
        for ended in self.networks.take_ended(LINES, now) {
            let network = ended.key.map(|network| network.to_string()).unwrap_or_default();
            let minute = fhir::instant::format(ended.minute);
            tracing::info!(network, minute, count = ended.further, "further requests without credentials");
        }
        let others = self.others.swap(0, Ordering::Relaxed);
        if others > 0 {
            tracing::info!(count = others, "requests without credentials from many other networks");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
