//! GET {base}/health/live and /health/ready.

use http::StatusCode;

use crate::http::extract::Call;
use crate::http::reply::{self, Response};

/// The process runs.
pub async fn live(_: Call) -> Response {
    reply::no_store(reply::body(StatusCode::OK, "text/plain;charset=utf-8", "live\n"))
}

/// The store answers.
pub async fn ready(call: Call) -> Response {
    let (status, text) = match call.app.identity.client("-", call.now).await {
        Ok(_) => (StatusCode::OK, "ready\n"),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n"),
    };
    reply::no_store(reply::body(status, "text/plain;charset=utf-8", text))
}
