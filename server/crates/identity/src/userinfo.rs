//! Claims of the signed-in user by scope (OpenID Connect Core 5.3, 5.4; DESIGN, userinfo).

use serde_json::{Map, Value};

use crate::scope::Scopes;
use crate::user::User;

/// The claims that these scopes open: `openid` gives `sub`, `profile` the names, `email` and
/// `phone` theirs, `fhirUser` the address of the user's FHIR resource. Claims that the user does not have are
/// left out.
pub fn claims(user: &User, scopes: &Scopes, fhir_base: &str) -> Map<String, Value> {
    let Ok(Value::Object(mut held)) = serde_json::to_value(&user.claims) else {
        unreachable!("claims are a struct and serialise to an object")
    };
    let opened = [
        ("profile", &["name", "given_name", "family_name", "preferred_username"][..]),
        ("email", &["email", "email_verified"]),
        ("phone", &["phone_number", "phone_number_verified"]),
    ];
    let mut claims = Map::new();
    claims.insert("sub".to_owned(), Value::from(user.sub.as_str()));
    for (scope, names) in opened {
        for name in names.iter().filter(|_| scopes.has(scope)) {
            if let Some(value) = held.remove(*name) {
                claims.insert((*name).to_owned(), value);
            }
        }
    }
    if let Some(fhir_user) = user.fhir_user.as_deref().filter(|_| scopes.has("fhirUser")) {
        claims.insert("fhirUser".to_owned(), format!("{fhir_base}/{fhir_user}").into());
    }
    claims
}
