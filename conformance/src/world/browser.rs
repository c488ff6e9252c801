//! Plays the browser: from the authorization request over the sign-in page to the answer at the
//! client's address.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::target::{Cookies, Target};
use super::{Trouble, page};
use crate::run::exchange::{Answer, Sent};

/// Redirects that are followed on the way.
const HOPS: usize = 6;

/// 256 random bits as a text.
pub fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A code verifier and its S256 challenge (RFC 7636 4.1, 4.2).
pub fn pkce() -> (String, String) {
    let verifier = random();
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    (verifier, challenge)
}

/// Somebody who signs in.
#[derive(Debug, Clone)]
pub struct Person {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
}

/// A GET without headers.
pub fn get(url: Url) -> Sent {
    Sent { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
}

/// A POST of a form.
pub fn post(url: Url, form: &[(&str, &str)]) -> Sent {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    Sent { method: Method::POST, url, headers, body: body.into() }
}

/// An address that the suite itself has put together.
///
/// # Errors
/// [`Trouble::Failed`] when it is none.
pub fn address(text: &str) -> Result<Url, Trouble> {
    Url::parse(text).map_err(|error| Trouble::Failed(format!("'{text}' is no address: {error}")))
}

/// Sends an authorization request and signs in where a page asks for it. Gives the address at the
/// client that the browser is sent to in the end.
///
/// # Errors
/// The server led elsewhere.
pub async fn authorize(
    target: &Target,
    cookies: &mut Cookies,
    person: Option<&Person>,
    params: &[(&str, &str)],
) -> Result<Url, Trouble> {
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
    Err(Trouble::Failed(format!("the sign-in did not end after {HOPS} steps")))
}

fn led_astray(sent: &Sent, answer: &Answer) -> Trouble {
    Trouble::Failed(format!("the sign-in ended at {} with {}", sent.url.path(), answer.status))
}

/// The form of a sign-in page with name and password.
fn fill_in(at: &Url, answer: &Answer, person: &Person) -> Result<Sent, Trouble> {
    let html = answer.text();
    let no_form = || Trouble::Failed(format!("the page at {} has no sign-in form", at.path()));
    let action = page::action(&html).ok_or_else(no_form)?;
    let inputs = page::inputs(&html);
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

/// A parameter of the address that the browser was sent to, from its query or its fragment.
pub fn answer_param(url: &Url, name: &str) -> Option<String> {
    let parts = [url.query(), url.fragment()];
    let mut pairs = parts.into_iter().flatten().flat_map(|part| form_urlencoded::parse(part.as_bytes()));
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}
