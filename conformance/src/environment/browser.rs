//! Simulated browser: from the authorization request through the sign-in page to the redirect to the client.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use url::Url;

use super::cookies::CookieJar;
use super::credentials::Credentials;
use super::error::SetupError;
use super::page_request::get;
use super::scripted_page::{self, PageScript, ShownPage};
use super::target::{TestTarget, redirect_uris};
use crate::spec::expectation::PageKind;
use crate::wire::exchange::{Answer, SentRequest};
use crate::wire::html_form::{self, FormInput, HtmlForm};

/// Maximum number of redirects and forms in a sign-in.
const HOPS: usize = 12;
/// Words on a button that consents, if the profile names no button.
const APPROVALS: [&str; 8] = ["allow", "accept", "approve", "authori", "continue", "grant", "agree", "yes"];

/// A POST request with a form.
pub fn post(url: Url, form: &[(&str, &str)]) -> SentRequest {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    SentRequest { method: Method::POST, url, headers, body: body.into() }
}

/// Parses a URL that the suite has built.
///
/// # Errors
/// [`SetupError::Failed`] if the text is not a URL.
pub fn address(text: &str) -> Result<Url, SetupError> {
    Url::parse(text).map_err(|error| SetupError::Failed(format!("'{text}' is not a URL: {error}")))
}

/// Sends an authorization request, and signs in and consents if pages ask for it. Returns the URL of the
/// client to which the browser is redirected.
///
/// # Errors
/// [`SetupError`] if the server does not redirect to the client.
pub async fn authorize(
    target: &TestTarget,
    cookies: &mut CookieJar,
    person: Option<&Credentials>,
    params: &[(&str, &str)],
) -> Result<Url, SetupError> {
    let mut url = address(target.endpoint("authorize")?)?;
    url.query_pairs_mut().extend_pairs(params);
    let redirect_uris = redirect_uris(target, &url);
    Ok(to_client(target, cookies, person, &get(url), &redirect_uris).await?.url)
}

/// Arrival at the client.
#[derive(Debug)]
pub struct Arrival {
    /// Response that leads to the client by a redirect or a form.
    pub last: Answer,
    /// URL to which it leads.
    pub url: Url,
}

impl Arrival {
    /// Returns whether the response is an error.
    pub fn is_refused(&self) -> bool {
        answer_param(&self.url, "error").is_some()
    }
}

/// Returns whether a response to `prompt=none` says that the user must consent.
pub fn asks_for_consent(response: &Answer) -> bool {
    let location = response.header("location").and_then(|text| Url::parse(&text).ok());
    let error = location.and_then(|url| answer_param(&url, "error"));
    error.is_some_and(|error| error == "consent_required" || error == "interaction_required")
}

/// Sends a request and does what a person does in a browser: follows redirects, signs in and consents. The
/// response that redirects to the client.
///
/// # Errors
/// [`SetupError`] if the pages do not lead to the client.
pub async fn to_client(
    target: &TestTarget,
    cookies: &mut CookieJar,
    person: Option<&Credentials>,
    first: &SentRequest,
    redirect_uris: &[String],
) -> Result<Arrival, SetupError> {
    let mut request = first.clone();
    let mut script = PageScript::default();
    for _ in 0..HOPS {
        let response = target.send(&request, cookies).await?;
        // With response_mode=form_post, a form leads to the client, on an error page too.
        if let Some(url) = form_to_client(&request.url, &response, redirect_uris) {
            return Ok(Arrival { last: response, url });
        }
        request = match response.status.as_u16() {
            status @ (301..=303 | 307 | 308) => {
                let body = String::from_utf8_lossy(&request.body);
                let has_password = person.is_some_and(|person| {
                    form_urlencoded::parse(body.as_bytes()).any(|(_, value)| value == person.password)
                });
                cookies.sent_password_twice |= status > 303 && has_password;
                let to = redirect_of(&request, &response)?;
                if is_at_client(&to, redirect_uris) {
                    return Ok(Arrival { last: response, url: to });
                }
                get(to)
            }
            200 => match choose_form(target, &response.text(), person) {
                Some((form, fields)) => submit(&request.url, &form, &fields)?,
                None => {
                    let page = ShownPage { url: &request.url, html: &response.text() };
                    let next = script.run(target, cookies, person, page).await?;
                    let next = next.ok_or_else(|| unexpected_page(&request, &response))?;
                    // A script can lead to the client without a redirect.
                    if is_at_client(&next.url, redirect_uris) {
                        return Ok(Arrival { last: redirect_to(&next.url), url: next.url });
                    }
                    next
                }
            },
            _ => return Err(unexpected_page(&request, &response)),
        };
    }
    Err(SetupError::Failed(format!("the sign-in did not end after {HOPS} steps")))
}

/// Sends a request with `prompt=none`, and follows redirects within the server. Returns the response that
/// leads to the client.
///
/// # Errors
/// [`SetupError`] if a page is shown.
pub async fn silently(
    target: &TestTarget,
    cookies: &mut CookieJar,
    first: &SentRequest,
    redirect_uris: &[String],
) -> Result<Answer, SetupError> {
    let end = follow_redirects(target, cookies, first.clone(), redirect_uris).await?;
    match end.answer.status {
        _ if end.is_client => Ok(end.answer),
        StatusCode::OK => {
            let path = end.sent.url.path();
            Err(SetupError::Failed(format!("{path} shows a page, although prompt is none")))
        }
        _ => Err(unexpected_page(&end.sent, &end.answer)),
    }
}

