//! Tests of the device authorization grant (RFC 8628).

use trefoil_identity::authorize::device::{DeviceCodes, DeviceError};
use trefoil_identity::model::client::{Client, GrantType};
use trefoil_identity::model::error_code::ErrorCode;
use trefoil_identity::sign_in::session::{Session, SessionOrigin, SignInProof};
use trefoil_identity::tokens::grant::GrantError;

use crate::support::{self, Setup, at};

async fn setup() -> (Setup, Client, Session) {
    let setup = Setup::new().await;
    let client = Client {
        grant_types: vec![GrantType::DeviceCode, GrantType::RefreshToken],
        ..support::client("box")
    };
    setup.identity.clients.add_client(&client, at(0)).await.unwrap();
    // The client as stored, which has a generation.
    let client = setup.identity.clients.active_client("box", at(0)).await.unwrap().unwrap();
    let cookie = setup
        .identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), SessionOrigin::default(), None, at(0))
        .await
        .unwrap();
    let (session, _) = setup.identity.sessions.active_session(&cookie, at(0)).await.unwrap().unwrap();
    (setup, client, session)
}

async fn begin(setup: &Setup, client: &Client) -> DeviceCodes {
    setup
        .identity
        .devices
        .begin_device_authorization(client, Some("openid profile"), at(0))
        .await
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn an_approved_device_gets_one_grant() {
    let (setup, client, session) = setup().await;
    let start = begin(&setup, &client).await;
    let identity = &setup.identity;
    let pending = identity.devices.redeem_device_code(&start.device_code, &client, None, at(5)).await;
    assert!(matches!(pending, Err(DeviceError::Pending)));
    let typed = start.user_code.to_lowercase().replace('-', " ");
    let question = identity.devices.device_question(&typed, &setup.user, at(6)).await.unwrap().unwrap();
    assert_eq!((question.client.client_id.as_str(), question.user_code), ("box", start.user_code.clone()));
    assert!(
        identity.devices.answer_device_question(&typed, true, &session, &setup.user, at(6)).await.unwrap()
    );
    // The user code is used up by the answer.
    assert!(
        !identity.devices.answer_device_question(&typed, false, &session, &setup.user, at(6)).await.unwrap()
    );
    assert!(identity.devices.device_question(&typed, &setup.user, at(6)).await.unwrap().is_none());

    let other = identity.devices.redeem_device_code(&start.device_code, &setup.client, None, at(10)).await;
    assert!(matches!(other, Err(DeviceError::Grant(GrantError::Unknown))), "another client");
    let grant = identity.devices.redeem_device_code(&start.device_code, &client, None, at(10)).await.unwrap();
    assert_eq!(
        (grant.sub.as_str(), grant.scopes.to_string().as_str()),
        (setup.user.sub.as_str(), "openid profile")
    );
    assert_eq!(grant.amr, ["pwd"]);
    let refresh = identity.grants.issue_refresh_token(&grant, &client, at(10)).await.unwrap();
    let again = identity.devices.redeem_device_code(&start.device_code, &client, None, at(15)).await;
    assert!(matches!(again, Err(DeviceError::Grant(GrantError::Reused))));
    assert!(
        identity.grants.redeem_refresh_token(&refresh, &client, None, None, None, at(16)).await.is_err(),
        "the family is revoked"
    );
}

#[tokio::test]
async fn denial_fast_polls_and_expiry_are_reported() {
    let (setup, client, session) = setup().await;
    let identity = &setup.identity;
    let start = begin(&setup, &client).await;
    let poll = async |second| {
        identity.devices.redeem_device_code(&start.device_code, &client, None, at(second)).await
    };
    assert!(matches!(poll(1).await, Err(DeviceError::Pending)));
    assert!(
        matches!(poll(3).await, Err(DeviceError::SlowDown)),
        "the poll is less than 5 s after the previous one"
    );
    assert!(matches!(poll(9).await, Err(DeviceError::SlowDown)), "the interval is now 10 s");
    assert!(
        matches!(poll(25).await, Err(DeviceError::Pending)),
        "the interval is now 15 s, which have passed"
    );
    assert!(matches!(poll(599).await, Err(DeviceError::Pending)));
    assert!(
        identity.devices.device_question(&start.user_code, &setup.user, at(599)).await.unwrap().is_some()
    );
    assert!(matches!(poll(600).await, Err(DeviceError::Expired)));
    assert!(
        !identity
            .devices
            .answer_device_question(&start.user_code, true, &session, &setup.user, at(600))
            .await
            .unwrap()
    );
    assert!(matches!(poll(1201).await, Err(DeviceError::Grant(GrantError::Unknown))));

    let error = begin(&setup, &client).await;
    assert!(
        identity
            .devices
            .answer_device_question(&error.user_code, false, &session, &setup.user, at(1))
            .await
            .unwrap()
    );
    let poll = identity.devices.redeem_device_code(&error.device_code, &client, None, at(2)).await;
    assert!(matches!(poll, Err(DeviceError::Denied)));
}

#[tokio::test]
async fn a_grant_ends_with_its_session() {
    let (setup, client, session) = setup().await;
    let identity = &setup.identity;
    let start = begin(&setup, &client).await;
    assert!(
        identity
            .devices
            .answer_device_question(&start.user_code, true, &session, &setup.user, at(1))
            .await
            .unwrap()
    );
    assert!(identity.sessions.end_user_session(&setup.user.sub, &session.sid, at(2)).await.unwrap());
    let poll = identity.devices.redeem_device_code(&start.device_code, &client, None, at(3)).await;
    assert!(matches!(poll, Err(DeviceError::Grant(GrantError::Revoked))));
}

#[tokio::test]
async fn scopes_that_the_client_lacks_are_rejected() {
    let (setup, client, _) = setup().await;
    let error = setup
        .identity
        .devices
        .begin_device_authorization(&client, Some("openid email"), at(0))
        .await
        .unwrap();
    assert_eq!(error.unwrap_err().error, ErrorCode::InvalidScope);
    let system =
        setup.identity.devices.begin_device_authorization(&client, Some("system/*.rs"), at(0)).await.unwrap();
    assert_eq!(system.unwrap_err().error, ErrorCode::InvalidScope);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_code_is_redeemed_once_in_64_concurrent_requests() {
    let (setup, client, session) = setup().await;
    let start = begin(&setup, &client).await;
    assert!(
        setup
            .identity
            .devices
            .answer_device_question(&start.user_code, true, &session, &setup.user, at(1))
            .await
            .unwrap()
    );
    let setup = std::sync::Arc::new(setup);
    let tries = (0..64).map(|_| {
        let (setup, client, code) = (setup.clone(), client.clone(), start.device_code.clone());
        tokio::spawn(async move {
            setup.identity.devices.redeem_device_code(&code, &client, None, at(2)).await.is_ok()
        })
    });
    let mut token_count = 0;
    for tried in tries.collect::<Vec<_>>() {
        token_count += usize::from(tried.await.unwrap());
    }
    assert_eq!(token_count, 1);
}
