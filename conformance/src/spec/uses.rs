//! Features of a server that a case uses. A case whose features a server does not have is skipped, with the
//! reason. A row names features in its column `uses`; those that its requests name themselves, such as the
//! endpoint or the response type, are read from the requests.

use std::fmt;
use std::str::FromStr;

use http::Method;

use super::expectation::Expectation;
use super::request::{Body, OPERATIONS, Request};

/// A feature of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A feature that the column names by one word.
    Feature(Feature),
    /// The server does not offer this value of a parameter, and refuses it.
    Without {
        /// Name of the parameter.
        parameter: String,
        /// Value that the server must not offer.
        value: String,
    },
    /// A client of the profile may not use this grant type.
    WithoutGrant {
        /// Member of the profile.
        client: String,
        /// The grant type.
        grant: String,
    },
    /// The server offers this value of a parameter, as far as a member of its metadata lists the values.
    Offered {
        /// Name of the parameter.
        parameter: &'static str,
        /// Member of the metadata with the values.
        member: &'static str,
        /// The value.
        value: String,
    },
    /// The metadata states the URL of an endpoint.
    Endpoint(String),
    /// The CapabilityStatement states this type.
    Type(String),
    /// The CapabilityStatement states this operation.
    Operation(&'static str),
}

/// A feature that the column `uses` names by one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "FEATURES describes them")]
pub enum Feature {
    AccessControl,
    Dpop,
    NoChallenge,
    NoRequestObjects,
    OauthMetadata,
    OwnPages,
    Pkce,
    PublicClient,
    PushedRequests,
    Smart,
    TxResource,
    Writes,
}

/// All features that the column names: each with its name, and what the server must do.
pub const FEATURES: [(Feature, &str, &str); 12] = [
    (Feature::AccessControl, "access-control", "needs a token for FHIR requests"),
    (Feature::Dpop, "dpop", "announces DPoP (RFC 9449 5.1)"),
    (Feature::NoChallenge, "no-challenge", "needs no code challenge (`pkce = false` in the profile)"),
    (
        Feature::NoRequestObjects,
        "no-request-objects",
        "does not offer request objects, so that it refuses them",
    ),
    (Feature::OauthMetadata, "oauth-metadata", "has the document of RFC 8414"),
    (Feature::OwnPages, "own-pages", "has the pages of Trefoil"),
    (Feature::Pkce, "pkce", "announces PKCE (RFC 8414 2)"),
    (Feature::PublicClient, "public-client", "issues tokens to a client without a secret"),
    (Feature::PushedRequests, "pushed-requests", "announces pushed authorization requests (RFC 9126 5)"),
    (Feature::Smart, "smart", "has the document of SMART App Launch"),
    (Feature::TxResource, "tx-resource", "accepts resources with a request (`tx_resources` in the profile)"),
    (Feature::Writes, "writes", "may be changed by the run (`--write`)"),
];

/// Forms of the column with values, and what each means.
pub const FORMS: [(&str, &str); 2] = [
    ("without PARAMETER VALUE", "does not offer this value, so that its refusal can be tested"),
    ("without grant CLIENT TYPE", "does not allow this client of the profile this grant type"),
];

/// Word of the column for a value or grant that the server does not offer.
const WITHOUT: &str = "without ";

impl FromStr for Use {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((feature, ..)) = FEATURES.iter().find(|(_, name, _)| *name == text) {
            return Ok(Self::Feature(*feature));
        }
        let unknown = || {
            let names = FEATURES.map(|(_, name, _)| name).join(", ");
            format!("'{text}' is not a feature: use one of {names}, or 'without PARAMETER VALUE'")
        };
        let rest = text.strip_prefix(WITHOUT).ok_or_else(unknown)?;
        let (parameter, value) = rest.split_once(' ').ok_or_else(unknown)?;
        let without_grant = value.split_once(' ').filter(|_| parameter == "grant");
        Ok(match without_grant {
            Some((client, grant)) => {
                Self::WithoutGrant { client: client.to_owned(), grant: grant.to_owned() }
            }
            None => Self::Without { parameter: parameter.to_owned(), value: value.to_owned() },
        })
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Feature(feature) => {
                let row = FEATURES.iter().find(|(candidate, ..)| candidate == feature);
                f.write_str(row.map_or("", |(_, name, _)| name))
            }
            Self::Without { parameter, value } => write!(f, "{WITHOUT}{parameter} {value}"),
            Self::WithoutGrant { client, grant } => write!(f, "{WITHOUT}grant {client} {grant}"),
            Self::Offered { parameter, value, .. } => write!(f, "{parameter}={value}"),
            Self::Endpoint(name) | Self::Type(name) => f.write_str(name),
            Self::Operation(name) => write!(f, "${name}"),
        }
    }
}

