//! The rights that the claims of an external provider give: scopes, Groups and the FHIR resource of the user,
//! and the renewal of names. They are set at each sign-in, so that a lost role ends what it gave. A member
//! that an administrator has set by hand is never changed.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::declared_claim::{ClaimSource, DeclaredClaim};
use crate::model::mapped_claims::MappedClaims;
use crate::model::scope::{ADMIN_SCOPE, Scopes};
use crate::model::user::{StandardClaims, User, default_scopes};

/// The claims that users may enter themselves, each with the claim by which the provider says that it has
/// verified the value (OpenID Connect Core section 5.1).
pub const VERIFIED_CLAIMS: [(&str, &str); 2] =
    [("email", "email_verified"), ("phone_number", "phone_number_verified")];

/// The claims of a provider that give rights, as declared in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimMapping {
    /// Claim with the reference of the FHIR resource that represents the user.
    pub fhir_user_claim: Option<String>,
    /// The values that give scopes and Groups.
    pub rules: Vec<ClaimRule>,
    /// The declared claims that are taken from this provider.
    pub passed_on: Vec<DeclaredClaim>,
    /// `true` if names and telephone numbers are copied at each sign-in, not only when the user is created.
    pub renews_claims: bool,
}

/// The rights that one value of a claim gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRule {
    /// Name of the claim, or a path such as `realm_access.roles`.
    pub claim: String,
    /// The value, which the claim has or contains.
    pub value: String,
    /// Scopes that the user may grant, in addition to the default ones.
    pub allowed_scopes: Scopes,
    /// Ids of Groups whose members are patients of the user.
    pub groups: Vec<String>,
}

/// The rights that the claims of one sign-in give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedRights {
    /// Scopes of all rules that apply.
    pub allowed_scopes: Scopes,
    /// Groups of all rules that apply.
    pub groups: Vec<String>,
    /// Value of the claim with the FHIR resource. The caller checks that it exists.
    pub fhir_user: Option<String>,
    /// The claims with the values of all rules that apply.
    #[serde(default)]
    pub values: BTreeSet<(String, String)>,
    /// The values of declared claims.
    #[serde(default)]
    pub passed_on: BTreeMap<String, Value>,
    /// Claims of which the provider has sent a link in place of the values, because they are too many.
    pub omitted: Vec<String>,
    /// Claims that have the value of a rule, which does not apply because the provider has not verified the
    /// value (see [`VERIFIED_CLAIMS`]).
    #[serde(default)]
    pub unverified: Vec<String>,
}

impl ClaimMapping {
    /// Returns whether the provider sets rights.
    pub fn gives_rights(&self) -> bool {
        self.fhir_user_claim.is_some() || !self.rules.is_empty()
    }

    /// Returns whether a claim that gives rights is not there.
    pub fn lacks_claim(&self, claims: &Map<String, Value>) -> bool {
        let mut names =
            self.rules.iter().map(|rule| rule.claim.as_str()).chain(self.fhir_user_claim.as_deref());
        names.any(|name| claim(claims, name).is_none() && !is_omitted(claims, name))
    }

    /// The rights that the claims of a provider give.
    pub fn rights(&self, claims: &Map<String, Value>) -> MappedRights {
        let mut rights = MappedRights::default();
        for rule in &self.rules {
            if is_omitted(claims, &rule.claim) && !rights.omitted.contains(&rule.claim) {
                rights.omitted.push(rule.claim.clone());
            }
            if !contains(claim(claims, &rule.claim), &rule.value) {
                continue;
            }
            if !is_trusted(claims, &rule.claim) {
                rights.unverified.push(rule.claim.clone());
            } else {
                rights.values.insert((rule.claim.clone(), rule.value.clone()));
            }
        }
        for declared in &self.passed_on {
            let ClaimSource::Provider { path, .. } = &declared.source else { continue };
            if is_omitted(claims, path) && !rights.omitted.contains(path) {
                rights.omitted.push(path.clone());
            }
            let value = claim(claims, path).filter(|_| is_trusted(claims, path));
            if let Some(value) = value.and_then(|value| declared.of_provider(value)) {
                rights.passed_on.insert(declared.name.clone(), value);
            }
        }
        rights.unverified.dedup();
        let rights = MappedRights {
            unverified: rights.unverified,
            omitted: rights.omitted,
            passed_on: rights.passed_on,
            ..self.rights_of(rights.values)
        };
        let trusted_claim = self.fhir_user_claim.as_deref().filter(|name| is_trusted(claims, name));
        let fhir_user = trusted_claim.and_then(|name| claim(claims, name));
        MappedRights { fhir_user: fhir_user.and_then(Value::as_str).map(str::to_owned), ..rights }
    }

