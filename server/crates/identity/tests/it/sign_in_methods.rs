//! Tests that sign-in methods other than the password are listed, removed, and removed with a password reset.

use trefoil_identity::directory::user_directory::{ChangeUserError, OtherMethods};
use trefoil_identity::model::provider::ExternalUser;
use trefoil_identity::model::user::StandardClaims;
use trefoil_identity::sign_in::linked_account::LinkedUser;
use trefoil_identity::sign_in::sign_in_methods::{MethodsToRemove, SignInMethods};

use crate::support::{Setup, at};

fn external() -> ExternalUser {
    let issuer = "https://idp.example".to_owned();
    ExternalUser {
        issuer,
        sub: "ash".to_owned(),
        claims: StandardClaims::default(),
        rights: Default::default(),
    }
}

/// Adds recovery codes and a linked account to the user of the test. Returns the recovery codes.
async fn with_methods(setup: &Setup) -> Vec<String> {
    let (identity, user) = (&setup.identity, &setup.user);
    identity.sign_in.link_account(user, "Clinic", &external(), at(0)).await.unwrap();
    identity.sign_in.replace_recovery_codes(&user.sub, at(0)).await.unwrap()
}

#[tokio::test]
async fn a_password_reset_removes_the_other_sign_in_methods_unless_they_are_kept() {
    for (others, left) in [(OtherMethods::RemoveAdded, 0), (OtherMethods::Keep, 1)] {
        let setup = Setup::new().await;
        let identity = &setup.identity;
        let codes = with_methods(&setup).await;
        let sub = &setup.user.sub;
        let result = identity.users.reset_password(sub, None, "a hash", others, at(1)).await.unwrap();
        assert_eq!(result.user.password.as_deref(), Some("a hash"));
        assert_eq!(result.user.epoch, setup.user.epoch + 1);
        let methods = identity.sign_in.sign_in_methods(sub, at(1)).await.unwrap();
        assert_eq!((methods.recovery_codes, methods.linked_accounts.len()), (10 * left, left));
        let user = Some(&result.user);
        assert_eq!(identity.sign_in.redeem_recovery_code(user, &codes[0], at(1)).await.unwrap(), left == 1);
        let linked = identity.sign_in.linked_user(&external(), at(1)).await.unwrap();
        assert_eq!(matches!(linked, LinkedUser::Active(_)), left == 1);
    }
}

#[tokio::test]
async fn sign_in_methods_are_removed_one_by_one_and_together() {
    let setup = Setup::new().await;
    let (identity, sub) = (&setup.identity, &setup.user.sub);
    with_methods(&setup).await;
    let link = identity.sign_in.linked_accounts(sub, at(0)).await.unwrap().remove(0);
    let remove = |methods: MethodsToRemove| async move {
        identity.sign_in.remove_sign_in_methods(sub, &methods, at(1)).await.unwrap()
    };
    assert!(!remove(MethodsToRemove::Passkey("unknown".to_owned())).await);
    assert!(remove(MethodsToRemove::RecoveryCodes).await);
    assert!(!remove(MethodsToRemove::RecoveryCodes).await);
    // An administrator can remove the last sign-in method.
    assert!(remove(MethodsToRemove::LinkedAccount(link.id.clone())).await);
    assert!(!remove(MethodsToRemove::LinkedAccount(link.id)).await);
    with_methods(&setup).await;
    assert!(remove(MethodsToRemove::All).await);
    let methods = identity.sign_in.sign_in_methods(sub, at(1)).await.unwrap();
    assert_eq!(methods.removed_accounts.len(), 1, "the account stays known");
    assert_eq!(SignInMethods { removed_accounts: Vec::new(), ..methods }, SignInMethods::default());
    // Each removal has ended all sessions and tokens.
    let user = identity.users.active_user(sub, at(1)).await.unwrap().unwrap();
    assert_eq!(user.epoch, setup.user.epoch + 3);
    let missing = identity.sign_in.remove_sign_in_methods("nobody", &MethodsToRemove::All, at(1)).await;
    assert!(matches!(missing, Err(ChangeUserError::Unknown)));
}
