//! Errors of the FHIR endpoints as responses: resources, terminology, exports.

use bulk::{FileError, GroupError, JobRequestError, KickOffError};
use fhir::validation::ElementDefects;
use fhir::{Issue, IssueCode, OperationOutcome, Severity};
use http::{StatusCode, header};
use resources::{ResourceBodyError, ResourceError};
use terminology::{ExhaustionCause, TxError};

use super::dialect::{Dialect, fhir_error, insufficient_scope, outcome_response};
use super::store_errors::{log_store_error, store_error, store_status};
use crate::http::reply::{self, Response};
use crate::node::question_pool::QuestionRejected;

/// The response for a client with a Group whose members cannot be read.
pub(super) fn group_error(error: &GroupError) -> Response {
    match error {
        GroupError::Store(error) => store_error(Dialect::Fhir, error),
        GroupError::NoGroup(_) | GroupError::Bad(_) => {
            tracing::error!(%error, "a Group that limits a client cannot be read");
            let text = "the Groups of this client cannot be read; the server's log has the details";
            fhir_error(StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception, text)
        }
    }
}

/// The response to a failed terminology operation.
pub(super) fn terminology_error(error: &TxError) -> Response {
    match terminology_status(error) {
        StatusCode::SERVICE_UNAVAILABLE => retry_later(&error.to_string()),
        status => outcome_response(status, &error.outcome()),
    }
}

