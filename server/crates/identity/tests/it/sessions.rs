//! Sessions of a user: listed, and ended one by one.

use trefoil_identity::session::{Place, Proof};

use crate::support::{World, at};

#[tokio::test]
async fn sessions_are_listed_and_ended_one_by_one() {
    let world = World::new().await;
    let identity = &world.identity;
    let place = |agent: &str| Place { address: "192.0.2.1".to_owned(), agent: agent.to_owned() };
    let begin = async |agent: &str, replaced: Option<&str>, second| {
        identity
            .begin_session(&world.user, &Proof::password(), place(agent), replaced, at(second))
            .await
            .unwrap()
    };
    let desk = begin("desk", None, 0).await;
    let phone = begin("phone", None, 1).await;
    let agents = async |second| -> Vec<String> {
        let sessions = identity.sessions_of(&world.user, at(second)).await.unwrap();
        sessions.into_iter().map(|session| session.place.agent).collect()
    };
    assert_eq!(agents(2).await, ["phone", "desk"]);

    // To sign in again in the same browser is the same session.
    let desk = begin("desk again", Some(&desk), 3).await;
    assert_eq!(agents(4).await, ["desk again", "phone"]);

    let (session, _) = identity.session(&phone, at(5)).await.unwrap().unwrap();
    assert!(!identity.end_session_of("somebody else", &session.sid, at(5)).await.unwrap());
    assert!(identity.end_session_of(&world.user.sub, &session.sid, at(5)).await.unwrap());
    assert!(!identity.end_session_of(&world.user.sub, &session.sid, at(5)).await.unwrap());
    assert!(identity.session(&phone, at(6)).await.unwrap().is_none());
    assert!(identity.session(&desk, at(6)).await.unwrap().is_some());
    assert_eq!(agents(6).await, ["desk again"]);

    identity.sign_out_everywhere("ada", at(7)).await.unwrap();
    let user = identity.user(&world.user.sub, at(8)).await.unwrap().unwrap();
    assert!(identity.sessions_of(&user, at(8)).await.unwrap().is_empty());
}

#[tokio::test]
async fn long_names_of_browsers_are_cut_off() {
    let world = World::new().await;
    let place = Place { address: String::new(), agent: "x".repeat(10_000) };
    world.identity.begin_session(&world.user, &Proof::password(), place, None, at(0)).await.unwrap();
    let sessions = world.identity.sessions_of(&world.user, at(0)).await.unwrap();
    assert_eq!(sessions[0].place.agent.len(), 256);
}
