//! `[audit]`: which requests are recorded, how durably, and where the events are sent.

use std::fmt::{self, Debug, Display, Formatter};
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;
use url::Url;

use super::documented::{implicit, settings_table};
use super::{ConfigError, ConfigSource};

/// Smallest size of the queue: some events must have room.
const MIN_QUEUE_BYTES: u64 = 64 << 10;
/// Default ports of syslog over TCP and TLS (RFC 6587 has none for TCP, so that of RFC 3195; RFC 5425).
const SYSLOG_PORT: u16 = 601;
const SYSLOG_TLS_PORT: u16 = 6514;

settings_table! {
    /// The audit log.
    pub struct AuditSection {
        /// State of the audit lines of a request when its response is sent: in memory, passed to the
        /// operating system, or on the disk.
        durability: Durability = Durability::default(),
        /// Requests for FHIR resources that are recorded. `off`: none. `changes`: creates, updates and
        /// deletes. `all`: also reads, histories, searches and downloads of exports.
        resources: RecordedRequests = RecordedRequests::default(),
        /// Number of days for which audit files are kept; 0 for all.
        keep_days: u32 ["days"] = 0,
        /// Maximum size of all audit files; 0 for none. Above it, and before the reserve of the disk is used,
        /// the oldest files are removed and the server's log says so; with `durability = "synced"` never.
        max_bytes: u64 ["bytes"] = 8 << 30,
        /// Where events are sent as well: `https://HOST:4318` for a collector of OpenTelemetry (OTLP over
        /// HTTP), `syslog+tls://HOST:6514` or `syslog+tcp://HOST:601`, or `stdout`.
        send_to: Option<Spanned<String>> = None,
        /// File with the value of the header `Authorization` for the collector.
        send_authorization_file: Option<Spanned<PathBuf>> = None,
        /// Maximum size of the events that were not sent yet, at least 65536. Above it, `synced` refuses
        /// requests; otherwise the oldest of them are not sent, and counted.
        send_queue_bytes: Spanned<u64> ["bytes"] = implicit(1 << 30),
    }
}

/// The checked settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditConfig {
    /// State of the lines when the response is sent.
    pub durability: Durability,
    /// The requests that are recorded.
    pub resources: RecordedRequests,
    /// Number of days for which files are kept; 0 for all.
    pub keep_days: u32,
    /// Maximum size of all files in bytes; 0 for none.
    pub max_bytes: u64,
    /// Destination of events; `None` if they stay in the files.
    pub delivery: Option<DeliveryConfig>,
}

/// Destination of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// The destination.
    pub destination: AuditDestination,
    /// Maximum size of the events that were not sent yet, in bytes.
    pub queue_bytes: u64,
}

/// A destination of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditDestination {
    /// A collector of OpenTelemetry.
    Collector {
        /// Address for logs.
        address: String,
        /// Value of the header `Authorization`.
        authorization: Option<HiddenText>,
    },
    /// A syslog server.
    Syslog {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// Whether the connection uses TLS.
        tls: bool,
    },
    /// The standard output of the server.
    Stdout,
}

impl Display for AuditDestination {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collector { address, .. } => f.write_str(address),
            Self::Syslog { host, port, tls } => {
                write!(f, "syslog+{}://{host}:{port}", if *tls { "tls" } else { "tcp" })
            }
            Self::Stdout => f.write_str("stdout"),
        }
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct HiddenText(pub String);

impl Debug for HiddenText {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// State of the audit lines of a request when its response is sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// In the memory of the process. A crash of the server loses them.
    Queued,
    /// Passed to the operating system. They survive a crash of the server, but not always a power failure.
    #[default]
    Written,
    /// On the disk. If the lines cannot be written, the response is an error.
    Synced,
}

/// The kinds of requests for FHIR resources that are recorded.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedRequests {
    /// No requests.
    Off,
    /// Creates, updates and deletes.
    #[default]
    Changes,
    /// Also reads, histories, searches and downloads of exports.
    All,
}

impl Default for AuditConfig {
    fn default() -> Self {
        let AuditSection { durability, resources, keep_days, max_bytes, .. } = AuditSection::default();
        Self { durability, resources, keep_days, max_bytes, delivery: None }
    }
}

