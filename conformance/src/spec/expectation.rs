//! The expected response of a step. Everything that is named must hold; the rest is not checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The expected response. Texts are compared as a whole, or by a matcher: see [`crate::run::matcher`].
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Status.
    pub status: Option<ExpectedStatus>,
    /// Media type of the body, without parameters.
    pub content_type: Option<String>,
    /// Headers; `$absent` for one that must not be sent.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Members that the JSON body must have.
    pub json: Option<Value>,
    /// Members that parameters of the FHIR Parameters body must have, by name.
    pub parameters: Option<BTreeMap<String, Value>>,
    /// Format of the error.
    pub dialect: Option<ErrorDialect>,
    /// Destination of the redirect.
    pub location: Option<ExpectedRedirect>,
    /// Tokens in the response, by [source](crate::wire::answer_part). They must be signed by the server's published keys.
    #[serde(default)]
    pub jwt: BTreeMap<String, ExpectedJwt>,
    /// Texts that the body must contain.
    #[serde(default)]
    pub body_contains: Vec<String>,
    /// Texts that the body must not contain.
    #[serde(default)]
    pub body_absent: Vec<String>,
    /// Value that every line of the NDJSON body must match.
    pub ndjson: Option<Value>,
    /// Number of lines of the body.
    pub lines: Option<usize>,
}

/// A status, one of several, or a class such as `4xx`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ExpectedStatus {
    /// This status.
    Is(u16),
    /// One of these.
    OneOf(Vec<u16>),
    /// `2xx` to `5xx`.
    Class(String),
}

impl ExpectedStatus {
    /// Returns true if the status is an expected one.
    pub fn matches(&self, status: u16) -> bool {
        match self {
            Self::Is(one) => *one == status,
            Self::OneOf(several) => several.contains(&status),
            Self::Class(class) => *class == format!("{}xx", status / 100),
        }
    }
}

impl fmt::Display for ExpectedStatus {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Is(status) => write!(f, "{status}"),
            Self::OneOf(several) => {
                let texts: Vec<_> = several.iter().map(u16::to_string).collect();
                f.write_str(&texts.join(" or "))
            }
            Self::Class(class) => f.write_str(class),
        }
    }
}

/// The three formats of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorDialect {
    /// JSON with `error` (RFC 6749 5.2).
    Oauth,
    /// OperationOutcome with severity `error`, a code and `details.text`.
    Fhir,
    /// An HTML page.
    Page,
}

/// The destination of a redirect.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedRedirect {
    /// Address without the added parameters. Its own query is part of it.
    pub to: String,
    /// Part of the address that carries the parameters. The other part must not carry any.
    pub part: Option<AddressPart>,
    /// Parameters; `$absent` for one that must not be sent.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// A part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressPart {
    /// After `?`.
    Query,
    /// After `#`.
    Fragment,
}

/// Members that a token must have.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedJwt {
    /// Members of the header.
    pub header: Option<Value>,
    /// Claims.
    pub claims: Option<Value>,
}

/// A FHIR error, in short: an OperationOutcome in which one issue has this code and text.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FhirError {
    status: ExpectedStatus,
    code: Option<String>,
    text: Option<String>,
}

impl FhirError {
    /// Adds the error to an expectation, which must not name a status or a body of its own.
    pub(super) fn add_to(self, expectation: &mut Expectation) -> Result<(), String> {
        if expectation.status.is_some() || expectation.json.is_some() || expectation.dialect.is_some() {
            return Err("'error' implies status, dialect and json: expect must not name them".to_owned());
        }
        let mut issue = json!({});
        if let Some(code) = self.code {
            issue["code"] = code.into();
        }
        if let Some(text) = self.text {
            issue["details"] = json!({ "text": text });
        }
        expectation.status = Some(self.status);
        expectation.dialect = Some(ErrorDialect::Fhir);
        if issue != json!({}) {
            expectation.json = Some(json!({ "issue": { "$some": issue } }));
        }
        Ok(())
    }
}
