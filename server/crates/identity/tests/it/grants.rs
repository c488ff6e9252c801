//! Codes and refresh tokens are spent once; what ends a grant ends its tokens.

use std::sync::Arc;

use trefoil_identity::client::Client;
use trefoil_identity::client_auth::JWT_BEARER;
use trefoil_identity::dpop::Proven;
use trefoil_identity::grant::{CodeExchange, Grant, GrantError};
use trefoil_identity::params::Params;
use trefoil_identity::redirect_uri::RegisteredRedirectUri;
use trefoil_identity::scope::Scopes;
use trefoil_identity::session::{Place, Proof};
use trefoil_identity::token::{BadToken, Beside};

use crate::support::{CALLBACK, World, at, client};

fn sent(code: &str) -> CodeExchange<'_> {
    CodeExchange { code, redirect_uri: CALLBACK, verifier: None, jkt: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_spent_exactly_once_whatever_the_race() {
    let world = Arc::new(World::new().await);
    for round in 0..5 {
        // A family each: the losers of a round kill the winner's.
        let mut grant = world.grant("openid");
        grant.family = format!("family-{round}");
        let to = RegisteredRedirectUri::parse(CALLBACK, false).unwrap();
        let code = world.identity.issue_code(grant, to, None, None, at(0)).await.unwrap();
        let tasks = (0..64).map(|_| {
            let (world, code) = (world.clone(), code.clone());
            tokio::spawn(async move { world.identity.redeem_code(&sent(&code), &world.client, at(1)).await })
        });
        let mut won = 0;
        for task in tasks.collect::<Vec<_>>() {
            match task.await.unwrap() {
                Ok(_) => won += 1,
                Err(GrantError::Reused | GrantError::Revoked) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(won, 1);
        let again = world.identity.redeem_code(&sent(&code), &world.client, at(1)).await;
        assert!(matches!(again, Err(GrantError::Reused)));
    }
}

/// How often each answer came to 64 tries of one refresh token at once.
async fn race(world: &Arc<World>, client: Client) -> (usize, std::collections::BTreeSet<String>) {
    let refresh = world.identity.issue_refresh(&world.grant("openid"), &client, at(1)).await.unwrap();
    let tasks = (0..64).map(|_| {
        let (world, refresh, client) = (world.clone(), refresh.clone(), client.clone());
        tokio::spawn(async move { world.identity.redeem_refresh(&refresh, &client, None, None, at(2)).await })
    });
    let (mut won, mut successors) = (0, std::collections::BTreeSet::new());
    for task in tasks.collect::<Vec<_>>() {
        match task.await.unwrap() {
            Ok((_, successor)) => {
                won += 1;
                successors.insert(successor);
            }
            Err(GrantError::Reused | GrantError::Revoked) => {}
            Err(other) => panic!("{other}"),
        }
    }
    (won, successors)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_token_is_spent_exactly_once_whatever_the_race() {
    let world = Arc::new(World::new().await);
    let (won, successors) = race(&world, world.client.clone()).await;
    assert_eq!((won, successors.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn within_the_grace_all_get_the_same_successor() {
    let world = Arc::new(World::new().await);
    let client = Client { refresh_grace_s: 10, ..world.client.clone() };
    let (won, successors) = race(&world, client.clone()).await;
    assert_eq!((won, successors.len()), (64, 1));
    let successor = successors.first().unwrap();
    assert!(world.identity.redeem_refresh(successor, &client, None, None, at(3)).await.is_ok());
}

#[tokio::test]
async fn the_grace_ends() {
    let world = World::new().await;
    let client = Client { refresh_grace_s: 10, ..world.client.clone() };
    let identity = &world.identity;
    let refresh = identity.issue_refresh(&world.grant("openid"), &client, at(0)).await.unwrap();
    let (_, first) = identity.redeem_refresh(&refresh, &client, None, None, at(1)).await.unwrap();
    let (_, again) = identity.redeem_refresh(&refresh, &client, None, None, at(10)).await.unwrap();
    assert_eq!(first, again);
    let late = identity.redeem_refresh(&refresh, &client, None, None, at(11)).await;
    assert!(matches!(late, Err(GrantError::Reused)));
    let dead = identity.redeem_refresh(&first, &client, None, None, at(11)).await;
    assert!(matches!(dead, Err(GrantError::Revoked)));
}

/// Each kind of token, offered wherever tokens are taken: only its own door opens.
#[tokio::test]
async fn no_kind_of_token_passes_for_another() {
    let world = World::new().await;
    let (identity, client) = (&world.identity, &world.client);
    let grant = world.grant("openid");
    let access = identity.mint_access_token(&grant, at(0));
    let tokens = [
        ("access token", access.clone()),
        ("ID token", identity.mint_id_token(client, &grant, Beside::default(), at(0))),
        ("refresh token", identity.issue_refresh(&grant, client, at(0)).await.unwrap()),
        ("code", world.code("openid").await),
    ];
    for (kind, token) in &tokens {
        let passed = [
            ("access token", identity.verify_access_token(token, at(1)).await.is_ok()),
            ("ID token", identity.read_id_token_hint(token, at(1)).is_some()),
            ("code", identity.redeem_code(&sent(token), client, at(1)).await.is_ok()),
            ("refresh token", identity.redeem_refresh(token, client, None, None, at(1)).await.is_ok()),
            ("assertion", {
                let form = Params::parse(
                    format!("client_assertion_type={JWT_BEARER}&client_assertion={token}").as_bytes(),
                );
                identity.authenticate_client(None, &form, at(1)).await.is_ok()
            }),
            ("proof", {
                let request = Proven { method: "GET", url: "https://as.example/", access_token: None };
                identity.check_proof(token, &request, at(1)).await.is_ok()
            }),
        ];
        for (door, opened) in passed {
            assert_eq!(opened, door == *kind, "{kind} as {door}");
        }
    }
}

#[tokio::test]
async fn a_token_dies_with_its_clients_registration_and_with_the_users_consent() {
    let world = World::new().await;
    let (identity, client) = (&world.identity, &world.client);
    let grant = world.grant("openid");
    let access = identity.mint_access_token(&grant, at(0));
    let refresh = identity.issue_refresh(&grant, client, at(0)).await.unwrap();
    assert!(identity.verify_access_token(&access, at(1)).await.is_ok());
    identity.withdraw(&world.user.sub, &client.client_id, at(1)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&access, at(1)).await, Err(BadToken::Revoked)));
    let refused = identity.redeem_refresh(&refresh, client, None, None, at(1)).await;
    assert!(matches!(refused, Err(GrantError::Revoked)));
    let later = Grant { granted: at(2), ..grant };
    let access = identity.mint_access_token(&later, at(2));
    let refresh = identity.issue_refresh(&later, client, at(2)).await.unwrap();
    assert!(identity.verify_access_token(&access, at(2)).await.is_ok());

    assert!(identity.delete_client(&client.client_id, at(3)).await.unwrap());
    identity.add_client(client, at(3)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&access, at(3)).await, Err(BadToken::ClientGone)));
    let again = identity.client(&client.client_id, at(3)).await.unwrap().unwrap();
    let refused = identity.redeem_refresh(&refresh, &again, None, None, at(3)).await;
    assert!(matches!(refused, Err(GrantError::Unknown)));
}

#[tokio::test]
async fn a_code_is_for_its_client_and_address_and_lasts_five_minutes() {
    let world = World::new().await;
    let code = world.code("openid").await;
    let identity = &world.identity;
    // None of these attempts spends the code.
    let other = client("other");
    assert!(matches!(identity.redeem_code(&sent(&code), &other, at(1)).await, Err(GrantError::Unknown)));
    let elsewhere = format!("{CALLBACK}/");
    assert!(matches!(
        identity
            .redeem_code(&CodeExchange { redirect_uri: &elsewhere, ..sent(&code) }, &world.client, at(1))
            .await,
        Err(GrantError::RedirectUri)
    ));
    let verifier = "v".repeat(43);
    assert!(matches!(
        identity
            .redeem_code(&CodeExchange { verifier: Some(&verifier), ..sent(&code) }, &world.client, at(1))
            .await,
        Err(GrantError::Verifier)
    ));
    assert!(matches!(
        identity.redeem_code(&sent(&code), &world.client, at(300)).await,
        Err(GrantError::Unknown)
    ));
    assert!(identity.redeem_code(&sent(&code), &world.client, at(299)).await.is_ok());
}

#[tokio::test]
async fn a_second_use_kills_the_family() {
    let world = World::new().await;
    let identity = &world.identity;
    let code = world.code("openid").await;
    let grant = identity.redeem_code(&sent(&code), &world.client, at(1)).await.unwrap();
    let access = identity.mint_access_token(&grant, at(1));
    let refresh = identity.issue_refresh(&grant, &world.client, at(1)).await.unwrap();
    assert!(identity.verify_access_token(&access, at(2)).await.is_ok());
    let (_, successor) = identity.redeem_refresh(&refresh, &world.client, None, None, at(2)).await.unwrap();
    let reused = identity.redeem_refresh(&refresh, &world.client, None, None, at(3)).await;
    assert!(matches!(reused, Err(GrantError::Reused)));
    let dead = identity.redeem_refresh(&successor, &world.client, None, None, at(3)).await;
    assert!(matches!(dead, Err(GrantError::Revoked)));
    assert!(matches!(identity.verify_access_token(&access, at(3)).await, Err(BadToken::Revoked)));
}

#[tokio::test]
async fn a_refresh_never_widens_the_scope() {
    let world = World::new().await;
    let identity = &world.identity;
    let refresh = identity.issue_refresh(&world.grant("openid profile"), &world.client, at(1)).await.unwrap();
    let scopes = |text: &str| trefoil_identity::scope::Scopes::parse(text).unwrap();
    let wider =
        identity.redeem_refresh(&refresh, &world.client, Some(&scopes("openid email")), None, at(2)).await;
    assert!(matches!(wider, Err(GrantError::Scope)));
    let (narrow, successor) =
        identity.redeem_refresh(&refresh, &world.client, Some(&scopes("openid")), None, at(2)).await.unwrap();
    assert_eq!(narrow.scopes.to_string(), "openid");
    let (whole, _) = identity.redeem_refresh(&successor, &world.client, None, None, at(3)).await.unwrap();
    assert_eq!(whole.scopes.to_string(), "openid profile");
}

#[tokio::test]
async fn what_client_or_user_lose_their_tokens_lose_at_once() {
    let world = World::new().await;
    let (identity, scopes) = (&world.identity, |text: &str| Scopes::parse(text).unwrap());
    let declare = async |text: &str| {
        let declared = Client { scopes: scopes(text), ..client("declared") };
        identity.declare_clients(&[declared], at(0)).await.unwrap();
        identity.client("declared", at(0)).await.unwrap().unwrap()
    };
    let client = declare("openid profile offline_access").await;
    let grant = Grant {
        client_id: client.client_id.clone(),
        generation: client.generation.clone(),
        ..world.grant("openid profile offline_access")
    };
    let access = identity.mint_access_token(&grant, at(0));
    let refresh = identity.issue_refresh(&grant, &client, at(0)).await.unwrap();
    let left =
        async |second| identity.verify_access_token(&access, at(second)).await.unwrap().scopes.to_string();
    assert_eq!(left(1).await, "openid profile offline_access");

    identity.change_user("ada", at(2), |user| user.allowed_scopes = scopes("openid profile")).await.unwrap();
    assert_eq!(left(2).await, "openid profile");
    let (renewed, refresh) = identity.redeem_refresh(&refresh, &client, None, None, at(3)).await.unwrap();
    assert_eq!(renewed.scopes.to_string(), "openid profile");

    let client = declare("openid").await;
    assert_eq!(left(4).await, "openid");
    let told = identity.introspect(&access, &client, at(4)).await.unwrap();
    assert_eq!(told["scope"], "openid");
    let (renewed, refresh) = identity.redeem_refresh(&refresh, &client, None, None, at(5)).await.unwrap();
    assert_eq!(renewed.scopes.to_string(), "openid");

    identity.change_user("ada", at(6), |user| user.allowed_scopes = scopes("email")).await.unwrap();
    assert_eq!(left(6).await, "");
    let refused = identity.redeem_refresh(&refresh, &client, None, None, at(6)).await;
    assert!(matches!(refused, Err(GrantError::Revoked)));
}

#[tokio::test]
async fn an_access_token_ends_in_every_way_that_it_should() {
    let world = World::new().await;
    let identity = &world.identity;
    let token = |scopes: &str| identity.mint_access_token(&world.grant(scopes), at(0));
    let access = token("openid");
    assert!(identity.verify_access_token(&access, at(3599)).await.is_ok());
    assert!(matches!(identity.verify_access_token(&access, at(3600)).await, Err(BadToken::Expired)));
    // Altered in any part, it is none of ours.
    for part in 0..3 {
        let mut parts: Vec<String> = access.split('.').map(str::to_owned).collect();
        let letter = if parts[part].starts_with('A') { "B" } else { "A" };
        parts[part].replace_range(..1, letter);
        let altered = identity.verify_access_token(&parts.join("."), at(1)).await;
        assert!(matches!(altered, Err(BadToken::Malformed)), "part {part}");
    }
    // An ID token is no access token.
    let id_token = identity.mint_id_token(&world.client, &world.grant("openid"), Beside::default(), at(0));
    assert!(matches!(identity.verify_access_token(&id_token, at(1)).await, Err(BadToken::Malformed)));

    identity.revoke(&access, &client("other"), at(1)).await.unwrap();
    assert!(
        identity.verify_access_token(&access, at(1)).await.is_ok(),
        "another client's wish changes nothing"
    );
    identity.revoke(&access, &world.client, at(1)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&access, at(1)).await, Err(BadToken::Revoked)));

    // The end of the browser session ends its tokens, but for those under offline_access.
    let cookie =
        identity.begin_session(&world.user, &Proof::password(), Place::default(), None, at(0)).await.unwrap();
    let (session, _) = identity.session(&cookie, at(1)).await.unwrap().unwrap();
    let mut grant = world.grant("openid profile");
    grant.sid = session.sid.clone();
    let online = identity.mint_access_token(&grant, at(0));
    grant.scopes = trefoil_identity::scope::Scopes::parse("openid offline_access").unwrap();
    let offline = identity.mint_access_token(&grant, at(0));
    identity.end_session(&cookie, at(2)).await.unwrap();
    assert!(identity.session(&cookie, at(2)).await.unwrap().is_none());
    assert!(matches!(identity.verify_access_token(&online, at(2)).await, Err(BadToken::Revoked)));
    assert!(identity.verify_access_token(&offline, at(2)).await.is_ok());

    identity.sign_out_everywhere("ada", at(3)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&offline, at(3)).await, Err(BadToken::SignedOut)));
    identity.delete_user("ada", at(4)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&offline, at(4)).await, Err(BadToken::UserGone)));
    identity.delete_client("app", at(5)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&offline, at(5)).await, Err(BadToken::ClientGone)));
}

