//! The lines about requests in the log of the server. Requests with valid credentials have a line each. Of
//! those without, the first of each network and minute have one, and the others are counted: a stranger
//! cannot fill the disk.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

use super::audit::source_network;
use super::minute_counts::{Counted, MinuteCounts};

/// Number of lines of one network in a minute, for requests without credentials.
const LINES: u64 = 60;
/// Maximum number of networks that are counted in a minute.
const MAX_NETWORKS: usize = 200;

/// Decides which requests have a line of their own.
pub struct RequestLog {
    networks: MinuteCounts<Option<IpAddr>>,
    /// Number of requests of networks that are not counted separately.
    others: AtomicU64,
}

impl Default for RequestLog {
    fn default() -> Self {
        Self { networks: MinuteCounts::new(MAX_NETWORKS), others: AtomicU64::new(0) }
    }
}

impl RequestLog {
    /// Returns whether a request without valid credentials has a line, and counts it otherwise.
    pub fn has_line(&self, address: Option<IpAddr>, now: Timestamp) -> bool {
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
        let log = RequestLog::default();
        let now = Timestamp::UNIX_EPOCH;
        let address = |text: &str| Some(text.parse().unwrap());
        let lines = (0..1_000).filter(|_| log.has_line(address("2001:db8::1"), now)).count();
        assert_eq!(lines as u64, LINES);
        assert!(!log.has_line(address("2001:db8::ffff:0:0:2"), now), "the network is the same");
        assert!(log.has_line(address("2001:db8:0:1::1"), now));
        assert!(log.has_line(address("192.0.2.1"), now));
    }
}
