//! Tests that authorization codes and refresh tokens are spent once, and that revocations end their tokens.

use std::sync::Arc;

use store::Store;
use trefoil_identity::client_auth::authenticator::JWT_BEARER;
use trefoil_identity::directory::user_directory::AccountsOfDeleted;
use trefoil_identity::end_all_before;
use trefoil_identity::lifetimes;
use trefoil_identity::model::client::Client;
use trefoil_identity::model::redirect_uri::RegisteredRedirectUri;
use trefoil_identity::model::scope::Scopes;
use trefoil_identity::model::user::User;
use trefoil_identity::params::Params;
use trefoil_identity::sign_in::session::{SessionOrigin, SignInProof};
use trefoil_identity::tokens::access_token::BadToken;
use trefoil_identity::tokens::dpop::DpopRequest;
use trefoil_identity::tokens::grant::{CodeExchange, Grant, GrantError};
use trefoil_identity::tokens::id_token::IdTokenContext;

use crate::support::{CALLBACK, Setup, at, client};

fn sent(code: &str) -> CodeExchange<'_> {
    CodeExchange { code, redirect_uri: CALLBACK, verifier: None, jkt: None, resource: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_spent_once_in_concurrent_requests() {
    let setup = Arc::new(Setup::new().await);
    for round in 0..5 {
        // Each round uses a new family, because the second uses of a code revoke its family.
        let mut grant = setup.grant("openid");
        grant.family = format!("family-{round}");
        let to = RegisteredRedirectUri::parse(CALLBACK, false).unwrap();
        let code = setup
            .identity
            .grants
            .issue_authorization_code(grant, to, None, None, lifetimes::AUTHORIZATION_CODE, at(0))
            .await
            .unwrap();
        let tasks = (0..64).map(|_| {
            let (setup, code) = (setup.clone(), code.clone());
            tokio::spawn(async move {
                setup.identity.grants.redeem_authorization_code(&sent(&code), &setup.client, at(1)).await
            })
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
        let again = setup.identity.grants.redeem_authorization_code(&sent(&code), &setup.client, at(1)).await;
        assert!(matches!(again, Err(GrantError::Reused)));
    }
}

/// Redeems one refresh token in 64 concurrent requests. Returns the number of successes and the distinct
/// successors.
async fn race(setup: &Arc<Setup>, client: Client) -> (usize, std::collections::BTreeSet<String>) {
    let refresh =
        setup.identity.grants.issue_refresh_token(&setup.grant("openid"), &client, at(1)).await.unwrap();
    let tasks = (0..64).map(|_| {
        let (setup, refresh, client) = (setup.clone(), refresh.clone(), client.clone());
        tokio::spawn(async move {
            setup.identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(2)).await
        })
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
async fn a_refresh_token_is_spent_once_in_concurrent_requests() {
    let setup = Arc::new(Setup::new().await);
    let (won, successors) = race(&setup, setup.client.clone()).await;
    assert_eq!((won, successors.len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn during_the_grace_period_all_requests_get_the_same_successor() {
    let setup = Arc::new(Setup::new().await);
    let client = Client { refresh_grace_s: Some(10), ..setup.client.clone() };
    let (won, successors) = race(&setup, client.clone()).await;
    assert_eq!((won, successors.len()), (64, 1));
    let successor = successors.first().unwrap();
    assert!(
        setup.identity.grants.redeem_refresh_token(successor, &client, None, None, None, at(3)).await.is_ok()
    );
}

#[tokio::test]
async fn the_grace_period_ends() {
    let setup = Setup::new().await;
    let client = Client { refresh_grace_s: Some(10), ..setup.client.clone() };
    let identity = &setup.identity;
    let refresh = identity.grants.issue_refresh_token(&setup.grant("openid"), &client, at(0)).await.unwrap();
    let (_, first) =
        identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(1)).await.unwrap();
    let (_, again) =
        identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(10)).await.unwrap();
    assert_eq!(first, again);
    let late = identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(11)).await;
    assert!(matches!(late, Err(GrantError::Reused)));
    let dead = identity.grants.redeem_refresh_token(&first, &client, None, None, None, at(11)).await;
    assert!(matches!(dead, Err(GrantError::Revoked)));
}

#[tokio::test]
async fn a_second_use_is_rejected_whichever_clock_is_ahead() {
    let setup = Setup::new().await;
    let (identity, client) = (&setup.identity, &setup.client);
    let refresh = identity.grants.issue_refresh_token(&setup.grant("openid"), client, at(0)).await.unwrap();
    assert!(identity.grants.redeem_refresh_token(&refresh, client, None, None, None, at(2)).await.is_ok());
    // A request that arrived earlier, or at a node whose clock is behind.
    let again = identity.grants.redeem_refresh_token(&refresh, client, None, None, None, at(1)).await;
    assert!(matches!(again, Err(GrantError::Reused)), "{:?}", again.err());
}

/// Presents each kind of token at every place that accepts tokens. Only the intended place accepts it.
#[tokio::test]
async fn no_kind_of_token_is_accepted_as_another() {
    let setup = Setup::new().await;
    let (identity, client) = (&setup.identity, &setup.client);
    let grant = setup.grant("openid");
    let access = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(0));
    let tokens = [
        ("access token", access.clone()),
        (
            "ID token",
            identity.tokens.mint_id_token(client, &grant, IdTokenContext::default(), at(0)).await.unwrap(),
        ),
        ("refresh token", identity.grants.issue_refresh_token(&grant, client, at(0)).await.unwrap()),
        ("code", setup.code("openid").await),
    ];
    for (kind, token) in &tokens {
        let passed = [
            ("access token", identity.tokens.verify_access_token(token, at(1)).await.is_ok()),
            ("ID token", identity.tokens.verify_id_token_hint(token, at(1)).is_some()),
            ("code", identity.grants.redeem_authorization_code(&sent(token), client, at(1)).await.is_ok()),
            (
                "refresh token",
                identity.grants.redeem_refresh_token(token, client, None, None, None, at(1)).await.is_ok(),
            ),
            ("assertion", {
                let form = Params::parse(
                    format!("client_assertion_type={JWT_BEARER}&client_assertion={token}").as_bytes(),
                );
                identity.client_auth.authenticate_client(None, &form, at(1)).await.is_ok()
            }),
            ("proof", {
                let request = DpopRequest { method: "GET", url: "https://as.example/", access_token: None };
                identity.dpop.verify_proof(token, &request, at(1)).await.is_ok()
            }),
        ];
        for (door, opened) in passed {
            assert_eq!(opened, door == *kind, "{kind} as {door}");
        }
    }
}

#[tokio::test]
async fn a_token_ends_with_the_registration_and_the_consent() {
    let setup = Setup::new().await;
    let (identity, client) = (&setup.identity, &setup.client);
    let grant = setup.grant("openid");
    let access = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(0));
    let refresh = identity.grants.issue_refresh_token(&grant, client, at(0)).await.unwrap();
    assert!(identity.tokens.verify_access_token(&access, at(1)).await.is_ok());
    identity.consents.withdraw_consent(&setup.user.sub, &client.client_id, at(1)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&access, at(1)).await, Err(BadToken::Revoked)));
    let error = identity.grants.redeem_refresh_token(&refresh, client, None, None, None, at(1)).await;
    assert!(matches!(error, Err(GrantError::Revoked)));
    let later = Grant { granted: at(2), ..grant };
    let access = identity.tokens.mint_access_token(&later, None, lifetimes::ACCESS_TOKEN, at(2));
    let refresh = identity.grants.issue_refresh_token(&later, client, at(2)).await.unwrap();
    assert!(identity.tokens.verify_access_token(&access, at(2)).await.is_ok());

    assert!(identity.clients.delete_client(&client.client_id, at(3)).await.unwrap());
    identity.clients.add_client(client, at(3)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&access, at(3)).await, Err(BadToken::ClientGone)));
    let again = identity.clients.active_client(&client.client_id, at(3)).await.unwrap().unwrap();
    let error = identity.grants.redeem_refresh_token(&refresh, &again, None, None, None, at(3)).await;
    assert!(matches!(error, Err(GrantError::Unknown)));
}

