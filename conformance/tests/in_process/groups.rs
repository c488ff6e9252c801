//! Selection of the rows that run in process, and the reasons why other rows run only over HTTP.

use http::StatusCode;
use trefoil_conformance::spec::case::Case;
use trefoil_conformance::spec::request::OPERATIONS;

/// Preconditions that do not affect the terminology crate: the demo project, and tokens of callers who may
/// call all operations.
const DEMO: [&str; 4] = ["demo-data", "demo-terminology", "system-token", "token"];
/// Precondition that adds the imported releases to the demo project.
const RELEASES: &str = "releases";
/// Operations that the server answers from its own state, not with the terminology crate alone.
const SERVED: [&str; 2] = ["closure", "export"];
/// Statuses with which the HTTP layer responds without calling the terminology crate.
const HTTP_STATUSES: [StatusCode; 7] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::NOT_ACCEPTABLE,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::URI_TOO_LONG,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
];

/// Group of a row, which determines where the row runs.
#[derive(Debug, PartialEq, Eq)]
pub enum RowGroup {
    /// The row runs in process, on the demo project.
    Demo,
    /// The row runs in process, on the demo project and the releases of `fixtures/releases`.
    Releases,
    /// The row runs only over HTTP. The value is the reason.
    WireOnly(&'static str),
}

/// Returns the group of a case.
///
/// # Errors
/// A message if the case has a precondition that no group has.
pub fn group_of(case: &Case) -> Result<RowGroup, String> {
    let mut operations = case.steps.iter().map(|step| is_terminology(&step.request.to));
    if !operations.clone().any(|is_operation| is_operation) {
        return Ok(RowGroup::WireOnly("no request to a terminology operation"));
    }
    if !operations.all(|is_operation| is_operation) {
        return Ok(RowGroup::WireOnly("requests to other endpoints, too"));
    }
    if case.steps.iter().any(|step| {
        let house = step.house.as_ref().and_then(|house| house.status.as_ref());
        let expected = house.or(step.expect.status.as_ref());
        HTTP_STATUSES.iter().any(|status| expected.is_some_and(|expected| expected.matches(status.as_u16())))
    }) {
        return Ok(RowGroup::WireOnly("status of the HTTP layer: token, method, media type or size"));
    }
    match case.given.as_slice() {
        [only] if only == RELEASES => Ok(RowGroup::Releases),
        given if given.iter().all(|name| DEMO.contains(&name.as_str())) => Ok(RowGroup::Demo),
        given => Err(format!("no group of tests/in_process/groups.rs has the preconditions {given:?}")),
    }
}

/// Returns whether a destination ends with an operation of the terminology crate.
fn is_terminology(to: &str) -> bool {
    let path = to.split('?').next().unwrap_or_default();
    let operation = path.rsplit('/').next().and_then(|last| last.strip_prefix('$'));
    operation.is_some_and(|name| !SERVED.contains(&name) && OPERATIONS.contains(&name))
}
