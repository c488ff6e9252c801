//! The language of the tables. Unknown keys are refused everywhere.
//!
//! # A requirement
//! `id` (spec, section, slug), `level`, `actor`, `link` (where the statement stands), `gist` (the
//! statement in our words).
//!
//! # A case
//! `id`, `covers`, `given` (one state or several, see [`crate::world::givens`]), and either one
//! `request` with its `expect`, or `steps`: a list of both. `capture` keeps parts of an answer.
//!
//! # Variables
//! `$name` in any text of a request or expectation. Names are dotted paths into `demo.json`
//! (`$public.client_id`, `$groups.0`), into `endpoint.json` (`$base_url`, `$fhir_base`), what the
//! givens set (`$code`, `$token`), and what earlier steps captured. A text that is nothing but a
//! variable takes its JSON value, whatever type it has. The FHIR operations `$validate-code`,
//! `$batch-validate-code`, `$lookup`, `$expand`,
//! `$subsumes` and `$export` are left alone.
//!
//! # A request
//! `method` (GET), `path` (below the base URL, or a whole address), `query`, `headers` (a list sends
//! a header several times), `bearer` (a token), one of `form`, `json`, `body`, `filled`, and
//! `content_type` (of `json`: `application/fhir+json`). `poll = 202` repeats the request while that
//! status comes back. Cookies are kept from step to step as a browser does.
//!
//! # An expectation
//! All that is named must hold; what is not named is not judged. Texts are matched whole, or by a
//! matcher, see [`crate::run::matcher`]. Sources of `capture` and `jwt` are described at
//! [`crate::run::source`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// How strictly a requirement binds (RFC 2119).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// It holds without exception.
    Must,
    /// It holds unless there is a good reason.
    Should,
    /// It is allowed.
    May,
}

/// Whom a requirement binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// Sign-in, tokens, claims.
    AuthorizationServer,
    /// `$validate-code`, `$subsumes`.
    TerminologyServer,
    /// Bulk export.
    BulkServer,
    /// The rest of the FHIR interface.
    FhirServer,
    /// All of them.
    Server,
}

/// A statement of the specification.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Spec, section, slug; never changes.
    pub id: String,
    /// How strictly it binds.
    pub level: Level,
    /// Whom it binds.
    pub actor: Actor,
    /// Where it stands: a place in SPEC or DESIGN, or an address.
    pub link: String,
    /// What it says, in our words.
    pub gist: String,
}

/// One trial of one or more requirements.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Id of its requirement and a slug.
    pub id: String,
    /// The requirements that it tries.
    pub covers: Vec<String>,
    /// States that must be reached before.
    #[serde(default, deserialize_with = "one_or_many")]
    pub given: Vec<String>,
    /// The request of a case with one step.
    #[serde(default)]
    request: Option<Request>,
    /// What its answer must be.
    #[serde(default)]
    expect: Option<Expect>,
    /// The steps of a longer case.
    #[serde(default)]
    steps: Vec<Step>,
}

impl Case {
    /// What is done, in order.
    pub fn steps(&self) -> Vec<Step> {
        let single = self.request.clone().map(|request| Step {
            request,
            expect: self.expect.clone().unwrap_or_default(),
            capture: BTreeMap::new(),
        });
        single.into_iter().chain(self.steps.iter().cloned()).collect()
    }

    /// Is it written in exactly one of the two forms, and is every answer judged?
    pub fn is_well_formed(&self) -> bool {
        let single = self.request.is_some() && self.expect.is_some() && self.steps.is_empty();
        let several = self.request.is_none() && self.expect.is_none() && !self.steps.is_empty();
        single || several
    }

    /// The first two parts of the id: the section in reports.
    pub fn section(&self) -> &str {
        match self.id.match_indices('/').nth(1) {
            Some((at, _)) => &self.id[..at],
            None => &self.id,
        }
    }
}

/// A request and what its answer must be.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What is sent.
    pub request: Request,
    /// What must come back.
    pub expect: Expect,
    /// Parts of the answer to keep: variable and source.
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
}

