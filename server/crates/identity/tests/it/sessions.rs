//! Tests that the sessions of a user are listed and ended one by one.

use trefoil_identity::sign_in::session::{SessionOrigin, SignInProof};

use crate::support::{Setup, at};

#[tokio::test]
async fn sessions_are_listed_and_ended_one_by_one() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let place = |agent: &str| SessionOrigin { address: "192.0.2.1".to_owned(), agent: agent.to_owned() };
    let begin = async |agent: &str, replaced: Option<&str>, second| {
        identity
            .sessions
            .begin_session(&setup.user, &SignInProof::password(), place(agent), replaced, at(second))
            .await
            .unwrap()
    };
    let desk = begin("desk", None, 0).await;
    let phone = begin("phone", None, 1).await;
    let agents = async |second| -> Vec<String> {
        let sessions = identity.sessions.user_sessions(&setup.user, at(second)).await.unwrap();
        sessions.into_iter().map(|session| session.origin.agent).collect()
    };
    assert_eq!(agents(2).await, ["phone", "desk"]);

    // A second sign-in in the same browser replaces the session and keeps its id.
    let desk = begin("desk again", Some(&desk), 3).await;
    assert_eq!(agents(4).await, ["desk again", "phone"]);

    let (session, _) = identity.sessions.active_session(&phone, at(5)).await.unwrap().unwrap();
    assert!(!identity.sessions.end_user_session("somebody else", &session.sid, at(5)).await.unwrap());
    assert!(identity.sessions.end_user_session(&setup.user.sub, &session.sid, at(5)).await.unwrap());
    assert!(!identity.sessions.end_user_session(&setup.user.sub, &session.sid, at(5)).await.unwrap());
    assert!(identity.sessions.active_session(&phone, at(6)).await.unwrap().is_none());
    assert!(identity.sessions.active_session(&desk, at(6)).await.unwrap().is_some());
    assert_eq!(agents(6).await, ["desk again"]);

    identity.users.sign_out_everywhere("ada", at(7)).await.unwrap();
    let user = identity.users.active_user(&setup.user.sub, at(8)).await.unwrap().unwrap();
    assert!(identity.sessions.user_sessions(&user, at(8)).await.unwrap().is_empty());
}

#[tokio::test]
async fn long_user_agents_are_truncated() {
    let setup = Setup::new().await;
    let place = SessionOrigin { address: String::new(), agent: "x".repeat(10_000) };
    setup
        .identity
        .sessions
        .begin_session(&setup.user, &SignInProof::password(), place, None, at(0))
        .await
        .unwrap();
    let sessions = setup.identity.sessions.user_sessions(&setup.user, at(0)).await.unwrap();
    assert_eq!(sessions[0].origin.agent.len(), 256);
}
