//! Checks of the authorization request, in the order of the specifications (RFC 6749 sections 4.1 and 4.2;
//! OpenID Connect Core section 3.1.2; RFC 7636; RFC 9207).
//!
//! A rejected request is answered with an error page of this server or with a redirect to the client. A
//! redirect requires a [`RegisteredRedirectUri`], which exists only after the client and its redirect URI
//! were checked.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::authorize::authorization_service::AuthorizationService;
use crate::authorize::authorization_service::SupportsQuery;
use crate::authorize::launch::LaunchContext;
use crate::authorize::pushed_request::{self, PushedRequestRef};
use crate::authorize::refusal::Refusal;
use crate::authorize::reply::{AuthorizationError, AuthorizationReply, PageError};
use crate::model::client::{Client, ResponseType};
use crate::model::error_code::ErrorCode;
use crate::model::pkce::CodeChallenge;
use crate::model::redirect_uri::{self, RegisteredRedirectUri};
use crate::model::scope::{self, NamedScope, ScopeContext, Scopes, SmartScope};
use crate::params::Params;
use crate::sign_in::provider_sign_in::RequiredFreshness;
use crate::tokens::dpop;

/// The parts of an authorization request that can be large.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RequestText {
    pub query: String,
    /// Context of an EHR launch, which may expire during the interaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<LaunchContext>,
}

/// A checked authorization request.
#[derive(Debug, Clone)]
pub struct AuthorizationRequest {
    /// The URL-encoded parameters.
    pub query: String,
    /// Context of an EHR launch.
    pub launch: Option<LaunchContext>,
    /// Reference of a pushed request, which can be granted once. `None` for a direct request.
    pub pushed: Option<PushedRequestRef>,
    /// The client that sent the request.
    pub client: Client,
    /// Target and encoding of the answer to the client.
    pub reply: AuthorizationReply,
    /// The requested response type.
    pub response_type: ResponseType,
    /// The requested scopes, all of which are registered for the client.
    pub scopes: Scopes,
    /// `nonce` for the ID token.
    pub nonce: Option<String>,
    /// PKCE code challenge.
    pub challenge: Option<CodeChallenge>,
    /// Thumbprint of the key that the code will be bound to (RFC 9449 section 10).
    pub jkt: Option<String>,
    /// The pages that the client requires, or excludes with `none`.
    pub prompt: PromptValues,
    /// Maximum age of the sign-in in seconds.
    pub max_age: Option<i64>,
    /// User name for the sign-in form.
    pub login_hint: Option<String>,
    /// The user named by `id_token_hint`.
    pub hint: IdTokenHint,
    /// The only audience of the access tokens, if the client has chosen one (RFC 8707).
    pub resource: Option<String>,
    /// Languages of the pages that the client prefers, separated by spaces.
    pub ui_locales: Option<String>,
    /// Name of the external provider to sign in with.
    pub identity_provider: Option<String>,
}

impl AuthorizationRequest {
    /// Returns `true` if the user must see a page before the client receives an answer. A native app cannot
    /// be authenticated: any program on the device can use its client id and listen on its loopback address.
    /// An earlier consent may therefore have been given to another program (RFC 8252 section 8.6). A claimed
    /// https address belongs to one app and is exempt.
    pub fn needs_interaction(&self) -> bool {
        let client = &self.client;
        let is_claimed_https = self.reply.to.as_str().starts_with("https://");
        client.native && client.is_public() && (client.consent || !is_claimed_https)
    }

    /// Returns the requirements on an external provider. If the client requires a new sign-in, the provider
    /// must not reuse its own session.
    pub fn required_freshness(&self) -> RequiredFreshness {
        RequiredFreshness {
            login: self.prompt.login,
            select_account: self.prompt.select_account,
            max_age: self.max_age,
        }
    }
}

/// Values of `prompt` (OpenID Connect Core section 3.1.2.1). Without a value, only the necessary pages are
/// shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptValues {
    /// Show no page.
    pub none: bool,
    /// Require a new sign-in.
    pub login: bool,
    /// Require consent, even if it is stored.
    pub consent: bool,
    /// Let the user select an account.
    pub select_account: bool,
}

