//! Finds out by requests what no metadata states: whether the token endpoint accepts the public client of the
//! profile, whether the FHIR interface needs a token, and whether terminology operations use resources that
//! come with the request.

use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Map, Value, json};

use super::applications;
use super::browser;
use super::cookies::CookieJar;
use super::target::TestTarget;
use crate::environment::page_request::get;
use crate::wire::exchange::Answer;

/// Member that says why the token endpoint refuses the public client.
pub const PUBLIC_REFUSED: &str = "public_refused";

/// The members of a profile that the server itself shows, unless the profile states them.
pub async fn probe(target: &TestTarget) -> Map<String, Value> {
    let mut members = Map::new();
    if let Some(refusal) = refusal_of_the_public_client(target).await {
        members.insert(PUBLIC_REFUSED.to_owned(), refusal.into());
    }
    let Some(fhir_base) = target.addresses.fhir_base.clone() else { return members };
    let is_stated = |name: &str| target.profile.contains_key(name);
    if !is_stated("anonymous") {
        let answer = ask(target, Method::GET, &format!("{fhir_base}/Patient?_count=1"), None, None).await;
        let is_open = |response: &Answer| response.status.is_success();
        members.insert("anonymous".to_owned(), answer.is_some_and(|response| is_open(&response)).into());
    }
    let anonymous =
        target.profile.get("anonymous").or(members.get("anonymous")).is_some_and(|value| *value == true);
    // A terminology server without patients.
    let operation = format!("{fhir_base}/ValueSet/$validate-code");
    let mut answer = ask(target, Method::POST, &operation, Some(question()), None).await;
    let status = answer.as_ref().map(|response| response.status.as_u16());
    if !is_stated("anonymous") && !anonymous {
        let is_answered = status.is_some_and(|status| !matches!(status, 401 | 403) && status < 500);
        members
            .insert("anonymous".to_owned(), (is_answered && target.addresses.capabilities.is_some()).into());
    }
    if is_stated("tx_resources") {
        return members;
    }
    if matches!(status, Some(401 | 403))
        && let Some(token) = back_end_token(target).await
    {
        answer = ask(target, Method::POST, &operation, Some(question()), Some(&token)).await;
    }
    if answer.as_ref().is_some_and(|response| response.status == StatusCode::OK) {
        let body = answer.and_then(|response| response.json()).unwrap_or_default();
        let result = body["parameter"].as_array().into_iter().flatten().find(|one| one["name"] == "result");
        let accepts = result.is_some_and(|result| result["valueBoolean"] == true);
        members.insert("tx_resources".to_owned(), accepts.into());
    }
    members
}

/// The reason why the token endpoint refuses the public client. `None` if it accepts the client, if the
/// metadata state the method `none`, so that a refusal is a fault, or if the profile has no user to sign in.
async fn refusal_of_the_public_client(target: &TestTarget) -> Option<String> {
    let metadata = target.addresses.metadata.as_ref()?;
    let methods = metadata["token_endpoint_auth_methods_supported"].as_array();
    if methods.is_some_and(|methods| methods.contains(&"none".into())) {
        return None;
    }
    let person = applications::person(&target.vars(), "user").ok()?;
    let tokens = applications::tokens(target, &mut CookieJar::new(), &person, "openid").await;
    let error = tokens.err()?.to_string();
    error
        .contains("invalid_client")
        .then(|| {
            format!(
                "{error}: the client of [public] needs no secret; register it so, or leave [public] out of the profile"
            )
        })
}

/// Returns Parameters that ask about a code of a code system and a value set in the same request.
fn question() -> Value {
    let system = "https://probe.example/CodeSystem/one";
    let set = "https://probe.example/ValueSet/one";
    let code_system = json!({
        "resourceType": "CodeSystem", "url": system, "status": "active", "content": "complete",
        "concept": [{ "code": "a", "display": "A" }],
    });
    let value_set = json!({
        "resourceType": "ValueSet", "url": set, "status": "active",
        "compose": { "include": [{ "system": system }] },
    });
    json!({ "resourceType": "Parameters", "parameter": [
        { "name": "tx-resource", "resource": code_system },
        { "name": "tx-resource", "resource": value_set },
        { "name": "url", "valueUri": set },
        { "name": "system", "valueUri": system },
        { "name": "code", "valueCode": "a" },
    ] })
}

/// The token of the profile for back ends, or one for its first back end; `None` without any.
async fn back_end_token(target: &TestTarget) -> Option<String> {
    match target.profile.get("tokens").and_then(|tokens| tokens["system"].as_str()) {
        Some(token) => Some(token.to_owned()),
        None => applications::backend_token(target, 0, None).await.ok(),
    }
}

async fn ask(
    target: &TestTarget,
    method: Method,
    url: &str,
    body: Option<Value>,
    bearer: Option<&str>,
) -> Option<Answer> {
    let mut request = get(browser::address(url).ok()?);
    request.method = method;
    let fhir_json = HeaderValue::from_static("application/fhir+json");
    request.headers.insert(header::ACCEPT, fhir_json.clone());
    if let Some(token) = bearer {
        request
            .headers
            .insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).ok()?);
    }
    if let Some(body) = body {
        request.headers.insert(header::CONTENT_TYPE, fhir_json);
        request.body = body.to_string().into();
    }
    target.send(&request, &mut CookieJar::new()).await.ok()
}