    /// The rights that these values of claims give.
    fn rights_of(&self, values: BTreeSet<(String, String)>) -> MappedRights {
        let applies = |rule: &&ClaimRule| {
            values.iter().any(|(claim, value)| *claim == rule.claim && *value == rule.value)
        };
        let rules: Vec<_> = self.rules.iter().filter(applies).collect();
        let scopes: BTreeSet<_> = rules.iter().flat_map(|rule| rule.allowed_scopes.iter()).collect();
        let groups: BTreeSet<_> = rules.iter().flat_map(|rule| rule.groups.iter().cloned()).collect();
        MappedRights {
            allowed_scopes: scopes.into_iter().collect(),
            groups: groups.into_iter().collect(),
            values,
            ..MappedRights::default()
        }
    }

    /// The rights that the claims of an earlier sign-in give by the present rules. Of rights from before
    /// the claims were stored, those count that some rule gives.
    pub(crate) fn counted(&self, user: &User, mapped: &MappedClaims) -> MappedRights {
        let has_claim = self.fhir_user_claim.is_some();
        let Some(values) = &mapped.values else {
            let all = self.rules.iter().map(|rule| (rule.claim.clone(), rule.value.clone()));
            let possible = self.rights_of(all.collect());
            let administrator = user.administrator.then_some(ADMIN_SCOPE);
            let had = user.allowed_scopes.iter().chain(administrator).collect::<Scopes>();
            return MappedRights {
                allowed_scopes: had.filter(|scope| possible.allowed_scopes.contains(scope)),
                groups: user.groups.iter().filter(|id| possible.groups.contains(id)).cloned().collect(),
                fhir_user: user.fhir_user.clone().filter(|_| has_claim),
                ..MappedRights::default()
            };
        };
        let fhir_user = mapped.fhir_user.clone().filter(|_| has_claim);
        MappedRights { fhir_user, ..self.rights_of(values.clone()) }
    }

    /// Sets the rights and, if they are renewed, the claims of a user who has signed in at the provider.
    /// Members that an administrator has set keep their values.
    pub fn apply(&self, user: &mut User, rights: &MappedRights, claims: &StandardClaims) {
        if self.gives_rights() {
            if !user.is_mapped {
                mark_earlier_rights(user);
                user.is_mapped = true;
            }
            let sets = |name: &str| !user.set_by_hand.contains(name);
            let (sets_scopes, sets_groups) = (sets("allowed_scopes"), sets("groups"));
            let sets_fhir_user = self.fhir_user_claim.is_some() && sets("fhir_user");
            // The admin scope is never given by another scope: a rule must name it.
            let names_admin = |rule: &ClaimRule| rule.allowed_scopes.contains(ADMIN_SCOPE);
            let sets_administrator = self.rules.iter().any(names_admin) && sets("administrator");
            if sets_scopes {
                let (defaults, given) =
                    (default_scopes(), rights.allowed_scopes.filter(|scope| scope != ADMIN_SCOPE));
                user.allowed_scopes = defaults.iter().chain(given.iter()).collect();
            }
            if sets_groups {
                user.groups.clone_from(&rights.groups);
            }
            if sets_fhir_user {
                user.fhir_user.clone_from(&rights.fhir_user);
            }
            let is_administrator = rights.allowed_scopes.contains(ADMIN_SCOPE);
            if sets_administrator && user.administrator != is_administrator {
                user.administrator = is_administrator;
                // Tokens of before must not gain another right.
                user.epoch += 1;
            }
        }
        if self.renews_claims {
            // The e-mail address has rules of its own, because users are found by it, and the name by which
            // apps tell users apart is chosen once.
            let is_renewed = |name: &str| !matches!(name, "email" | "email_verified" | "preferred_username");
            for (row, value) in claims.values().filter(|(row, _)| is_renewed(row.name)) {
                if !user.set_by_hand.contains(row.name) {
                    let value = serde_json::to_value(value).unwrap_or_default();
                    user.claims.set(row.name, value);
                }
            }
        }
    }

