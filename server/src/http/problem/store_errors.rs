//! Errors of the store, in every dialect.

use fhir::IssueCode;
use http::{StatusCode, header};
use store::StoreError;

use super::dialect::{Dialect, fhir_error};
use crate::http::reply::{self, Response};

pub(super) fn store_status(error: &StoreError) -> (StatusCode, IssueCode, &'static str) {
    match error {
        StoreError::Conflict { .. } | StoreError::IndexChanged { .. } => (
            StatusCode::CONFLICT,
            IssueCode::Conflict,
            "the record was changed by another request at the same time; try again",
        ),
        StoreError::ReadOnly { .. } => (
            StatusCode::INSUFFICIENT_STORAGE,
            IssueCode::NoStore,
            "the server cannot store data at the moment; try again later",
        ),
        StoreError::Unavailable { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            IssueCode::Transient,
            "the database of the server is unavailable at the moment; try again later",
        ),
        StoreError::Clock { .. } => (
            StatusCode::SERVICE_UNAVAILABLE,
            IssueCode::Transient,
            "the clock of the server has jumped; it stores nothing until an operator corrects or accepts the clock",
        ),
        StoreError::Key { .. } => {
            (StatusCode::BAD_REQUEST, IssueCode::Value, "the request contains an id that cannot be stored")
        }
        StoreError::Corrupt { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            IssueCode::Exception,
            "the stored data is corrupt; the server's log has the details",
        ),
        StoreError::Locked { .. } | StoreError::Draft { .. } | StoreError::Engine { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            IssueCode::Exception,
            "internal error; the server's log has the details",
        ),
    }
}

/// Logs an error of the store, and returns the response to it.
pub(super) fn store_error(dialect: Dialect, error: &StoreError) -> Response {
    let (status, code, text) = store_status(error);
    log_store_error(error, "store");
    let response = match dialect {
        Dialect::Fhir => fhir_error(status, code, text),
        _ => dialect.plain_error(status, text),
    };
    match error {
        StoreError::Unavailable { .. } => reply::with_static(response, header::RETRY_AFTER, "5"),
        _ => response,
    }
}

/// Logs a store error of a request; `at` names its step. The start of an outage is logged once as an error
/// elsewhere, so the requests that fail during it are warnings.
pub(crate) fn log_store_error(error: &StoreError, step: &str) {
    match error {
        StoreError::Unavailable { .. } => tracing::warn!(%error, "{step}"),
        _ => tracing::error!(%error, "{step}"),
    }
}
