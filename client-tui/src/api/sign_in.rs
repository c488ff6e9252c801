//! Sign-in of a user: authorization code grant with PKCE (RFC 6749 4.1, RFC 7636), `state`, `iss` (RFC 9207)
//! and the claims of the ID token (OpenID Connect Core 3.1.3.7).
//!
//! The `oauth2` crate implements the protocol; its requests are sent with the HTTP client of this program.

use std::borrow::Cow;
use std::pin::Pin;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AuthType, AuthUrl, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken, EndpointNotSet,
    EndpointSet, ErrorResponseType, ExtraTokenFields, HttpRequest, HttpResponse, PkceCodeChallenge,
    PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope, StandardErrorResponse, StandardRevocableToken,
    StandardTokenResponse, TokenUrl,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::user_tokens::UserTokens;
use super::{Api, ApiError};
use crate::clock::clock_sentence;
use crate::profile::ClientCredential;

/// A request of the `oauth2` crate in progress.
pub(super) type OAuthCall = Pin<Box<dyn Future<Output = Result<HttpResponse, ApiError>> + Send>>;

type OAuthClient = Client<
    BasicErrorResponse,
    TokenAnswer,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
>;
/// An [`OAuthClient`] with a token endpoint.
pub(super) type TokenClient = Client<
    BasicErrorResponse,
    TokenAnswer,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;
pub type TokenAnswer = StandardTokenResponse<IdTokenField, BasicTokenType>;

/// Members that OpenID Connect adds to a token response.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct IdTokenField {
    /// ID token, present if `openid` was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_token: Option<String>,
}

impl ExtraTokenFields for IdTokenField {}

/// A sign-in that waits for the response of the browser.
#[derive(Debug)]
pub struct PendingSignIn {
    /// URL of the authorization request, which the browser opens.
    pub url: Url,
    redirect_uri: RedirectUrl,
    state: CsrfToken,
    verifier: PkceCodeVerifier,
    nonce: String,
    issuer: String,
    iss_expected: bool,
    scope: String,
}

/// Reasons to reject a response from the browser.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRedirect {
    /// The response belongs to another sign-in, or is forged.
    #[error("the response does not belong to this sign-in: its state differs")]
    State,
    /// The response is from another server.
    #[error("the response is from the issuer '{found}', not {expected}")]
    Issuer {
        /// Issuer in the response; empty if the response has no `iss`.
        found: String,
        expected: String,
    },
    /// The server denied the authorization request. The value is its error.
    #[error("the server denied the sign-in: {0}")]
    Refused(String),
    /// The response contains neither a code nor an error.
    #[error("the text contains no code; paste the complete last address of the browser, or only the code")]
    NoCode,
}

impl BadRedirect {
    /// Returns whether the error ends the sign-in. After any other error, a valid response may still arrive.
    pub fn ends_sign_in(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl PendingSignIn {
    /// Validates the query of a redirect and returns the code.
    ///
    /// # Errors
    /// The reason why the redirect is rejected.
    pub fn judge(&self, query: &str) -> Result<String, BadRedirect> {
        let find = |name: &str| {
            form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value)
        };
        if find("state").is_none_or(|state| state != self.state.secret().as_str()) {
            return Err(BadRedirect::State);
        }
        let iss = find("iss");
        if iss.as_ref().map_or(self.iss_expected, |iss| *iss != self.issuer) {
            let actual = iss.unwrap_or(Cow::Borrowed("")).into_owned();
            return Err(BadRedirect::Issuer { found: actual, expected: self.issuer.clone() });
        }
        if let Some(error) = find("error") {
            let description = find("error_description").map(|text| format!(" ({text})")).unwrap_or_default();
            return Err(BadRedirect::Refused(format!("{error}{description}")));
        }
        find("code").filter(|code| !code.is_empty()).map(Cow::into_owned).ok_or(BadRedirect::NoCode)
    }

    /// Validates a pasted text, which is the last address of the browser, its query, or the code.
    ///
    /// A bare code has no `state`. Instead, the user copies it from the browser of this sign-in, and PKCE
    /// binds it to this sign-in.
    ///
    /// # Errors
    /// The reason why the text is rejected.
    pub fn judge_pasted(&self, text: &str) -> Result<String, BadRedirect> {
        let text = text.trim();
        let query = match text.split_once('?') {
            Some((_, query)) => query.split('#').next().unwrap_or_default(),
            None if text.contains('=') && text.contains("state=") => text,
            None if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c == '/') => {
                return Err(BadRedirect::NoCode);
            }
            None => return Ok(text.to_owned()),
        };
        self.judge(query)
    }
}

