//! The expected response of a step. Only the members of an expectation are checked.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The expected response. Texts are compared as a whole, or by a matcher: see [`crate::run::matcher`].
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Expected status or statuses.
    pub status: Option<ExpectedStatus>,
    /// Media type of the body, without parameters.
    pub content_type: Option<String>,
    /// Expected headers; `$absent` for a header that must not be sent.
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
    /// Page to which the response leads, directly or by redirects within the server.
    pub page: Option<PageKind>,
    /// Whether this page must be protected from being framed by other sites.
    #[serde(default)]
    pub unframed: bool,
    /// Expected headers of this page.
    #[serde(default)]
    pub page_headers: BTreeMap<String, String>,
    /// Whether the browser has a cookie that scripts cannot read.
    #[serde(default)]
    pub hidden_cookie: bool,
    /// Whether the browser has sent the password once only, because no redirect made it send the form again.
    #[serde(default)]
    pub password_sent_once: bool,
    /// Tokens in the response, by [source](crate::wire::answer_part). They must be signed by the server's
    /// published keys.
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
    /// Expected headers of each response after which the request is repeated, if there is one.
    #[serde(default)]
    pub pending_headers: BTreeMap<String, String>,
    /// Parts of the responses that must differ if the request is sent several times, by
    /// [source](crate::wire::answer_part).
    #[serde(default)]
    pub distinct: Vec<String>,
}

/// Expected status: one status, one of several, or a class such as `4xx`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum ExpectedStatus {
    /// The status must be this one.
    Is(u16),
    /// The status must be one of these.
    OneOf(Vec<u16>),
    /// The status must be in this class, `2xx` to `5xx`.
    Class(String),
}

impl Expectation {
    /// Returns whether the response must be an error page.
    pub fn expects_error_page(&self) -> bool {
        let refuses = self.status.as_ref().is_some_and(|status| status.matches(400));
        refuses && self.dialect == Some(ErrorDialect::Page)
    }

    /// Returns whether anything is expected.
    pub fn is_stated(&self) -> bool {
        serde_json::to_value(self).is_ok_and(|value| value != json!(Self::default()))
    }
}

impl ExpectedStatus {
    /// Returns whether the status is expected.
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

/// Format of an error response.
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
    /// Expected URL without the added parameters. A query of its own is part of it.
    pub to: String,
    /// Part of the URL that must contain the parameters. The other part must not contain any.
    pub part: Option<AddressPart>,
    /// Expected parameters; `$absent` for a parameter that must not be sent.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// A part of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressPart {
    /// The query, which follows `?`.
    Query,
    /// The fragment, which follows `#`.
    Fragment,
}

/// A page for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageKind {
    /// The page with a form for user name or password.
    SignIn,
    /// The page that asks the user for consent.
    Consent,
    /// A page or another response with a status of 4xx.
    Error,
    /// An error page, or a redirect to the client with an error.
    Refusal,
    /// A page that a script makes, so that its kind is not known. No row expects it.
    #[serde(skip)]
    Scripted,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::SignIn => "a sign-in page",
            Self::Consent => "a consent page",
            Self::Error => "an error page",
            Self::Refusal => "a refusal",
            Self::Scripted => "a page that a script makes",
        })
    }
}

/// Members that a token must have.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedJwt {
    /// Members that the header must have.
    pub header: Option<Value>,
    /// Claims that the token must have.
    pub claims: Option<Value>,
}

/// Statuses with which a server can refuse the input of an operation (FHIR R4, "operations": any 4xx or 5xx
/// is an error).
const REFUSALS: [u16; 3] = [400, 404, 422];

/// Short form of an expected FHIR error: an OperationOutcome in which one issue has this code and text.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FhirError {
    status: ExpectedStatus,
    code: Option<String>,
    text: Option<String>,
}

impl FhirError {
    /// Adds the error to an expectation, which must not have a status or a body. No standard states the texts
    /// of errors, so the text is a rule of Trefoil. For an operation, so are the code of the issue and the
    /// choice of the status from [`REFUSALS`].
    pub(super) fn add_to(
        self,
        is_operation: bool,
        expectation: &mut Expectation,
        house: &mut Option<Expectation>,
    ) -> Result<(), String> {
        if expectation.status.is_some() || expectation.json.is_some() || expectation.dialect.is_some() {
            return Err("'error' implies status, dialect and json: expect must not name them".to_owned());
        }
        let issue = match &self.code {
            Some(code) => json!({ "code": code }),
            None => json!({}),
        };
        if let Some(text) = self.text {
            let mut complete = issue.clone();
            complete["details"] = json!({ "text": text });
            house.get_or_insert_default().json = Some(json!({ "issue": { "$some": complete } }));
        }
        expectation.dialect = Some(ErrorDialect::Fhir);
        let is_choice = REFUSALS.iter().any(|status| self.status.matches(*status));
        if is_operation && is_choice {
            let house = house.get_or_insert_default();
            house.json.get_or_insert_with(|| json!({ "issue": { "$some": issue } }));
            house.status = Some(self.status);
            expectation.status = Some(ExpectedStatus::OneOf(REFUSALS.to_vec()));
            return Ok(());
        }
        expectation.status = Some(self.status);
        if issue != json!({}) {
            expectation.json = Some(json!({ "issue": { "$some": issue } }));
        }
        Ok(())
    }
}