#[tokio::test]
async fn a_code_is_bound_to_client_and_redirect_uri_for_five_minutes() {
    let setup = Setup::new().await;
    let code = setup.code("openid").await;
    let identity = &setup.identity;
    // None of these rejected attempts spends the code.
    let other = client("other");
    assert!(matches!(
        identity.grants.redeem_authorization_code(&sent(&code), &other, at(1)).await,
        Err(GrantError::Unknown)
    ));
    let elsewhere = format!("{CALLBACK}/");
    assert!(matches!(
        identity
            .grants
            .redeem_authorization_code(
                &CodeExchange { redirect_uri: &elsewhere, ..sent(&code) },
                &setup.client,
                at(1)
            )
            .await,
        Err(GrantError::RedirectUri)
    ));
    let verifier = "v".repeat(43);
    assert!(matches!(
        identity
            .grants
            .redeem_authorization_code(
                &CodeExchange { verifier: Some(&verifier), ..sent(&code) },
                &setup.client,
                at(1)
            )
            .await,
        Err(GrantError::Verifier)
    ));
    assert!(matches!(
        identity.grants.redeem_authorization_code(&sent(&code), &setup.client, at(300)).await,
        Err(GrantError::Unknown)
    ));
    assert!(identity.grants.redeem_authorization_code(&sent(&code), &setup.client, at(299)).await.is_ok());
}

