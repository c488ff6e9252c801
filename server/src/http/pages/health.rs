//! GET {base}/health/live and /health/ready.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use store::{Ledger as _, Store, StoreError};

use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

const TEXT: &str = "text/plain;charset=utf-8";

/// Maximum wait for the store. Earlier writes may take some time on a slow disk.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Responds as long as the process runs.
pub async fn is_live(_: &RequestContext) -> Result<Response, Problem> {
    Ok(reply::no_store(reply::body(StatusCode::OK, TEXT, "live\n")))
}

/// Checks that the server can read and write the store and the audit log, without writing anything. The
/// response names the part that fails; the log has the details.
pub async fn is_ready(context: &RequestContext) -> Result<Response, Problem> {
    if context.app.is_stopping.load(Ordering::Acquire) {
        let text = "the server is stopping\n";
        return Ok(reply::no_store(reply::body(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)));
    }
    let trouble = find_trouble(context).await;
    let (status, text) = match trouble {
        None => {
            let certificate = context.app.certificate.get();
            let certificate = certificate.map(|certificate| {
                format!("\ncertificate valid until {}", fhir::instant::format(certificate.valid_until()))
            });
            (StatusCode::OK, format!("ready{}", certificate.unwrap_or_default()))
        }
        Some(trouble) => (StatusCode::SERVICE_UNAVAILABLE, trouble),
    };
    Ok(reply::no_store(reply::body(status, TEXT, format!("{text}\n"))))
}

/// The part of the server that fails, without writing anything.
pub(super) async fn find_trouble(context: &RequestContext) -> Option<String> {
    match context.app.store.get("health", context.now).await {
        Err(error) => Some(describe_fault(&context.app.store, &error)),
        Ok(_) => match tokio::time::timeout(STORE_TIMEOUT, context.app.store.check_writable()).await {
            Err(_) => Some("the store has not answered for 5 seconds".to_owned()),
            Ok(Err(error)) => Some(describe_fault(&context.app.store, &error)),
            Ok(Ok(())) => context.app.logs.audit.fault().map(str::to_owned),
        },
    }
}

fn describe_fault(store: &Store, error: &StoreError) -> String {
    tracing::warn!(%error, "not ready");
    match error {
        StoreError::ReadOnly { part, .. } => format!("the store cannot be written: {part}"),
        StoreError::Unavailable { .. } => match store.refusal() {
            Some(reason) => format!("the database is not used: {reason}"),
            None => "the database is unavailable".to_owned(),
        },
        StoreError::Clock { ahead_s } => format!(
            "the store cannot be written: clock ({ahead_s} s ahead; correct it, run `trefoil clock accept`, or set [server] \
             clock_jump = \"accept\")"
        ),
        _ => "the store cannot be read".to_owned(),
    }
}
