//! Tests of the lifetimes of tokens and sessions: settings of the server and of clients, and the records that
//! outlive tokens.

use jiff::SignedDuration;
use trefoil_identity::lifetimes::{self, Lifetimes};
use trefoil_identity::model::client::Client;
use trefoil_identity::sign_in::session::{SessionOrigin, SignInProof};
use trefoil_identity::tokens::id_token::IdTokenContext;
use trefoil_identity::tokens::signing_key::KeyStage;

use crate::support::{Setup, at, client};

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

fn payload(jwt: &str) -> serde_json::Value {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn lifetimes_are_those_of_the_client_or_else_of_the_server() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let server = Lifetimes { access_token: seconds(600), id_token: seconds(700), ..Lifetimes::default() };
    identity.lifetimes.configure(server, at(0)).await.unwrap();
    let own = Client {
        access_token_lifetime_s: Some(120),
        id_token_lifetime_s: Some(130),
        refresh_token_lifetime_s: Some(140),
        ..client("own")
    };
    for (client, expected) in [(&setup.client, [600, 700, 30 * 24 * 3600]), (&own, [120, 130, 140])] {
        let lifetimes = identity.lifetimes.for_client(client);
        assert_eq!(
            [lifetimes.access_token, lifetimes.id_token, lifetimes.refresh_token_family],
            expected.map(seconds)
        );
        let id_token = identity
            .tokens
            .mint_id_token(client, &setup.grant("openid"), IdTokenContext::default(), at(0))
            .await
            .unwrap();
        assert_eq!(payload(&id_token)["exp"], at(expected[1]).as_second());
    }
    let backend = |client: &Client| {
        payload(&identity.tokens.mint_backend_token(client, &client.scopes, None, None, at(0)))["exp"].clone()
    };
    assert_eq!(
        (backend(&setup.client), backend(&own)),
        (at(300).as_second().into(), at(120).as_second().into())
    );
}

#[tokio::test]
async fn refresh_tokens_end_with_the_lifetime_of_the_client() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    identity
        .clients
        .add_client(&Client { refresh_token_lifetime_s: Some(100), ..client("own") }, at(0))
        .await
        .unwrap();
    let own = identity.clients.active_client("own", at(0)).await.unwrap().unwrap();
    for (client, alive) in [(&own, false), (&setup.client, true)] {
        let mut grant = setup.grant("openid offline_access");
        (grant.client_id, grant.generation) = (client.client_id.clone(), client.generation.clone());
        let token = identity.grants.issue_refresh_token(&grant, client, at(0)).await.unwrap();
        let (_, successor) =
            identity.grants.redeem_refresh_token(&token, client, None, None, None, at(99)).await.unwrap();
        // The lifetime is counted from the first token.
        let result =
            identity.grants.redeem_refresh_token(&successor, client, None, None, None, at(100)).await;
        assert_eq!(result.is_ok(), alive, "{}", client.client_id);
    }
}

#[tokio::test]
async fn sessions_end_with_the_settings_and_a_reduced_setting_applies_at_once() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let set = async |idle, session| {
        let lifetimes =
            Lifetimes { idle_session: seconds(idle), session: seconds(session), ..Lifetimes::default() };
        identity.lifetimes.configure(lifetimes, at(0)).await.unwrap();
    };
    let begin = async || {
        let (proof, origin) = (SignInProof::password(), SessionOrigin::default());
        identity.sessions.begin_session(&setup.user, &proof, origin, None, at(0)).await.unwrap()
    };
    let is_active = async |cookie: &str, second| {
        identity.sessions.active_session(cookie, at(second)).await.unwrap().is_some()
    };
    set(200, 500).await;
    let (idle, used) = (begin().await, begin().await);
    for second in [150, 300, 450] {
        assert!(is_active(&used, second).await, "{second}");
    }
    assert!(!is_active(&idle, 201).await);
    assert!(!is_active(&used, 501).await);
    let cookie = begin().await;
    set(200, 100).await;
    assert!(is_active(&cookie, 100).await && !is_active(&cookie, 101).await);
    // A session does not become longer after its sign-in.
    set(2_000, 200).await;
    let cookie = begin().await;
    set(2_000, 1_000).await;
    assert!(!is_active(&cookie, 201).await);
}