#[tokio::test]
async fn a_second_use_revokes_the_family() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let code = setup.code("openid").await;
    let grant = identity.grants.redeem_authorization_code(&sent(&code), &setup.client, at(1)).await.unwrap();
    let access = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(1));
    let refresh = identity.grants.issue_refresh_token(&grant, &setup.client, at(1)).await.unwrap();
    assert!(identity.tokens.verify_access_token(&access, at(2)).await.is_ok());
    let (_, successor) =
        identity.grants.redeem_refresh_token(&refresh, &setup.client, None, None, None, at(2)).await.unwrap();
    let reused = identity.grants.redeem_refresh_token(&refresh, &setup.client, None, None, None, at(3)).await;
    assert!(matches!(reused, Err(GrantError::Reused)));
    let dead = identity.grants.redeem_refresh_token(&successor, &setup.client, None, None, None, at(3)).await;
    assert!(matches!(dead, Err(GrantError::Revoked)));
    assert!(matches!(identity.tokens.verify_access_token(&access, at(3)).await, Err(BadToken::Revoked)));
}

#[tokio::test]
async fn a_refresh_never_adds_scopes() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let refresh = identity
        .grants
        .issue_refresh_token(&setup.grant("openid profile"), &setup.client, at(1))
        .await
        .unwrap();
    let scopes = |text: &str| trefoil_identity::model::scope::Scopes::parse(text).unwrap();
    let wider = identity
        .grants
        .redeem_refresh_token(&refresh, &setup.client, Some(&scopes("openid email")), None, None, at(2))
        .await;
    assert!(matches!(wider, Err(GrantError::Scope)));
    let (narrow, successor) = identity
        .grants
        .redeem_refresh_token(&refresh, &setup.client, Some(&scopes("openid")), None, None, at(2))
        .await
        .unwrap();
    assert_eq!(narrow.scopes.to_string(), "openid");
    let (whole, _) = identity
        .grants
        .redeem_refresh_token(&successor, &setup.client, None, None, None, at(3))
        .await
        .unwrap();
    assert_eq!(whole.scopes.to_string(), "openid profile");
}

