//! Simulated client applications: requests of a client on behalf of a signed-in user, and requests of a
//! backend client.

use http::header::AUTHORIZATION;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::browser::{self, address, answer_param, post};
use super::cookies::CookieJar;
use super::credentials::Credentials;
use super::error::SetupError;
use super::target::{TestTarget, claims};
use crate::environment::page_request::get;
use crate::wire::exchange::Answer;
use crate::wire::random::{pkce_pair, random_text};
use crate::wire::variables::Variables;
use crate::wire::{adapt, jose};

/// Value of `client_assertion_type` (RFC 7523 2.2).
pub const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A member of the profile that some profiles lack.
///
/// # Errors
/// [`SetupError::Lacking`] if the profile does not have the member.
pub fn member<'a>(vars: &'a Variables, path: &str) -> Result<&'a str, SetupError> {
    vars.text(path).map_err(|_| SetupError::Lacking(format!("the profile has no '{path}'")))
}

/// The credentials of a user in the profile.
///
/// # Errors
/// [`SetupError::Lacking`] if the profile does not have the user.
pub fn person(vars: &Variables, path: &str) -> Result<Credentials, SetupError> {
    let text = |name: &str| member(vars, &format!("{path}.{name}")).map(str::to_owned);
    Ok(Credentials { username: text("username")?, password: text("password")? })
}

/// Maximum number of characters of a response in an error. Long descriptions of one cause often differ at the
/// end, and the report counts equal texts.
const SHOWN: usize = 120;

/// The error for an unexpected response. It has the beginning of the description, or of the body.
pub fn unexpected(what: &str, response: &Answer) -> SetupError {
    let json = response.json().unwrap_or_default();
    let text = match ["error", "error_description"].map(|member| json[member].as_str()) {
        [Some(error), Some(description)] => format!("{error}: {description}"),
        [Some(error), None] => error.to_owned(),
        _ => response.text(),
    };
    let line = text.lines().next().unwrap_or_default();
    let beginning: String = line.chars().take(SHOWN).collect();
    SetupError::Failed(format!("{what} answered {} {}", response.status, beginning.trim_end()))
}

/// An authorization code, and the values that the client must send with it.
#[derive(Debug, Clone)]
pub struct IssuedCode {
    /// Authorization code, as issued.
    pub code: String,
    /// Redirect URI to which the code was sent.
    pub redirect_uri: String,
    /// Code verifier, if the request had a code challenge.
    pub verifier: Option<String>,
}

/// Requests an authorization code for a client of the profile. Signs in the user first if necessary.
///
/// # Errors
/// [`SetupError`] if no code is issued.
pub async fn code(
    target: &TestTarget,
    cookies: &mut CookieJar,
    person: &Credentials,
    client: &str,
    with_pkce: bool,
    more: &[(&str, &str)],
) -> Result<IssuedCode, SetupError> {
    let vars = target.vars();
    let redirect_uri = member(&vars, &format!("{client}.redirect_uris.0"))?;
    let (verifier, challenge) = pkce_pair();
    let nonce = random_text();
    let mut params = vec![
        ("response_type", "code"),
        ("client_id", member(&vars, &format!("{client}.client_id"))?),
        ("redirect_uri", redirect_uri),
    ];
    params.extend(more);
    let states = |parameter: &str| more.iter().any(|(name, _)| *name == parameter);
    // Any other server may require these (RFC 6749 3.3, RFC 9700 2.1.1).
    if target.treatment.adapts_requests {
        if !states("scope") {
            params.push(("scope", "openid"));
        }
        if !states("nonce") {
            params.push(("nonce", &nonce));
        }
    }
    let with_pkce = with_pkce || target.requires_pkce();
    if with_pkce {
        params.extend([("code_challenge", challenge.as_str()), ("code_challenge_method", "S256")]);
    }
    let redirect = browser::authorize(target, cookies, Some(person), &params).await?;
    let code = answer_param(&redirect, "code")
        .ok_or_else(|| SetupError::Failed(format!("no code in {redirect}")))?;
    Ok(IssuedCode { code, redirect_uri: redirect_uri.to_owned(), verifier: with_pkce.then_some(verifier) })
}

