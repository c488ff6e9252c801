//! The terminology operations, by GET and POST, at type and instance level (FHIR R4).

use ::terminology::ExhaustionCause;
use ::terminology::{Budget, OperationInput, OperationLevel, TxError};
use bytes::Bytes;
use fhir::{IssueCode, Json, Parameters};
use http::{Method, StatusCode, header};
use identity::model::scope::ScopePermissions;

use super::{access, check_accept, json_body};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::app::App;

/// `{fhir_base}/ValueSet[/{id}]/$validate-code`
pub async fn validate_code(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    operation(context, id, body, "ValueSet", |app, level, input| app.terminology.validate_code(level, input))
        .await
}

/// `{fhir_base}/ValueSet/$batch-validate-code`
pub async fn batch_validate_code(
    context: &RequestContext,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    operation(context, None, body, "ValueSet", |app, _, input| app.terminology.batch_validate_code(input))
        .await
}

/// `{fhir_base}/CodeSystem[/{id}]/$validate-code`
pub async fn validate_code_in_system(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    operation(context, id, body, "CodeSystem", |app, level, input| {
        app.terminology.validate_code_in_system(level, input)
    })
    .await
}

/// `{fhir_base}/ValueSet[/{id}]/$expand`
pub async fn expand(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    let now = context.now.to_string();
    operation(context, id, body, "ValueSet", move |app, level, input| {
        app.terminology.expand(level, input, &now)
    })
    .await
}

/// `{fhir_base}/CodeSystem/$lookup`
pub async fn lookup(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    operation(context, None, body, "CodeSystem", |app, _, input| app.terminology.lookup(input)).await
}

/// `{fhir_base}/CodeSystem[/{id}]/$subsumes`
pub async fn subsumes(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
) -> Result<Response, Problem> {
    operation(context, id, body, "CodeSystem", |app, level, input| app.terminology.subsumes(level, input))
        .await
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
    sent: SentParameters<'a>,
    language: Option<&'a str>,
    caller: &'a str,
    level: OperationLevel<'a>,
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

impl TerminologyQuestion<'_> {
    /// Parses the parameters, executes the operation and serializes the result.
    fn ask<T: Json>(
        self,
        app: &App,
        judge: impl FnOnce(&App, OperationLevel<'_>, OperationInput<'_>) -> Result<T, TxError>,
        budget: &Budget<'_>,
    ) -> Result<Vec<u8>, QuestionError> {
        let parameters = match self.sent {
            SentParameters::Query(query) => Parameters::from_query(query),
            SentParameters::Body(body) => Parameters::from_json(body).map_err(QuestionError::Body)?,
        };
        let input = match self.sent {
            SentParameters::Query(_) => OperationInput::from_query(&parameters),
            SentParameters::Body(_) => OperationInput::from_body(&parameters),
        };
        let input = input.accept_language(self.language).caller(self.caller).budget(budget);
        Ok(judge(app, self.level, input).map_err(QuestionError::Error)?.to_json())
    }
}

/// Answers a question on the async thread if it takes few steps, and on a thread of the pool otherwise.
async fn operation<T: Json>(
    context: &RequestContext,
    id: Option<String>,
    body: &mut RequestBody,
    kind: &str,
    judge: impl Fn(&App, OperationLevel<'_>, OperationInput<'_>) -> Result<T, TxError> + Send + 'static,
) -> Result<Response, Problem> {
    let access = if context.app.settings().anonymous_terminology {
        None
    } else {
        Some(access::require_all(context, kind, ScopePermissions::GET).await?)
    };
    check_accept(context, &[])?;
    let body = match context.method {
        Method::POST => Some(json_body(context, body).await?),
        _ => None,
    };
    context.app.terminology_sync.apply_changes().await?;
    let anonymous;
    let caller = match &access {
        Some(access) => &access.token.sub,
        None => {
            // Anonymous clients with different addresses do not share what they store under a `cache-id`.
            anonymous =
                context.client_address.map_or_else(String::new, |address| format!("anonymous {address}"));
            &anonymous
        }
    };
    let question = TerminologyQuestion {
        sent: body.as_ref().map_or(SentParameters::Query(&context.query), |body| SentParameters::Body(body)),
        language: context.header(header::ACCEPT_LANGUAGE),
        caller,
        level: id.as_deref().map_or(OperationLevel::Type, OperationLevel::Instance),
    };
    let mut answer = None;
    if body.as_ref().map_or(context.query.len(), Bytes::len) <= INLINE_BYTES {
        let inline = question.ask(&context.app, &judge, &Budget::inline());
        let is_long = |why: &QuestionError| matches!(why, QuestionError::Error(error) if error.exhausted() == Some(ExhaustionCause::Inline));
        answer = Some(inline).filter(|inline| !inline.as_ref().is_err_and(is_long));
    }
    let answer = match answer {
        Some(answer) => answer,
        None => {
            let (app, query, body) = (context.app.clone(), context.query.clone(), body.clone());
            let language = question.language.map(str::to_owned);
            let (caller, id) = (question.caller.to_owned(), id.clone());
            let ask = move |budget: &Budget<'_>| {
                let question = TerminologyQuestion {
                    sent: body
                        .as_ref()
                        .map_or(SentParameters::Query(&query), |body| SentParameters::Body(body)),
                    language: language.as_deref(),
                    caller: &caller,
                    level: id.as_deref().map_or(OperationLevel::Type, OperationLevel::Instance),
                };
                question.ask(&app, judge, budget)
            };
            context.app.questions.run(ask).await?
        }
    };
    Ok(reply::body(StatusCode::OK, reply::FHIR_JSON, answer?))
}
