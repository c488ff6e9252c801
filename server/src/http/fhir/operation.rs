//! The terminology operations, by GET and POST, at type and instance level, and as entries of a Bundle (FHIR
//! R4).

use std::borrow::Cow;
use std::sync::Arc;

use ::terminology::ExhaustionCause;
use ::terminology::{
    Budget, OperationLevel, ReceivedFault, ReceivedParameters, TerminologyOperation, TxError,
};
use bytes::Bytes;
use fhir::{IssueCode, OperationOutcome};
use http::{Method, StatusCode, header};
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use percent_encoding::percent_decode_str;
use resources::BundleOperation;

use super::{access, check_accept, json_body};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};
use crate::node::byte_budget::{BudgetExhausted, UNRESERVED_BYTES};

/// Maximum size of a request that is answered on the async thread first; parsing a longer one takes too much
/// time.
const INLINE_BYTES: usize = 64 << 10;

/// Header with the number of codes above which the client wants no expansion. HL7's terminology tests send
/// it.
const EXPANSION_LIMIT: &str = "x-too-costly-threshold";

/// The parameters of a request, which by POST are in its body.
fn received<'a>(context: &'a RequestContext, body: Option<&'a Bytes>) -> ReceivedParameters<'a> {
    let query = &context.query;
    body.map_or(ReceivedParameters::Query(query), |body| ReceivedParameters::Body { body, query })
}

/// An operation that a request or an entry of its Bundle calls.
struct OperationCall<'a> {
    context: &'a RequestContext,
    /// Identity of the caller, to whom the resources under a `cache-id` belong.
    caller: &'a str,
    operation: TerminologyOperation,
    id: Option<&'a str>,
    parameters: ReceivedParameters<'a>,
}

/// An error that prevents an answer.
enum CallError {
    Received(ReceivedFault),
    Terminology(TxError),
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Terminology(error) => error.into(),
            CallError::Received(fault) => {
                Self::fhir(StatusCode::BAD_REQUEST, fault.code(), fault.text("the body"))
            }
        }
    }
}

impl CallError {
    /// Returns whether the call needs more than the budget for answers on the async thread.
    fn exceeds_inline_budget(&self) -> bool {
        matches!(self, Self::Terminology(error) if error.exhausted() == Some(ExhaustionCause::Inline))
    }
}

impl OperationCall<'_> {
    /// Parses the parameters, runs the operation and serializes the answer.
    fn execute(self, budget: &Budget<'_>) -> Result<Vec<u8>, CallError> {
        let (context, level) = (self.context, self.id.map_or(OperationLevel::Type, OperationLevel::Instance));
        let parameters = self.parameters.parse(self.operation).map_err(CallError::Received)?;
        let input = parameters
            .input()
            .accept_language(context.header(header::ACCEPT_LANGUAGE))
            .expansion_limit(expansion_limit(context))
            .caller(self.caller)
            .budget(budget);
        let answer = context.app.terminology.run(self.operation, level, input, context.now);
        answer.map(|response| response.to_json()).map_err(CallError::Terminology)
    }
}

/// The identity of the caller. Anonymous clients with different addresses share nothing.
fn caller_identity<'a>(context: &RequestContext, access: Option<&'a TokenAccess>) -> Cow<'a, str> {
    match (access, context.client_address) {
        (Some(access), _) => Cow::Borrowed(&access.token.sub),
        (None, Some(address)) => Cow::Owned(format!("anonymous {address}")),
        (None, None) => Cow::Borrowed(""),
    }
}

/// The limit that the client sets for the number of codes in an expansion. A value that is not a number is
/// ignored.
fn expansion_limit(context: &RequestContext) -> Option<usize> {
    context.header(EXPANSION_LIMIT)?.trim().parse().ok()
}

