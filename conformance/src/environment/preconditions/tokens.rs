//! Tokens and requests of clients: requested once for a run, or for each case.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::accounts::basic_client;
use super::context::CaseContext;
use super::sign_in::first_session;
use crate::environment::applications::{self, backend_token, member, person, unexpected};
use crate::environment::browser::{self, address, answer_param};
use crate::environment::cookies::CookieJar;
use crate::environment::target::TestTarget;
use crate::environment::{SetupError, TestEnvironment};
use crate::spec::request::DpopProof;
use crate::wire::{dpop_proof, jose};

/// Time after which a new backend token is requested. Tokens live for 300 s.
const BACKEND_TOKEN_USE: Duration = Duration::from_secs(200);

/// Returns whether the FHIR interface of a target needs no token.
pub(super) fn answers_anyone(target: &TestTarget) -> bool {
    target.profile.get("anonymous").is_some_and(|anonymous| *anonymous == true)
}

/// A token that the profile states instead of the means to request one.
pub(super) fn stated_token<'a>(target: &'a TestTarget, kind: &str) -> Option<&'a str> {
    let stated = target.profile.get("tokens").and_then(|tokens| tokens[kind].as_str());
    stated.or(answers_anyone(target).then_some(""))
}

/// Returns tokens of the first user, requested by the code flow of the public client.
pub(super) async fn tokens(environment: &TestEnvironment, kind: &str) -> Result<Value, SetupError> {
    if let Some(token) = environment.target.profile.get("tokens").and_then(|tokens| tokens["user"].as_str()) {
        return Ok(json!({ "access_token": token }));
    }
    let vars = environment.target.vars();
    let words = |path: &str| -> Vec<&str> {
        let list = vars.get(path).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let custom = words("public.custom_scopes");
    let scope = match kind {
        "openid-token" => "openid".to_owned(),
        "notes-token" => {
            let lacking = || SetupError::Lacking("the profile has no 'public.custom_scopes.0'".to_owned());
            (*custom.first().ok_or_else(lacking)?).to_owned()
        }
        _ => [words("public.scopes"), custom].concat().join(" "),
    };
    let mut cookies = first_session(environment).await?;
    applications::tokens(&environment.target, &mut cookies, &person(&vars, "user")?, &scope).await
}

/// Returns tokens of the first user, requested by the implicit flow.
pub(super) async fn implicit(environment: &TestEnvironment) -> Result<Value, SetupError> {
    let vars = environment.target.vars();
    let params = [
        ("response_type", "token"),
        ("client_id", member(&vars, "public.client_id")?),
        ("redirect_uri", member(&vars, "public.redirect_uris.0")?),
        ("scope", "openid email"),
    ];
    let redirect =
        browser::authorize(&environment.target, &mut first_session(environment).await?, None, &params)
            .await?;
    Ok(json!({
        "access_token": answer_param(&redirect, "access_token"),
        "id_token": answer_param(&redirect, "id_token"),
    }))
}

/// A token of the first backend client with all its scopes. It is cached for some time.
pub(super) async fn system_token(environment: &TestEnvironment) -> Result<String, SetupError> {
    if let Some(token) = stated_token(&environment.target, "system") {
        return Ok(token.to_owned());
    }
    let mut system_token = environment.shared.system.lock().await;
    if let Some((made, token)) = &*system_token
        && made.elapsed() < BACKEND_TOKEN_USE
    {
        return Ok(token.clone());
    }
    let token = backend_token(&environment.target, 0, None).await?;
    *system_token = Some((Instant::now(), token.clone()));
    Ok(token)
}

/// A token with this scope, requested by a backend client that is created for it.
pub(super) async fn created_client_token(
    environment: &TestEnvironment,
    scope: &str,
) -> Result<String, SetupError> {
    let client = basic_client(environment, scope, &[]).await?;
    let form = [("grant_type", "client_credentials"), ("scope", scope)];
    let tokens = applications::token_request(&environment.target, &form, client["basic"].as_str()).await?;
    let token = tokens["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| SetupError::Failed("the token endpoint returned no access token".to_owned()))
}

/// Generates a key for DPoP proofs: `$dpop_key`, and its thumbprint `$jkt`.
pub(super) fn dpop_key(context: &mut CaseContext) -> Result<(), SetupError> {
    let key = jose::fresh_key("case").map_err(|error| SetupError::Failed(error.to_string()))?;
    context.vars.set("jkt", dpop_proof::thumbprint(&key));
    context.vars.set(dpop_proof::KEY_VARIABLE, key);
    Ok(())
}

/// Requests tokens of the first user that are bound to the DPoP key of the case.
pub(super) async fn dpop_token(
    environment: &TestEnvironment,
    context: &mut CaseContext,
) -> Result<(), SetupError> {
    dpop_key(context)?;
    let target = &environment.target;
    let mut cookies = first_session(environment).await?;
    let person = person(&context.vars, "user")?;
    let scope = [("scope", "openid email offline_access user/ValueSet.rs user/CodeSystem.rs")];
    let code = applications::code(target, &mut cookies, &person, "bound", true, &scope).await?;
    let mut request = browser::post(
        address(target.endpoint("token")?)?,
        &[
            ("grant_type", "authorization_code"),
            ("client_id", member(&context.vars, "bound.client_id")?),
            ("code", &code.code),
            ("redirect_uri", &code.redirect_uri),
            ("code_verifier", code.verifier.as_deref().unwrap_or_default()),
        ],
    );
    let proof =
        dpop_proof::proof_headers(&DpopProof::default(), &request.method, &request.url, &context.vars);
    for (name, value) in proof.map_err(SetupError::Failed)? {
        request.headers.append(
            name,
            value
                .parse()
                .map_err(|_| SetupError::Failed("the DPoP proof is not valid in a header".to_owned()))?,
        );
    }
    let response = target.send(&request, &mut CookieJar::new()).await?;
    match (response.status.as_u16(), response.json()) {
        (200, Some(tokens)) => context.set_tokens(&tokens),
        _ => return Err(unexpected("the token endpoint", &response)),
    }
    Ok(())
}

/// Starts a device authorization: `$device_code`, `$user_code`.
pub(super) async fn device_code(target: &TestTarget, context: &mut CaseContext) -> Result<(), SetupError> {
    let vars = target.vars();
    let form = [("client_id", member(&vars, "device.client_id")?), ("scope", "openid email")];
    let request = browser::post(address(target.endpoint("device_authorization")?)?, &form);
    let response = target.send(&request, &mut CookieJar::new()).await?;
    let Some(start) = response.json().filter(|_| response.status.is_success()) else {
        return Err(unexpected("the device authorization endpoint", &response));
    };
    for name in ["device_code", "user_code"] {
        context.vars.set(name, start[name].clone());
    }
    Ok(())
}

/// Pushes an authorization request of the public client, and returns its `request_uri`.
pub(super) async fn pushed_request(target: &TestTarget) -> Result<Value, SetupError> {
    let vars = target.vars();
    let form = [
        ("client_id", member(&vars, "public.client_id")?),
        ("redirect_uri", member(&vars, "public.redirect_uris.0")?),
        ("response_type", "code"),
    ];
    let request = browser::post(address(target.endpoint("par")?)?, &form);
    let response = target.send(&request, &mut CookieJar::new()).await?;
    match response.json() {
        Some(pushed) if response.status.is_success() => Ok(pushed["request_uri"].clone()),
        _ => Err(unexpected("the endpoint for pushed requests", &response)),
    }
}
