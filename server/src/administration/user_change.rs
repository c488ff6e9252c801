//! A change of a user, as the admin API and the commands `trefoil user add` and `trefoil user change` receive
//! it.

use std::collections::BTreeMap;

use identity::model::declared_claim::{ClaimSource, DeclaredClaim};
use identity::model::members;
use identity::model::nearest_name::nearest_name;
use identity::model::scope::Scopes;
use identity::model::user::{StandardClaims, User, default_scopes};
use serde_json::{Map, Value};

/// Maximum number of patients, or of Groups, that an administrator names for a user.
const MAX_IDS: usize = 50;
/// Maximum number of values of declared claims that an administrator sets for a user.
const MAX_OWN_CLAIMS: usize = 500;
/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 500;

/// Reasons why a change of a user is rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidUserChange {
    /// There is no such member.
    #[error("unknown field `{name}`, expected one of {}{hint}", accepted_names())]
    Unknown {
        /// The rejected name.
        name: String,
        /// A suggestion, if a name is similar.
        hint: String,
    },
    /// A value has another type.
    #[error("{member} must be {expected}, or null for the default")]
    Type {
        /// Name of the member.
        member: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// A text is empty, too long, or has control characters.
    #[error("a text must have 1 to 500 bytes and no control characters")]
    Text,
    /// The FHIR resource is not a reference.
    #[error("fhir_user must be a resource such as Patient/p1")]
    FhirUser,
    /// An id is malformed, or there are too many.
    #[error("{member} must be a list of at most {MAX_IDS} ids such as p1")]
    Ids {
        /// Name of the member.
        member: &'static str,
    },
    /// A claim is not a name with a value, or there are too many.
    #[error("own_claims must be a list of at most {MAX_OWN_CLAIMS} texts such as groups=nurse")]
    OwnClaims,
    /// A claim is not declared.
    #[error("the claim '{0}' is not declared; add a [[claim]] with this name to the configuration")]
    UnknownClaim(String),
    /// A provider sends the values of a claim.
    #[error(
        "the claim '{0}' has its values from a provider; leave it out, or remove `from` of its [[claim]]"
    )]
    ClaimOfProvider(String),
    /// The values of a claim have another type.
    #[error("the claim '{0}' cannot have these values; give those of the kind that its [[claim]] names")]
    ClaimValue(String),
    /// The scopes are malformed.
    #[error("allowed_scopes: {0}")]
    Scopes(String),
}

fn accepted_names() -> String {
    let names = members::user_members().map(|row| format!("`{}`", row.name));
    names.collect::<Vec<_>>().join(", ")
}

/// A user with the scopes that users have by default.
pub fn new_user(username: String, password: Option<String>) -> User {
    User {
        claims: StandardClaims { preferred_username: Some(username.clone()), ..StandardClaims::default() },
        username,
        allowed_scopes: default_scopes(),
        password,
        ..User::default()
    }
}

