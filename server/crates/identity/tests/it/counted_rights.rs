//! Tests of the rights that the claims of a provider give: in which sign-ins they count, and until when.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use store::{Expect, Ledger as _, LedgerWrite, Store};
use trefoil_identity::Identity;
use trefoil_identity::directory::provider_rules::SignedInBy;
use trefoil_identity::model::claim_mapping::{ClaimMapping, ClaimRule};
use trefoil_identity::model::provider::{ExternalUser, IdentityProvider, ProviderClientAuth};
use trefoil_identity::model::scope::Scopes;
use trefoil_identity::model::user::User;
use trefoil_identity::sign_in::linked_account::LinkedUser;
use trefoil_identity::tokens::grant::{Grant, GrantError};

use crate::support::{Setup, at, client};

const HOUR: i64 = 3_600;

fn provider(name: &str, roles: &[&str]) -> IdentityProvider {
    let rule = |role: &&str| ClaimRule {
        claim: "roles".to_owned(),
        value: (*role).to_owned(),
        allowed_scopes: Scopes::parse(if *role == "boss" { "trefoil/admin" } else { "user/*.rs" }).unwrap(),
        groups: if *role == "boss" { Vec::new() } else { vec!["ward".to_owned()] },
    };
    IdentityProvider {
        name: name.to_owned(),
        issuer: format!("https://{}.example", name.to_lowercase()),
        endpoints: None,
        client_id: "trefoil".to_owned(),
        client_auth: ProviderClientAuth::None,
        scopes: "openid".to_owned(),
        google: false,
        create_users: true,
        link_by_email: false,
        own_methods: true,
        rights_max_age: SignedDuration::from_hours(24),
        mapping: ClaimMapping {
            rules: roles.iter().map(rule).collect(),
            fhir_user_claim: (!roles.is_empty()).then(|| "fhirUser".to_owned()),
            passed_on: Vec::new(),
            renews_claims: false,
        },
    }
}

/// Signs in at the provider as a nurse and boss.
async fn sign_in(identity: &Identity, provider: &IdentityProvider, second: i64) -> User {
    let claims = json!({ "roles": ["nurse", "boss"], "fhirUser": "Practitioner/ann" });
    let external = ExternalUser {
        issuer: provider.issuer.clone(),
        sub: "ann".to_owned(),
        claims: Default::default(),
        rights: provider.mapping.rights(claims.as_object().unwrap()),
    };
    match identity.sign_in.admit_external_user(provider, &external, at(second)).await.unwrap() {
        LinkedUser::Active(user) => *user,
        refused => panic!("{refused:?}"),
    }
}

/// The rights of the user as a text, and whether rights have ended.
async fn rights(identity: &Identity, sub: &str, by: SignedInBy<'_>, second: i64) -> (String, bool) {
    let user = identity.users.signed_in_user(sub, by, at(second)).await.unwrap().unwrap();
    let mut all = Vec::new();
    all.extend(user.may_grant("user/Patient.rs").then_some("scopes"));
    all.extend(user.administrator.then_some("admin"));
    all.extend((!user.groups.is_empty()).then_some("groups"));
    all.extend(user.fhir_user.is_some().then_some("fhirUser"));
    (all.join(" "), user.rights_ended)
}

const ALL: &str = "scopes admin groups fhirUser";
const CLINIC: SignedInBy<'static> = SignedInBy::Provider("Clinic");

