//! Warnings about registrations that are accepted although they can hardly work: scopes with typing errors,
//! and resources that do not exist.

use identity::model::client::Client;
use identity::model::nearest_name::nearest_name;
use identity::model::scope::{ScopeContext, Scopes, SmartScope, nearest_scope};
use identity::model::user::User;
use resources::{ResourceError, Resources, references};

/// The warnings about a client.
pub async fn client_warnings(resources: &Resources, client: &Client) -> Vec<String> {
    let mut warnings = scope_warnings(&client.scopes);
    for id in client.groups.iter().flatten() {
        warnings.extend(missing_resource(resources, "Group", id).await);
    }
    warnings
}

/// The warnings about a user.
pub async fn user_warnings(resources: &Resources, user: &User) -> Vec<String> {
    let mut warnings = scope_warnings(&user.allowed_scopes);
    if let Some(reference) = &user.fhir_user {
        match references::target(reference) {
            Some((kind, id)) => warnings.extend(missing_resource(resources, kind, id).await),
            None => warnings.push(format!("fhir_user '{reference}' is not a resource such as Patient/p1")),
        }
    }
    let patients = user.patients.iter().map(|id| ("Patient", id));
    for (kind, id) in patients.chain(user.groups.iter().map(|id| ("Group", id))) {
        warnings.extend(missing_resource(resources, kind, id).await);
    }
    warnings
}

fn scope_warnings(scopes: &Scopes) -> Vec<String> {
    let warning = |scope: &str| {
        let suggestion = |nearest: &str| format!("scope '{scope}' is not known; did you mean '{nearest}'?");
        if let Some(nearest) = nearest_scope(scope) {
            return Some(suggestion(&nearest));
        }
        if ScopeContext::of(scope).is_some() && SmartScope::parse(scope).is_none() {
            return Some(format!("scope '{scope}' opens nothing; use one such as user/Observation.rs"));
        }
        let (context, rest) = scope.split_once('/')?;
        let nearest = nearest_name(context, ScopeContext::NAMES.iter().copied())
            .filter(|nearest| *nearest != context)?;
        Some(suggestion(&format!("{nearest}/{rest}")))
    };
    scopes.iter().filter_map(warning).collect()
}

async fn missing_resource(resources: &Resources, kind: &'static str, id: &str) -> Option<String> {
    match resources.read(kind, id).await {
        Err(ResourceError::NotFound { .. } | ResourceError::Gone { .. }) => {
            Some(format!("{kind}/{id} does not exist; until it does, it gives access to nothing"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_that_open_nothing_are_named_with_the_nearest() {
        #[track_caller]
        fn check(scopes: &str, expected: &[&str]) {
            let warnings = scope_warnings(&Scopes::parse(scopes).unwrap());
            let nearest: Vec<_> = warnings
                .iter()
                .map(|warning| {
                    warning.split("did you mean '").nth(1).map_or("", |rest| &rest[..rest.len() - 2])
                })
                .collect();
            assert_eq!(nearest, expected, "{warnings:?}");
        }
        check("openid profile offline_access launch/patient fhirUser patient/*.rs trefoil/admin", &[]);
        check("garden.notes system/Patient.read user/Observation.rs?category=laboratory", &[]);
        check("opneid ofline_access", &["openid", "offline_access"]);
        check("patient/Obervation.rs", &["patient/Observation.rs"]);
        check("user/*.xyz", &["user/*.rs"]);
        check("patiant/*.rs", &["patient/*.rs"]);
        check("system/Zzzzzzzz.rs", &[""]);
    }
}
