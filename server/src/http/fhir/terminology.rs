//! The terminology operations, by GET and POST, at type and instance level (SPEC; FHIR R4).

use ::terminology::{Input, Level, TxError};
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

async fn operation<T: Json>(
    mut call: Call,
    kind: &str,
    judge: impl FnOnce(&App, Level<'_>, Input<'_>) -> Result<T, TxError>,
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
    let by_query = call.method != Method::POST;
    let parameters = if by_query {
        Parameters::from_query(&call.query)
    } else {
        match json_body(&mut call).await {
            Ok(body) => match Parameters::from_json(&body) {
                Ok(parameters) => parameters,
                Err(error) => {
                    let text = format!("the body is not a Parameters resource: {error}");
                    return problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Structure, text);
                }
            },
            Err(response) => return response,
        }
    };
    if let Err(error) = call.app.follow().await {
        return problem::store(Dialect::Fhir, &error);
    }
    let input = if by_query { Input::from_query(&parameters) } else { Input::from_body(&parameters) };
    let input = input.accept_language(call.header(header::ACCEPT_LANGUAGE));
    let input = input.caller(access.as_deref().map_or("", |access| &access.token.sub));
    let level = call.args.first().map_or(Level::Type, |id| Level::Instance(id));
    match judge(&call.app, level, input) {
        Ok(answer) => reply::body(StatusCode::OK, reply::FHIR_JSON, answer.to_json()),
        Err(error) => problem::terminology(&error),
    }
}