/// Sends a form to the token endpoint, and returns the response.
///
/// # Errors
/// [`SetupError`] if the request fails.
pub(super) async fn token_request(
    target: &TestTarget,
    form: &[(&str, &str)],
    basic: Option<&str>,
) -> Result<Value, SetupError> {
    let mut request = post(address(target.endpoint("token")?)?, form);
    if let Some(basic) = basic {
        let value = format!("Basic {basic}").parse();
        request.headers.insert(
            AUTHORIZATION,
            value.map_err(|_| SetupError::Failed("the client secret is not valid in a header".to_owned()))?,
        );
    }
    let response = target.send(&request, &mut CookieJar::new()).await?;
    match (response.status.as_u16(), response.json()) {
        (200, Some(tokens)) => Ok(tokens),
        _ => Err(unexpected("the token endpoint", &response)),
    }
}

/// Exchanges a code for tokens, and returns the response of the token endpoint.
///
/// # Errors
/// [`SetupError`] if the request fails.
pub async fn redeem(target: &TestTarget, client: &str, code: &IssuedCode) -> Result<Value, SetupError> {
    let vars = target.vars();
    let basic = vars.text(&format!("{client}.basic")).ok();
    let mut form = vec![
        ("grant_type", "authorization_code"),
        ("code", code.code.as_str()),
        ("redirect_uri", code.redirect_uri.as_str()),
    ];
    if basic.is_none() {
        form.push(("client_id", member(&vars, &format!("{client}.client_id"))?));
    }
    if let Some(verifier) = &code.verifier {
        form.push(("code_verifier", verifier));
    }
    token_request(target, &form, basic).await
}

/// Requests tokens for a user by the code flow of the public client, and returns the response of the token
/// endpoint.
///
/// # Errors
/// [`SetupError`] if a request fails.
pub async fn tokens(
    target: &TestTarget,
    cookies: &mut CookieJar,
    person: &Credentials,
    scope: &str,
) -> Result<Value, SetupError> {
    let code = code(target, cookies, person, "public", true, &[("scope", scope)]).await?;
    redeem(target, "public", &code).await
}

/// An object with the members of `changes` added or replaced. A null removes a member.
fn changed(mut object: Value, changes: Value) -> Value {
    if let (Some(members), Value::Object(changes)) = (object.as_object_mut(), changes) {
        members.extend(changes);
        members.retain(|_, value| !value.is_null());
    }
    object
}

/// An assertion of a backend client, with changes of its header and claims.
fn assertion(
    target: &TestTarget,
    backend: usize,
    header: Value,
    changes: Value,
) -> Result<String, SetupError> {
    let vars = target.vars();
    let client_id = member(&vars, &format!("backend.{backend}.client_id"))?;
    let lacking = || SetupError::Lacking(format!("the profile has no 'backend.{backend}.jwk'"));
    let client = vars.get(&format!("backend.{backend}")).ok_or_else(lacking)?;
    let full = json!({ "alg": client["alg"], "kid": client["jwk"]["kid"], "typ": "JWT" });
    jose::sign(&client["jwk"], &changed(full, header), &changed(claims(target, client_id), changes))
        .map_err(|error| SetupError::Failed(error.to_string()))
}

/// Requests an access token for a backend client; without `scope`, for all its scopes.
///
/// # Errors
/// [`SetupError`] if no token is issued.
pub async fn backend_token(
    target: &TestTarget,
    backend: usize,
    scope: Option<&str>,
) -> Result<String, SetupError> {
    let vars = target.vars();
    let assertion = assertion(target, backend, json!({}), json!({}))?;
    let all = vars.get(&format!("backend.{backend}.scopes")).and_then(Value::as_array);
    let all: Vec<_> = all.into_iter().flatten().filter_map(Value::as_str).collect();
    let all = all.join(" ");
    let form = [
        ("grant_type", "client_credentials"),
        ("client_assertion_type", JWT_BEARER),
        ("client_assertion", assertion.as_str()),
        ("scope", scope.unwrap_or(&all)),
    ];
    let tokens = token_request(target, &form, None).await?;
    let token = tokens["access_token"].as_str().map(str::to_owned);
    token.ok_or_else(|| SetupError::Failed("the token endpoint returned no access token".to_owned()))
}

