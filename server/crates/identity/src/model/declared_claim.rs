//! Claims about users that the operator declares, such as `groups`, beside those of OpenID Connect.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Number, Value};

use crate::model::members::CLAIMS;
use crate::model::scope::Scopes;
use crate::model::user::User;

/// Maximum number of values of a claim in a token.
const MAX_TOKEN_VALUES: usize = 200;
/// Maximum size of the value of a claim in a token, in bytes of JSON.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Maximum size of the value that is taken from a provider, in bytes of JSON.
const MAX_BYTES: usize = 64 * 1024;

/// Claims of tokens and of userinfo that no declared claim can have (RFC 7519, RFC 9068, RFC 9449, OpenID
/// Connect Core and SMART App Launch), beside [`CLAIMS`].
const RESERVED: &[&str] = &[
    "iss",
    "sub",
    "aud",
    "exp",
    "nbf",
    "iat",
    "jti",
    "auth_time",
    "nonce",
    "acr",
    "amr",
    "azp",
    "at_hash",
    "c_hash",
    "s_hash",
    "sid",
    "client_id",
    "scope",
    "cnf",
    "act",
    "may_act",
    "events",
    "family",
    "epoch",
    "generation",
    "provider",
    "patient",
    "encounter",
    "fhirUser",
    "fhirContext",
    "active",
    "token_type",
    "username",
    "middle_name",
    "nickname",
    "profile",
    "picture",
    "website",
    "gender",
    "birthdate",
    "zoneinfo",
    "locale",
    "address",
    "updated_at",
    "_claim_names",
    "_claim_sources",
];

/// Returns whether a declared claim cannot have this name.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || CLAIMS.iter().any(|row| row.name == name)
}

/// The type of the values of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimKind {
    /// A list of texts.
    List,
    /// A text.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}

impl ClaimKind {
    /// The value of a claim of a provider if it has this type. One text is a list of it.
    fn of_provider(self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::List, Value::Array(values)) => values.iter().all(Value::is_string).then(|| value.clone()),
            (Self::List, Value::String(_)) => Some(Value::Array(vec![value.clone()])),
            (Self::Text, Value::String(_))
            | (Self::Number, Value::Number(_))
            | (Self::Boolean, Value::Bool(_)) => Some(value.clone()),
            _ => None,
        }
    }

    /// The value that these texts name, or `None` if they name none of this type.
    pub fn of_texts(self, texts: &[&str]) -> Option<Value> {
        match (self, texts) {
            (Self::List, []) => None,
            (Self::List, texts) => Some(texts.iter().copied().collect()),
            (Self::Text, [text]) => Some((*text).into()),
            (Self::Number, [text]) => text.parse::<Number>().ok().map(Value::Number),
            (Self::Boolean, [text]) => text.parse::<bool>().ok().map(Value::Bool),
            _ => None,
        }
    }
}

/// The only source of the values of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimSource {
    /// An administrator, for each user.
    Users,
    /// A claim of the last sign-in at a provider. It counts as long as rights of that sign-in would.
    Provider {
        /// Name of the provider.
        provider: String,
        /// Name of the claim, or a path such as `realm_access.roles`.
        path: String,
    },
}

/// A claim that the operator declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredClaim {
    /// Name.
    pub name: String,
    /// Scope that grants access to it, and that every user may grant.
    pub scope: String,
    /// Type of the values.
    pub kind: ClaimKind,
    /// Source of the values.
    pub source: ClaimSource,
    /// `true` if ID tokens contain it, even if the client could read it from userinfo.
    pub in_id_token: bool,
    /// `true` if access tokens contain it.
    pub in_access_token: bool,
}

/// The answer that contains claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimPlace {
    /// Userinfo, which contains all claims.
    Userinfo,
    /// An ID token of a client that reads all claims from it, or only those that are always in it.
    IdToken {
        /// Whether the client reads all claims from it.
        all: bool,
    },
    /// An access token.
    AccessToken,
}

impl DeclaredClaim {
    /// The value that a provider sent, if it can be passed on.
    pub(crate) fn of_provider(&self, value: &Value) -> Option<Value> {
        self.kind.of_provider(value).filter(|value| value.to_string().len() <= MAX_BYTES)
    }