#[tokio::test]
async fn revocations_and_keys_are_kept_as_long_as_the_longest_token() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let day = 24 * 3600;
    let long = Client {
        access_token_lifetime_s: Some(lifetimes::MAX_TOKEN_LIFETIME_S),
        refresh_token_lifetime_s: Some(lifetimes::MAX_REFRESH_LIFETIME_S),
        ..client("long")
    };
    identity.clients.add_client(&long, at(0)).await.unwrap();
    let long = identity.clients.active_client("long", at(0)).await.unwrap().unwrap();
    let mut grant = setup.grant("openid offline_access");
    (grant.client_id, grant.generation) = (long.client_id.clone(), long.generation.clone());
    let lifetime = identity.lifetimes.for_client(&long).access_token;
    let access = identity.tokens.mint_access_token(&grant, None, lifetime, at(0));
    let refresh = identity.grants.issue_refresh_token(&grant, &long, at(0)).await.unwrap();

    identity.signing_keys.rotate_keys(true, at(1)).await.unwrap();
    identity.signing_keys.maintain_keys(seconds(900 * day), at(day)).await.unwrap();
    assert!(identity.tokens.verify_access_token(&access, at(day - 1)).await.is_ok());
    identity.signing_keys.maintain_keys(seconds(900 * day), at(day + 61)).await.unwrap();
    let keys = identity.signing_keys.list_keys(at(day + 61)).await.unwrap();
    assert!(keys.iter().all(|key| key.stage != KeyStage::Retiring));

    // 40 days are more than the default lifetime of a family.
    assert!(
        identity.grants.redeem_refresh_token(&refresh, &long, None, None, None, at(40 * day)).await.is_ok()
    );
    let again = identity.grants.issue_refresh_token(&grant, &long, at(0)).await.unwrap();
    identity.grants.revoke_family("family", at(2)).await.unwrap();
    assert!(
        identity.grants.redeem_refresh_token(&again, &long, None, None, None, at(365 * day)).await.is_err()
    );
}

#[tokio::test]
async fn lifetimes_out_of_bounds_are_rejected() {
    let setup = Setup::new().await;
    for (access, refresh, accepted) in [
        (Some(60), Some(lifetimes::MAX_REFRESH_LIFETIME_S), true),
        (Some(59), None, false),
        (Some(lifetimes::MAX_TOKEN_LIFETIME_S + 1), None, false),
        (None, Some(0), false),
        (None, Some(lifetimes::MAX_REFRESH_LIFETIME_S + 1), false),
    ] {
        let id = format!("c-{}-{}", access.unwrap_or_default(), refresh.unwrap_or_default());
        let added =
            Client { access_token_lifetime_s: access, refresh_token_lifetime_s: refresh, ..client(&id) };
        assert_eq!(setup.identity.clients.add_client(&added, at(0)).await.is_ok(), accepted, "{id}");
    }
}

#[tokio::test]
async fn online_access_ends_with_the_session() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    for (scopes, alive) in
        [("openid online_access", false), ("openid online_access offline_access", true), ("openid", true)]
    {
        let set = |user: &mut trefoil_identity::model::user::User| {
            user.allowed_scopes =
                trefoil_identity::model::scope::Scopes::parse("openid offline_access").unwrap();
        };
        identity.users.change_user("ada", at(0), set).await.unwrap();
        let changes = serde_json::json!({ "scope": "openid online_access offline_access" });
        identity.clients.change_client("app", None, changes.as_object().unwrap(), at(0)).await.unwrap();
        let client = identity.clients.active_client("app", at(0)).await.unwrap().unwrap();
        let mut grant = setup.grant(scopes);
        grant.session_ends = at(500);
        assert!(grant.allows_refresh(&client));
        let token = identity.grants.issue_refresh_token(&grant, &client, at(0)).await.unwrap();
        let result = identity.grants.redeem_refresh_token(&token, &client, None, None, None, at(500)).await;
        assert_eq!(result.is_ok(), alive, "{scopes}");
    }
}