impl PromptValues {
    fn parse(text: &str) -> Option<Self> {
        let mut prompt = Self::default();
        for word in text.split(' ') {
            match word {
                "none" => prompt.none = true,
                "login" => prompt.login = true,
                "consent" => prompt.consent = true,
                "select_account" => prompt.select_account = true,
                _ => return None,
            }
        }
        // `none` must not be combined with another value.
        (!prompt.none || text == "none").then_some(prompt)
    }
}

/// The user named by `id_token_hint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdTokenHint {
    /// No hint was sent.
    Missing,
    /// Subject of the user.
    User(String),
    /// The hint is not an ID token that this server issued to this client. No session satisfies it without a
    /// page.
    Unreadable,
}

impl AuthorizationService {
    /// Checks an authorization request. If the request was pushed, only `client_id` and `request_uri` are
    /// read from the query (RFC 9126 section 4).
    ///
    /// # Errors
    /// Returns [`AuthorizationError`] if the request is rejected.
    pub async fn check_authorization_request(
        &self,
        query: &str,
        now: Timestamp,
    ) -> Result<AuthorizationRequest, AuthorizationError> {
        let params = Params::parse(query.as_bytes());
        match params.get("request_uri").and_then(pushed_request::request_reference) {
            Some(id) => {
                let client_id = params.get("client_id").filter(|_| !params.is_ambiguous("client_id"));
                let client_id = client_id.ok_or_else(|| {
                    AuthorizationError::Show(PageError::Client {
                        client_id: params.get("client_id").map(str::to_owned),
                    })
                })?;
                let pushed =
                    self.load_pushed_request(id, client_id, now).await.map_err(AuthorizationError::Show)?;
                self.check_request_params(&pushed.query, Some(pushed.pushed), None, now).await
            }
            None => self.check_request_params(query, None, None, now).await,
        }
    }

    /// Checks the parameters of a direct or pushed request. `launch` is the context of an EHR launch, if it
    /// was read before.
    pub(crate) async fn check_request_params(
        &self,
        query: &str,
        pushed: Option<PushedRequestRef>,
        launch: Option<LaunchContext>,
        now: Timestamp,
    ) -> Result<AuthorizationRequest, AuthorizationError> {
        let params = Params::parse(query.as_bytes());
        let (client, to) = self.check_destination(&params, now).await.map_err(AuthorizationError::Show)?;
        let requested = params.get("response_type").unwrap_or_default();
        // A form cannot be sent to an address with another scheme, as native applications have.
        let is_web = to.as_str().starts_with("https://") || to.as_str().starts_with("http://");
        let reply = AuthorizationReply {
            form_post: is_web && params.get("response_mode") == Some("form_post"),
            to,
            // A repeated `state` is ambiguous, so none is returned to the client.
            state: params.get("state").filter(|_| !params.is_ambiguous("state")).map(str::to_owned),
            errors_in_fragment: requested.split(' ').any(|part| part == "id_token"),
            issuer: self.issuer.clone(),
        };
        let launch = match (launch, params.get("launch")) {
            (None, Some(id)) => match self.launch_context(id, &client, now).await {
                Ok(found) => found,
                Err(error) => {
                    let refusal = ErrorCode::from(&error).into();
                    return Err(AuthorizationError::Redirect { client_id: client.client_id, reply, refusal });
                }
            },
            (launch, _) => launch,
        };
        let client_id = client.client_id.clone();
        match self.check_request(&params, pushed, launch, client, &reply, now) {
            Ok(request) => Ok(request),
            Err(refusal) => Err(AuthorizationError::Redirect { client_id, reply, refusal }),
        }
    }

