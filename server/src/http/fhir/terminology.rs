//! The terminology operations, by GET and POST, at type and instance level, and as entries of a Bundle (FHIR R4).

use std::borrow::Cow;

use ::terminology::ExhaustionCause;
use ::terminology::{Budget, OperationInput, OperationLevel, TxError};
use bytes::Bytes;
use fhir::{IssueCode, Json, OperationOutcome, Parameters};
use http::{Method, StatusCode, header};
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use resources::BundleOperation;

use super::{access, check_accept, json_body};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};
use crate::node::app::App;
use crate::node::byte_budget::BudgetExhausted;

/// `{fhir_base}/ValueSet[/{id}]/$validate-code`
pub async fn validate_code(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    answer_operation(context, id, body, TerminologyOperation::ValidateCode).await
}

/// `{fhir_base}/ValueSet/$batch-validate-code`
pub async fn batch_validate_code(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    answer_operation(context, None, body, TerminologyOperation::BatchValidateCode).await
}

/// `{fhir_base}/CodeSystem[/{id}]/$validate-code`
pub async fn validate_code_in_system(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    answer_operation(context, id, body, TerminologyOperation::ValidateCodeInSystem).await
}

/// `{fhir_base}/CodeSystem/$batch-validate-code`
pub async fn batch_validate_code_in_system(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    answer_operation(context, None, body, TerminologyOperation::BatchValidateCodeInSystem).await
}

/// `{fhir_base}/ValueSet[/{id}]/$expand`
pub async fn expand(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    answer_operation(context, id, body, TerminologyOperation::Expand).await
}

/// `{fhir_base}/CodeSystem/$lookup`
pub async fn lookup(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    answer_operation(context, None, body, TerminologyOperation::Lookup).await
}

/// `{fhir_base}/CodeSystem[/{id}]/$subsumes`
pub async fn subsumes(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    answer_operation(context, id, body, TerminologyOperation::Subsumes).await
}

/// A terminology operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminologyOperation {
    /// `ValueSet/$validate-code`
    ValidateCode,
    /// `ValueSet/$batch-validate-code`
    BatchValidateCode,
    /// `CodeSystem/$validate-code`
    ValidateCodeInSystem,
    /// `CodeSystem/$batch-validate-code`
    BatchValidateCodeInSystem,
    /// `ValueSet/$expand`
    Expand,
    /// `CodeSystem/$lookup`
    Lookup,
    /// `CodeSystem/$subsumes`
    Subsumes,
}

impl TerminologyOperation {
    /// Returns the operation at a path below the FHIR base, and the id of the instance that it names.
    pub fn at_path(path: &str) -> Option<(Self, Option<&str>)> {
        let segments: Vec<&str> = path.split('/').collect();
        let (kind, id, name) = match segments.as_slice() {
            [kind, name] => (*kind, None, *name),
            [kind, id, name] => (*kind, Some(*id), *name),
            _ => return None,
        };
        let operation = match (kind, name) {
            ("ValueSet", "$validate-code") => Self::ValidateCode,
            ("ValueSet", "$batch-validate-code") => Self::BatchValidateCode,
            ("ValueSet", "$expand") => Self::Expand,
            ("CodeSystem", "$validate-code") => Self::ValidateCodeInSystem,
            ("CodeSystem", "$batch-validate-code") => Self::BatchValidateCodeInSystem,
            ("CodeSystem", "$lookup") => Self::Lookup,
            ("CodeSystem", "$subsumes") => Self::Subsumes,
            _ => return None,
        };
        let type_only =
            matches!(operation, Self::BatchValidateCode | Self::BatchValidateCodeInSystem | Self::Lookup);
        (id.is_none() || !type_only).then_some((operation, id))
    }

    /// Returns the resource type of the operation. Its scope is required.
    pub fn resource_type(self) -> &'static str {
        match self {
            Self::ValidateCode | Self::BatchValidateCode | Self::Expand => "ValueSet",
            Self::ValidateCodeInSystem | Self::BatchValidateCodeInSystem | Self::Lookup | Self::Subsumes => {
                "CodeSystem"
            }
        }
    }

    /// Executes the operation and serializes the result.
    fn execute(
        self,
        app: &App,
        level: OperationLevel<'_>,
        input: OperationInput<'_>,
        now: Timestamp,
    ) -> Result<Vec<u8>, TxError> {
        let terminology = &app.terminology;
        let parameters = match self {
            Self::ValidateCode => terminology.validate_code(level, input),
            Self::BatchValidateCode => terminology.batch_validate_code(input),
            Self::ValidateCodeInSystem => terminology.validate_code_in_system(level, input),
            Self::BatchValidateCodeInSystem => terminology.batch_validate_code_in_system(input),
            Self::Lookup => terminology.lookup(input),
            Self::Subsumes => terminology.subsumes(level, input),
            Self::Expand => return Ok(terminology.expand(level, input, &now.to_string())?.to_json()),
        };
        Ok(parameters?.to_json())
    }
}