    /// Returns whether [`ClaimMapping::apply`] can change a user.
    pub fn is_effective(&self) -> bool {
        self.gives_rights() || self.renews_claims || !self.passed_on.is_empty()
    }
}

/// Marks the rights of a user that were set before members were marked, at the first sign-in with a mapping.
fn mark_earlier_rights(user: &mut User) {
    let earlier = [
        ("allowed_scopes", user.allowed_scopes != default_scopes()),
        ("fhir_user", user.fhir_user.is_some()),
        ("groups", !user.groups.is_empty()),
        ("administrator", user.administrator),
    ];
    let names = earlier.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned());
    user.set_by_hand.extend(names);
}

/// The value of a claim. A name that is no claim is a path through objects.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    claims.get(first)?.as_object().and_then(|inner| claim(inner, rest))
}

/// Returns whether a claim is this text or a list that contains it.
fn contains(claim: Option<&Value>, value: &str) -> bool {
    match claim {
        Some(Value::String(text)) => text == value,
        Some(Value::Array(values)) => values.iter().any(|one| one.as_str() == Some(value)),
        _ => false,
    }
}

/// `false` for an address that the provider has not verified: users may enter any into their profile.
fn is_trusted(claims: &Map<String, Value>, name: &str) -> bool {
    let flag = VERIFIED_CLAIMS.iter().find(|(address, _)| *address == name).map(|(_, flag)| *flag);
    flag.is_none_or(|flag| claims.get(flag) == Some(&Value::Bool(true)))
}

