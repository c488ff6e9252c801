//! Counts and durations of requests, by route. A request costs a few additions to atomic numbers and no
//! look-up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the durations, in seconds.
pub const BUCKETS: [f64; 13] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Classes of statuses, in the order of [`RouteSeries::statuses`].
pub const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counts of all routes.
#[derive(Debug, Default)]
pub struct RequestMetrics(OnceLock<Box<[RouteSeries]>>);

/// The counts of one route.
#[derive(Debug, Default)]
pub struct RouteSeries {
    statuses: [AtomicU64; STATUS_CLASSES.len()],
    /// Requests by duration; the last element counts those above all bounds.
    durations: [AtomicU64; BUCKETS.len() + 1],
    /// Sum of the durations, in microseconds.
    total_us: AtomicU64,
}

/// The counts of a route at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteCounts {
    /// Number of responses of each class of statuses.
    pub statuses: [u64; STATUS_CLASSES.len()],
    /// Upper bounds in seconds, each with the number of requests between the bound before it and it.
    pub durations: Vec<(f64, u64)>,
    /// Sum of the durations, in seconds.
    pub total_s: f64,
}

impl RequestMetrics {
    /// The series of this number of routes, and of requests without a route, which come last.
    pub fn series(&self, routes: usize) -> &[RouteSeries] {
        self.0.get_or_init(|| (0..=routes).map(|_| RouteSeries::default()).collect())
    }
}

impl RouteSeries {
    /// Counts a response.
    pub fn count(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(1, STATUS_CLASSES.len()) - 1;
        self.statuses[class].fetch_add(1, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.durations[bucket].fetch_add(1, Ordering::Relaxed);
        self.total_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The counts now; `None` if there was no request.
    pub fn counts(&self) -> Option<RouteCounts> {
        let statuses = self.statuses.each_ref().map(|count| count.load(Ordering::Relaxed));
        let bounds = BUCKETS.into_iter().chain([f64::MAX]);
        let durations = bounds.zip(self.durations.iter().map(|count| count.load(Ordering::Relaxed)));
        (statuses.iter().sum::<u64>() > 0).then(|| RouteCounts {
            statuses,
            durations: durations.collect(),
            total_s: self.total_us.load(Ordering::Relaxed) as f64 / 1e6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_once() {
        let metrics = RequestMetrics::default();
        let series = metrics.series(2);
        assert_eq!(series.len(), 3);
        for (status, took_us) in [(200, 900), (204, 1_000), (503, 20_000_000), (99, 1)] {
            series[1].count(status, Duration::from_micros(took_us));
        }
        let counts = series[1].counts().unwrap();
        assert_eq!(counts.statuses, [1, 2, 0, 0, 1]);
        assert_eq!(counts.durations.iter().map(|(_, count)| count).sum::<u64>(), 4);
        assert_eq!((counts.durations[0], counts.durations[BUCKETS.len()]), ((0.001, 3), (f64::MAX, 1)));
        assert!((counts.total_s - 20.001_901).abs() < 1e-9);
        assert_eq!(series[0].counts(), None);
    }
}
