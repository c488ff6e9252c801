//! The terminology operations, by GET and POST, at type and instance level (SPEC; FHIR R4).

use ::terminology::budget::Cause;
use ::terminology::{Budget, Input, Level, TxError};
use bytes::Bytes;
use fhir::{IssueCode, Json, Parameters};
use http::{Method, StatusCode, header};
use identity::scope::Permissions;

use super::{access, check_accept, json_body};
use crate::app::App;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// `{fhir_base}/ValueSet[/{id}]/$validate-code`
pub async fn validate_code(call: Call) -> Response {
    operation(call, "ValueSet", |app, level, input| app.terminology.validate_code(level, input)).await
}

/// `{fhir_base}/ValueSet/$batch-validate-code`
pub async fn batch_validate_code(call: Call) -> Response {
    operation(call, "ValueSet", |app, _, input| app.terminology.batch_validate_code(input)).await
}

/// `{fhir_base}/CodeSystem[/{id}]/$validate-code`
pub async fn validate_code_in_system(call: Call) -> Response {
    operation(call, "CodeSystem", |app, level, input| app.terminology.validate_code_in_system(level, input))
        .await
}

/// `{fhir_base}/ValueSet[/{id}]/$expand`
pub async fn expand(call: Call) -> Response {
    let now = call.now.to_string();
    operation(call, "ValueSet", move |app, level, input| app.terminology.expand(level, input, &now)).await
}

/// `{fhir_base}/CodeSystem/$lookup`
pub async fn lookup(call: Call) -> Response {
    operation(call, "CodeSystem", |app, _, input| app.terminology.lookup(input)).await
}

/// `{fhir_base}/CodeSystem[/{id}]/$subsumes`
pub async fn subsumes(call: Call) -> Response {
    operation(call, "CodeSystem", |app, level, input| app.terminology.subsumes(level, input)).await
}

/// Bodies and queries up to this many bytes are first asked where they arrive; longer ones take time to be read alone.
const INLINE_BYTES: usize = 64 << 10;

/// The parameters of a question as they were sent.
#[derive(Clone, Copy)]
enum Sent<'a> {
    Query(&'a str),
    Body(&'a [u8]),
}

/// A question as it was sent.
#[derive(Clone, Copy)]
struct Question<'a> {
    sent: Sent<'a>,
    language: Option<&'a str>,
    caller: &'a str,
    level: Level<'a>,
}

/// Why there is no answer.
enum Unanswered {
    /// The body is not a Parameters resource.
    Body(String),
    Error(TxError),
}

impl Question<'_> {
    /// Reads the parameters, asks and writes the answer.
    fn ask<T: Json>(
        self,
        app: &App,
        judge: impl FnOnce(&App, Level<'_>, Input<'_>) -> Result<T, TxError>,
        budget: &Budget<'_>,
    ) -> Result<Vec<u8>, Unanswered> {
        let parameters = match self.sent {
            Sent::Query(query) => Parameters::from_query(query),
            Sent::Body(body) => Parameters::from_json(body).map_err(Unanswered::Body)?,
        };
        let input = match self.sent {
            Sent::Query(_) => Input::from_query(&parameters),
            Sent::Body(_) => Input::from_body(&parameters),
        };
        let input = input.accept_language(self.language).caller(self.caller).budget(budget);
        Ok(judge(app, self.level, input).map_err(Unanswered::Error)?.to_json())
    }
}

/// Answers a question where it arrives if that takes a few steps, else on a thread of the pool.
async fn operation<T: Json>(
    mut call: Call,
    kind: &str,
    judge: impl Fn(&App, Level<'_>, Input<'_>) -> Result<T, TxError> + Send + 'static,
) -> Response {
    let access = if call.app.settings().anonymous_terminology {
        None
    } else {
        match access::demand_all(&call, kind, Permissions::GET).await {
            Ok(access) => Some(access),
            Err(response) => return response,
        }
    };
    if let Err(response) = check_accept(&call, &[]) {
        return response;
    }
    let body = match call.method {
        Method::POST => match json_body(&mut call).await {
            Ok(body) => Some(body),
            Err(response) => return response,
        },
        _ => None,
    };
    if let Err(error) = call.app.follow().await {
        return problem::store(Dialect::Fhir, &error);
    }
    let anonymous;
    let caller = match &access {
        Some(access) => &access.token.sub,
        None => {
            // Strangers share nothing that they keep under a `cache-id`, unless they share an address.
            anonymous = call.client_ip.map_or_else(String::new, |address| format!("anonymous {address}"));
            &anonymous
        }
    };
    let question = Question {
        sent: body.as_ref().map_or(Sent::Query(&call.query), |body| Sent::Body(body)),
        language: call.header(header::ACCEPT_LANGUAGE),
        caller,
        level: call.args.first().map_or(Level::Type, |id| Level::Instance(id)),
    };
    let mut answer = None;
    if body.as_ref().map_or(call.query.len(), Bytes::len) <= INLINE_BYTES {
        let inline = question.ask(&call.app, &judge, &Budget::inline());
        let is_long = |why: &Unanswered| matches!(why, Unanswered::Error(error) if error.exhausted() == Some(Cause::Inline));
        answer = Some(inline).filter(|inline| !inline.as_ref().is_err_and(is_long));
    }
    let answer = match answer {
        Some(answer) => answer,
        None => {
            let (app, query, body) = (call.app.clone(), call.query.clone(), body.clone());
            let language = question.language.map(str::to_owned);
            let (caller, id) = (question.caller.to_owned(), call.args.first().cloned());
            let ask = move |budget: &Budget<'_>| {
                let question = Question {
                    sent: body.as_ref().map_or(Sent::Query(&query), |body| Sent::Body(body)),
                    language: language.as_deref(),
                    caller: &caller,
                    level: id.as_deref().map_or(Level::Type, Level::Instance),
                };
                question.ask(&app, judge, budget)
            };
            match call.app.questions.run(ask).await {
                Ok(answer) => answer,
                Err(why) => return problem::not_asked(why),
            }
        }
    };
    match answer {
        Ok(answer) => reply::body(StatusCode::OK, reply::FHIR_JSON, answer),
        Err(Unanswered::Error(error)) => problem::terminology(&error),
        Err(Unanswered::Body(error)) => {
            let text = format!("the body is not a Parameters resource: {error}");
            problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Structure, text)
        }
    }
}
