//! The authorization request, step by step (SPEC, authorize; RFC 6749 4.1, 4.2; OpenID Connect Core
//! 3.1.2; RFC 7636; RFC 9207).
//!
//! A refusal is either shown on a page of ours or sent to the client's redirect URI. There is
//! nothing to redirect to until the client and its URI are checked, and the types keep it so.

use jiff::Timestamp;
use store::StoreError;

use crate::Identity;
use crate::client::{Client, GrantType, ResponseType};
use crate::grant::Grant;
use crate::params::Params;
use crate::pkce::CodeChallenge;
use crate::redirect_uri::{self, RegisteredRedirectUri};
use crate::scope::{Context, Scopes, SmartScope};
use crate::session::Session;
use crate::token::ACCESS_LIFE;
use crate::user::User;

/// A checked authorization request.
#[derive(Debug, Clone)]
pub struct Request {
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
    /// Is the user to sign in again, or not to be shown anything?
    pub prompt: Prompt,
    /// Oldest acceptable sign-in, in seconds.
    pub max_age: Option<i64>,
    /// User name to begin with.
    pub login_hint: Option<String>,
    /// External provider to sign in with.
    pub identity_provider: Option<String>,
}

/// `prompt` of OpenID Connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prompt {
    /// Whatever is needed.
    Auto,
    /// Show nothing.
    None,
    /// Sign in again.
    Login,
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

    fn address<'a>(&'a self, mut pairs: Vec<(&'a str, &'a str)>, fragment: bool) -> String {
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
    /// Checks an authorization request, in the order of SPEC's tables.
    ///
    /// # Errors
    /// [`Refusal`]: whom to tell and what.
    pub async fn check_authorization_request(&self, query: &str, now: Timestamp) -> Result<Request, Refusal> {
        let params = Params::parse(query.as_bytes());
        let (client, to) = self.check_destination(&params, now).await.map_err(Refusal::Show)?;
        let asked = params.get("response_type").unwrap_or_default();
        let reply = Reply {
            to,
            // A state that was sent twice is in doubt, so none goes back.
            state: params.get("state").filter(|_| !params.is_unclear("state")).map(str::to_owned),
            errors_in_fragment: asked.split(' ').any(|part| part == "id_token"),
            issuer: self.issuer.clone(),
        };
        match check_request(&params, client, &reply) {
            Ok(request) => Ok(request),
            Err(error) => Err(Refusal::Redirect { reply, error }),
        }
    }

    async fn check_destination(
        &self,
        params: &Params,
        now: Timestamp,
    ) -> Result<(Client, RegisteredRedirectUri), ShowError> {
        if params.is_unclear("client_id") {
            return Err(ShowError::Client);
        }
        let client_id = params.get("client_id").ok_or(ShowError::Client)?;
        let client = self.client(client_id, now).await?.ok_or(ShowError::Client)?;
        if params.is_unclear("redirect_uri") {
            return Err(ShowError::RedirectUri);
        }
        let sent = params.get("redirect_uri").ok_or(ShowError::RedirectUri)?;
        let to = redirect_uri::matching(&client.redirect_uris, sent, client.native)
            .ok_or(ShowError::RedirectUri)?;
        Ok((client, to))
    }

    /// What the user can grant of a request: asked ∩ client ∩ user. `None` where nothing is left.
    pub fn grantable(&self, request: &Request, user: &User) -> Option<Scopes> {
        let scopes = request.scopes.covered_by(&user.allowed_scopes);
        (!scopes.is_empty()).then_some(scopes)
    }

    /// Grants the request and gives the address that carries the answer to the client.
    ///
    /// # Errors
    /// The store's; the caller tells the client `server_error`.
    pub async fn grant(
        &self,
        request: &Request,
        scopes: Scopes,
        session: &Session,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let grant = Grant {
            client_id: request.client.client_id.clone(),
            sub: session.sub.clone(),
            scopes,
            auth_time: session.auth_time,
            sid: session.sid.clone(),
            epoch: session.epoch,
            nonce: request.nonce.clone(),
            family: self.random.id(),
        };
        if request.response_type == ResponseType::Code {
            let to = request.reply.to.clone();
            let code = self.issue_code(grant, to, request.challenge.clone(), now).await?;
            return Ok(request.reply.address(vec![("code", &code)], false));
        }
        let with_access = request.response_type != ResponseType::IdToken;
        let with_id = grant.scopes.has("openid");
        let access_token = with_access.then(|| self.mint_access_token(&grant, now));
        let id_token = with_id.then(|| self.mint_id_token(&grant, access_token.as_deref(), now));
        let expires_in = ACCESS_LIFE.as_secs().to_string();
        let mut pairs = Vec::new();
        pairs.extend(id_token.as_deref().map(|token| ("id_token", token)));
        if let Some(token) = &access_token {
            pairs.extend([
                ("access_token", token.as_str()),
                ("token_type", "bearer"),
                ("expires_in", &expires_in),
            ]);
        }
        // RFC 6749 4.2.2: the scope is told where it differs from what was asked.
        let granted = grant.scopes.to_string();
        if grant.scopes != request.scopes {
            pairs.push(("scope", &granted));
        }
        Ok(request.reply.address(pairs, true))
    }

    /// May this client have a refresh token for this grant?
    pub fn may_refresh(&self, client: &Client, grant: &Grant) -> bool {
        client.grant_types.contains(&GrantType::RefreshToken)
            && (client.always_refresh || grant.scopes.has("offline_access"))
    }
}

fn check_request(params: &Params, client: Client, reply: &Reply) -> Result<Request, ErrorCode> {
    if params.first_unclear().is_some() {
        return Err(ErrorCode::InvalidRequest);
    }
    if params.get("request").is_some() {
        return Err(ErrorCode::RequestNotSupported);
    }
    if params.get("request_uri").is_some() {
        return Err(ErrorCode::RequestUriNotSupported);
    }
    let response_type = check_response_type(params.get("response_type"), &client)?;
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
    let prompt = match params.get("prompt") {
        None | Some("consent" | "select_account" | "consent select_account" | "select_account consent") => {
            Prompt::Auto
        }
        Some("none") => Prompt::None,
        Some(text) if text.split(' ').any(|p| p == "login") && text.split(' ').all(|p| p != "none") => {
            Prompt::Login
        }
        Some(_) => return Err(ErrorCode::InvalidRequest),
    };
    let max_age = match params.get("max_age").map(str::parse::<u32>) {
        None => None,
        Some(Ok(seconds)) => Some(i64::from(seconds)),
        Some(Err(_)) => return Err(ErrorCode::InvalidRequest),
    };
    Ok(Request {
        client,
        reply: reply.clone(),
        response_type,
        scopes,
        nonce,
        challenge,
        prompt,
        max_age,
        login_hint: params.get("login_hint").map(str::to_owned),
        identity_provider: params.get("identity_provider").map(str::to_owned),
    })
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

fn check_scope(asked: Option<&str>, client: &Client) -> Result<Scopes, ErrorCode> {
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