#[tokio::test]
async fn rights_count_in_sign_ins_of_their_provider_and_for_their_age() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let clinic = provider("Clinic", &["nurse", "boss"]);
    identity.provider_rules.configure(vec![provider("Other", &["nurse", "boss"]), clinic.clone()]);
    let sub = sign_in(identity, &clinic, 0).await.sub;
    let check = async |by, second, expected: &str, has_ended| {
        let current = rights(identity, &sub, by, second).await;
        assert_eq!(current, (expected.to_owned(), has_ended), "{by:?} {second}");
    };
    check(CLINIC, 1, ALL, false).await;
    check(SignedInBy::UnnamedProvider, 1, ALL, false).await;
    check(SignedInBy::OwnMethod, 1, "", true).await;
    check(SignedInBy::Provider("Other"), 1, "", true).await;
    check(SignedInBy::Provider("Gone"), 1, "", true).await;
    check(CLINIC, 24 * HOUR - 1, ALL, false).await;
    check(CLINIC, 24 * HOUR, "", true).await;
    // Each sign-in there begins a new period, for all sessions and grants.
    sign_in(identity, &clinic, 20 * HOUR).await;
    check(CLINIC, 30 * HOUR, ALL, false).await;
    check(CLINIC, 44 * HOUR, "", true).await;
    // Rights that an administrator sets count always.
    let set = |user: &mut User| {
        user.allowed_scopes = Scopes::parse("openid user/*.rs").unwrap();
        user.set_by_hand.insert("allowed_scopes".to_owned());
    };
    let name = identity.users.active_user(&sub, at(0)).await.unwrap().unwrap().username;
    identity.users.change_user(&name, at(20 * HOUR), set).await.unwrap();
    check(SignedInBy::OwnMethod, 21 * HOUR, "scopes", true).await;
    check(CLINIC, 44 * HOUR, "scopes", true).await;
}

#[tokio::test]
async fn rights_count_by_the_present_configuration() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let clinic = provider("Clinic", &["nurse", "boss"]);
    let sub = sign_in(identity, &clinic, 0).await.sub;
    for (configured, expected, ended) in [
        (vec![clinic.clone()], ALL, false),
        (vec![provider("Clinic", &["nurse"])], "scopes groups fhirUser", false),
        (vec![provider("Clinic", &["boss"])], "admin fhirUser", false),
        (vec![provider("Clinic", &[])], "", false),
        (vec![], "", true),
        (vec![IdentityProvider { issuer: "https://new.example".to_owned(), ..clinic.clone() }], "", true),
        (vec![IdentityProvider { rights_max_age: SignedDuration::from_secs(1), ..clinic.clone() }], "", true),
        (vec![clinic.clone()], ALL, false),
    ] {
        identity.provider_rules.configure(configured.clone());
        let current = rights(identity, &sub, CLINIC, 2).await;
        assert_eq!(current, (expected.to_owned(), ended), "{configured:?}");
    }
}

