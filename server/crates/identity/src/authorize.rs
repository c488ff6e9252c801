//! The authorization request, step by step (SPEC, authorize; RFC 6749 4.1, 4.2; OpenID Connect Core
//! 3.1.2; RFC 7636; RFC 9207).
//!
//! A refusal is either shown on a page of ours or sent to the client's redirect URI. There is
//! nothing to redirect to until the client and its URI are checked, and the types keep it so.

use jiff::Timestamp;
use store::StoreError;

use crate::Identity;
use crate::client::{Client, GrantType, ResponseType};
use crate::dpop;
use crate::grant::Grant;
use crate::params::Params;
use crate::pkce::CodeChallenge;
use crate::pushed::{self, Pushed};
use crate::redirect_uri::{self, RegisteredRedirectUri};
use crate::scope::{Context, Scopes, SmartScope};

/// A checked authorization request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The parameters that it was made of, encoded.
    pub query: String,
    /// It was pushed before: it can be used once.
    pub pushed: Option<Pushed>,
    /// Who asks.
    pub client: Client,
    /// Where the answer goes.
    pub reply: Reply,
    /// What is asked for.
    pub response_type: ResponseType,
    /// Scopes: each of them one that the client has.
    pub scopes: Scopes,
    /// For the ID token.
    pub nonce: Option<String>,
    /// PKCE.
    pub challenge: Option<CodeChallenge>,
    /// Thumbprint of the key that the code is to be bound to (RFC 9449 10).
    pub jkt: Option<String>,
    /// What the user is to be shown, or not.
    pub prompt: Prompt,
    /// Oldest acceptable sign-in, in seconds.
    pub max_age: Option<i64>,
    /// User name to begin with.
    pub login_hint: Option<String>,
    /// Whom the client believes to be signed in.
    pub hint: Hint,
    /// External provider to sign in with.
    pub identity_provider: Option<String>,
}

impl Request {
    /// Must the user see a page before the client receives an answer? Any program on the user's device can name a
    /// native app's client id and listen at its loopback address, so that nothing authenticates the app, and a
    /// consent that was given before says nothing about the program that asks now (RFC 8252 8.6). An https address
    /// belongs to the app.
    pub fn needs_interaction(&self) -> bool {
        let client = &self.client;
        let is_claimed_https = self.reply.to.as_str().starts_with("https://");
        client.native && client.is_public() && (client.consent || !is_claimed_https)
    }

    /// `prompt` for an external provider, so that its own session is not taken for the fresh sign-in that the
    /// client asks for.
    pub fn provider_prompt(&self) -> Option<&'static str> {
        if self.prompt.login || self.max_age.is_some() {
            Some("login")
        } else {
            self.prompt.select_account.then_some("select_account")
        }
    }
}

/// `prompt` of OpenID Connect Core 3.1.2.1: all off is whatever is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Show nothing.
    pub none: bool,
    /// Sign in again.
    pub login: bool,
    /// Ask for consent again.
    pub consent: bool,
    /// Let the user choose who to be.
    pub select_account: bool,
}

impl Prompt {
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
        // `none` goes with nothing else.
        (!prompt.none || text == "none").then_some(prompt)
    }
}

/// `id_token_hint`: whom the client believes to be signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// It does not say.
    Nobody,
    /// This subject.
    User(String),
    /// It says so in a token that is none of ours, or for another client. Nobody can be that user.
    Unreadable,
}

/// Where and how answers reach the client.
#[derive(Debug, Clone)]
pub struct Reply {
    /// A registered address; the only place that the browser is sent to.
    pub to: RegisteredRedirectUri,
    /// Returned unchanged.
    pub state: Option<String>,
    /// Do errors travel in the fragment? (The `id_token` types only: SPEC puts those of `token`
    /// into the query.)
    errors_in_fragment: bool,
    issuer: String,
}

