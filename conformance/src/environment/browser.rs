//! Simulated browser: from the authorization request through the sign-in page to the redirect to the client.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use url::Url;

use super::SetupError;
use super::target::{CookieJar, TestTarget};
use crate::wire::exchange::{Answer, SentRequest};
use crate::wire::html_form;

/// Maximum number of redirects and forms in a sign-in.
const HOPS: usize = 6;

/// User name and password of a user.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// User name for the sign-in page.
    pub username: String,
    /// Password for the sign-in page.
    pub password: String,
}

/// Returns a GET request without headers.
pub fn get(url: Url) -> SentRequest {
    SentRequest { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
}

/// Returns a POST request with a form.
pub fn post(url: Url, form: &[(&str, &str)]) -> SentRequest {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    SentRequest { method: Method::POST, url, headers, body: body.into() }
}

/// Parses a URL that the suite has built.
///
/// # Errors
/// Returns [`SetupError::Failed`] if the text is not a URL.
pub fn address(text: &str) -> Result<Url, SetupError> {
    Url::parse(text).map_err(|error| SetupError::Failed(format!("'{text}' is not a URL: {error}")))
}

/// Sends an authorization request and signs in if a page asks for it. Returns the URL of the client to which the
/// browser is redirected.
///
/// # Errors
/// Returns [`SetupError`] if the server does not redirect to the client.
pub async fn authorize(
    target: &TestTarget,
    cookies: &mut CookieJar,
    person: Option<&Credentials>,
    params: &[(&str, &str)],
) -> Result<Url, SetupError> {
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(params).finish();
    let mut sent = get(address(&format!("{}/oauth2/authorize?{query}", target.base_url))?);
    for _ in 0..HOPS {
        let answer = target.send(&sent, cookies).await?;
        sent = match (answer.status.as_u16(), person) {
            (302 | 303, _) => {
                let to = answer.header("location").unwrap_or_default();
                let to = sent.url.join(&to).map_err(|_| led_astray(&sent, &answer))?;
                if !to.as_str().starts_with(&target.base_url) {
                    return Ok(to);
                }
                get(to)
            }
            (200, Some(person)) => fill_in(&sent.url, &answer, person)?,
            _ => return Err(led_astray(&sent, &answer)),
        };
    }
    Err(SetupError::Failed(format!("the sign-in did not end after {HOPS} steps")))
}

fn led_astray(sent: &SentRequest, answer: &Answer) -> SetupError {
    SetupError::Failed(format!("the sign-in ended at {} with {}", sent.url.path(), answer.status))
}

/// Fills in the form of a sign-in page with user name and password.
fn fill_in(at: &Url, answer: &Answer, person: &Credentials) -> Result<SentRequest, SetupError> {
    let html = answer.text();
    let no_form = || SetupError::Failed(format!("the page at {} has no sign-in form", at.path()));
    let action = html_form::form_action(&html).ok_or_else(no_form)?;
    let inputs = html_form::form_inputs(&html);
    if !inputs.iter().any(|input| input.kind == "password") {
        return Err(no_form());
    }
    let form: Vec<(&str, &str)> = inputs
        .iter()
        .map(|input| {
            let value = match input.kind.as_str() {
                "hidden" => &input.value,
                "password" => &person.password,
                _ => &person.username,
            };
            (input.name.as_str(), value.as_str())
        })
        .collect();
    Ok(post(at.join(&action).map_err(|_| no_form())?, &form))
}

/// Returns a parameter of the redirect URL, from its query or its fragment.
pub fn answer_param(url: &Url, name: &str) -> Option<String> {
    let parts = [url.query(), url.fragment()];
    let mut pairs = parts.into_iter().flatten().flat_map(|part| form_urlencoded::parse(part.as_bytes()));
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}
