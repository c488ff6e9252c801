//! GET {base}/health/live and /health/ready.

use std::sync::atomic::Ordering;

use http::StatusCode;

use crate::http::extract::Call;
use crate::http::reply::{self, Response};

const TEXT: &str = "text/plain;charset=utf-8";

/// The process runs.
pub async fn live(_: Call) -> Response {
    reply::no_store(reply::body(StatusCode::OK, TEXT, "live\n"))
}

/// The store answers and the audit log can be written.
pub async fn ready(call: Call) -> Response {
    if call.app.is_stopping.load(Ordering::Acquire) {
        let text = "the server is stopping\n";
        return reply::no_store(reply::body(StatusCode::SERVICE_UNAVAILABLE, TEXT, text));
    }
    let store = call.app.identity.client("-", call.now).await;
    let (status, text) = match (store, call.app.audit.trouble()) {
        (Ok(_), None) => (StatusCode::OK, "ready"),
        (Err(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer"),
        (Ok(_), Some(trouble)) => (StatusCode::SERVICE_UNAVAILABLE, trouble),
    };
    reply::no_store(reply::body(status, TEXT, format!("{text}\n")))
}