/// Endpoints, a parameter of their requests, and the member of the metadata that lists the values that a
/// server offers (RFC 8414 2, OpenID Connect Discovery 1.0, section 3).
const OFFERS: [(&str, &str, &str); 5] = [
    ("authorize", "response_type", "response_types_supported"),
    ("authorize", "response_mode", "response_modes_supported"),
    ("authorize", "scope", "scopes_supported"),
    ("authorize", "acr_values", "acr_values_supported"),
    ("token", "grant_type", "grant_types_supported"),
];

/// Scopes with a meaning that standards define, except `openid`, which a server need not list.
const STANDARD_SCOPES: [&str; 5] = ["profile", "email", "address", "phone", "offline_access"];

/// Words of the response types that standards define.
const RESPONSE_TYPES: [&str; 4] = ["code", "token", "id_token", "none"];

/// The features that a request names itself.
pub(super) fn of_request(request: &Request, expect: &Expectation) -> Vec<Use> {
    let mut uses = offered_values(request, expect);
    let to = request.to.as_str();
    let endpoint = to.split(['/', '?']).next().unwrap_or_default();
    if !endpoint.is_empty() && !endpoint.ends_with(':') {
        uses.push(Use::Endpoint(endpoint.to_owned()));
    }
    if request.sends_resources() {
        uses.push(Use::Feature(Feature::TxResource));
    }
    if let Some(path) = to.strip_prefix("fhir/") {
        let first = path.split(['/', '?']).next().unwrap_or_default();
        if first.starts_with(|first: char| first.is_ascii_uppercase()) {
            uses.push(Use::Type(first.to_owned()));
        }
        uses.extend(operation_of(path).map(Use::Operation));
    }
    uses
}

/// The values of parameters that the server must offer: those of a request that is to succeed, and a response
/// type of a standard in any case, because it decides where an error goes.
fn offered_values(request: &Request, expect: &Expectation) -> Vec<Use> {
    let is_error = expect.location.as_ref().is_some_and(|location| location.params.contains_key("error"))
        || expect.status.as_ref().is_some_and(|status| status.matches(400));
    let mut uses = Vec::new();
    for (_, parameter, member) in OFFERS.into_iter().filter(|(endpoint, ..)| *endpoint == request.to) {
        let form = match &request.body {
            Body::Form(form) => form.get(parameter),
            _ => None,
        };
        let Some(value) = request.query.get(parameter).or(form) else { continue };
        let is_of_standard = value.split(' ').all(|word| RESPONSE_TYPES.contains(&word));
        if is_error && (parameter != "response_type" || !is_of_standard) {
            continue;
        }
        let values: Vec<&str> = match parameter {
            "scope" => value.split(' ').filter(|word| STANDARD_SCOPES.contains(word)).collect(),
            _ => vec![value],
        };
        // A value that begins with a dollar sign is a variable of the profile.
        let stated = values.into_iter().filter(|value| !value.is_empty() && !value.starts_with('$'));
        uses.extend(stated.map(|value| Use::Offered { parameter, member, value: value.to_owned() }));
    }
    uses
}

/// The operation at the end of a path. Other names with a dollar sign are variables, such as those of ids.
fn operation_of(path: &str) -> Option<&'static str> {
    let last = path.split('?').next()?.rsplit('/').next()?.strip_prefix('$')?;
    OPERATIONS.into_iter().find(|operation| *operation == last)
}

/// Pages of Trefoil that change accounts, clients and users.
const OWN_DATA: [&str; 4] = ["/account", "/admin", "/passkey", "/recovery"];
/// Number of repeated requests for new codes or tokens from which a case counts as one that changes data.
const MANY_RECORDS: usize = 50;

/// Returns whether a request changes data that the run has not created itself, or leaves many records.
pub(super) fn changes_data(request: &Request) -> bool {
    let is_fhir = request.to.starts_with("fhir");
    let is_account = OWN_DATA.iter().any(|path| request.to.starts_with(path));
    if request.method == Method::POST && request.times >= MANY_RECORDS && !is_fhir {
        return true;
    }
    match request.method {
        Method::PUT | Method::PATCH => true,
        Method::DELETE => is_fhir || is_account,
        Method::POST => is_fhir && !request.to.contains('$') || is_account,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_read_from_their_texts() {
        for text in ["dpop", "without response_type code token", "without grant public urn:example:none"] {
            assert_eq!(text.parse::<Use>().unwrap().to_string(), text);
        }
        let error = "dpopp".parse::<Use>().unwrap_err();
        assert!(error.starts_with("'dpopp' is not a feature: use one of access-control, dpop,"), "{error}");
    }

    #[test]
    fn the_operation_is_the_end_of_a_path() {
        for (path, operation) in [
            ("Group/$groups.0/$export", Some("export")),
            ("CodeSystem/$code_systems.0.id/$validate-code?code=a", Some("validate-code")),
            ("$versions", Some("versions")),
            ("Group/$id", None),
            ("Group/$id/_history", None),
            ("Patient?name=$expand", None),
        ] {
            assert_eq!(operation_of(path), operation, "{path}");
        }
    }
}