impl Reply {
    /// The address that carries an error to the client.
    pub fn error(&self, error: ErrorCode, description: Option<&str>) -> String {
        let mut pairs = vec![("error", error.as_str())];
        pairs.extend(description.map(|text| ("error_description", text)));
        self.address(pairs, self.errors_in_fragment)
    }

    /// The address that carries an answer to the client.
    pub(crate) fn address<'a>(&'a self, mut pairs: Vec<(&'a str, &'a str)>, fragment: bool) -> String {
        pairs.extend(self.state.as_deref().map(|state| ("state", state)));
        pairs.push(("iss", &self.issuer));
        if fragment { self.to.with_fragment(&pairs) } else { self.to.with_query(&pairs) }
    }
}

/// Error codes of the authorization endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of RFC 6749 4.1.2.1 and OpenID Connect Core 3.1.2.6")]
pub enum ErrorCode {
    InvalidRequest,
    UnauthorizedClient,
    AccessDenied,
    UnsupportedResponseType,
    InvalidScope,
    ServerError,
    LoginRequired,
    ConsentRequired,
    InteractionRequired,
    RequestNotSupported,
    RequestUriNotSupported,
}

impl ErrorCode {
    /// As it is sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnauthorizedClient => "unauthorized_client",
            Self::AccessDenied => "access_denied",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::InvalidScope => "invalid_scope",
            Self::ServerError => "server_error",
            Self::LoginRequired => "login_required",
            Self::ConsentRequired => "consent_required",
            Self::InteractionRequired => "interaction_required",
            Self::RequestNotSupported => "request_not_supported",
            Self::RequestUriNotSupported => "request_uri_not_supported",
        }
    }
}

/// Why the browser stays here: the address to send it to was not established.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// `client_id` missing, unknown or sent twice.
    #[error("The application that sent you here is not registered with this server.")]
    Client,
    /// `redirect_uri` missing, unmatched or sent twice.
    #[error("The application asked to send you to an address that is not registered for it.")]
    RedirectUri,
    /// `request_uri` of ours that is unknown, expired, used or another client's.
    #[error(
        "The request that the application prepared is not known here any more. Go back to the application and begin again."
    )]
    Pushed,
    /// The store's, before the address was established.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A refused authorization request.
#[derive(Debug)]
pub enum Refusal {
    /// Shown on a page of ours.
    Show(ShowError),
    /// Sent to the client.
    Redirect {
        /// Where and how.
        reply: Reply,
        /// What.
        error: ErrorCode,
    },
}

impl Identity {
    /// Checks an authorization request, in the order of SPEC's tables. One that was pushed before is taken as
    /// it was pushed; whatever stands beside `request_uri` does not count (RFC 9126 4).
    ///
    /// # Errors
    /// [`Refusal`]: whom to tell and what.
    pub async fn check_authorization_request(&self, query: &str, now: Timestamp) -> Result<Request, Refusal> {
        let params = Params::parse(query.as_bytes());
        match params.get("request_uri").and_then(pushed::id) {
            Some(id) => {
                let client_id = params.get("client_id").filter(|_| !params.is_ambiguous("client_id"));
                let client_id = client_id.ok_or(Refusal::Show(ShowError::Client))?;
                let found = self.pushed_request(id, client_id, now).await.map_err(Refusal::Show)?;
                self.check_params(&found.query, Some(found.pushed), now).await
            }
            None => self.check_params(query, None, now).await,
        }
    }

    /// Checks the parameters of a request, wherever they came from.
    pub(crate) async fn check_params(
        &self,
        query: &str,
        pushed: Option<Pushed>,
        now: Timestamp,
    ) -> Result<Request, Refusal> {
        let params = Params::parse(query.as_bytes());
        let (client, to) = self.check_destination(&params, now).await.map_err(Refusal::Show)?;
        let asked = params.get("response_type").unwrap_or_default();
        let reply = Reply {
            to,
            // A state that was sent twice is in doubt, so none goes back.
            state: params.get("state").filter(|_| !params.is_ambiguous("state")).map(str::to_owned),
            errors_in_fragment: asked.split(' ').any(|part| part == "id_token"),
            issuer: self.issuer.clone(),
        };
        match self.check_request(&params, pushed, client, &reply, now) {
            Ok(request) => Ok(request),
            Err(error) => Err(Refusal::Redirect { reply, error }),
        }
    }