#[tokio::test]
async fn tokens_lose_the_scopes_that_client_or_user_lose() {
    let setup = Setup::new().await;
    let (identity, scopes) = (&setup.identity, |text: &str| Scopes::parse(text).unwrap());
    let declare = async |text: &str| {
        let declared = Client { scopes: scopes(text), ..client("declared") };
        identity.clients.declare_clients(&[declared], 0, at(0)).await.unwrap();
        identity.clients.active_client("declared", at(0)).await.unwrap().unwrap()
    };
    let client = declare("openid profile offline_access").await;
    let grant = Grant {
        client_id: client.client_id.clone(),
        generation: client.generation.clone(),
        ..setup.grant("openid profile offline_access")
    };
    let access = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(0));
    let refresh = identity.grants.issue_refresh_token(&grant, &client, at(0)).await.unwrap();
    let scopes_at = async |second| {
        identity.tokens.verify_access_token(&access, at(second)).await.unwrap().scopes.to_string()
    };
    assert_eq!(scopes_at(1).await, "openid profile offline_access");

    identity
        .users
        .change_user("ada", at(2), |user| user.allowed_scopes = scopes("openid offline_access"))
        .await
        .unwrap();
    assert_eq!(scopes_at(2).await, "openid offline_access");
    let (renewed, refresh) =
        identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(3)).await.unwrap();
    assert_eq!(renewed.scopes.to_string(), "openid offline_access");

    let client = declare("offline_access").await;
    assert_eq!(scopes_at(4).await, "offline_access");
    let introspection = identity.tokens.introspect_token(&access, &client, at(4)).await.unwrap();
    assert_eq!(introspection["scope"], "offline_access");
    let (renewed, refresh) =
        identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(5)).await.unwrap();
    assert_eq!(renewed.scopes.to_string(), "offline_access");

    identity.users.change_user("ada", at(6), |user| user.allowed_scopes = scopes("email")).await.unwrap();
    assert_eq!(scopes_at(6).await, "");
    let error = identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(6)).await;
    assert!(matches!(error, Err(GrantError::Revoked)));
}

#[tokio::test]
async fn an_access_token_ends_by_expiry_revocation_and_sign_out() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let token = |scopes: &str| {
        identity.tokens.mint_access_token(&setup.grant(scopes), None, lifetimes::ACCESS_TOKEN, at(0))
    };
    let access = token("openid");
    assert!(identity.tokens.verify_access_token(&access, at(3599)).await.is_ok());
    assert!(matches!(identity.tokens.verify_access_token(&access, at(3600)).await, Err(BadToken::Expired)));
    // A token with a modified header, payload or signature is rejected.
    for part in 0..3 {
        let mut parts: Vec<String> = access.split('.').map(str::to_owned).collect();
        let letter = if parts[part].starts_with('A') { "B" } else { "A" };
        parts[part].replace_range(..1, letter);
        let altered = identity.tokens.verify_access_token(&parts.join("."), at(1)).await;
        assert!(matches!(altered, Err(BadToken::Malformed)), "part {part}");
    }
    // An ID token is not accepted as an access token.
    let grant = setup.grant("openid");
    let id_token = identity.tokens.mint_id_token(&setup.client, &grant, IdTokenContext::default(), at(0));
    let id_token = id_token.await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&id_token, at(1)).await, Err(BadToken::Malformed)));

    identity.tokens.revoke_token(&access, &client("other"), at(1)).await.unwrap();
    assert!(
        identity.tokens.verify_access_token(&access, at(1)).await.is_ok(),
        "another client cannot revoke it"
    );
    identity.tokens.revoke_token(&access, &setup.client, at(1)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&access, at(1)).await, Err(BadToken::Revoked)));

    // The end of a session ends its tokens, except those with `offline_access`.
    let cookie = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), None, at(0))
        .await
        .unwrap();
    let (session, _) = identity.sessions.active_session(&cookie, at(1)).await.unwrap().unwrap();
    let mut grant = setup.grant("openid profile");
    grant.sid = session.sid.clone();
    let online = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(0));
    grant.scopes = trefoil_identity::model::scope::Scopes::parse("openid offline_access").unwrap();
    let offline = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(0));
    identity.sessions.end_session(&cookie, at(2)).await.unwrap();
    assert!(identity.sessions.active_session(&cookie, at(2)).await.unwrap().is_none());
    assert!(matches!(identity.tokens.verify_access_token(&online, at(2)).await, Err(BadToken::Revoked)));
    assert!(identity.tokens.verify_access_token(&offline, at(2)).await.is_ok());

    identity.users.sign_out_everywhere("ada", at(3)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&offline, at(3)).await, Err(BadToken::SignedOut)));
    identity.users.delete_user("ada", AccountsOfDeleted::Forget, at(4)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&offline, at(4)).await, Err(BadToken::UserGone)));
    identity.clients.delete_client("app", at(5)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&offline, at(5)).await, Err(BadToken::ClientGone)));
}