#[tokio::test]
async fn a_session_ends_after_an_idle_hour_and_after_twelve() {
    let world = World::new().await;
    let identity = &world.identity;
    let idle =
        identity.begin_session(&world.user, &Proof::password(), Place::default(), None, at(0)).await.unwrap();
    assert!(identity.session(&idle, at(3599)).await.unwrap().is_some());
    assert!(identity.session(&idle, at(3599 + 3600)).await.unwrap().is_none());
    let busy =
        identity.begin_session(&world.user, &Proof::password(), Place::default(), None, at(0)).await.unwrap();
    for half_hour in 1..24 {
        assert!(identity.session(&busy, at(half_hour * 1800)).await.unwrap().is_some(), "{half_hour}");
    }
    assert!(identity.session(&busy, at(12 * 3600 + 1)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_ends_by_its_id_alone() {
    let world = World::new().await;
    let identity = &world.identity;
    let cookie =
        identity.begin_session(&world.user, &Proof::password(), Place::default(), None, at(0)).await.unwrap();
    let (session, _) = identity.session(&cookie, at(1)).await.unwrap().unwrap();
    identity.end_sid(&session.sid, at(2)).await.unwrap();
    assert!(identity.session(&cookie, at(2)).await.unwrap().is_none());
    assert!(identity.sessions_of(&world.user, at(2)).await.unwrap().is_empty());
}

#[tokio::test]
async fn signing_in_again_goes_on_with_the_session() {
    let world = World::new().await;
    let identity = &world.identity;
    let first =
        identity.begin_session(&world.user, &Proof::password(), Place::default(), None, at(0)).await.unwrap();
    let mut grant = world.grant("openid");
    grant.sid = identity.session(&first, at(1)).await.unwrap().unwrap().0.sid;
    let early = identity.mint_access_token(&grant, at(1));
    let again = identity
        .begin_session(&world.user, &Proof::password(), Place::default(), Some(&first), at(2))
        .await
        .unwrap();
    assert!(identity.session(&first, at(3)).await.unwrap().is_none(), "the old cookie is worth nothing");
    assert!(identity.verify_access_token(&early, at(3)).await.is_ok());
    identity.end_session(&again, at(4)).await.unwrap();
    assert!(matches!(identity.verify_access_token(&early, at(4)).await, Err(BadToken::Revoked)));
    let fresh = identity
        .begin_session(&world.user, &Proof::password(), Place::default(), Some(&again), at(5))
        .await
        .unwrap();
    assert_ne!(identity.session(&fresh, at(6)).await.unwrap().unwrap().0.sid, grant.sid);
}