/// `{fhir_base}/TYPE[/{id}]/$OPERATION`: runs a call on the async thread if it takes few steps, and on a
/// thread of the pool otherwise.
pub async fn answer_operation(
    context: &Arc<RequestContext>,
    operation: TerminologyOperation,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let access = if context.app.settings().anonymous_terminology {
        None
    } else {
        Some(access::require_all(context, operation.row().resource_type, ScopePermissions::GET).await?)
    };
    check_accept(context, &[])?;
    let body = match context.method {
        Method::POST => Some(json_body(context, body).await?),
        _ => None,
    };
    context.app.terminology_sync.apply_changes().await?;
    let caller = caller_identity(context, access.as_deref());
    let parameters = received(context, body.as_ref());
    if parameters.length() <= INLINE_BYTES {
        let call = OperationCall { context, caller: &caller, operation, id: id.as_deref(), parameters };
        match call.execute(&Budget::inline()) {
            // So few bytes need no reservation.
            Ok(response) if response.len() <= UNRESERVED_BYTES => {
                return Ok(reply::body(StatusCode::OK, reply::FHIR_JSON, response));
            }
            Ok(response) => {
                let mut memory = AnswerMemory::new(context, access.as_deref());
                memory.hold_now(response.len())?;
                return Ok(reply::body(StatusCode::OK, reply::FHIR_JSON, memory.attach(response)));
            }
            Err(error) if !error.exceeds_inline_budget() => return Err(error.into()),
            Err(_) => {}
        }
    }
    let mut memory = AnswerMemory::new(context, access.as_deref());
    let caller = caller.into_owned();
    let pooled_context = Arc::clone(context);
    let execute = move |budget: &Budget<'_>| {
        let context = &pooled_context;
        let parameters = received(context, body.as_ref());
        let call = OperationCall { context, caller: &caller, operation, id: id.as_deref(), parameters };
        let response = call.execute(budget);
        // Still in the pool, so that few answers exist that are not counted.
        memory.hold_now(response.as_ref().map_or(0, Vec::len))?;
        Ok::<_, BudgetExhausted>((response, memory))
    };
    // Boxed, because few requests need the memory of this future.
    let (answer, memory) = Box::pin(context.app.capacity.questions.run(execute)).await??;
    Ok(reply::body(StatusCode::OK, reply::FHIR_JSON, memory.attach(answer?)))
}

/// The answer to an operation in a Bundle: the resource as JSON, or the status and the outcome of an error.
pub type BundledAnswer = Result<Vec<u8>, (StatusCode, OperationOutcome)>;

/// Approximate memory of an outcome, in bytes.
const OUTCOME_BYTES: usize = 1 << 10;

/// Answers the operations of a Bundle on a thread of the pool. They share the budget of one request, so that
/// a Bundle does not cost more than any other request.
///
/// # Errors
/// [`Problem`] if the pool rejects the request, there is no memory for the answers, or the stored changes
/// cannot be read.
pub async fn answer_bundle(
    context: &Arc<RequestContext>,
    access: Option<&TokenAccess>,
    operations: Vec<BundleOperation>,
    mut memory: AnswerMemory,
) -> Result<(Vec<BundledAnswer>, AnswerMemory), Problem> {
    context.app.terminology_sync.apply_changes().await?;
    let caller = caller_identity(context, access).into_owned();
    let pooled_context = Arc::clone(context);
    let execute = move |budget: &Budget<'_>| {
        let mut answers = Vec::with_capacity(operations.len());
        for entry in &operations {
            let response = execute_entry(&pooled_context, &caller, entry, budget);
            // An answer is copied when it becomes an entry of the Bundle, and an outcome is written twice.
            memory.hold_now(2 * response.as_ref().map_or(OUTCOME_BYTES, Vec::len))?;
            answers.push(response);
        }
        Ok::<_, BudgetExhausted>((answers, memory))
    };
    Ok(context.app.capacity.questions.run(execute).await??)
}

fn execute_entry(
    context: &RequestContext,
    caller: &str,
    entry: &BundleOperation,
    budget: &Budget<'_>,
) -> BundledAnswer {
    let path = percent_decode_str(&entry.path).decode_utf8_lossy();
    let (operation, id) = TerminologyOperation::at_path(&path).ok_or_else(|| {
        let text = format!("'{path}' is not an operation that a Bundle can call");
        (StatusCode::NOT_FOUND, OperationOutcome::error(IssueCode::NotSupported, text))
    })?;
    let parameters = match &entry.body {
        Some(body) => ReceivedParameters::Body { body, query: &entry.query },
        None => ReceivedParameters::Query(&entry.query),
    };
    let call = OperationCall { context, caller, operation, id, parameters };
    call.execute(budget).map_err(|error| match error {
        CallError::Terminology(error) => (problem::terminology_status(&error), error.outcome()),
        CallError::Received(fault) => {
            let outcome = OperationOutcome::error(fault.code(), fault.text("the resource of the entry"));
            (StatusCode::BAD_REQUEST, outcome)
        }
    })
}