/// What is sent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// GET where it is left out.
    pub method: Option<String>,
    /// Below the base URL, or a whole address.
    pub path: String,
    /// Added to the path, encoded.
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    /// Headers.
    #[serde(default)]
    pub headers: BTreeMap<String, Values>,
    /// A token for the Authorization header.
    pub bearer: Option<String>,
    /// A DPoP proof by the case's key, and with `token` the Authorization header that goes with it.
    pub dpop: Option<Proof>,
    /// Body: a form.
    pub form: Option<BTreeMap<String, String>>,
    /// Body: JSON.
    pub json: Option<Value>,
    /// Body: text as it is.
    pub body: Option<String>,
    /// Body: a text that would be too long to write down.
    pub filled: Option<Filled>,
    /// Media type of the body; `""` sends none.
    pub content_type: Option<String>,
    /// Repeat while this status comes back.
    pub poll: Option<u16>,
}

/// A DPoP proof (RFC 9449 4.2): right for the request but for what is changed here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The access token that it goes with.
    pub token: Option<String>,
    /// Members of the header in place of the right ones; `"$absent"` leaves one out.
    #[serde(default)]
    pub header: BTreeMap<String, Value>,
    /// The same for the claims; `iat` and the like count from now.
    #[serde(default)]
    pub claims: BTreeMap<String, Value>,
    /// Sign with another key than the case's.
    #[serde(default)]
    pub other_key: bool,
    /// Send the header so many times; one where it is left out.
    pub times: Option<usize>,
    /// Send this text, not a proof.
    pub text: Option<String>,
}

/// One value or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// `before`, then `repeat` so many `times`, then `after`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filled {
    /// Comes first.
    #[serde(default)]
    pub before: String,
    /// Is repeated.
    pub repeat: String,
    /// How often.
    pub times: usize,
    /// Comes last.
    #[serde(default)]
    pub after: String,
}

/// What must come back.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Status.
    pub status: Option<Status>,
    /// Media type of the body, without parameters.
    pub content_type: Option<String>,
    /// Headers; `$absent` for one that must not be there.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body as JSON: all that is named must be there.
    pub json: Option<Value>,
    /// The body as FHIR Parameters: each named parameter must be there with these members.
    pub parameters: Option<BTreeMap<String, Value>>,
    /// An error in the words of these endpoints.
    pub dialect: Option<Dialect>,
    /// Where the browser is sent.
    pub location: Option<Location>,
    /// Tokens by source: they must be signed by the server's published keys.
    #[serde(default)]
    pub jwt: BTreeMap<String, Jwt>,
    /// Texts that stand in the body.
    #[serde(default)]
    pub body_contains: Vec<String>,
    /// Texts that do not.
    #[serde(default)]
    pub body_absent: Vec<String>,
    /// The body as NDJSON: every line matches this.
    pub ndjson: Option<Value>,
    /// Number of lines of the body.
    pub lines: Option<usize>,
}

/// A status, one of several, or a class such as `4xx`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Status {
    /// This one.
    Is(u16),
    /// One of these.
    OneOf(Vec<u16>),
    /// `2xx` … `5xx`.
    Class(String),
}

impl fmt::Display for Status {
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

/// The three ways in which endpoints word their errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// JSON with `error` (RFC 6749 5.2).
    Oauth,
    /// OperationOutcome with severity `error`, a code and `details.text`.
    Fhir,
    /// A page.
    Page,
}

/// Where the browser is sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// The address without what the answer adds; its own query belongs to it.
    pub to: String,
    /// Which part carries the answer. The other part must add nothing.
    pub part: Option<Part>,
    /// Parameters of the answer; `$absent` for one that must not be there.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// A part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// After `?`.
    Query,
    /// After `#`.
    Fragment,
}

/// What a token must say.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// Its header.
    pub header: Option<Value>,
    /// Its claims.
    pub claims: Option<Value>,
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Values::deserialize(deserializer)? {
        Values::One(value) => vec![value],
        Values::Many(values) => values,
    })
}