/// Maximum size of a request that is answered on the async thread first; parsing a longer one takes too much time.
const INLINE_BYTES: usize = 64 << 10;

/// The parameters of a question, not parsed.
#[derive(Clone, Copy)]
enum SentParameters<'a> {
    Query(&'a str),
    Body(&'a [u8]),
}

/// A question, not parsed.
#[derive(Clone, Copy)]
struct TerminologyQuestion<'a> {
    operation: TerminologyOperation,
    sent: SentParameters<'a>,
    language: Option<&'a str>,
    expansion_limit: Option<usize>,
    caller: &'a str,
    level: OperationLevel<'a>,
    now: Timestamp,
}

/// An error that prevents an answer.
enum QuestionError {
    /// The body is not a Parameters resource.
    Body(String),
    Error(TxError),
}

impl From<QuestionError> for Problem {
    fn from(error: QuestionError) -> Self {
        match error {
            QuestionError::Error(error) => error.into(),
            QuestionError::Body(error) => {
                let text = format!("the body is not a Parameters resource: {error}");
                Self::fhir(StatusCode::BAD_REQUEST, IssueCode::Structure, text)
            }
        }
    }
}

impl QuestionError {
    /// Returns whether the question needs more than the budget for answers on the async thread.
    fn is_long(&self) -> bool {
        matches!(self, Self::Error(error) if error.exhausted() == Some(ExhaustionCause::Inline))
    }
}

impl TerminologyQuestion<'_> {
    /// Parses the parameters, executes the operation and serializes the result.
    fn ask(self, app: &App, budget: &Budget<'_>) -> Result<Vec<u8>, QuestionError> {
        let parameters = match self.sent {
            SentParameters::Query(query) => Parameters::from_query(query),
            SentParameters::Body(body) => Parameters::from_json(body).map_err(QuestionError::Body)?,
        };
        let input = match self.sent {
            SentParameters::Query(_) => OperationInput::from_query(&parameters),
            SentParameters::Body(_) => OperationInput::from_body(&parameters),
        };
        let input = input.accept_language(self.language).expansion_limit(self.expansion_limit);
        let input = input.caller(self.caller).budget(budget);
        self.operation.execute(app, self.level, input, self.now).map_err(QuestionError::Error)
    }
}

/// Returns the identity of the caller, to whom the resources under a `cache-id` belong. Anonymous clients with different
/// addresses share nothing.
fn caller_identity<'a>(context: &RequestContext, access: Option<&'a TokenAccess>) -> Cow<'a, str> {
    match (access, context.client_address) {
        (Some(access), _) => Cow::Borrowed(&access.token.sub),
        (None, Some(address)) => Cow::Owned(format!("anonymous {address}")),
        (None, None) => Cow::Borrowed(""),
    }
}

/// Header with the number of codes above which the client wants no expansion. HL7's terminology tests send it.
const EXPANSION_LIMIT: &str = "x-too-costly-threshold";

/// Returns the limit that the client sets for the number of codes in an expansion. A value that is not a number is
/// ignored.
fn expansion_limit(context: &RequestContext) -> Option<usize> {
    context.header(EXPANSION_LIMIT)?.trim().parse().ok()
}

