//! The ways besides the password in which a user can sign in: listed, removed, and removed with a reset.

use trefoil_identity::directory::{ChangeError, OtherMethods};
use trefoil_identity::provider::ExternalUser;
use trefoil_identity::sign_in_methods::MethodsToRemove;
use trefoil_identity::user::Claims;

use crate::support::{World, at};

fn external() -> ExternalUser {
    let issuer = "https://idp.example".to_owned();
    ExternalUser { issuer, sub: "ash".to_owned(), claims: Claims::default() }
}

/// A user with recovery codes and a linked account; returns the recovery codes.
async fn with_methods(world: &World) -> Vec<String> {
    let (identity, user) = (&world.identity, &world.user);
    identity.link(user, "Clinic", &external(), at(0)).await.unwrap();
    identity.new_recovery_codes(&user.sub, at(0)).await.unwrap()
}

#[tokio::test]
async fn a_reset_removes_the_other_ways_to_sign_in_unless_told_otherwise() {
    for (others, left) in [(OtherMethods::Remove, 0), (OtherMethods::Keep, 1)] {
        let world = World::new().await;
        let identity = &world.identity;
        let codes = with_methods(&world).await;
        let sub = &world.user.sub;
        let changed = identity.reset_password(sub, None, "a hash", others, at(1)).await.unwrap();
        assert_eq!(changed.user.password.as_deref(), Some("a hash"));
        assert_eq!(changed.user.epoch, world.user.epoch + 1);
        let methods = identity.sign_in_methods(sub, at(1)).await.unwrap();
        assert_eq!((methods.recovery_codes, methods.linked_accounts.len()), (10 * left, left));
        let user = Some(&changed.user);
        assert_eq!(identity.spend_recovery_code(user, &codes[0], at(1)).await.unwrap(), left == 1);
        let linked = identity.linked_user(&external(), at(1)).await.unwrap();
        assert_eq!(linked.is_some(), left == 1);
    }
}

#[tokio::test]
async fn ways_to_sign_in_are_removed_one_by_one_and_together() {
    let world = World::new().await;
    let (identity, sub) = (&world.identity, &world.user.sub);
    with_methods(&world).await;
    let link = identity.links_of(sub, at(0)).await.unwrap().remove(0);
    let remove = |methods: MethodsToRemove| async move {
        identity.remove_sign_in_methods(sub, &methods, at(1)).await.unwrap()
    };
    assert!(!remove(MethodsToRemove::Passkey("unknown".to_owned())).await);
    assert!(remove(MethodsToRemove::RecoveryCodes).await);
    assert!(!remove(MethodsToRemove::RecoveryCodes).await);
    // An administrator removes the last way too.
    assert!(remove(MethodsToRemove::LinkedAccount(link.id.clone())).await);
    assert!(!remove(MethodsToRemove::LinkedAccount(link.id)).await);
    with_methods(&world).await;
    assert!(remove(MethodsToRemove::All).await);
    assert_eq!(identity.sign_in_methods(sub, at(1)).await.unwrap(), Default::default());
    // Each removal ended all sessions and tokens.
    let user = identity.user(sub, at(1)).await.unwrap().unwrap();
    assert_eq!(user.epoch, world.user.epoch + 3);
    let missing = identity.remove_sign_in_methods("nobody", &MethodsToRemove::All, at(1)).await;
    assert!(matches!(missing, Err(ChangeError::Unknown)));
}