    async fn check_destination(
        &self,
        params: &Params,
        now: Timestamp,
    ) -> Result<(Client, RegisteredRedirectUri), ShowError> {
        if params.is_ambiguous("client_id") {
            return Err(ShowError::Client);
        }
        let client_id = params.get("client_id").ok_or(ShowError::Client)?;
        let client = self.client(client_id, now).await?.ok_or(ShowError::Client)?;
        if params.is_ambiguous("redirect_uri") {
            return Err(ShowError::RedirectUri);
        }
        let sent = params.get("redirect_uri").ok_or(ShowError::RedirectUri)?;
        let to = redirect_uri::matching(&client.redirect_uris, sent, client.native)
            .ok_or(ShowError::RedirectUri)?;
        Ok((client, to))
    }

    fn check_request(
        &self,
        params: &Params,
        pushed: Option<Pushed>,
        client: Client,
        reply: &Reply,
        now: Timestamp,
    ) -> Result<Request, ErrorCode> {
        if params.defect().is_some() {
            return Err(ErrorCode::InvalidRequest);
        }
        if params.get("request").is_some() {
            return Err(ErrorCode::RequestNotSupported);
        }
        if params.get("request_uri").is_some() {
            return Err(ErrorCode::RequestUriNotSupported);
        }
        let response_type = check_response_type(params.get("response_type"), &client)?;
        if client.require_par && pushed.is_none() {
            return Err(ErrorCode::InvalidRequest);
        }
        check_state(params.get("state"))?;
        let challenge = check_pkce(params, &client, response_type)?;
        let scopes = check_scope(params.get("scope"), &client)?;
        let default_mode = if response_type == ResponseType::Code { "query" } else { "fragment" };
        if params.get("response_mode").is_some_and(|mode| mode != default_mode) {
            return Err(ErrorCode::InvalidRequest);
        }
        let nonce = params.get("nonce").map(str::to_owned);
        if matches!(response_type, ResponseType::IdToken | ResponseType::IdTokenToken)
            && (nonce.is_none() || !scopes.has("openid"))
        {
            return Err(ErrorCode::InvalidRequest);
        }
        // Tokens of the front channel cannot be bound to a key.
        if client.dpop_bound && response_type != ResponseType::Code {
            return Err(ErrorCode::UnauthorizedClient);
        }
        let prompt = params.get("prompt").map_or(Some(Prompt::default()), Prompt::parse);
        let displays = ["page", "popup", "touch", "wap"];
        if params.get("display").is_some_and(|display| !displays.contains(&display)) {
            return Err(ErrorCode::InvalidRequest);
        }
        let max_age = params.get("max_age").map(str::parse::<u32>).transpose();
        self.check_audience(params.get("aud"), &scopes)?;
        let jkt = match params.get("dpop_jkt") {
            // Tokens of the front channel are bearer tokens.
            Some(jkt) if !dpop::is_thumbprint(jkt) || response_type != ResponseType::Code => {
                return Err(ErrorCode::InvalidRequest);
            }
            asked => asked.map(str::to_owned).or_else(|| pushed.as_ref()?.jkt.clone()),
        };
        let hint = match params.get("id_token_hint") {
            None => Hint::Nobody,
            Some(token) => match self.read_id_token_hint(token, now) {
                Some((sub, aud, _)) if aud == client.client_id => Hint::User(sub),
                _ => Hint::Unreadable,
            },
        };
        Ok(Request {
            query: params.without(&[]),
            pushed,
            client,
            reply: reply.clone(),
            response_type,
            scopes,
            nonce,
            challenge,
            jkt,
            prompt: prompt.ok_or(ErrorCode::InvalidRequest)?,
            max_age: max_age.map_err(|_| ErrorCode::InvalidRequest)?.map(i64::from),
            login_hint: params.get("login_hint").map(str::to_owned),
            hint,
            identity_provider: params.get("identity_provider").map(str::to_owned),
        })
    }