/// Words on a button that confirms a sign-out.
const CONFIRMATIONS: [&str; 6] = ["sign out", "log out", "logout", "yes", "continue", "confirm"];

/// Sends a request for a sign-out, and confirms it if a page asks (OpenID Connect RP-Initiated Logout 1.0,
/// section 2). Returns the last response.
///
/// # Errors
/// [`SetupError`] if the pages do not end.
pub async fn sign_out(
    target: &TestTarget,
    cookies: &mut CookieJar,
    first: &SentRequest,
    redirect_uris: &[String],
) -> Result<Answer, SetupError> {
    let mut next = first.clone();
    let mut has_script_run = false;
    for _ in 0..HOPS {
        let RedirectsEnd { sent, answer, is_client } =
            follow_redirects(target, cookies, next, redirect_uris).await?;
        if is_client || answer.status != StatusCode::OK {
            return Ok(answer);
        }
        let forms = html_form::forms(&answer.text());
        let confirming = forms.iter().find_map(|form| {
            let mut buttons = form.inputs.iter().filter(|input| input.is_button());
            Some((form, buttons.find(|button| button.says_one_of(&CONFIRMATIONS))?))
        });
        next = match confirming {
            Some((form, button)) => {
                submit(&sent.url, form, &fields(form, Some(button), |input| input.value.clone()))?
            }
            None if has_script_run => return Ok(answer),
            None => {
                has_script_run = true;
                let page = ShownPage { url: &sent.url, html: &answer.text() };
                let confirmed = PageScript::default().run(target, cookies, None, page).await;
                // A page without a script that confirms is the end.
                let Ok(Some(next)) = confirmed else { return Ok(answer) };
                if is_at_client(&next.url, redirect_uris) {
                    return Ok(redirect_to(&next.url));
                }
                next
            }
        };
    }
    Err(SetupError::Failed(format!("the sign-out did not end after {HOPS} steps")))
}

/// The end of a chain of redirects.
struct RedirectsEnd {
    sent: SentRequest,
    answer: Answer,
    /// Whether the response leads to the client.
    is_client: bool,
}

/// Sends a request, and follows redirects within the server.
async fn follow_redirects(
    target: &TestTarget,
    cookies: &mut CookieJar,
    first: SentRequest,
    redirect_uris: &[String],
) -> Result<RedirectsEnd, SetupError> {
    let mut request = first;
    for _ in 0..HOPS {
        let response = target.send(&request, cookies).await?;
        if form_to_client(&request.url, &response, redirect_uris).is_some() {
            return Ok(RedirectsEnd { sent: request, answer: response, is_client: true });
        }
        request = match response.status.as_u16() {
            301..=303 | 307 | 308 => match redirect_of(&request, &response)? {
                to if is_at_client(&to, redirect_uris) => {
                    return Ok(RedirectsEnd { sent: request, answer: response, is_client: true });
                }
                to => get(to),
            },
            _ => return Ok(RedirectsEnd { sent: request, answer: response, is_client: false }),
        };
    }
    Err(SetupError::Failed(format!("there are more than {HOPS} redirects")))
}

/// Follows redirects within the server, and returns the kind of the page to which they lead.
///
/// # Errors
/// [`SetupError`] if they lead to the client or to something that is not a page.
pub async fn page_behind(
    target: &TestTarget,
    cookies: &mut CookieJar,
    first: &SentRequest,
    mut response: Answer,
    redirect_uris: &[String],
) -> Result<(PageKind, Answer), SetupError> {
    let mut request = first.clone();
    for _ in 0..HOPS {
        match response.status.as_u16() {
            301..=303 | 307 | 308 => {
                let to = redirect_of(&request, &response)?;
                if is_at_client(&to, redirect_uris) && answer_param(&to, "error").is_some() {
                    return Ok((PageKind::Refusal, response));
                }
                if is_at_client(&to, redirect_uris) {
                    return Err(SetupError::Failed("it leads back to the client".to_owned()));
                }
                request = get(to);
                response = target.send(&request, cookies).await?;
            }
            400..=499 => return Ok((PageKind::Error, response)),
            200 => {
                let forms = html_form::forms(&response.text());
                let inputs = || forms.iter().flat_map(|form| &form.inputs);
                let has = |kind: &str| inputs().any(|input| input.kind == kind);
                return match () {
                    () if has("password") || has("email") => Ok((PageKind::SignIn, response)),
                    () if has("submit") => Ok((PageKind::Consent, response)),
                    () if scripted_page::is_described(target) => Ok((PageKind::Scripted, response)),
                    // A page without a form can only show a message.
                    () if response.media_type().as_deref() == Some("text/html") => {
                        Ok((PageKind::Error, response))
                    }
                    () => Err(unexpected_page(&request, &response)),
                };
            }
            _ => return Err(unexpected_page(&request, &response)),
        }
    }
    Err(SetupError::Failed(format!("there are more than {HOPS} redirects")))
}

