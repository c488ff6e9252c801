//! The device authorization grant (RFC 8628).

use trefoil_identity::authorize::ErrorCode;
use trefoil_identity::client::{Client, GrantType};
use trefoil_identity::device::{Begun, DeviceError};
use trefoil_identity::grant::GrantError;
use trefoil_identity::session::{Place, Proof, Session};

use crate::support::{self, World, at};

async fn world() -> (World, Client, Session) {
    let world = World::new().await;
    let client = Client {
        grant_types: vec![GrantType::DeviceCode, GrantType::RefreshToken],
        ..support::client("box")
    };
    world.identity.add_client(&client, at(0)).await.unwrap();
    // As it was registered, with its generation.
    let client = world.identity.client("box", at(0)).await.unwrap().unwrap();
    let cookie = world
        .identity
        .begin_session(&world.user, &Proof::password(), Place::default(), None, at(0))
        .await
        .unwrap();
    let (session, _) = world.identity.session(&cookie, at(0)).await.unwrap().unwrap();
    (world, client, session)
}

async fn begin(world: &World, client: &Client) -> Begun {
    world.identity.begin_device(client, Some("openid profile"), at(0)).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_grant_is_given_once_after_a_yes() {
    let (world, client, session) = world().await;
    let begun = begin(&world, &client).await;
    let identity = &world.identity;
    let pending = identity.redeem_device(&begun.device_code, &client, None, at(5)).await;
    assert!(matches!(pending, Err(DeviceError::Pending)));
    let typed = begun.user_code.to_lowercase().replace('-', " ");
    let question = identity.device_question(&typed, &world.user, at(6)).await.unwrap().unwrap();
    assert_eq!((question.client.client_id.as_str(), question.user_code), ("box", begun.user_code.clone()));
    assert!(identity.answer_device(&typed, true, &session, &world.user, at(6)).await.unwrap());
    // An answer is one: the code leads nowhere afterwards.
    assert!(!identity.answer_device(&typed, false, &session, &world.user, at(6)).await.unwrap());
    assert!(identity.device_question(&typed, &world.user, at(6)).await.unwrap().is_none());

    let other = identity.redeem_device(&begun.device_code, &world.client, None, at(10)).await;
    assert!(matches!(other, Err(DeviceError::Grant(GrantError::Unknown))), "of another client");
    let grant = identity.redeem_device(&begun.device_code, &client, None, at(10)).await.unwrap();
    assert_eq!(
        (grant.sub.as_str(), grant.scopes.to_string().as_str()),
        (world.user.sub.as_str(), "openid profile")
    );
    assert_eq!(grant.amr, ["pwd"]);
    let refresh = identity.issue_refresh(&grant, &client, at(10)).await.unwrap();
    let again = identity.redeem_device(&begun.device_code, &client, None, at(15)).await;
    assert!(matches!(again, Err(DeviceError::Grant(GrantError::Reused))));
    assert!(
        identity.redeem_refresh(&refresh, &client, None, None, at(16)).await.is_err(),
        "the family is dead"
    );
}

#[tokio::test]
async fn a_no_a_wait_and_an_end_are_told() {
    let (world, client, session) = world().await;
    let identity = &world.identity;
    let begun = begin(&world, &client).await;
    let poll = async |second| identity.redeem_device(&begun.device_code, &client, None, at(second)).await;
    assert!(matches!(poll(1).await, Err(DeviceError::Pending)));
    assert!(matches!(poll(3).await, Err(DeviceError::SlowDown)), "earlier than 5 s after the last");
    assert!(matches!(poll(9).await, Err(DeviceError::SlowDown)), "the interval is 10 s now");
    assert!(matches!(poll(25).await, Err(DeviceError::Pending)), "and 15 s now");
    assert!(matches!(poll(599).await, Err(DeviceError::Pending)));
    assert!(identity.device_question(&begun.user_code, &world.user, at(599)).await.unwrap().is_some());
    assert!(matches!(poll(600).await, Err(DeviceError::Expired)));
    assert!(!identity.answer_device(&begun.user_code, true, &session, &world.user, at(600)).await.unwrap());
    assert!(matches!(poll(1201).await, Err(DeviceError::Grant(GrantError::Unknown))));

    let refused = begin(&world, &client).await;
    assert!(identity.answer_device(&refused.user_code, false, &session, &world.user, at(1)).await.unwrap());
    let poll = identity.redeem_device(&refused.device_code, &client, None, at(2)).await;
    assert!(matches!(poll, Err(DeviceError::Denied)));
}

#[tokio::test]
async fn what_was_granted_ends_with_its_session() {
    let (world, client, session) = world().await;
    let identity = &world.identity;
    let begun = begin(&world, &client).await;
    assert!(identity.answer_device(&begun.user_code, true, &session, &world.user, at(1)).await.unwrap());
    assert!(identity.end_session_of(&world.user.sub, &session.sid, at(2)).await.unwrap());
    let poll = identity.redeem_device(&begun.device_code, &client, None, at(3)).await;
    assert!(matches!(poll, Err(DeviceError::Grant(GrantError::Revoked))));
}

#[tokio::test]
async fn scopes_are_those_of_client_and_user() {
    let (world, client, _) = world().await;
    let refused = world.identity.begin_device(&client, Some("openid email"), at(0)).await.unwrap();
    assert_eq!(refused.unwrap_err(), ErrorCode::InvalidScope);
    let system = world.identity.begin_device(&client, Some("system/*.rs"), at(0)).await.unwrap();
    assert_eq!(system.unwrap_err(), ErrorCode::InvalidScope);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_code_gives_one_grant_in_64_tries_at_once() {
    let (world, client, session) = world().await;
    let begun = begin(&world, &client).await;
    assert!(
        world.identity.answer_device(&begun.user_code, true, &session, &world.user, at(1)).await.unwrap()
    );
    let world = std::sync::Arc::new(world);
    let tries = (0..64).map(|_| {
        let (world, client, code) = (world.clone(), client.clone(), begun.device_code.clone());
        tokio::spawn(async move { world.identity.redeem_device(&code, &client, None, at(2)).await.is_ok() })
    });
    let mut given = 0;
    for tried in tries.collect::<Vec<_>>() {
        given += usize::from(tried.await.unwrap());
    }
    assert_eq!(given, 1);
}