impl Api {
    /// Prepares a sign-in whose response is sent to `redirect_uri`.
    ///
    /// # Errors
    /// The error of the server, or [`ApiError::Profile`] if the profile has no client_id.
    pub async fn begin_sign_in(&self, redirect_uri: &str, scope: &str) -> Result<PendingSignIn, ApiError> {
        const NO_CLIENT: &str =
            "sign-in requires a client: use --client-id ID, a profile with client_id, or --demo DIR";
        let client_id = self.profile().client_id.clone().ok_or(ApiError::Profile(NO_CLIENT))?;
        let openid = self.openid().await?;
        let address = |error: url::ParseError| ApiError::Request(error.to_string());
        let redirect_uri = RedirectUrl::new(redirect_uri.to_owned()).map_err(address)?;
        let client = OAuthClient::new(ClientId::new(client_id))
            .set_auth_uri(AuthUrl::new(openid.authorization_endpoint.clone()).map_err(address)?)
            .set_redirect_uri(redirect_uri.clone());
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let nonce = CsrfToken::new_random().secret().clone();
        let mut request = client.authorize_url(CsrfToken::new_random);
        // SMART App Launch: the server of the resources, for which the token is.
        if self.smart().await.is_ok() {
            request = request.add_extra_param("aud", &self.profile().fhir_base);
        }
        let (url, state) = request
            .add_scopes(scope.split_whitespace().map(|scope| Scope::new(scope.to_owned())))
            .add_extra_param("nonce", &nonce)
            .set_pkce_challenge(challenge)
            .url();
        Ok(PendingSignIn {
            url,
            redirect_uri,
            state,
            verifier,
            nonce,
            issuer: openid.issuer.clone(),
            iss_expected: openid.authorization_response_iss_parameter_supported,
            scope: scope.to_owned(),
        })
    }

    /// Exchanges the code for tokens and stores them.
    ///
    /// # Errors
    /// [`ApiError::RejectedCode`] if the server does not know the code, the error of the request, or
    /// [`ApiError::SignIn`] if the ID token does not belong to this sign-in.
    pub async fn redeem(&self, pending: &PendingSignIn, code: String) -> Result<UserTokens, ApiError> {
        let openid = self.openid().await?;
        let client = self.oauth_client(&openid.token_endpoint)?;
        let asked_at = self.now();
        let response = client
            .exchange_code(AuthorizationCode::new(code))
            .set_pkce_verifier(PkceCodeVerifier::new(pending.verifier.secret().clone()))
            .set_redirect_uri(Cow::Borrowed(&pending.redirect_uri))
            .request_async(&self.oauth2_sender(&openid.token_endpoint))
            .await
            .map_err(|error| token_error(&openid.token_endpoint, error))?;
        self.store_session(response, &pending.scope, Some(&pending.nonce), asked_at).await
    }

    /// The client of the `oauth2` crate for the token endpoint.
    pub(super) fn oauth_client(&self, token_endpoint: &str) -> Result<TokenClient, ApiError> {
        let address = |error: url::ParseError| ApiError::Request(error.to_string());
        let client_id = self.profile().client_id.clone().unwrap_or_default();
        let token_url = TokenUrl::new(token_endpoint.to_owned()).map_err(address)?;
        let mut client = OAuthClient::new(ClientId::new(client_id)).set_token_uri(token_url);
        if let Some(ClientCredential::Secret(secret)) = &self.profile().client_credential {
            client = client.set_client_secret(ClientSecret::new(secret.clone()));
        } else {
            client = client.set_auth_type(AuthType::RequestBody);
        }
        Ok(client)
    }