/// Answers a question on the async thread if it takes few steps, and on a thread of the pool otherwise.
async fn answer_operation(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
    operation: TerminologyOperation,
) -> Result<Response, Problem> {
    let access = if context.app.settings().anonymous_terminology {
        None
    } else {
        Some(access::require_all(context, operation.resource_type(), ScopePermissions::GET).await?)
    };
    check_accept(context, &[])?;
    let body = match context.method {
        Method::POST => Some(json_body(context, body).await?),
        _ => None,
    };
    context.app.terminology_sync.apply_changes().await?;
    let question = TerminologyQuestion {
        operation,
        sent: body.as_ref().map_or(SentParameters::Query(&context.query), |body| SentParameters::Body(body)),
        language: context.header(header::ACCEPT_LANGUAGE),
        expansion_limit: expansion_limit(context),
        caller: &caller_identity(context, access.as_deref()),
        level: id.as_deref().map_or(OperationLevel::Type, OperationLevel::Instance),
        now: context.now,
    };
    let mut answer = None;
    if body.as_ref().map_or(context.query.len(), Bytes::len) <= INLINE_BYTES {
        let inline = question.ask(&context.app, &Budget::inline());
        answer = Some(inline).filter(|inline| !inline.as_ref().is_err_and(QuestionError::is_long));
    }
    let mut memory = AnswerMemory::new(context, access.as_deref());
    let (answer, memory) = match answer {
        Some(answer) => {
            memory.hold_now(answer.as_ref().map_or(0, Vec::len))?;
            (answer, memory)
        }
        None => {
            let (app, query, body) = (context.app.clone(), context.query.clone(), body.clone());
            let language = question.language.map(str::to_owned);
            let expansion_limit = question.expansion_limit;
            let (caller, id, now) = (question.caller.to_owned(), id.clone(), context.now);
            let ask = move |budget: &Budget<'_>| {
                let question = TerminologyQuestion {
                    operation,
                    sent: body
                        .as_ref()
                        .map_or(SentParameters::Query(&query), |body| SentParameters::Body(body)),
                    language: language.as_deref(),
                    expansion_limit,
                    caller: &caller,
                    level: id.as_deref().map_or(OperationLevel::Type, OperationLevel::Instance),
                    now,
                };
                let answer = question.ask(&app, budget);
                // Still in the pool, so that few answers exist that are not counted.
                memory.hold_now(answer.as_ref().map_or(0, Vec::len))?;
                Ok::<_, BudgetExhausted>((answer, memory))
            };
            context.app.questions.run(ask).await??
        }
    };
    Ok(reply::body(StatusCode::OK, reply::FHIR_JSON, memory.attach(answer?)))
}

/// The answer to an operation in a Bundle: the resource as JSON, or the status and the outcome of an error.
pub type BundledAnswer = Result<Vec<u8>, (StatusCode, OperationOutcome)>;

/// Approximate memory of an outcome, in bytes.
const OUTCOME_BYTES: usize = 1 << 10;

/// Answers the operations of a Bundle on a thread of the pool. They share the budget of one request, so that a Bundle
/// does not cost more than any other request.
///
/// # Errors
/// Returns [`Problem`] if the pool rejects the request, there is no memory for the answers, or the stored changes cannot
/// be read.
pub async fn answer_bundle(
    context: &RequestContext,
    access: Option<&TokenAccess>,
    operations: Vec<BundleOperation>,
    mut memory: AnswerMemory,
) -> Result<(Vec<BundledAnswer>, AnswerMemory), Problem> {
    context.app.terminology_sync.apply_changes().await?;
    let (app, now) = (context.app.clone(), context.now);
    let language = context.header(header::ACCEPT_LANGUAGE).map(str::to_owned);
    let caller = caller_identity(context, access).into_owned();
    let expansion_limit = expansion_limit(context);
    let ask = move |budget: &Budget<'_>| {
        let answer = |entry: &BundleOperation| {
            let path = percent_decode_str(&entry.path).decode_utf8_lossy();
            let (operation, id) = TerminologyOperation::at_path(&path).ok_or_else(|| {
                let text = format!("'{path}' is not an operation that a Bundle can call");
                (StatusCode::NOT_FOUND, OperationOutcome::error(IssueCode::NotSupported, text))
            })?;
            let question = TerminologyQuestion {
                operation,
                sent: match &entry.body {
                    Some(body) => SentParameters::Body(body),
                    None => SentParameters::Query(&entry.query),
                },
                language: language.as_deref(),
                expansion_limit,
                caller: &caller,
                level: id.map_or(OperationLevel::Type, OperationLevel::Instance),
                now,
            };
            question.ask(&app, budget).map_err(|error| match error {
                QuestionError::Error(error) => (problem::terminology_status(&error), error.outcome()),
                QuestionError::Body(why) => {
                    let text = format!("the resource of the entry is not a Parameters resource: {why}");
                    (StatusCode::BAD_REQUEST, OperationOutcome::error(IssueCode::Structure, text))
                }
            })
        };
        let mut answers = Vec::with_capacity(operations.len());
        for entry in &operations {
            let answer = answer(entry);
            // An answer is copied when it becomes an entry of the Bundle, and an outcome is written twice.
            memory.hold_now(2 * answer.as_ref().map_or(OUTCOME_BYTES, Vec::len))?;
            answers.push(answer);
        }
        Ok::<_, BudgetExhausted>((answers, memory))
    };
    Ok(context.app.questions.run(ask).await??)
}