impl AuditSection {
    pub(super) fn check(&self, source: &ConfigSource<'_>) -> Result<AuditConfig, ConfigError> {
        let &Self { durability, resources, keep_days, max_bytes, .. } = self;
        let delivery = self.send_to.as_ref().map(|to| self.check_delivery(to, source)).transpose()?;
        Ok(AuditConfig { durability, resources, keep_days, max_bytes, delivery })
    }

    fn check_delivery(
        &self,
        to: &Spanned<String>,
        source: &ConfigSource<'_>,
    ) -> Result<DeliveryConfig, ConfigError> {
        let authorization = self.send_authorization_file.as_ref();
        let secret = source.read_secret("send_authorization_file", authorization, None)?.map(HiddenText);
        let destination = read_destination(to.as_ref(), secret);
        let destination = destination.map_err(|reason| source.value_error(to.span(), "send_to", reason))?;
        let is_collector = matches!(destination, AuditDestination::Collector { .. });
        if self.durability == Durability::Synced && !is_collector {
            let reason = format!(
                "{destination} acknowledges nothing, so that events can be lost on the way, which durability = \"synced\" \
                 excludes; send them to a collector (https://HOST:4318), or use durability = \"written\""
            );
            return Err(source.value_error(to.span(), "send_to", reason));
        }
        if let Some(file) = authorization.filter(|_| !is_collector) {
            let reason = format!("{destination} has no header `Authorization`; remove this setting");
            return Err(source.value_error(file.span(), "send_authorization_file", reason));
        }
        // The oldest files are removed above three quarters of the maximum.
        let most = if self.max_bytes == 0 { u64::MAX } else { self.max_bytes / 2 };
        let is_default = self.send_queue_bytes.span().is_empty();
        let queue_bytes = *self.send_queue_bytes.as_ref();
        let queue_bytes = if is_default { queue_bytes.min(most) } else { queue_bytes };
        if !(MIN_QUEUE_BYTES..=most).contains(&queue_bytes) {
            let reason = format!(
                "{queue_bytes} is not in {MIN_QUEUE_BYTES} to {most}: the events wait in the audit files, so that the queue has \
                 at most half of max_bytes"
            );
            return Err(source.value_error(self.send_queue_bytes.span(), "send_queue_bytes", reason));
        }
        Ok(DeliveryConfig { destination, queue_bytes })
    }
}

fn read_destination(text: &str, authorization: Option<HiddenText>) -> Result<AuditDestination, String> {
    let forms =
        "write https://HOST:4318 (a collector), syslog+tls://HOST:6514, syslog+tcp://HOST:601 or stdout";
    if text == "stdout" {
        return Ok(AuditDestination::Stdout);
    }
    let url = Url::parse(text).map_err(|error| format!("{error}; {forms}"))?;
    let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
        return Err(format!("it has no host; {forms}"));
    };
    if url.query().is_some()
        || url.fragment().is_some()
        || !url.username().is_empty()
        || url.password().is_some()
    {
        return Err(format!("it has a query, a fragment or a user; {forms}"));
    }
    let tls = match url.scheme() {
        "http" | "https" => {
            let address = format!("{}/v1/logs", text.trim_end_matches('/'));
            return Ok(AuditDestination::Collector { address, authorization });
        }
        "syslog+tcp" => false,
        "syslog+tls" => true,
        other => return Err(format!("{other} is not a known scheme; {forms}")),
    };
    if !matches!(url.path(), "" | "/") {
        return Err(format!("it has a path; {forms}"));
    }
    let host = host.trim_matches(['[', ']']).to_owned();
    let port = url.port().unwrap_or(if tls { SYSLOG_TLS_PORT } else { SYSLOG_PORT });
    Ok(AuditDestination::Syslog { host, port, tls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_destination_has_one_form() {
        let read = |text: &str| read_destination(text, None).map(|destination| destination.to_string());
        for (text, destination) in [
            ("stdout", "stdout"),
            ("http://collector:4318", "http://collector:4318/v1/logs"),
            ("https://collector/otlp/", "https://collector/otlp/v1/logs"),
            ("syslog+tcp://log.example", "syslog+tcp://log.example:601"),
            ("syslog+tls://[2001:db8::1]", "syslog+tls://2001:db8::1:6514"),
            ("syslog+tls://log.example:10514/", "syslog+tls://log.example:10514"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(destination), "{text}");
        }
        for wrong in [
            "",
            "collector:4318",
            "syslog://log.example",
            "syslog+udp://log.example",
            "syslog+tcp://log.example/path",
            "https://user@collector",
            "https://collector?key=1",
            "http://",
            "STDOUT",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
