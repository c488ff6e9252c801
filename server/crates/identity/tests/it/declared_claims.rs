//! Declared claims: who receives them, in which answers, and what ends those of a provider.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use trefoil_identity::directory::provider_rules::SignedInBy;
use trefoil_identity::lifetimes;
use trefoil_identity::model::claim_mapping::ClaimMapping;
use trefoil_identity::model::client::Client;
use trefoil_identity::model::declared_claim::{ClaimKind, ClaimSource, DeclaredClaim};
use trefoil_identity::model::provider::{ExternalUser, IdentityProvider};
use trefoil_identity::model::scope::Scopes;
use trefoil_identity::model::user::{User, default_scopes};
use trefoil_identity::sign_in::linked_account::LinkedUser;
use trefoil_identity::tokens::id_token::IdTokenContext;

use crate::links::provider;
use crate::support::{Setup, at};

const HOUR: i64 = 3600;
const CLINIC: SignedInBy<'static> = SignedInBy::Provider("Clinic");

fn claim(name: &str, source: ClaimSource) -> DeclaredClaim {
    DeclaredClaim {
        name: name.to_owned(),
        scope: "groups".to_owned(),
        kind: ClaimKind::List,
        source,
        in_id_token: true,
        in_access_token: false,
    }
}

fn of_clinic(path: &str) -> ClaimSource {
    ClaimSource::Provider { provider: "Clinic".to_owned(), path: path.to_owned() }
}

/// The Clinic, from which these claims are taken.
fn clinic(claims: &[DeclaredClaim]) -> IdentityProvider {
    let mapping = ClaimMapping { passed_on: claims.to_vec(), ..ClaimMapping::default() };
    IdentityProvider { create_users: true, mapping, ..provider() }
}

/// Declares claims, and takes those of the Clinic from it.
fn declare(setup: &Setup, claims: &[DeclaredClaim]) -> IdentityProvider {
    let of_provider = |claim: &&DeclaredClaim| claim.source != ClaimSource::Users;
    let clinic = clinic(&claims.iter().filter(of_provider).cloned().collect::<Vec<_>>());
    setup.identity.provider_rules.configure(vec![clinic.clone()]);
    setup.identity.provider_rules.declare_claims(claims.to_vec());
    clinic
}

/// Signs in at the Clinic with these claims.
async fn sign_in(setup: &Setup, clinic: &IdentityProvider, claims: &Value, second: i64) -> User {
    let external = ExternalUser {
        issuer: clinic.issuer.clone(),
        sub: "ann".to_owned(),
        claims: Default::default(),
        rights: clinic.mapping.rights(claims.as_object().unwrap()),
    };
    match setup.identity.sign_in.admit_external_user(clinic, &external, at(second)).await.unwrap() {
        LinkedUser::Active(user) => *user,
        other => panic!("{other:?}"),
    }
}

/// The declared claims of userinfo.
async fn userinfo(setup: &Setup, sub: &str, by: SignedInBy<'_>, second: i64) -> Value {
    let user = setup.identity.users.signed_in_user(sub, by, at(second)).await.unwrap().unwrap();
    let scopes = Scopes::parse("openid groups").unwrap();
    json!(setup.identity.tokens.user_claims(&user, &scopes).declared)
}