/// A valid change of a user. Members that are absent do not change.
#[derive(Debug, Default)]
pub struct UserChange {
    claims: Vec<(&'static str, Value)>,
    fhir_user: Option<Option<String>>,
    patients: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    own_claims: Option<Vec<String>>,
    allowed_scopes: Option<Scopes>,
    administrator: Option<bool>,
    disabled: Option<bool>,
    /// The members that are set, or whose default is restored.
    by_hand: Vec<(&'static str, bool)>,
}

impl UserChange {
    /// Checks the members of a JSON merge patch (RFC 7396): `null` restores the default of a member.
    ///
    /// # Errors
    /// [`InvalidUserChange`] for the first member that is rejected.
    pub fn read(members: Map<String, Value>) -> Result<Self, InvalidUserChange> {
        let mut change = Self::default();
        for (name, value) in members {
            let Some(row) = members::user_members().find(|row| row.name == name) else {
                let nearest = nearest_name(&name, members::user_members().map(|row| row.name));
                let hint = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
                return Err(InvalidUserChange::Unknown { name, hint });
            };
            if value.as_str().is_some_and(is_bad_text) {
                return Err(InvalidUserChange::Text);
            }
            let text =
                || value.as_str().ok_or(InvalidUserChange::Type { member: row.name, expected: "a string" });
            let boolean = || match &value {
                Value::Null => Ok(false),
                value => value
                    .as_bool()
                    .ok_or(InvalidUserChange::Type { member: row.name, expected: "true or false" }),
            };
            change.by_hand.push((row.name, !value.is_null()));
            match row.name {
                // JSON Merge Patch (RFC 7396): null removes a member, which restores its default.
                "allowed_scopes" if value.is_null() => change.allowed_scopes = Some(default_scopes()),
                "allowed_scopes" => {
                    let scopes = Scopes::parse(text()?);
                    let scopes = scopes.map_err(|error| InvalidUserChange::Scopes(error.to_string()))?;
                    change.allowed_scopes = Some(scopes);
                }
                "fhir_user" if value.is_null() => change.fhir_user = Some(None),
                "fhir_user" => {
                    let reference = text()?;
                    let is_reference =
                        |(kind, id): (&str, &str)| fhir::resource_type(kind).is_some() && !id.is_empty();
                    if !reference.split_once('/').is_some_and(is_reference) {
                        return Err(InvalidUserChange::FhirUser);
                    }
                    change.fhir_user = Some(Some(reference.to_owned()));
                }
                "patients" => change.patients = Some(read_ids(row.name, &value)?),
                "groups" => change.groups = Some(read_ids(row.name, &value)?),
                "own_claims" => change.own_claims = Some(read_own_claims(&value)?),
                "administrator" => change.administrator = Some(boolean()?),
                "disabled" => change.disabled = Some(boolean()?),
                claim => {
                    if !StandardClaims::default().set(claim, value.clone()) {
                        let is_text = row.kind == members::MemberType::Text;
                        let expected = if is_text { "a string" } else { "true or false" };
                        return Err(InvalidUserChange::Type { member: claim, expected });
                    }
                    change.claims.push((claim, value));
                }
            }
        }
        Ok(change)
    }

    /// Checks the values of claims against those that are declared.
    ///
    /// # Errors
    /// [`InvalidUserChange`] for the first claim that is rejected.
    pub fn check_claims(&self, declared: &[DeclaredClaim]) -> Result<(), InvalidUserChange> {
        let pairs = self.own_claims.iter().flatten().filter_map(|pair| pair.split_once('='));
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in pairs {
            values.entry(name).or_default().push(value);
        }
        for (name, texts) in values {
            let claim = declared.iter().find(|claim| claim.name == name);
            let claim = claim.ok_or_else(|| InvalidUserChange::UnknownClaim(name.to_owned()))?;
            if claim.source != ClaimSource::Users {
                return Err(InvalidUserChange::ClaimOfProvider(name.to_owned()));
            }
            if claim.kind.of_texts(&texts).is_none() {
                return Err(InvalidUserChange::ClaimValue(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Applies the change to a user.
    pub fn apply(&self, user: &mut User) {
        let changes_claim = |name: &str| self.claims.iter().any(|(claim, _)| *claim == name);
        if changes_claim("email") || changes_claim("email_verified") {
            // The provider verified the previous address.
            user.claims.email_verified = None;
            user.email_verified_by = None;
        }
        for (claim, value) in &self.claims {
            user.claims.set(claim, value.clone());
        }
        if let Some(fhir_user) = &self.fhir_user {
            user.fhir_user.clone_from(fhir_user);
        }
        if let Some(patients) = &self.patients {
            user.patients.clone_from(patients);
        }
        if let Some(groups) = &self.groups {
            user.groups.clone_from(groups);
        }
        if let Some(own_claims) = &self.own_claims {
            user.own_claims.clone_from(own_claims);
        }
        for (name, is_set) in &self.by_hand {
            if *is_set {
                user.set_by_hand.insert((*name).to_owned());
            } else {
                user.set_by_hand.remove(*name);
            }
        }
        if let Some(scopes) = &self.allowed_scopes {
            user.allowed_scopes = scopes.clone();
        }
        let before = (user.disabled, user.administrator);
        user.administrator = self.administrator.unwrap_or(user.administrator);
        user.disabled = self.disabled.unwrap_or(user.disabled);
        // Tokens issued before must not become valid again, nor gain another right.
        if before != (user.disabled, user.administrator) {
            user.epoch += 1;
        }
    }
}

/// Whether a text of a user is empty, too long or has control characters.
fn is_bad_text(text: &str) -> bool {
    text.is_empty() || text.len() > MAX_TEXT_BYTES || text.chars().any(char::is_control)
}

/// Reads a list of claims with values; `null` is an empty list.
fn read_own_claims(value: &Value) -> Result<Vec<String>, InvalidUserChange> {
    let pairs = match value {
        Value::Null => &[],
        Value::Array(pairs) if pairs.len() <= MAX_OWN_CLAIMS => &pairs[..],
        _ => return Err(InvalidUserChange::OwnClaims),
    };
    let is_pair =
        |text: &&str| text.split_once('=').is_some_and(|(name, _)| !name.is_empty()) && !is_bad_text(text);
    let pair = |value: &Value| value.as_str().filter(is_pair).map(str::to_owned);
    pairs.iter().map(pair).collect::<Option<_>>().ok_or(InvalidUserChange::OwnClaims)
}

/// Reads a list of ids; `null` is an empty list.
fn read_ids(member: &'static str, value: &Value) -> Result<Vec<String>, InvalidUserChange> {
    let ids = match value {
        Value::Null => &[],
        Value::Array(ids) if ids.len() <= MAX_IDS => &ids[..],
        _ => return Err(InvalidUserChange::Ids { member }),
    };
    let id = |value: &Value| value.as_str().filter(|id| fhir::is_id(id)).map(str::to_owned);
    ids.iter().map(id).collect::<Option<_>>().ok_or(InvalidUserChange::Ids { member })
}
