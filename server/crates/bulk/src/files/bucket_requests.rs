//! Counts of the requests to an object store, each repetition included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

/// Methods of requests to an object store, in the order of the counts. Others are counted as the last one.
const METHODS: [&str; 5] = ["GET", "HEAD", "PUT", "POST", "DELETE"];

/// Results of a request: the class of its status, or that there was no response.
const RESULTS: [&str; 5] = ["2xx", "3xx", "4xx", "5xx", "none"];

/// The requests of this process to object stores.
#[derive(Debug, Default)]
pub struct BucketRequests {
    counts: [[AtomicU64; RESULTS.len()]; METHODS.len()],
    /// Sum of the times to the heads of the responses, in microseconds.
    total_us: AtomicU64,
}

impl BucketRequests {
    /// The combinations of method and result that occurred, with the number of requests.
    pub fn counts(&self) -> Vec<(&'static str, &'static str, u64)> {
        let methods = METHODS.into_iter().zip(&self.counts);
        let counts = methods.flat_map(|(method, results)| {
            RESULTS.into_iter().zip(results).map(move |(result, count)| (method, result, count))
        });
        counts
            .map(|(method, result, count)| (method, result, count.load(Ordering::Relaxed)))
            .filter(|(_, _, count)| *count > 0)
            .collect()
    }

    /// The sum of the times to the heads of the responses, in seconds.
    pub fn total_s(&self) -> f64 {
        self.total_us.load(Ordering::Relaxed) as f64 / 1e6
    }

    fn count(&self, method: &str, status: Option<u16>, started: Instant) {
        let method = METHODS.iter().position(|name| *name == method).unwrap_or(METHODS.len() - 1);
        let result = status.map_or(RESULTS.len() - 1, |status| usize::from(status / 100).clamp(2, 5) - 2);
        self.counts[method][result].fetch_add(1, Ordering::Relaxed);
        let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.total_us.fetch_add(took_us, Ordering::Relaxed);
    }
}

/// Makes clients that count their requests.
#[derive(Debug)]
pub(super) struct CountingConnector(pub Arc<BucketRequests>);

impl HttpConnector for CountingConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(CountingClient { client, requests: Arc::clone(&self.0) }))
    }
}

#[derive(Debug)]
struct CountingClient {
    client: HttpClient,
    requests: Arc<BucketRequests>,
}

#[async_trait]
impl HttpService for CountingClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, started) = (request.method().clone(), Instant::now());
        let result = self.client.execute(request).await;
        let status = result.as_ref().ok().map(|response| response.status().as_u16());
        self.requests.count(method.as_str(), status, started);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_by_method_and_result() {
        let requests = BucketRequests::default();
        for (method, status) in [("PUT", Some(200)), ("PUT", Some(503)), ("GET", None), ("PUT", Some(201))] {
            requests.count(method, status, Instant::now());
        }
        assert_eq!(requests.counts(), [("GET", "none", 1), ("PUT", "2xx", 2), ("PUT", "5xx", 1)]);
    }
}