/// The status of a failed terminology operation.
pub fn terminology_status(error: &TxError) -> StatusCode {
    match error {
        TxError::Missing { .. }
        | TxError::NothingToValidate { .. }
        | TxError::Malformed { .. }
        | TxError::DisplayLanguage(_)
        | TxError::UnknownValueSet { .. } => StatusCode::BAD_REQUEST,
        TxError::UnknownInstance { .. }
        | TxError::UnknownCodeSystem { .. }
        | TxError::UnknownConceptMap(_)
        | TxError::NotOnDay { .. }
        | TxError::UnknownCode { .. }
        | TxError::UnknownConcept { .. } => StatusCode::NOT_FOUND,
        TxError::Unprocessable(_) if error.exhausted() == Some(ExhaustionCause::Cancelled) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        TxError::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// The response to a terminology question that was not run.
pub(super) fn question_rejected(reason: QuestionRejected) -> Response {
    retry_later(match reason {
        QuestionRejected::Full => "too many long terminology requests are waiting; try again later",
        QuestionRejected::Stopping => "the server is stopping; try again later",
    })
}

fn retry_later(text: &str) -> Response {
    let response = fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
    reply::with_static(response, header::RETRY_AFTER, "2")
}

/// The response to a resource that could not be read or written.
pub(super) fn resource_error(error: &ResourceError) -> Response {
    if let ResourceError::Store(error) = error {
        return store_error(Dialect::Fhir, error);
    }
    let (status, outcome) = resource_outcome(error);
    outcome_response(status, &outcome)
}

/// The status and the outcome of a resource that could not be read or written.
pub fn resource_outcome(error: &ResourceError) -> (StatusCode, OperationOutcome) {
    let (status, code) = resource_status(error);
    let outcome = match error {
        ResourceError::Body(ResourceBodyError::Defects(defects)) => {
            // Each of them is a reason for the refusal, also those that `validation = "warn"` accepts.
            let mut issues = resource_issues(defects);
            for issue in &mut issues {
                if issue.severity == Severity::Warning {
                    issue.severity = Severity::Error;
                }
            }
            OperationOutcome::new(issues)
        }
        _ => OperationOutcome::error(code, error.to_string()),
    };
    (status, outcome)
}

/// The issues of a resource: its described defects, and the number of those that are not described.
pub fn resource_issues(defects: &ElementDefects) -> Vec<Issue> {
    let left_out = defects.total() - defects.described.len();
    let more = (left_out > 0).then(|| {
        let text = format!("{left_out} more defects are not listed");
        Issue::new(Severity::Information, IssueCode::Informational, text)
    });
    defects.described.iter().map(Issue::from).chain(more).collect()
}

/// The status and the issue code of a resource that could not be read or written.
fn resource_status(error: &ResourceError) -> (StatusCode, IssueCode) {
    match error {
        ResourceError::Store(error) => {
            let (status, code, _) = store_status(error);
            (status, code)
        }
        ResourceError::NotFound { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        ResourceError::Gone { .. } => (StatusCode::GONE, IssueCode::Deleted),
        ResourceError::Outside { .. }
        | ResourceError::HiddenTarget { .. }
        | ResourceError::Relation { .. } => (StatusCode::FORBIDDEN, IssueCode::Forbidden),
        ResourceError::TooManyMatches { .. }
        | ResourceError::PageTooDeep { .. }
        | ResourceError::TooCostly(_) => (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::TooCostly),
        ResourceError::NoMatch { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::NotFound),
        ResourceError::Several { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::MultipleMatches),
        ResourceError::Page => (StatusCode::BAD_REQUEST, IssueCode::Value),
        ResourceError::VersionConflict { .. }
        | ResourceError::PreconditionFailed { .. }
        | ResourceError::SearchChanged { .. } => (StatusCode::PRECONDITION_FAILED, IssueCode::Conflict),
        ResourceError::Body(error) => match error {
            ResourceBodyError::TooBig { .. } => (StatusCode::PAYLOAD_TOO_LARGE, IssueCode::TooLong),
            ResourceBodyError::Json { .. }
            | ResourceBodyError::NotObject { .. }
            | ResourceBodyError::TooDeep { .. } => (StatusCode::BAD_REQUEST, IssueCode::Structure),
            ResourceBodyError::Defects(defects) => {
                let code = defects.first().map_or(IssueCode::Invalid, |first| first.code);
                (StatusCode::BAD_REQUEST, code)
            }
            ResourceBodyError::NoType | ResourceBodyError::NoId => {
                (StatusCode::BAD_REQUEST, IssueCode::Required)
            }
            ResourceBodyError::Subscription => (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::NotSupported),
            ResourceBodyError::UnknownType(_)
            | ResourceBodyError::Parameters
            | ResourceBodyError::BundleType(_) => (StatusCode::BAD_REQUEST, IssueCode::NotSupported),
            ResourceBodyError::DuplicateMember { .. }
            | ResourceBodyError::WrongType { .. }
            | ResourceBodyError::BadId(_)
            | ResourceBodyError::LongId(_)
            | ResourceBodyError::WrongId { .. }
            | ResourceBodyError::BadMeta
            | ResourceBodyError::BadBundle(_)
            | ResourceBodyError::Entry(_)
            | ResourceBodyError::Search(_)
            | ResourceBodyError::BadEntry { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        },
    }
}

/// The response to an export that was not started.
pub(super) fn kick_off_error(error: &KickOffError) -> Response {
    let (status, code) = match error {
        KickOffError::Parameter { .. } => (StatusCode::BAD_REQUEST, IssueCode::Invalid),
        KickOffError::Unsupported { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotSupported),
        KickOffError::UnknownPatients { .. } => (StatusCode::BAD_REQUEST, IssueCode::NotFound),
        KickOffError::BadGroup(_) => (StatusCode::UNPROCESSABLE_ENTITY, IssueCode::Processing),
        KickOffError::UnknownGroup { .. } => (StatusCode::NOT_FOUND, IssueCode::NotFound),
        KickOffError::Forbidden { .. } => return insufficient_scope(&error.to_string(), None),
        KickOffError::TooManyExports { retry_after_s, .. } => {
            let response = fhir_error(StatusCode::TOO_MANY_REQUESTS, IssueCode::Throttled, error.to_string());
            return reply::with(response, header::RETRY_AFTER, &retry_after_s.to_string());
        }
        KickOffError::Store(error) => return store_error(Dialect::Fhir, error),
    };
    fhir_error(status, code, error.to_string())
}

/// The response to a failed request on an export job.
pub(super) fn job_request_error(error: &JobRequestError) -> Response {
    match error {
        JobRequestError::NotFound { .. } => {
            fhir_error(StatusCode::NOT_FOUND, IssueCode::NotFound, error.to_string())
        }
        JobRequestError::Store(error) => {
            // The job did not fail, only this status request: so the issue code is a transient one.
            log_store_error(error, "status of an export");
            let text = "the status cannot be read at the moment; try again";
            let response = fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
            reply::with_static(response, header::RETRY_AFTER, "5")
        }
    }
}

/// The response to a file of an export that cannot be sent.
pub(super) fn file_error(error: &FileError) -> Response {
    let text = match error {
        FileError::NotFound { .. } => {
            let text = "the file does not exist, or its export was deleted or has expired";
            return fhir_error(StatusCode::NOT_FOUND, IssueCode::NotFound, text);
        }
        FileError::Busy => {
            let response =
                fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Throttled, error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
        FileError::Unavailable(error) => {
            tracing::error!(%error, "file of an export");
            let text = "the storage of the files is unavailable at the moment; try again";
            let response = fhir_error(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Transient, text);
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
        FileError::BadAddress { reason } => {
            let text = format!("the URL is not valid: {reason}; read the manifest again for a new one");
            return fhir_error(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
        }
        FileError::Store(error) => return store_error(Dialect::Fhir, error),
        FileError::Damaged { .. } => "the file is corrupt; delete this export and start a new one",
        FileError::Files(_) | FileError::Read(_) | FileError::NoSpace(_) => {
            "the file cannot be read; the server's log has the details"
        }
    };
    tracing::error!(%error, "file of an export");
    fhir_error(StatusCode::INTERNAL_SERVER_ERROR, IssueCode::Exception, text)
}

#[cfg(test)]
mod tests {
    use fhir::IdLength;
    use fhir::validation::validate;

    use super::*;

    /// A refusal has at least one error, also if its only defect is one that other settings accept.
    #[test]
    fn defects_that_refuse_a_resource_are_errors() {
        for body in [r#"{"resourceType":"Patient","name":[]}"#, r#"{"resourceType":"Patient","nick":1}"#] {
            let defects = validate("Patient", body.as_bytes(), IdLength::R4);
            assert_eq!((defects.unreadable, defects.irregular), (0, 1), "{body}");
            assert!(resource_issues(&defects).iter().all(|issue| issue.severity == Severity::Warning));
            let error = ResourceError::Body(ResourceBodyError::Defects(defects));
            let (status, outcome) = resource_outcome(&error);
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(outcome.issue.iter().all(|issue| issue.severity == Severity::Error), "{body}");
        }
    }
}
