//! Pages that a script makes. The simulated browser runs no scripts, so the profile states the requests that
//! the script sends for a person: `sign_in_requests`.
//!
//! Texts of the requests refer to `$person.username`, `$person.password`, the parameters of the address of
//! the page as `$page.NAME`, its whole query as `$query`, the members of the latest JSON answer as
//! `$answer.NAME`, what the page contains under a name as `$html.NAME`, and cookies that scripts can read as
//! `$cookie.NAME`. Addresses are relative to the page.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::cookies::CookieJar;
use super::credentials::Credentials;
use super::error::SetupError;
use super::target::TestTarget;
use crate::wire::exchange::SentRequest;
use crate::wire::html_form;
use crate::wire::variables::Variables;

const MEMBER: &str = "sign_in_requests";

/// A request of a script, as the profile states it. It has one of `get`, `post` and `put`.
#[derive(Deserialize)]
struct ScriptedRequest {
    /// Beginning of the paths of the pages whose script sends it; all pages if it is missing.
    page: Option<String>,
    get: Option<String>,
    post: Option<String>,
    put: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    json: Option<Value>,
    form: Option<Map<String, Value>>,
}

/// Returns whether the profile states what the scripts of the pages send.
pub(super) fn is_described(target: &TestTarget) -> bool {
    target.profile.contains_key(MEMBER)
}

/// A page that the browser shows.
#[derive(Clone, Copy)]
pub(super) struct ShownPage<'a> {
    pub url: &'a Url,
    pub html: &'a str,
}

/// The scripts of the pages in one sign-in.
#[derive(Default)]
pub(super) struct PageScript {
    /// Whether a page has been shown before, so that a session is not enough.
    is_asked_again: bool,
}

impl PageScript {
    /// Sends the requests of the script of a page, except for the last one, which is returned: the browser
    /// follows its answer. Credentials are sent if the requests fail without them, or if a page is shown
    /// again. `None` if the profile states no requests.
    ///
    /// # Errors
    /// [`SetupError`] if the profile is wrong, or if a request is refused.
    pub(super) async fn run(
        &mut self,
        target: &TestTarget,
        cookies: &mut CookieJar,
        person: Option<&Credentials>,
        page: ShownPage<'_>,
    ) -> Result<Option<SentRequest>, SetupError> {
        if !std::mem::replace(&mut self.is_asked_again, true)
            && let Ok(next) = send_requests(target, cookies, None, page).await
        {
            return Ok(next);
        }
        send_requests(target, cookies, person, page).await
    }
}

async fn send_requests(
    target: &TestTarget,
    cookies: &mut CookieJar,
    person: Option<&Credentials>,
    ShownPage { url: page, html }: ShownPage<'_>,
) -> Result<Option<SentRequest>, SetupError> {
    let Some(stated) = target.profile.get(MEMBER) else { return Ok(None) };
    let requests: Vec<ScriptedRequest> =
        serde_json::from_value(stated.clone()).map_err(|error| wrong(&error.to_string()))?;
    let mut variables = Variables::default();
    let parameters: Map<String, Value> =
        page.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned().into())).collect();
    variables.set("page", parameters);
    variables.set("query", page.query().unwrap_or_default());
    variables.set("html", by_variable_name(html_form::stated_values(html)));
    if let Some(person) = person {
        variables.set("person", json!({ "username": person.username, "password": person.password }));
    }
    let mut following = None;
    for request in requests.into_iter().filter(|request| request.is_of(page)) {
        if person.is_none() && request.mentions_person() {
            continue;
        }
        if let Some(next_request) = following.take() {
            let response = target.send(&next_request, cookies).await?;
            if !response.status.is_success() {
                let (method, path, status) = (&next_request.method, next_request.url.path(), response.status);
                let text = format!("the sign-in page's request {method} {path} was answered with {status}");
                return Err(SetupError::Failed(text));
            }
            variables.set("answer", response.json().unwrap_or_default());
        }
        let readable = cookies.readable(page).map(|(name, value)| (name, value.into()));
        variables.set("cookie", by_variable_name(readable));
        following = Some(request.fill(&variables, page)?);
    }
    Ok(following)
}

/// Values by their names, in which characters that the name of a variable cannot have are underscores. The
/// first value of a name counts.
fn by_variable_name(values: impl IntoIterator<Item = (String, Value)>) -> Map<String, Value> {
    let mut by_name = Map::new();
    for (name, value) in values {
        by_name.entry(name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")).or_insert(value);
    }
    by_name
}

impl ScriptedRequest {
    fn is_of(&self, page: &Url) -> bool {
        self.page.as_ref().is_none_or(|start| page.path().starts_with(start))
    }

    fn mentions_person(&self) -> bool {
        let json = self.json.iter().map(Value::to_string);
        let form = self.form.iter().flat_map(|form| form.values().map(Value::to_string));
        json.chain(form).any(|text| text.contains("$person."))
    }

    fn fill(&self, variables: &Variables, page: &Url) -> Result<SentRequest, SetupError> {
        let methods = [(Method::GET, &self.get), (Method::POST, &self.post), (Method::PUT, &self.put)];
        let mut stated = methods.into_iter().filter_map(|(method, to)| Some((method, to.as_ref()?)));
        let (Some((method, to)), None) = (stated.next(), stated.next()) else {
            return Err(wrong("a request has one of 'get', 'post' and 'put'"));
        };
        let unknown = |error: crate::wire::variables::UnknownVariable| wrong(&error.to_string());
        let to = variables.fill(to).map_err(unknown)?;
        let url = page.join(&to).map_err(|error| wrong(&format!("'{to}': {error}")))?;
        let mut request = SentRequest { method, url, headers: HeaderMap::new(), body: Vec::new().into() };
        // A browser states the origin of the page with every request of a script but GET.
        if request.method != Method::GET
            && let Ok(origin) = page.origin().ascii_serialization().parse()
        {
            request.headers.insert(header::ORIGIN, origin);
        }
        for (name, value) in &self.headers {
            let value = variables.fill(value).map_err(unknown)?;
            match (name.parse::<HeaderName>(), value.parse()) {
                (Ok(name), Ok(value)) => drop(request.headers.insert(name, value)),
                _ => return Err(wrong(&format!("'{name}: {value}' is not a header"))),
            }
        }
        let mut set_body = |media_type: &'static str, body: String| {
            request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            request.body = body.into();
        };
        match (&self.json, &self.form) {
            (Some(json), None) => {
                set_body("application/json", variables.fill_json(json).map_err(unknown)?.to_string());
            }
            (None, Some(form)) => {
                let mut body = form_urlencoded::Serializer::new(String::new());
                for (name, value) in form {
                    let value = value.as_str().ok_or_else(|| wrong("the fields of 'form' are texts"))?;
                    body.append_pair(name, &variables.fill(value).map_err(unknown)?);
                }
                set_body("application/x-www-form-urlencoded", body.finish());
            }
            (None, None) => {}
            (Some(_), Some(_)) => return Err(wrong("a request has 'json' or 'form'")),
        }
        Ok(request)
    }
}

fn wrong(reason: &str) -> SetupError {
    SetupError::Failed(format!("the profile's '{MEMBER}': {reason}"))
}