    /// The value for a user.
    fn value(&self, user: &User) -> Option<Value> {
        match &self.source {
            ClaimSource::Provider { .. } => {
                user.passed_on.get(&self.name).and_then(|value| self.kind.of_provider(value))
            }
            ClaimSource::Users => {
                let texts: Vec<_> = user.values_of_own_claim(&self.name).collect();
                self.kind.of_texts(&texts)
            }
        }
    }

    fn is_in(&self, place: ClaimPlace) -> bool {
        match place {
            ClaimPlace::Userinfo => true,
            ClaimPlace::IdToken { all } => all || self.in_id_token,
            ClaimPlace::AccessToken => self.in_access_token,
        }
    }
}

/// Returns whether a value is small enough for a token, which is sent with every request.
fn fits_into_token(value: &Value) -> bool {
    value.as_array().is_none_or(|values| values.len() <= MAX_TOKEN_VALUES)
        && value.to_string().len() <= MAX_TOKEN_BYTES
}

/// The declared claims that scopes grant access to, in one place. A large value is in userinfo only.
pub(crate) fn declared_claims(
    claims: &[DeclaredClaim],
    user: &User,
    scopes: &Scopes,
    place: ClaimPlace,
) -> BTreeMap<String, Value> {
    let rows = claims.iter().filter(|claim| scopes.contains(&claim.scope) && claim.is_in(place));
    let values = rows.filter_map(|claim| Some((claim.name.clone(), claim.value(user)?)));
    values.filter(|(_, value)| place == ClaimPlace::Userinfo || fits_into_token(value)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_type_of_the_claim() {
        for (kind, value, expected) in [
            (ClaimKind::List, json!(["a", "b"]), Some(json!(["a", "b"]))),
            (ClaimKind::List, json!("a"), Some(json!(["a"]))),
            (ClaimKind::List, json!([1]), None),
            (ClaimKind::List, json!({ "a": 1 }), None),
            (ClaimKind::Text, json!("a"), Some(json!("a"))),
            (ClaimKind::Text, json!(1), None),
            (ClaimKind::Number, json!(1.50), Some(json!(1.50))),
            (ClaimKind::Number, json!("1"), None),
            (ClaimKind::Boolean, json!(true), Some(json!(true))),
            (ClaimKind::Boolean, json!("true"), None),
        ] {
            assert_eq!(kind.of_provider(&value), expected, "{kind:?} {value}");
        }
        for (kind, texts, expected) in [
            (ClaimKind::List, &["a", "b"][..], Some(json!(["a", "b"]))),
            (ClaimKind::List, &[], None),
            (ClaimKind::Text, &["a"], Some(json!("a"))),
            (ClaimKind::Text, &["a", "b"], None),
            (ClaimKind::Number, &["12"], Some(json!(12))),
            (ClaimKind::Number, &["twelve"], None),
            (ClaimKind::Boolean, &["false"], Some(json!(false))),
            (ClaimKind::Boolean, &["no"], None),
        ] {
            assert_eq!(kind.of_texts(texts), expected, "{kind:?} {texts:?}");
        }
    }

    #[test]
    fn a_large_value_is_in_userinfo_only() {
        let claim = |name: &str| DeclaredClaim {
            name: name.to_owned(),
            scope: "groups".to_owned(),
            kind: ClaimKind::List,
            source: ClaimSource::Users,
            in_id_token: true,
            in_access_token: true,
        };
        let claims = [claim("groups"), claim("roles")];
        let scopes = Scopes::parse("openid groups").unwrap();
        for (count, length, fits) in [(200, 1, true), (201, 1, false), (1, 8_000, true), (1, 8_192, false)] {
            let value = "x".repeat(length);
            let own_claims = vec![format!("groups={value}"); count];
            let user = User { own_claims, ..User::default() };
            let names = |place| {
                let values = declared_claims(&claims, &user, &scopes, place);
                values.into_keys().collect::<Vec<_>>()
            };
            assert_eq!(names(ClaimPlace::Userinfo), ["groups"]);
            let in_tokens = [ClaimPlace::IdToken { all: false }, ClaimPlace::AccessToken].map(names);
            assert!(in_tokens.iter().all(|names| names.is_empty() != fits), "{count} of {length}");
        }
        let user = User { own_claims: vec!["groups=a".to_owned()], ..User::default() };
        let other = Scopes::parse("openid profile").unwrap();
        assert!(declared_claims(&claims, &user, &other, ClaimPlace::Userinfo).is_empty());
    }
}