#[tokio::test]
async fn tokens_lose_the_rights_and_refresh_tokens_end() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let minutes = |minutes| SignedDuration::from_mins(minutes);
    let clinic = IdentityProvider { rights_max_age: minutes(30), ..provider("Clinic", &["nurse"]) };
    identity.provider_rules.configure(vec![clinic.clone()]);
    let user = sign_in(identity, &clinic, 0).await;
    let scopes = "openid offline_access user/*.rs";
    let wide =
        trefoil_identity::model::client::Client { scopes: Scopes::parse(scopes).unwrap(), ..client("wide") };
    identity.clients.add_client(&wide, at(0)).await.unwrap();
    let wide = identity.clients.active_client("wide", at(0)).await.unwrap().unwrap();
    let grant = Grant {
        client_id: wide.client_id.clone(),
        generation: wide.generation.clone(),
        sub: user.sub.clone(),
        epoch: user.epoch,
        amr: Vec::new(),
        provider: Some("Clinic".to_owned()),
        ..setup.grant(scopes)
    };
    let own = Grant { amr: vec!["pwd".to_owned()], provider: None, ..grant.clone() };
    let access = |grant: &Grant| identity.tokens.mint_access_token(grant, None, minutes(60), at(0));
    let (token, own_token) = (access(&grant), access(&own));
    let scopes_at = async |token: &str, second| {
        identity.tokens.verify_access_token(token, at(second)).await.unwrap().scopes.to_string()
    };
    assert_eq!(scopes_at(&own_token, 1).await, "openid offline_access");
    // The second use is from the cache.
    for second in [1, 2, 3] {
        assert_eq!(scopes_at(&token, second).await, scopes);
    }
    // A reload counts at once.
    identity.provider_rules.configure(vec![provider("Clinic", &[])]);
    assert_eq!(scopes_at(&token, 3).await, "openid offline_access");
    identity.provider_rules.configure(vec![clinic.clone()]);
    assert_eq!(scopes_at(&token, 3).await, scopes);
    assert_eq!(scopes_at(&token, 1_799).await, scopes);
    assert_eq!(scopes_at(&token, 1_800).await, "openid offline_access");

    let mut refresh = identity.grants.issue_refresh_token(&grant, &wide, at(0)).await.unwrap();
    let redeem = async |token: &str, second| {
        identity.grants.redeem_refresh_token(token, &wide, None, None, None, at(second)).await
    };
    let (refreshed, next) = redeem(&refresh, 1_000).await.unwrap();
    assert_eq!(refreshed.scopes.to_string(), scopes);
    refresh = next;
    assert!(matches!(redeem(&refresh, 1_800).await, Err(GrantError::RightsEnded)));
    identity.provider_rules.configure(Vec::new());
    assert!(matches!(redeem(&refresh, 1_001).await, Err(GrantError::RightsEnded)));
    identity.provider_rules.configure(vec![clinic.clone()]);
    // A grant of an earlier version has no name of a provider.
    let earlier = Grant { provider: None, ..grant.clone() };
    let token = identity.grants.issue_refresh_token(&earlier, &wide, at(0)).await.unwrap();
    assert_eq!(redeem(&token, 1_000).await.unwrap().0.scopes.to_string(), scopes);
    // That of an own method continues with the rights that an administrator has set.
    let token = identity.grants.issue_refresh_token(&own, &wide, at(0)).await.unwrap();
    let (refreshed, token) = redeem(&token, 1_000).await.unwrap();
    assert_eq!(refreshed.scopes.to_string(), "openid offline_access");
    assert!(redeem(&token, 9_000).await.is_ok());
}

#[tokio::test]
async fn rights_of_before_count_from_the_upgrade() {
    let store = Store::memory();
    let setup = Setup::on(store.clone()).await;
    let clinic = provider("Clinic", &["nurse"]);
    let earlier = User {
        username: "ann".to_owned(),
        allowed_scopes: Scopes::parse("openid user/*.rs user/*.cud").unwrap(),
        groups: vec!["ward".to_owned(), "other".to_owned()],
        fhir_user: Some("Practitioner/ann".to_owned()),
        administrator: true,
        is_mapped: true,
        ..User::default()
    };
    let sub = setup.identity.users.add_user(earlier, at(0)).await.unwrap().sub;
    store.write(vec![LedgerWrite::delete("index/user-mapped-rights", Expect::Any)], at(0)).await.unwrap();
    let random = Arc::new(trefoil_identity::SystemRandom);
    let identity = Identity::open(store, random, "https://as.example", false, at(HOUR)).await.unwrap();
    identity.provider_rules.configure(vec![clinic]);
    for by in [CLINIC, SignedInBy::UnnamedProvider] {
        // Scopes and groups that no rule of today gives do not count.
        assert_eq!(rights(&identity, &sub, by, 2 * HOUR).await, ("scopes groups fhirUser".to_owned(), false));
        assert_eq!(rights(&identity, &sub, by, 25 * HOUR).await, (String::new(), true));
        let user = identity.users.signed_in_user(&sub, by, at(2 * HOUR)).await.unwrap().unwrap();
        assert_eq!(
            (user.groups, user.allowed_scopes.covers("user/Patient.cud")),
            (vec!["ward".to_owned()], false)
        );
    }
    assert_eq!(rights(&identity, &sub, SignedInBy::OwnMethod, 2 * HOUR).await, (String::new(), true));
    // A node of an earlier version writes the user during the upgrade.
    identity.users.change_user("ann", at(2 * HOUR), |user| user.mapped = None).await.unwrap();
    assert_eq!(rights(&identity, &sub, CLINIC, 2 * HOUR).await, (String::new(), true));
}
