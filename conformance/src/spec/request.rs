//! The request of a step.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use http::Method;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// FHIR operations, whose names begin with `$` like variables.
pub const OPERATIONS: [&str; 9] = [
    "validate-code",
    "batch-validate-code",
    "closure",
    "subsumes",
    "lookup",
    "expand",
    "translate",
    "export",
    "versions",
];

/// One request. The tables write the method as a key: `{ post = "token", form = { … } }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RequestRow")]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Destination: the name of an endpoint, optionally followed by a path (`fhir/Patient/1`); or a path
    /// below the base URL, which begins with `/`; or an absolute URL.
    pub to: String,
    /// Parameters that are added to the destination, encoded.
    pub query: BTreeMap<String, String>,
    /// Headers by name.
    pub headers: BTreeMap<String, HeaderValues>,
    /// Token for the `Authorization` header.
    pub bearer: Option<String>,
    /// DPoP proof signed with the key of the case and, if it has a `token`, the corresponding `Authorization`
    /// header.
    pub dpop: Option<DpopProof>,
    /// Body of the request.
    pub body: Body,
    /// Media type of the body; `""` sends no media type.
    pub content_type: Option<String>,
    /// Status of the responses after which the request is repeated.
    pub poll: Option<u16>,
    /// Whether the request is sent as it is, without what servers may require of every request: see
    /// [`crate::wire::adapt`].
    pub exact: bool,
    /// Number of times that the request is sent. Each response is compared with the expectation.
    pub times: usize,
    /// Variable with a list: the request is sent for each item, which is `$item`.
    pub each: Option<String>,
}

impl Request {
    /// Returns whether the body contains resources that the server is to use only for this request.
    pub fn sends_resources(&self) -> bool {
        let Body::Json(body) = &self.body else { return false };
        let parameters = body["parameter"].as_array();
        parameters.into_iter().flatten().any(|parameter| parameter["name"] == "tx-resource")
    }
}

/// The body of a request.
#[derive(Debug, Clone, Default)]
pub enum Body {
    /// The request has no body.
    #[default]
    Empty,
    /// A form, which is sent URL-encoded.
    Form(BTreeMap<String, String>),
    /// A JSON value.
    Json(Value),
    /// A FHIR resource, by its name in `specs/fixtures`.
    Resource(String),
    /// A text, which is sent unchanged.
    Text(String),
}

/// A request in the form of the tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestRow {
    get: Option<String>,
    head: Option<String>,
    post: Option<String>,
    put: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    options: Option<String>,
    #[serde(default)]
    query: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, HeaderValues>,
    bearer: Option<String>,
    dpop: Option<DpopProof>,
    form: Option<BTreeMap<String, String>>,
    json: Option<Value>,
    resource: Option<String>,
    body: Option<String>,
    content_type: Option<String>,
    poll: Option<u16>,
    #[serde(default)]
    exact: bool,
    times: Option<usize>,
    each: Option<String>,
}

impl TryFrom<RequestRow> for Request {
    type Error = String;

    fn try_from(row: RequestRow) -> Result<Self, String> {
        let methods = [
            (Method::GET, row.get),
            (Method::HEAD, row.head),
            (Method::POST, row.post),
            (Method::PUT, row.put),
            (Method::PATCH, row.patch),
            (Method::DELETE, row.delete),
            (Method::OPTIONS, row.options),
        ];
        let mut destinations = methods.into_iter().filter_map(|(method, to)| Some((method, to?)));
        let ((method, to), None) = (
            destinations.next().ok_or("a request needs a method, such as get = \"userinfo\"")?,
            destinations.next(),
        ) else {
            return Err("a request has one method".to_owned());
        };
        let bodies = [
            row.form.map(Body::Form),
            row.json.map(Body::Json),
            row.resource.map(Body::Resource),
            row.body.map(Body::Text),
        ];
        let mut bodies = bodies.into_iter().flatten();
        let body = bodies.next().unwrap_or_default();
        if bodies.next().is_some() {
            return Err("a request can have only one of form, json, resource and body".to_owned());
        }
        Ok(Self {
            method,
            to,
            query: row.query,
            headers: row.headers,
            bearer: row.bearer,
            dpop: row.dpop,
            body,
            content_type: row.content_type,
            poll: row.poll,
            exact: row.exact,
            times: row.times.unwrap_or(1),
            each: row.each,
        })
    }
}

/// A DPoP proof (RFC 9449 4.2), valid for the request except for the members that are stated here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DpopProof {
    /// Access token to which the proof belongs.
    pub token: Option<String>,
    /// Members of the header that replace the valid ones; `"$absent"` removes one.
    #[serde(default)]
    pub header: BTreeMap<String, Value>,
    /// Claims that replace the valid ones; `"$absent"` removes one. `iat`, `nbf` and `exp` are seconds
    /// relative to the current time.
    #[serde(default)]
    pub claims: BTreeMap<String, Value>,
    /// Whether the proof is signed with a key other than that of the case.
    #[serde(default)]
    pub other_key: bool,
    /// Whether the proof contains the key of the case but is signed with another one.
    #[serde(default)]
    pub forged: bool,
    /// Number of times the header is sent; 1 by default.
    pub times: Option<usize>,
    /// Text that is sent instead of a proof.
    pub text: Option<String>,
}

/// One value of a header, or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum HeaderValues {
    /// The header is sent once.
    One(String),
    /// The header is sent once for each value.
    Many(Vec<String>),
}

impl HeaderValues {
    /// The values in order.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}

/// Reads a text, or a list of texts.
pub(super) fn one_or_many<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let texts = HeaderValues::deserialize(deserializer)?;
    texts.as_slice().iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}