    async fn check_destination(
        &self,
        params: &Params,
        now: Timestamp,
    ) -> Result<(Client, RegisteredRedirectUri), PageError> {
        let unknown = || PageError::Client { client_id: params.get("client_id").map(str::to_owned) };
        if params.is_ambiguous("client_id") {
            return Err(unknown());
        }
        let client_id = params.get("client_id").ok_or_else(unknown)?;
        let client = self.clients.active_client(client_id, now).await?.ok_or_else(unknown)?;
        let wrong_redirect_uri = || PageError::RedirectUri {
            client_id: client_id.to_owned(),
            sent: params.get("redirect_uri").map(str::to_owned),
        };
        if params.is_ambiguous("redirect_uri") {
            return Err(wrong_redirect_uri());
        }
        let address = params.get("redirect_uri").ok_or_else(wrong_redirect_uri)?;
        let to = redirect_uri::match_redirect_uri(&client.redirect_uris, address, client.native)
            .ok_or_else(wrong_redirect_uri)?;
        Ok((client, to))
    }

    fn check_request(
        &self,
        params: &Params,
        pushed: Option<PushedRequestRef>,
        launch: Option<LaunchContext>,
        client: Client,
        reply: &AuthorizationReply,
        now: Timestamp,
    ) -> Result<AuthorizationRequest, Refusal> {
        let invalid = Refusal::invalid_request;
        let invalid_value = |name, reason| invalid(reason).with_value(params.get(name));
        if let Some(defect) = params.defect() {
            let reason = "parameters are repeated, not UTF-8 or too many";
            return Err(invalid(reason).with_value(Some(&defect.to_string())));
        }
        if params.get("request").is_some() {
            let reason = "request objects are not supported; send the parameters instead of 'request'";
            return Err(Refusal::new(ErrorCode::RequestNotSupported, reason));
        }
        // The value is not logged: it can be a secret of another server.
        if params.get("request_uri").is_some() {
            let reason = "request_uri is not one of this server's PAR endpoint";
            return Err(Refusal::new(ErrorCode::RequestUriNotSupported, reason));
        }
        let response_type = check_response_type(params.get("response_type"), &client)?;
        if client.require_pushed_authorization_requests && pushed.is_none() {
            return Err(invalid("the client must push its requests (RFC 9126)"));
        }
        check_state(params.get("state"))?;
        let challenge = check_pkce(params, &client, response_type)?;
        let scopes = check_scope(params.get("scope"), &client, self.supports_query)?;
        let default_mode = if response_type == ResponseType::Code { "query" } else { "fragment" };
        if params.get("response_mode").is_some_and(|mode| mode != default_mode && !reply.form_post) {
            let reason = "response_mode must be form_post or the default of response_type";
            return Err(invalid_value("response_mode", reason));
        }
        let nonce = params.get("nonce").map(str::to_owned);
        if matches!(response_type, ResponseType::IdToken | ResponseType::IdTokenToken)
            && (nonce.is_none() || !scopes.has(NamedScope::Openid))
        {
            return Err(invalid("response_type id_token requires nonce and the scope openid"));
        }
        // Tokens on the front channel cannot be bound to a key.
        if client.dpop_bound_access_tokens && response_type != ResponseType::Code {
            let reason = "the client's tokens are bound to a key, which only response_type=code can do";
            return Err(Refusal::new(ErrorCode::UnauthorizedClient, reason));
        }
        let prompt = params.get("prompt").map_or(Some(PromptValues::default()), PromptValues::parse);
        let displays = ["page", "popup", "touch", "wap"];
        if params.get("display").is_some_and(|display| !displays.contains(&display)) {
            return Err(invalid_value("display", "display must be page, popup, touch or wap"));
        }
        let max_age = params.get("max_age").map(str::parse::<u32>).transpose();
        let default_max_age = client.default_max_age;
        self.check_audience(params.get("aud"), &scopes)?;
        let resource = self.tokens.named_audience(params.all("resource")).map_err(|unknown| {
            let reason = "resource must be the issuer or the FHIR base URL of this server (RFC 8707)";
            Refusal::new(ErrorCode::InvalidTarget, reason).with_value(Some(unknown))
        })?;
        // An unknown context is an error, so that an application does not show another patient than the
        // portal.
        if launch.is_none() && (params.get("launch").is_some() || scopes.has(NamedScope::Launch)) {
            let reason = "launch is missing, unknown, expired or for another client";
            return Err(invalid_value("launch", reason));
        }
        let jkt = match params.get("dpop_jkt") {
            // Tokens on the front channel are bearer tokens.
            Some(jkt) if !dpop::is_thumbprint(jkt) || response_type != ResponseType::Code => {
                let reason = "dpop_jkt must be a JWK thumbprint, and response_type code";
                return Err(invalid(reason).with_value(Some(jkt)));
            }
            requested => requested.map(str::to_owned).or_else(|| pushed.as_ref()?.jkt.clone()),
        };
        // The user of a launch context takes precedence over the hint.
        let launch_user = launch.as_ref().and_then(|launch| launch.sub.clone());
        let hint = match params.get("id_token_hint").filter(|_| launch_user.is_none()) {
            None => launch_user.map_or(IdTokenHint::Missing, IdTokenHint::User),
            Some(token) => match self.tokens.verify_id_token_hint(token, now) {
                Some((sub, aud, _)) if aud == client.client_id => IdTokenHint::User(sub),
                _ => IdTokenHint::Unreadable,
            },
        };
        Ok(AuthorizationRequest {
            query: params.without(&[]),
            launch,
            pushed,
            client,
            reply: reply.clone(),
            response_type,
            scopes,
            nonce,
            challenge,
            jkt,
            prompt: prompt.ok_or_else(|| {
                let reason = "prompt must be none alone, or login, consent and select_account";
                invalid_value("prompt", reason)
            })?,
            max_age: max_age
                .map_err(|_| invalid_value("max_age", "max_age must be a number of seconds"))?
                .or(default_max_age)
                .map(i64::from),
            login_hint: params.get("login_hint").map(str::to_owned),
            hint,
            resource: resource.map(str::to_owned),
            ui_locales: params.get("ui_locales").map(str::to_owned),
            identity_provider: params.get("identity_provider").map(str::to_owned),
        })
    }