#[tokio::test]
async fn a_session_ends_after_one_idle_hour_and_after_twelve_hours() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let idle = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), None, at(0))
        .await
        .unwrap();
    assert!(identity.sessions.active_session(&idle, at(3599)).await.unwrap().is_some());
    assert!(identity.sessions.active_session(&idle, at(3599 + 3600)).await.unwrap().is_none());
    let busy = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), None, at(0))
        .await
        .unwrap();
    for half_hour in 1..24 {
        assert!(
            identity.sessions.active_session(&busy, at(half_hour * 1800)).await.unwrap().is_some(),
            "{half_hour}"
        );
    }
    assert!(identity.sessions.active_session(&busy, at(12 * 3600 + 1)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_ends_by_its_id() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let cookie = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), None, at(0))
        .await
        .unwrap();
    let (session, _) = identity.sessions.active_session(&cookie, at(1)).await.unwrap().unwrap();
    assert!(identity.sessions.end_user_session(&setup.user.sub, &session.sid, at(2)).await.unwrap());
    assert!(identity.sessions.active_session(&cookie, at(2)).await.unwrap().is_none());
    assert!(identity.sessions.user_sessions(&setup.user, at(2)).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cookie_identifies_its_expired_session_which_can_still_be_ended() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let proof = SignInProof::password();
    let start = identity.sessions.begin_session(&setup.user, &proof, SessionOrigin::default(), None, at(0));
    let cookie = start.await.unwrap();
    let (session, _) = identity.sessions.active_session(&cookie, at(1)).await.unwrap().unwrap();
    let grant = Grant { sid: session.sid.clone(), ..setup.grant("openid") };
    let token = identity.tokens.mint_access_token(&grant, None, jiff::SignedDuration::from_hours(20), at(1));
    let later = at(13 * 3600);
    assert!(identity.sessions.active_session(&cookie, later).await.unwrap().is_none());
    let session_identity = identity.sessions.session_identity(&cookie, later).await.unwrap().unwrap();
    assert_eq!((session_identity.sid, session_identity.sub), (session.sid, setup.user.sub.clone()));
    assert!(identity.tokens.verify_access_token(&token, later).await.is_ok());
    identity.sessions.end_session(&cookie, later).await.unwrap();
    assert!(identity.tokens.verify_access_token(&token, later).await.is_err());
    assert!(identity.sessions.session_identity(&cookie, later).await.unwrap().is_none());
}

