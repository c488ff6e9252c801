//! GET {base}/health/live and /health/ready.

use http::StatusCode;

use crate::http::extract::Call;
use crate::http::reply::{self, Response};

/// The process runs.
pub async fn live(_: Call) -> Response {
    reply::no_store(reply::body(StatusCode::OK, "text/plain;charset=utf-8", "live\n"))
}

/// The store answers and the audit log can be written.
pub async fn ready(call: Call) -> Response {
    let store = call.app.identity.client("-", call.now).await;
    let (status, text) = match (store, call.app.audit.trouble()) {
        (Ok(_), None) => (StatusCode::OK, "ready"),
        (Err(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer"),
        (Ok(_), Some(trouble)) => (StatusCode::SERVICE_UNAVAILABLE, trouble),
    };
    reply::no_store(reply::body(status, "text/plain;charset=utf-8", format!("{text}\n")))
}
