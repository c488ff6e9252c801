//! Accounts at external providers: who may be linked to whom.

use trefoil_identity::provider::{ExternalUser, LinkError, Provider};
use trefoil_identity::user::{Claims, User};

use crate::support::{World, at};

fn provider() -> Provider {
    Provider {
        name: "Clinic".to_owned(),
        issuer: "https://idp.example".to_owned(),
        authorization_endpoint: "https://idp.example/authorize".to_owned(),
        token_endpoint: "https://idp.example/token".to_owned(),
        jwks_uri: "https://idp.example/jwks".to_owned(),
        client_id: "trefoil".to_owned(),
        client_secret: None,
        scopes: "openid".to_owned(),
        google: false,
        create_users: false,
        link_by_email: false,
    }
}

fn external(sub: &str, email: &str, verified: Option<bool>) -> ExternalUser {
    let claims = Claims { email: Some(email.to_owned()), email_verified: verified, ..Claims::default() };
    ExternalUser { issuer: "https://idp.example".to_owned(), sub: sub.to_owned(), claims }
}

async fn with_email(world: &World, verified: bool) {
    let change = |user: &mut User| {
        user.claims.email = Some("Ada@mail.example".to_owned());
        user.claims.email_verified = Some(verified);
    };
    world.identity.change_user("ada", at(0), change).await.unwrap();
}

#[tokio::test]
async fn switches_are_off_by_default() {
    let world = World::new().await;
    with_email(&world, true).await;
    let ash = external("ash", "ada@mail.example", Some(true));
    assert!(world.identity.admit(&provider(), &ash, at(0)).await.unwrap().is_none());
    assert!(world.identity.linked_user(&ash, at(0)).await.unwrap().is_none());
}

#[tokio::test]
async fn an_email_links_only_where_both_sides_verified_it_and_for_no_administrator() {
    let by_email = Provider { link_by_email: true, ..provider() };
    let address = "ada@mail.example";
    for (ours, theirs, administrator, linked) in [
        (true, Some(true), false, true),
        (true, Some(false), false, false),
        (true, None, false, false),
        (false, Some(true), false, false),
        (true, Some(true), true, false),
    ] {
        let world = World::new().await;
        with_email(&world, ours).await;
        let set = |user: &mut User| user.administrator = administrator;
        world.identity.change_user("ada", at(0), set).await.unwrap();
        let ash = external("ash", address, theirs);
        let admitted = world.identity.admit(&by_email, &ash, at(0)).await.unwrap();
        assert_eq!(admitted.map(|user| user.username).as_deref(), linked.then_some("ada"));
        assert_eq!(world.identity.linked_user(&ash, at(0)).await.unwrap().is_some(), linked);
    }
}

#[tokio::test]
async fn an_email_that_another_provider_verified_links_nobody() {
    let lenient = Provider {
        name: "Lenient".to_owned(),
        issuer: "https://lenient.example".to_owned(),
        create_users: true,
        ..provider()
    };
    let by_email = Provider { link_by_email: true, ..provider() };
    let world = World::new().await;
    // Anybody gets any address from the lenient provider, and waits for its owner.
    let claimed = ExternalUser {
        issuer: lenient.issuer.clone(),
        ..external("mallory", "ash@mail.example", Some(true))
    };
    let user = world.identity.admit(&lenient, &claimed, at(0)).await.unwrap().unwrap();
    let owner = external("ash", "ash@mail.example", Some(true));
    assert!(world.identity.admit(&by_email, &owner, at(1)).await.unwrap().is_none());
    // An administrator vouches for it.
    let vouch = |user: &mut User| user.email_verified_by = None;
    world.identity.change_user(&user.username, at(2), vouch).await.unwrap();
    let admitted = world.identity.admit(&by_email, &owner, at(3)).await.unwrap();
    assert_eq!(admitted.map(|user| user.sub), Some(user.sub));
}

#[tokio::test]
async fn an_account_is_one_users_and_the_only_way_in_is_kept() {
    let world = World::new().await;
    let identity = &world.identity;
    let ash = external("ash", "ash@mail.example", None);
    identity.link(&world.user, "Clinic", &ash, at(0)).await.unwrap();
    identity.link(&world.user, "Clinic", &ash, at(1)).await.unwrap();
    let links = identity.links_of(&world.user.sub, at(1)).await.unwrap();
    assert_eq!((links.len(), links[0].label.as_str()), (1, "ash@mail.example"));

    let other = User { username: "grace".to_owned(), ..world.user.clone() };
    let other = identity.add_user(other, at(1)).await.unwrap();
    assert!(matches!(identity.link(&other, "Clinic", &ash, at(1)).await, Err(LinkError::Taken)));
    assert!(!identity.unlink(&other, &links[0].id, at(1)).await.unwrap());

    let only = identity.unlink(&world.user, &links[0].id, at(1)).await;
    assert!(matches!(only, Err(LinkError::OnlyWay)), "ada has no password");
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = identity.change_user("ada", at(1), set).await.unwrap();
    assert!(identity.unlink(&user, &links[0].id, at(1)).await.unwrap());
    assert!(identity.linked_user(&ash, at(1)).await.unwrap().is_none());

    // A deleted user leaves nothing behind that would keep the account from another.
    identity.link(&user, "Clinic", &ash, at(2)).await.unwrap();
    identity.delete_user("ada", at(2)).await.unwrap();
    identity.link(&other, "Clinic", &ash, at(3)).await.unwrap();
    assert_eq!(identity.linked_user(&ash, at(3)).await.unwrap().unwrap().username, "grace");
}

#[tokio::test]
async fn a_waiting_account_is_linked_once_and_in_its_browser() {
    let world = World::new().await;
    let identity = &world.identity;
    let ash = external("ash", "ash@mail.example", None);
    let id = identity.keep_for_linking("Clinic", ash.clone(), "browser", at(0)).await.unwrap();
    assert!(identity.kept_for_linking(&id, "another", at(1)).await.unwrap().is_none());
    identity.link_kept(&id, "another", &world.user, at(1)).await.unwrap();
    assert!(identity.linked_user(&ash, at(1)).await.unwrap().is_none());
    let kept = identity.kept_for_linking(&id, "browser", at(1)).await.unwrap();
    assert_eq!(kept, Some(("Clinic".to_owned(), "ash@mail.example".to_owned())));
    identity.link_kept(&id, "browser", &world.user, at(1)).await.unwrap();
    assert!(identity.linked_user(&ash, at(1)).await.unwrap().is_some());
    assert!(identity.kept_for_linking(&id, "browser", at(1)).await.unwrap().is_none());
}