/// Returns whether the provider has sent a link to the values of a claim (OpenID Connect Core section 5.6.2),
/// as Entra does for a user with many groups.
fn is_omitted(claims: &Map<String, Value>, name: &str) -> bool {
    let distributed = claims.get("_claim_names").and_then(Value::as_object);
    let is_link = distributed.is_some_and(|names| names.contains_key(name));
    let has_groups = name == "groups" && claims.get("hasgroups") == Some(&Value::Bool(true));
    claim(claims, name).is_none() && (is_link || has_groups)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(claim: &str, value: &str, scopes: &str, groups: &[&str]) -> ClaimRule {
        ClaimRule {
            claim: claim.to_owned(),
            value: value.to_owned(),
            allowed_scopes: Scopes::parse(scopes).unwrap(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    fn mapping() -> ClaimMapping {
        ClaimMapping {
            fhir_user_claim: Some("fhirUser".to_owned()),
            rules: vec![
                rule("groups", "7f3c-ward", "", &["ward-3"]),
                rule("roles", "clinician", "user/*.rs launch", &[]),
                rule("realm_access.roles", "operator", ADMIN_SCOPE, &[]),
                rule("https://hospital.example/role", "nurse", "user/Observation.rs", &[]),
            ],
            passed_on: Vec::new(),
            renews_claims: true,
        }
    }

    #[track_caller]
    fn check(claims: &Value, scopes: &str, groups: &[&str], omitted: &[&str]) {
        let rights = mapping().rights(claims.as_object().unwrap());
        assert_eq!(rights.allowed_scopes.to_string(), scopes, "{claims}");
        assert_eq!(
            (&rights.groups[..], &rights.omitted[..]),
            (&own(groups)[..], &own(omitted)[..]),
            "{claims}"
        );
    }

    fn own(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn the_shapes_of_all_providers_are_read() {
        // Entra: ids of groups, and app roles.
        check(
            &json!({ "groups": ["7f3c-ward", "other"], "roles": ["clinician"] }),
            "launch user/*.rs",
            &["ward-3"],
            &[],
        );
        // Keycloak: roles of the realm.
        check(&json!({ "realm_access": { "roles": ["operator", "x"] } }), ADMIN_SCOPE, &[], &[]);
        // A namespaced claim with one value.
        check(&json!({ "https://hospital.example/role": "nurse" }), "user/Observation.rs", &[], &[]);
        // Entra with too many groups.
        let overage = json!({
            "roles": ["clinician"], "_claim_names": { "groups": "src1" },
            "_claim_sources": { "src1": { "endpoint": "https://graph.example/getMemberObjects" } },
        });
        check(&overage, "launch user/*.rs", &[], &["groups"]);
        check(&json!({ "hasgroups": true }), "", &[], &["groups"]);
        // Values of other types, and parts of values, give nothing.
        for claims in [
            json!({}),
            json!({ "groups": "7f3c-ward-2", "roles": { "clinician": true } }),
            json!({ "realm_access": "operator", "roles": [["clinician"]] }),
            json!({ "realm_access.roles": ["clinician"], "roles": null }),
        ] {
            check(&claims, "", &[], &[]);
        }
    }

    #[test]
    fn a_rule_on_an_address_needs_the_flag_of_the_address() {
        for (address, flag) in VERIFIED_CLAIMS {
            let mapping = ClaimMapping {
                fhir_user_claim: Some(address.to_owned()),
                rules: vec![rule(address, "boss", ADMIN_SCOPE, &["ward-3"])],
                passed_on: Vec::new(),
                renews_claims: false,
            };
            let rights = |claims: Value| mapping.rights(claims.as_object().unwrap());
            let allowed = rights(json!({ address: "boss", flag: true }));
            assert_eq!((allowed.allowed_scopes.to_string().as_str(), allowed.groups.len()), (ADMIN_SCOPE, 1));
            assert_eq!((allowed.fhir_user.as_deref(), allowed.unverified), (Some("boss"), vec![]));
            for flags in [json!(false), json!(null), json!("yes"), json!(1), json!([true])] {
                let without_rights = rights(json!({ address: "boss", flag: flags }));
                let expected = MappedRights { unverified: own(&[address]), ..MappedRights::default() };
                assert_eq!(without_rights, expected, "{flags}");
            }
            let other =
                VERIFIED_CLAIMS.map(|(_, flag)| flag).into_iter().find(|other| *other != flag).unwrap();
            assert_eq!(rights(json!({ address: "boss", other: true })).allowed_scopes, Scopes::default());
        }
    }

    #[test]
    fn a_lost_role_ends_what_it_gave_and_hand_set_members_stay() {
        let mapping = mapping();
        let mut user = User { allowed_scopes: default_scopes(), ..User::default() };
        let claims = StandardClaims { name: Some("New Name".to_owned()), ..StandardClaims::default() };
        let all = json!({
            "groups": ["7f3c-ward"], "roles": ["clinician"], "realm_access": { "roles": ["operator"] },
            "fhirUser": "Practitioner/p",
        });
        mapping.apply(&mut user, &mapping.rights(all.as_object().unwrap()), &claims);
        assert!(user.allowed_scopes.covers("user/Observation.rs") && user.administrator);
        assert!(!user.allowed_scopes.contains(ADMIN_SCOPE));
        assert_eq!(
            (&user.groups[..], user.fhir_user.as_deref()),
            (&own(&["ward-3"])[..], Some("Practitioner/p"))
        );
        assert_eq!((user.claims.name.as_deref(), user.epoch), (Some("New Name"), 1));
        user.set_by_hand.insert("name".to_owned());
        user.set_by_hand.insert("groups".to_owned());
        let renamed = StandardClaims { name: Some("Third Name".to_owned()), ..StandardClaims::default() };
        mapping.apply(&mut user, &mapping.rights(&Map::new()), &renamed);
        assert_eq!(user.allowed_scopes, default_scopes());
        assert_eq!((user.administrator, user.fhir_user.as_deref(), user.epoch), (false, None, 2));
        assert_eq!(
            (user.claims.name.as_deref(), &user.groups[..]),
            (Some("New Name"), &own(&["ward-3"])[..])
        );
    }

    #[test]
    fn rights_from_before_the_mapping_are_those_of_an_administrator() {
        let mapping = mapping();
        let allowed_scopes = Scopes::parse("openid user/*.cruds").unwrap();
        let mut user = User { allowed_scopes, administrator: true, ..User::default() };
        mapping.apply(&mut user, &MappedRights::default(), &StandardClaims::default());
        assert!(user.allowed_scopes.covers("user/Patient.cud") && user.administrator);
        assert_eq!(user.set_by_hand.into_iter().collect::<Vec<_>>(), ["administrator", "allowed_scopes"]);
    }
}