    /// A function with which the `oauth2` crate sends its requests. Each request of a client with a private
    /// key gets a client assertion of its own, because a server accepts an assertion once.
    ///
    /// The function owns its data, because a future that borrows from the environment of a closure is not
    /// `Send` for all lifetimes.
    pub(super) fn oauth2_sender(&self, audience: &str) -> impl Fn(HttpRequest) -> OAuthCall + use<> {
        let (api, audience) = (self.clone(), audience.to_owned());
        move |mut request| {
            let (api, audience) = (api.clone(), audience.clone());
            Box::pin(async move {
                let client = api.user_client();
                let authentication = client.map(|client| api.assertion_parameters(&client, &audience));
                let authentication = authentication.transpose()?.unwrap_or_default();
                if !authentication.is_empty() {
                    let form = String::from_utf8_lossy(request.body()).into_owned();
                    let mut form = form_urlencoded::Serializer::new(form);
                    *request.body_mut() = form.extend_pairs(authentication).finish().into_bytes();
                }
                api.for_oauth2(request).await
            })
        }
    }

    /// Sends a request of the `oauth2` crate with the HTTP client of this program.
    async fn for_oauth2(&self, request: HttpRequest) -> Result<HttpResponse, ApiError> {
        let (parts, body) = request.into_parts();
        let request =
            self.http().request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
        let answer = self.call(request).await?;
        let mut response = HttpResponse::new(answer.body.to_vec());
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

/// Converts an error of the `oauth2` crate.
pub(super) fn token_error<E: ErrorResponseType + std::fmt::Display + 'static>(
    url: &str,
    error: RequestTokenError<ApiError, StandardErrorResponse<E>>,
) -> ApiError {
    match error {
        RequestTokenError::Request(error) => error,
        RequestTokenError::ServerResponse(response) => {
            let description =
                response.error_description().map(|text| format!(" ({text})")).unwrap_or_default();
            let error = response.error().to_string();
            let text = format!("{}{description}", explain(&error));
            if error == "invalid_grant" { ApiError::RejectedCode(text) } else { ApiError::SignIn(text) }
        }
        RequestTokenError::Parse(error, _) => {
            ApiError::Unexpected { url: url.to_owned(), reason: error.to_string() }
        }
        RequestTokenError::Other(reason) => ApiError::Unexpected { url: url.to_owned(), reason },
    }
}

/// The meaning of an error of the token endpoint, and what the user can do.
fn explain(error: &str) -> String {
    let hint = match error {
        "invalid_client" => "the client is not registered, or its secret or key is wrong; check the profile",
        "invalid_grant" => "the code or the session is no longer valid; sign in again",
        "unauthorized_client" => "the client may not use this kind of sign-in; use another client or kind",
        "invalid_scope" => {
            "a scope is not allowed for this client; set scopes in the profile or with --scope"
        }
        "access_denied" => "the user denied the sign-in",
        "expired_token" => "the code has expired; start again",
        _ => return format!("the token endpoint rejected the request: {error}"),
    };
    format!("{hint} ({error})")
}

/// Checks the claims of an ID token and returns its subject. Because the token came over TLS from the token
/// endpoint, its signature need not be checked (Core 3.1.3.7, point 6).
pub(super) fn check_id_token(
    token: &str,
    issuer: &str,
    client_id: &str,
    nonce: Option<&str>,
    now: Timestamp,
) -> Result<String, String> {
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Value = payload
        .and_then(|payload| serde_json::from_slice(&payload).ok())
        .ok_or_else(|| "it is not a JWT".to_owned())?;
    let for_us = match &claims["aud"] {
        Value::Array(many) => many.iter().any(|aud| aud == client_id),
        one => one == client_id,
    };
    if claims["iss"] != issuer {
        return Err(format!("iss is {}", claims["iss"]));
    }
    if !for_us {
        return Err(format!("aud is {}", claims["aud"]));
    }
    if nonce.is_some_and(|nonce| claims["nonce"] != nonce) {
        return Err("nonce differs".to_owned());
    }
    // Allows clocks that differ by a minute.
    if claims["exp"].as_i64().is_none_or(|exp| exp + 60 < now.as_second()) {
        // The server has just issued the token, so that `iat` is its time.
        let ahead_s = claims["iat"].as_i64().map(|iat| now.as_second() - iat).filter(|ahead| *ahead > 60);
        return Err(match ahead_s {
            Some(seconds) => format!("{}; correct one of the clocks", clock_sentence(seconds)),
            None => format!("exp is {}", claims["exp"]),
        });
    }
    claims["sub"].as_str().map(str::to_owned).ok_or_else(|| "sub is missing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(iss_expected: bool) -> PendingSignIn {
        PendingSignIn {
            url: Url::parse("https://as.example/oauth2/authorize").unwrap(),
            redirect_uri: RedirectUrl::new("http://localhost:1/callback".to_owned()).unwrap(),
            state: CsrfToken::new("st".to_owned()),
            verifier: PkceCodeVerifier::new("v".repeat(43)),
            nonce: "n".to_owned(),
            issuer: "https://as.example".to_owned(),
            iss_expected,
            scope: crate::args::USER_SCOPE.to_owned(),
        }
    }

    #[track_caller]
    fn check(pasted: &str, expected: Result<&str, BadRedirect>) {
        assert_eq!(pending(false).judge_pasted(pasted), expected.map(str::to_owned), "{pasted}");
    }

    #[test]
    fn a_user_may_paste_an_address_a_query_or_a_code() {
        check("http://localhost:1/callback?code=c%2B1&state=st", Ok("c+1"));
        check("  http://localhost:1/callback?state=st&code=c1&iss=https%3A%2F%2Fas.example#_\n", Ok("c1"));
        check("code=c1&state=st", Ok("c1"));
        check("c1", Ok("c1"));
        check("c1==", Ok("c1=="));
        check("", Err(BadRedirect::NoCode));
        check("two words", Err(BadRedirect::NoCode));
        check("http://localhost:1/callback", Err(BadRedirect::NoCode));
        check("http://localhost:1/callback?state=st", Err(BadRedirect::NoCode));
        check("http://localhost:1/callback?code=c1", Err(BadRedirect::State));
        check("http://localhost:1/callback?code=c1&state=other", Err(BadRedirect::State));
        check(
            "http://localhost:1/callback?error=access_denied&error_description=no+way&state=st",
            Err(BadRedirect::Refused("access_denied (no way)".to_owned())),
        );
    }

    #[test]
    fn the_issuer_is_checked_if_the_server_announces_it() {
        let expected = || "https://as.example".to_owned();
        let missing = BadRedirect::Issuer { found: String::new(), expected: expected() };
        assert_eq!(pending(true).judge("code=c&state=st"), Err(missing));
        let other = BadRedirect::Issuer { found: "https://evil.example".to_owned(), expected: expected() };
        assert_eq!(pending(false).judge("code=c&state=st&iss=https%3A%2F%2Fevil.example"), Err(other));
        assert_eq!(pending(true).judge("code=c&state=st&iss=https%3A%2F%2Fas.example"), Ok("c".to_owned()));
    }

    #[test]
    fn only_an_error_of_the_server_ends_the_sign_in() {
        assert!(pending(false).judge("error=access_denied&state=st").unwrap_err().ends_sign_in());
        assert!(!pending(false).judge("error=access_denied&state=xx").unwrap_err().ends_sign_in());
    }

    #[track_caller]
    fn check_claims(claims: Value, expected: Result<&str, &str>) {
        let token = format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let now = Timestamp::from_second(1_000).unwrap();
        let subject = check_id_token(&token, "https://as.example", "app", Some("n"), now);
        assert_eq!(subject.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn an_id_token_of_another_sign_in_is_rejected() {
        let good = serde_json::json!({
            "iss": "https://as.example", "aud": "app", "nonce": "n", "exp": 1_000, "sub": "s",
        });
        check_claims(good.clone(), Ok("s"));
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            claims
        };
        check_claims(with("aud", serde_json::json!(["x", "app"])), Ok("s"));
        check_claims(with("aud", "x".into()), Err("aud is \"x\""));
        check_claims(with("iss", "https://evil.example".into()), Err("iss is \"https://evil.example\""));
        check_claims(with("nonce", Value::Null), Err("nonce differs"));
        check_claims(with("exp", 939.into()), Err("exp is 939"));
        let mut late = with("exp", (-6_500).into());
        late["iat"] = (-6_800).into();
        let reason = "this machine is 2 h 10 min ahead of the server; correct one of the clocks";
        check_claims(late, Err(reason));
        check_claims(with("sub", Value::Null), Err("sub is missing"));
        assert_eq!(
            check_id_token("x", "i", "c", Some("n"), Timestamp::UNIX_EPOCH),
            Err("it is not a JWT".to_owned())
        );
    }
}
