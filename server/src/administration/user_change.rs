//! A change of a user, as the admin API and the commands `trefoil user add` and `trefoil user change` receive it.

use identity::model::scope::Scopes;
use identity::model::user::{StandardClaims, User};
use serde::{Deserialize, Deserializer};

/// Maximum length of a claim, in bytes.
const TEXT: usize = 500;

/// Reasons why a change of a user is rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidUserChange {
    /// A text is empty, too long, or has control characters.
    #[error("a text must have 1 to 500 bytes and no control characters")]
    Text,
    /// The FHIR resource is not a reference.
    #[error("fhir_user must be a resource such as Patient/p1")]
    FhirUser,
    /// The scopes are malformed.
    #[error("allowed_scopes: {0}")]
    Scopes(String),
}

/// Returns a user with the scopes that users have by default.
pub fn new_user(username: String, password: Option<String>) -> User {
    User {
        sub: String::new(),
        claims: StandardClaims { preferred_username: Some(username.clone()), ..StandardClaims::default() },
        username,
        email_verified_by: None,
        allowed_scopes: ["openid", "profile", "email", "phone"].into_iter().collect(),
        fhir_user: None,
        administrator: false,
        password,
        disabled: false,
        epoch: 0,
        demo: false,
    }
}

/// Deserializes a present member. Its value is `None` for null, which removes the value of the user.
fn present_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A change of a user; members that are absent do not change.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserChange {
    #[serde(deserialize_with = "present_or_null")]
    name: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    given_name: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    family_name: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    email: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    email_verified: Option<Option<bool>>,
    #[serde(deserialize_with = "present_or_null")]
    phone_number: Option<Option<String>>,
    #[serde(deserialize_with = "present_or_null")]
    phone_number_verified: Option<Option<bool>>,
    #[serde(deserialize_with = "present_or_null")]
    fhir_user: Option<Option<String>>,
    allowed_scopes: Option<String>,
    administrator: Option<bool>,
    disabled: Option<bool>,
}

/// A valid change.
pub struct CheckedUserChange {
    change: UserChange,
    scopes: Option<Scopes>,
}

impl UserChange {
    /// Checks the values.
    ///
    /// # Errors
    /// Returns [`InvalidUserChange`] if a value is rejected.
    pub fn check(self) -> Result<CheckedUserChange, InvalidUserChange> {
        let texts = [
            &self.name,
            &self.given_name,
            &self.family_name,
            &self.email,
            &self.phone_number,
            &self.fhir_user,
        ];
        let is_bad =
            |text: &String| text.is_empty() || text.len() > TEXT || text.chars().any(char::is_control);
        if texts.into_iter().flatten().flatten().any(is_bad) {
            return Err(InvalidUserChange::Text);
        }
        let is_reference = |text: &String| {
            text.split_once('/')
                .is_some_and(|(kind, id)| fhir::resource_type(kind).is_some() && !id.is_empty())
        };
        if !self.fhir_user.iter().flatten().all(is_reference) {
            return Err(InvalidUserChange::FhirUser);
        }
        let scopes = self.allowed_scopes.as_deref().map(Scopes::parse).transpose();
        let scopes = scopes.map_err(|error| InvalidUserChange::Scopes(error.to_string()))?;
        Ok(CheckedUserChange { change: self, scopes })
    }
}

impl CheckedUserChange {
    /// Applies the change to a user.
    pub fn apply(&self, user: &mut User) {
        fn set<T: Clone>(to: &mut T, present_or_null: &Option<T>) {
            if let Some(present_or_null) = present_or_null {
                to.clone_from(present_or_null);
            }
        }
        let change = &self.change;
        set(&mut user.claims.name, &change.name);
        set(&mut user.claims.given_name, &change.given_name);
        set(&mut user.claims.family_name, &change.family_name);
        if change.email.is_some() || change.email_verified.is_some() {
            // The provider verified the previous address.
            user.claims.email_verified = None;
            user.email_verified_by = None;
        }
        set(&mut user.claims.email, &change.email);
        set(&mut user.claims.email_verified, &change.email_verified);
        set(&mut user.claims.phone_number, &change.phone_number);
        set(&mut user.claims.phone_number_verified, &change.phone_number_verified);
        set(&mut user.fhir_user, &change.fhir_user);
        set(&mut user.allowed_scopes, &self.scopes);
        let before = (user.disabled, user.administrator);
        set(&mut user.administrator, &change.administrator);
        set(&mut user.disabled, &change.disabled);
        // Tokens issued before must not become valid again, nor gain another right.
        if before != (user.disabled, user.administrator) {
            user.epoch += 1;
        }
    }
}