    /// Checks `aud` of SMART App Launch: it must be the FHIR base of this server, so that a malicious
    /// resource server cannot obtain tokens for this server. `aud` is required for a launch and optional
    /// otherwise.
    fn check_audience(&self, aud: Option<&str>, scopes: &Scopes) -> Result<(), Refusal> {
        match aud {
            Some(aud) if aud.trim_end_matches('/') == self.fhir_base => Ok(()),
            None if !scopes.is_launch() && !scopes.has(NamedScope::Launch) => Ok(()),
            _ => Err(Refusal::invalid_request("aud must be the FHIR base URL of this server")
                .with_value(aud)
                .mended_by(format!("send aud={}", self.fhir_base))),
        }
    }
}

fn check_response_type(requested: Option<&str>, client: &Client) -> Result<ResponseType, Refusal> {
    let missing = || Refusal::invalid_request("response_type is missing");
    let requested = requested.ok_or_else(missing)?;
    let mut parts: Vec<&str> = requested.split(' ').collect();
    parts.sort_unstable();
    let response_type = match parts[..] {
        ["code"] => ResponseType::Code,
        ["token"] => ResponseType::Token,
        ["id_token"] => ResponseType::IdToken,
        ["id_token", "token"] => ResponseType::IdTokenToken,
        _ => {
            let reason = "response_type must be code, token, id_token or id_token token";
            return Err(Refusal::new(ErrorCode::UnsupportedResponseType, reason).with_value(Some(requested)));
        }
    };
    if !client.response_types.contains(&response_type) {
        let reason = "the client is not registered for this response_type";
        let remedy = client.registration_remedy("response_types", "response-type", requested);
        let refusal = Refusal::new(ErrorCode::UnauthorizedClient, reason);
        return Err(refusal.with_value(Some(requested)).mended_by(remedy));
    }
    Ok(response_type)
}