#[tokio::test]
async fn refresh_tokens_end_when_the_scope_that_allowed_them_is_taken_away() {
    for (from_client, always_refresh) in [(true, false), (false, false), (true, true), (false, true)] {
        let setup = Setup::new().await;
        let identity = &setup.identity;
        let client = Client { always_refresh, ..setup.client.clone() };
        let grant = setup.grant("openid offline_access");
        let token = identity.grants.issue_refresh_token(&grant, &client, at(1)).await.unwrap();
        let (_, token) =
            identity.grants.redeem_refresh_token(&token, &client, None, None, None, at(2)).await.unwrap();
        let fewer = Scopes::parse("openid profile").unwrap();
        let client = match from_client {
            true => Client { scopes: fewer, ..client },
            false => {
                let take = |user: &mut User| user.allowed_scopes = fewer.clone();
                identity.users.change_user("ada", at(3), take).await.unwrap();
                client
            }
        };
        let error = identity.grants.redeem_refresh_token(&token, &client, None, None, None, at(4)).await;
        assert!(matches!(error, Err(GrantError::Withdrawn)), "{from_client} {always_refresh} {error:?}");
    }
}

#[tokio::test]
async fn what_was_issued_before_a_restore_of_the_database_has_ended() {
    let store = Store::memory();
    let setup = Setup::on(store.clone()).await;
    let identity = &setup.identity;
    let begin = async |second| {
        let (proof, origin) = (SignInProof::password(), SessionOrigin::default());
        identity.sessions.begin_session(&setup.user, &proof, origin, None, at(second)).await.unwrap()
    };
    let issue = async |second| {
        let grant = Grant { granted: at(second), ..setup.grant("openid offline_access") };
        let refresh = identity.grants.issue_refresh_token(&grant, &setup.client, at(second)).await.unwrap();
        (identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(second)), refresh)
    };
    let code = setup.code("openid").await;
    let (cookie, (access, refresh)) = (begin(0).await, issue(0).await);
    // A server that starts again has no cache; here a new client ends its epoch.
    let end = async |second, new_client: &str| {
        end_all_before(store.clone(), at(second)).await.unwrap();
        identity.clients.add_client(&client(new_client), at(second)).await.unwrap();
    };
    end(10, "third").await;

    assert!(identity.sessions.active_session(&cookie, at(12)).await.unwrap().is_none());
    let spent = identity.grants.redeem_authorization_code(&sent(&code), &setup.client, at(12)).await;
    assert!(matches!(spent, Err(GrantError::Revoked)));
    let renewed =
        identity.grants.redeem_refresh_token(&refresh, &setup.client, None, None, None, at(12)).await;
    assert!(matches!(renewed, Err(GrantError::Revoked)));
    assert!(matches!(identity.tokens.verify_access_token(&access, at(12)).await, Err(BadToken::Revoked)));

    let (cookie, (access, refresh)) = (begin(12).await, issue(12).await);
    assert!(identity.sessions.active_session(&cookie, at(13)).await.unwrap().is_some());
    assert!(identity.tokens.verify_access_token(&access, at(13)).await.is_ok());
    identity.grants.redeem_refresh_token(&refresh, &setup.client, None, None, None, at(13)).await.unwrap();
    // The next restore.
    end(600, "fourth").await;
    assert!(identity.tokens.verify_access_token(&access, at(601)).await.is_err());
}

#[tokio::test]
async fn a_repeated_sign_in_keeps_the_session_id() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let first = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), None, at(0))
        .await
        .unwrap();
    let mut grant = setup.grant("openid");
    grant.sid = identity.sessions.active_session(&first, at(1)).await.unwrap().unwrap().0.sid;
    let early = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(1));
    let again = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), Some(&first), at(2))
        .await
        .unwrap();
    assert!(
        identity.sessions.active_session(&first, at(3)).await.unwrap().is_none(),
        "the old cookie is not accepted"
    );
    assert!(identity.tokens.verify_access_token(&early, at(3)).await.is_ok());
    identity.sessions.end_session(&again, at(4)).await.unwrap();
    assert!(matches!(identity.tokens.verify_access_token(&early, at(4)).await, Err(BadToken::Revoked)));
    let fresh = identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), Some(&again), at(5))
        .await
        .unwrap();
    assert_ne!(identity.sessions.active_session(&fresh, at(6)).await.unwrap().unwrap().0.sid, grant.sid);
}
