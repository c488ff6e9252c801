//! GET {base}/health/live and /health/ready.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use store::{Ledger as _, StoreError};

use crate::http::extract::Call;
use crate::http::reply::{self, Response};

const TEXT: &str = "text/plain;charset=utf-8";

/// Longest wait for the store. Writes before the check may take a while on a slow disk.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process runs.
pub async fn live(_: Call) -> Response {
    reply::no_store(reply::body(StatusCode::OK, TEXT, "live\n"))
}

/// What a write needs is there: the store can be read and written, and the audit log. Nothing is written for it. The
/// answer names the part that fails, and the log says why.
pub async fn ready(call: Call) -> Response {
    if call.app.is_stopping.load(Ordering::Acquire) {
        let text = "the server is stopping\n";
        return reply::no_store(reply::body(StatusCode::SERVICE_UNAVAILABLE, TEXT, text));
    }
    let trouble = match call.app.store.get("health", call.now).await {
        Err(error) => Some(unready(&error)),
        Ok(_) => match tokio::time::timeout(PATIENCE, call.app.store.check_writable()).await {
            Err(_) => Some("the store has not answered for 5 seconds".to_owned()),
            Ok(Err(error)) => Some(unready(&error)),
            Ok(Ok(())) => call.app.audit.trouble().map(str::to_owned),
        },
    };
    let (status, text) = match trouble {
        None => (StatusCode::OK, "ready".to_owned()),
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, trouble),
    };
    reply::no_store(reply::body(status, TEXT, format!("{text}\n")))
}

fn unready(error: &StoreError) -> String {
    tracing::warn!(%error, "not ready");
    match error {
        StoreError::ReadOnly { part, .. } => format!("the store cannot be written: {part}"),
        StoreError::Clock { .. } => "the store cannot be written: clock".to_owned(),
        _ => "the store cannot be read".to_owned(),
    }
}