/// Rejects a `state` that is a JSON object or array. A base64 value is accepted and not decoded.
fn check_state(state: Option<&str>) -> Result<(), Refusal> {
    let Some(state) = state else { return Ok(()) };
    let is_json = state.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(state).is_ok();
    match is_json {
        true => {
            Err(Refusal::invalid_request("state must not be a JSON object or array").with_value(Some(state)))
        }
        false => Ok(()),
    }
}

fn check_pkce(
    params: &Params,
    client: &Client,
    response_type: ResponseType,
) -> Result<Option<CodeChallenge>, Refusal> {
    match (params.get("code_challenge"), params.get("code_challenge_method")) {
        (None, None) if client.pkce_required && response_type == ResponseType::Code => Err(
            Refusal::invalid_request("code_challenge is missing, and the client must use PKCE (RFC 7636)"),
        ),
        (None, None) => Ok(None),
        (Some(challenge), Some("S256")) => CodeChallenge::parse(challenge).map(Some).ok_or_else(|| {
            let reason = "code_challenge must be the base64url of a SHA-256, 43 characters";
            Refusal::invalid_request(reason).with_value(Some(challenge))
        }),
        (_, method) => {
            let reason = "code_challenge requires code_challenge_method=S256";
            Err(Refusal::invalid_request(reason).with_value(method))
        }
    }
}

pub(crate) fn check_scope(
    requested: Option<&str>,
    client: &Client,
    supports_query: SupportsQuery,
) -> Result<Scopes, Refusal> {
    let scope_error =
        |reason, value: &str| Refusal::new(ErrorCode::InvalidScope, reason).with_value(Some(value));
    let scopes = Scopes::parse(requested.unwrap_or_default())
        .map_err(|error| scope_error("scope must be a list of scopes separated by spaces", &error.0))?;
    let scopes = if scopes.is_empty() { [NamedScope::Openid.name()].into_iter().collect() } else { scopes };
    // `system/` scopes are granted only by the grant type `client_credentials`.
    let is_system = |scope: &str| SmartScope::parse(scope).is_some_and(|s| s.context == ScopeContext::System);
    let is_supported = |scope: &str| {
        let query = SmartScope::parse(scope).and_then(|smart| Some((smart.kind, smart.query?)));
        query.is_none_or(|(kind, query)| supports_query(kind, query))
    };
    for scope in scopes.iter() {
        if !is_supported(scope) {
            return Err(scope_error(
                "the query of the scope is not a search that this server supports",
                scope,
            ));
        }
        if is_system(scope) {
            return Err(scope_error("system/ scopes are granted by client_credentials only", scope));
        }
        if !client.scopes.covers(scope) {
            let refusal = scope_error("the scope is not registered for the client", scope);
            return Err(match scope_remedy(client, scope) {
                Some(remedy) => refusal.mended_by(remedy),
                None => refusal,
            });
        }
    }
    Ok(scopes)
}

/// How a scope is registered for a client. A scope that nobody would register has no remedy: a stranger chose
/// it, and an operator would paste the command into a shell.
fn scope_remedy(client: &Client, scope: &str) -> Option<String> {
    let is_word = scope.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:*?=&".contains(&byte));
    let nearest = scope::nearest_scope(scope);
    if let Some(nearest) = nearest.filter(|nearest| client.scopes.covers(nearest)) {
        return Some(format!("the application may mean {nearest}"));
    }
    let is_known = SmartScope::parse(scope).is_some() || NamedScope::is_standard_name(scope);
    if !is_word || !is_known {
        return None;
    }
    let registered = client.scopes.iter().chain([scope]).collect::<Vec<_>>().join(" ");
    Some(client.registration_remedy("scope", "scope", &registered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_state_is_rejected_and_its_base64_is_accepted() {
        for bad in [r#"{"a":1}"#, "[]", " {}", r#"[1,{"b":null}]"#] {
            assert!(check_state(Some(bad)).is_err(), "{bad}");
        }
        for good in ["eyJhIjoxfQ==", "{", "{a:1}", "1", "true", "\"text\"", "abc", "%7B%7D", "[not json"] {
            assert!(check_state(Some(good)).is_ok(), "{good}");
        }
    }
}