    /// `aud` of SMART App Launch: this FHIR server and no other, so that a token for it is never fetched
    /// for a stranger's. A launch must say it; who asks for no patient's data may leave it out.
    fn check_audience(&self, aud: Option<&str>, scopes: &Scopes) -> Result<(), ErrorCode> {
        match aud {
            Some(aud) if aud.trim_end_matches('/') == self.fhir_base => Ok(()),
            None if !scopes.is_launch() => Ok(()),
            _ => Err(ErrorCode::InvalidRequest),
        }
    }

    /// May this client have a refresh token for this grant?
    pub fn may_refresh(&self, client: &Client, grant: &Grant) -> bool {
        client.grant_types.contains(&GrantType::RefreshToken)
            && (client.always_refresh || grant.scopes.has("offline_access"))
    }
}

fn check_response_type(asked: Option<&str>, client: &Client) -> Result<ResponseType, ErrorCode> {
    let mut parts: Vec<&str> = asked.ok_or(ErrorCode::InvalidRequest)?.split(' ').collect();
    parts.sort_unstable();
    let response_type = match parts[..] {
        ["code"] => ResponseType::Code,
        ["token"] => ResponseType::Token,
        ["id_token"] => ResponseType::IdToken,
        ["id_token", "token"] => ResponseType::IdTokenToken,
        _ => return Err(ErrorCode::UnsupportedResponseType),
    };
    if !client.response_types.contains(&response_type) {
        return Err(ErrorCode::UnauthorizedClient);
    }
    Ok(response_type)
}

/// SPEC: `state` must not be a URL-encoded JSON string. Base64 around it makes it legal, and is
/// never looked into.
fn check_state(state: Option<&str>) -> Result<(), ErrorCode> {
    let Some(state) = state else { return Ok(()) };
    let is_json = state.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(state).is_ok();
    if is_json { Err(ErrorCode::InvalidRequest) } else { Ok(()) }
}

fn check_pkce(
    params: &Params,
    client: &Client,
    response_type: ResponseType,
) -> Result<Option<CodeChallenge>, ErrorCode> {
    match (params.get("code_challenge"), params.get("code_challenge_method")) {
        (None, None) if client.pkce_required && response_type == ResponseType::Code => {
            Err(ErrorCode::InvalidRequest)
        }
        (None, None) => Ok(None),
        (Some(challenge), Some("S256")) => {
            CodeChallenge::parse(challenge).map(Some).ok_or(ErrorCode::InvalidRequest)
        }
        _ => Err(ErrorCode::InvalidRequest),
    }
}

pub(crate) fn check_scope(asked: Option<&str>, client: &Client) -> Result<Scopes, ErrorCode> {
    let scopes = Scopes::parse(asked.unwrap_or("openid")).map_err(|_| ErrorCode::InvalidScope)?;
    // `system/` scopes come from client_credentials only.
    let is_system = |scope: &str| SmartScope::parse(scope).is_some_and(|s| s.context == Context::System);
    if scopes.iter().any(|scope| is_system(scope) || !client.scopes.covers(scope)) {
        return Err(ErrorCode::InvalidScope);
    }
    Ok(scopes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_json_is_refused_and_base64_of_it_is_not() {
        for bad in [r#"{"a":1}"#, "[]", " {}", r#"[1,{"b":null}]"#] {
            assert!(check_state(Some(bad)).is_err(), "{bad}");
        }
        for good in ["eyJhIjoxfQ==", "{", "{a:1}", "1", "true", "\"text\"", "abc", "%7B%7D", "[not json"] {
            assert!(check_state(Some(good)).is_ok(), "{good}");
        }
    }
}