fn payload(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn claims_of_a_provider_end_with_its_sign_in_its_age_its_value_and_its_declaration() {
    let setup = Setup::new().await;
    let claims = [claim("groups", of_clinic("realm_access.roles"))];
    let clinic = declare(&setup, &claims);
    let roles = |roles: &[&str]| json!({ "realm_access": { "roles": roles } });
    let created = sign_in(&setup, &clinic, &roles(&["nurse", "ward-3"]), 0).await;
    let sub = created.sub.as_str();
    let ann = setup.identity.users.signed_in_user(sub, CLINIC, at(0)).await.unwrap().unwrap();
    assert!(ann.may_grant("groups") && !ann.may_grant("roles"), "every user may grant the scope");
    assert!(!ann.is_mapped && ann.allowed_scopes == default_scopes(), "claims are no rights");
    let both = json!({ "groups": ["nurse", "ward-3"] });
    assert_eq!(userinfo(&setup, sub, CLINIC, HOUR).await, both);
    let none = json!({});
    assert_eq!(userinfo(&setup, sub, SignedInBy::OwnMethod, HOUR).await, none, "another sign-in");
    assert_eq!(userinfo(&setup, sub, SignedInBy::Provider("Other"), HOUR).await, none, "another provider");
    assert_eq!(userinfo(&setup, sub, CLINIC, 24 * HOUR).await, none, "a day later");
    // A reload that removes the claim ends it, and one that takes another type of value.
    setup.identity.provider_rules.declare_claims(Vec::new());
    assert_eq!(userinfo(&setup, sub, CLINIC, HOUR).await, none, "no longer declared");
    declare(&setup, &[DeclaredClaim { kind: ClaimKind::Text, ..claims[0].clone() }]);
    assert_eq!(userinfo(&setup, sub, CLINIC, HOUR).await, none, "another type");
    declare(&setup, &[claim("groups", ClaimSource::Users)]);
    assert_eq!(userinfo(&setup, sub, CLINIC, HOUR).await, none, "another source");
    let clinic = declare(&setup, &claims);
    assert_eq!(userinfo(&setup, sub, CLINIC, HOUR).await, both);
    // The next sign-in renews the values, and ends those that the provider no longer sends.
    sign_in(&setup, &clinic, &roles(&["ward-3"]), 2 * HOUR).await;
    assert_eq!(userinfo(&setup, sub, CLINIC, 2 * HOUR).await, json!({ "groups": ["ward-3"] }));
    sign_in(&setup, &clinic, &json!({}), 3 * HOUR).await;
    assert_eq!(userinfo(&setup, sub, CLINIC, 3 * HOUR).await, none);
}

#[tokio::test]
async fn a_claim_is_in_the_answers_that_its_declaration_names() {
    let setup = Setup::new().await;
    let declared = |id_token: bool, access_token: bool, name: &str| DeclaredClaim {
        in_id_token: id_token,
        in_access_token: access_token,
        ..claim(name, ClaimSource::Users)
    };
    let claims = [
        declared(true, false, "in_id"),
        declared(false, true, "in_access"),
        declared(false, false, "in_none"),
    ];
    declare(&setup, &claims);
    let values = ["in_id=a", "in_access=b", "in_none=c", "undeclared=d"].map(str::to_owned);
    let change = |user: &mut User| user.own_claims = values.to_vec();
    setup.identity.users.change_user("ada", at(0), change).await.unwrap();
    let sub = &setup.user.sub;
    let all = json!({ "in_id": ["a"], "in_access": ["b"], "in_none": ["c"] });
    assert_eq!(userinfo(&setup, sub, SignedInBy::OwnMethod, 0).await, all);
    let user = setup.identity.users.active_user(sub, at(0)).await.unwrap().unwrap();
    let names = |token: &str| {
        let names = ["in_id", "in_access", "in_none", "undeclared"];
        let payload = payload(token);
        names.into_iter().filter(|name| payload.get(name).is_some()).collect::<Vec<_>>().join(" ")
    };
    let grant = setup.grant("openid groups");
    let (identity, lifetime) = (&setup.identity, lifetimes::ACCESS_TOKEN);
    let access = identity.tokens.mint_access_token(&grant, Some(&user), lifetime, at(0));
    assert_eq!(names(&access), "in_access");
    let other =
        identity.tokens.mint_access_token(&setup.grant("openid profile"), Some(&user), lifetime, at(0));
    assert_eq!(names(&other), "", "without the scope");
    let id_token = async |client: &Client, with_access: bool| {
        let context =
            IdTokenContext { access_token: with_access.then_some(access.as_str()), user: Some(&user) };
        names(&identity.tokens.mint_id_token(client, &grant, context, at(0)).await.unwrap())
    };
    let reads_id_token = Client { claims_in_id_token: true, ..setup.client.clone() };
    assert_eq!(id_token(&setup.client, true).await, "in_id");
    assert_eq!(id_token(&setup.client, false).await, "in_id in_access in_none", "userinfo cannot be read");
    assert_eq!(id_token(&reads_id_token, true).await, "in_id in_access in_none");
}