/// The URL of the client to which a form of a page leads.
fn form_to_client(at: &Url, page: &Answer, redirect_uris: &[String]) -> Option<Url> {
    let forms = html_form::forms(&page.text());
    let mut actions = forms.iter().filter_map(|form| at.join(&form.action).ok());
    actions.find(|action| is_at_client(action, redirect_uris))
}

/// The redirect that stands for the navigation of a script.
fn redirect_to(url: &Url) -> Answer {
    let location = HeaderValue::from_str(url.as_str()).ok().map(|value| (header::LOCATION, value));
    Answer { status: StatusCode::FOUND, headers: location.into_iter().collect(), body: Bytes::new() }
}

fn redirect_of(request: &SentRequest, response: &Answer) -> Result<Url, SetupError> {
    let to = response.header("location").unwrap_or_default();
    request.url.join(&to).map_err(|_| unexpected_page(request, response))
}

/// Returns whether a URL is one of the redirect URIs, apart from parameters.
fn is_at_client(url: &Url, redirect_uris: &[String]) -> bool {
    let plain = |url: &Url| url[..url::Position::AfterPath].to_owned();
    redirect_uris.iter().any(|uri| Url::parse(uri).is_ok_and(|expected| plain(&expected) == plain(url)))
}

fn unexpected_page(request: &SentRequest, response: &Answer) -> SetupError {
    let path = request.url.path();
    SetupError::Failed(match response.status {
        StatusCode::OK => format!("{path} shows a page that does not lead to the client"),
        status => format!("the sign-in ended at {path} with {status}"),
    })
}

/// Chooses the form of a page that leads on, and returns it with the fields to submit: a form with a
/// password, a form for a user name, or a form whose button consents.
fn choose_form(
    target: &TestTarget,
    html: &str,
    person: Option<&Credentials>,
) -> Option<(HtmlForm, Vec<(String, String)>)> {
    let field_name = |member: &str| target.profile.get("sign_in").and_then(|form| form[member].as_str());
    let forms = html_form::forms(html);
    let has = |form: &HtmlForm, kind: &str| form.inputs.iter().any(|input| input.kind == kind);
    let is_username = |input: &FormInput| match field_name("username") {
        Some(name) => input.name == name,
        None => matches!(input.kind.as_str(), "text" | "email"),
    };
    let sign_in = forms.iter().find(|form| has(form, "password"));
    let username_only = || forms.iter().find(|form| form.inputs.iter().any(is_username));
    if let (Some(form), Some(person)) = (sign_in.or_else(username_only), person) {
        let mut username = Some(&person.username);
        let value = |input: &FormInput| match input.kind.as_str() {
            "password" if field_name("password").is_none_or(|name| name == input.name) => {
                person.password.clone()
            }
            _ if is_username(input) => username.take().unwrap_or(&input.value).clone(),
            _ => input.value.clone(),
        };
        let fields = fields(form, None, value);
        return Some((form.clone(), fields));
    }
    let consents = |button: &&FormInput| match field_name("approve") {
        Some(approve) => {
            let texts = [&button.label, &button.value, &button.name];
            texts.iter().any(|text| text.to_lowercase() == approve.to_lowercase())
        }
        None => button.says_one_of(&APPROVALS),
    };
    forms.iter().find_map(|form| {
        let button = form.inputs.iter().filter(|input| input.is_button()).find(consents)?;
        Some((form.clone(), fields(form, Some(button), |input| input.value.clone())))
    })
}

/// The fields that a browser submits: all named inputs, and the button that is pressed.
fn fields(
    form: &HtmlForm,
    button: Option<&FormInput>,
    mut value: impl FnMut(&FormInput) -> String,
) -> Vec<(String, String)> {
    let pressed = button.or_else(|| form.inputs.iter().find(|input| input.is_button()));
    let is_sent = |input: &&FormInput| {
        !input.name.is_empty()
            && match input.kind.as_str() {
                "button" | "reset" => false,
                "checkbox" | "radio" => input.is_checked,
                _ => !input.is_button() || Some(*input) == pressed,
            }
    };
    form.inputs.iter().filter(is_sent).map(|input| (input.name.clone(), value(input))).collect()
}

/// The request that submits a form of the page at `at`.
fn submit(url: &Url, form: &HtmlForm, fields: &[(String, String)]) -> Result<SentRequest, SetupError> {
    let mut to = url
        .join(&form.action)
        .map_err(|_| SetupError::Failed(format!("the form at {} has no valid action", url.path())))?;
    let pairs: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
    if form.is_post {
        return Ok(post(to, &pairs));
    }
    to.query_pairs_mut().clear().extend_pairs(pairs);
    Ok(get(to))
}

/// A parameter of the redirect URL, from its query or its fragment.
pub fn answer_param(url: &Url, name: &str) -> Option<String> {
    let parts = [url.query(), url.fragment()];
    let mut pairs = parts.into_iter().flatten().flat_map(|part| form_urlencoded::parse(part.as_bytes()));
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}