/// Returns assertions by name: valid ones of both clients, and one for each way in which an assertion can be
/// invalid.
///
/// # Errors
/// [`SetupError`] if an assertion cannot be signed.
pub fn assertions(target: &TestTarget) -> Result<Value, SetupError> {
    let none = || json!({});
    let with = |changes: Value| assertion(target, 0, none(), changes);
    let now = Timestamp::now().as_second();
    let issuer = &target.addresses.issuer;
    let vars = target.vars();
    // The message of one assertion with the signature of another: algorithm and key are right.
    let (one, other) = (with(none())?, with(none())?);
    let forged = match (one.rsplit_once('.'), other.rsplit_once('.')) {
        (Some((message, _)), Some((_, signature))) => format!("{message}.{signature}"),
        _ => return Err(SetupError::Failed("an assertion has no signature".to_owned())),
    };
    // A key that is not registered, under the `kid` of the client.
    let stranger = jose::fresh_key("stranger").map_err(|error| SetupError::Failed(error.to_string()))?;
    let header = json!({ "alg": "ES256", "kid": vars.get("backend.0.jwk.kid"), "typ": "JWT" });
    let good = claims(target, member(&vars, "backend.0.client_id")?);
    let other_key =
        jose::sign(&stranger, &header, &good).map_err(|error| SetupError::Failed(error.to_string()))?;
    let unsigned = assertion(target, 0, json!({ "alg": "none" }), none())?;
    let unsigned = unsigned.rsplit_once('.').map(|(message, _)| format!("{message}."));
    Ok(json!({
        "es384": with(none())?,
        "rs384": assertion(target, 1, none(), none())?,
        "for_issuer": with(json!({ "aud": issuer }))?,
        "in_list": with(json!({ "aud": [issuer] }))?,
        "two_audiences": with(json!({ "aud": [issuer, "https://other.example"] }))?,
        "other_audience": with(json!({ "aud": "https://other.example/token" }))?,
        "expired": with(json!({ "exp": now - 60 }))?,
        "too_long": with(json!({ "exp": now + 3600 }))?,
        "without_exp": with(json!({ "exp": null }))?,
        "without_jti": with(json!({ "jti": null }))?,
        "ahead": with(json!({ "iat": now + 50, "nbf": now + 50 }))?,
        "from_future": with(json!({ "nbf": now + 200 }))?,
        "other_subject": with(json!({ "sub": "somebody-else" }))?,
        "without_kid": assertion(target, 0, json!({ "kid": null }), none())?,
        "unknown_kid": assertion(target, 0, json!({ "kid": "nobody" }), none())?,
        "forged": forged,
        "other_key": other_key,
        "other_algorithm": assertion(target, 1, json!({ "alg": "RS256" }), none())?,
        "unsigned": unsigned,
    }))
}

/// Starts an export and polls until it has ended. Returns its status URL and the last response of that URL.
///
/// # Errors
/// [`SetupError`] if a request fails or the export does not end.
pub async fn export(target: &TestTarget, token: &str, request: &str) -> Result<(String, Answer), SetupError> {
    let get = async |url: &str| -> Result<Answer, SetupError> {
        let mut sent_request = get(address(url)?);
        if !token.is_empty() {
            let value = format!("Bearer {token}").parse();
            sent_request.headers.insert(
                AUTHORIZATION,
                value.map_err(|_| SetupError::Failed("the token is not valid in a header".to_owned()))?,
            );
        }
        adapt::add_headers(&target.vars(), &sent_request.url.clone(), &mut sent_request.headers);
        target.send(&sent_request, &mut CookieJar::new()).await
    };
    let started = get(request).await?;
    let status_url =
        started.header("content-location").ok_or_else(|| unexpected("the kick-off", &started))?;
    let mut pauses = target.poll_pauses();
    loop {
        let response = get(&status_url).await?;
        if response.status != http::StatusCode::ACCEPTED {
            return Ok((status_url, response));
        }
        pauses.wait(&response).await?;
    }
}
