//! A one-time link sets a password once, on all nodes, and each event that must end it ends it.

use std::sync::Arc;

use jiff::SignedDuration;
use store::Store;
use store::shared_memory::{SharedMemory, StoppingLink, StoreStep};
use trefoil_identity::directory::user_directory::{AccountsOfDeleted, OtherMethods};
use trefoil_identity::model::provider::{ExternalUser, IdentityProvider};
use trefoil_identity::model::user::User;
use trefoil_identity::sign_in::one_time_link::OneTimeLinkError;
use trefoil_identity::{Identity, SystemRandom, end_all_before};

use crate::links::provider;
use crate::support::{Setup, at};

const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn ada(identity: &Identity) -> User {
    identity.users.user_by_name("ada", at(0)).await.unwrap().unwrap()
}

/// Makes a link for the user and returns its secret.
async fn link(identity: &Identity) -> String {
    identity.sign_in.make_one_time_link(&ada(identity).await, DAY, at(0)).await.unwrap().secret
}

async fn is_live(identity: &Identity, secret: &str, second: i64) -> bool {
    identity.sign_in.user_of_one_time_link(secret, at(second)).await.unwrap().is_some()
}

#[tokio::test]
async fn a_link_sets_a_password_once_and_ends_sessions_and_tokens() {
    let setup = Setup::new().await;
    let (identity, before) = (&setup.identity, setup.user.epoch);
    let secret = link(identity).await;
    assert_eq!(secret.len(), 43, "256 bits");
    for _ in 0..3 {
        assert!(is_live(identity, &secret, 1).await, "looking at a link does not use it");
    }
    assert!(!is_live(identity, &secret[1..], 1).await && !is_live(identity, "", 1).await);
    let user = identity.sign_in.redeem_one_time_link(&secret, "$hash", at(1)).await.unwrap().unwrap();
    assert_eq!((user.password.as_deref(), user.epoch > before), (Some("$hash"), true));
    assert_eq!(ada(identity).await.password.as_deref(), Some("$hash"));
    assert!(!is_live(identity, &secret, 1).await);
    assert!(identity.sign_in.redeem_one_time_link(&secret, "$other", at(1)).await.unwrap().is_none());
    assert_eq!(ada(identity).await.password.as_deref(), Some("$hash"));
}

#[tokio::test]
async fn of_two_nodes_one_uses_a_link() {
    let shared = SharedMemory::default();
    let pausing = Arc::<StoppingLink>::default();
    let setup = Setup::on(Store::shared_memory(&shared, pausing.clone())).await;
    let other = Store::shared_memory(&shared, Arc::<StoppingLink>::default());
    let other =
        Identity::open(other, Arc::new(SystemRandom), "https://as.example", false, at(0)).await.unwrap();
    let secret = link(&setup.identity).await;
    // One node has checked the link when the other one uses it.
    let stop = pausing.stop_at(StoreStep::Transaction, 0);
    let (late, ()) =
        tokio::join!(setup.identity.sign_in.redeem_one_time_link(&secret, "$late", at(1)), async {
            stop.reached().await;
            assert!(other.sign_in.redeem_one_time_link(&secret, "$first", at(1)).await.unwrap().is_some());
            stop.release();
        });
    assert!(late.unwrap().is_none(), "the link was used twice");
    assert_eq!(ada(&other).await.password.as_deref(), Some("$first"));
}

#[tokio::test]
async fn each_event_that_must_end_a_link_ends_it() {
    type Event = (&'static str, fn(&Setup) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>);
    let events: [Event; 9] = [
        ("a newer link", |setup| Box::pin(async { drop(link(&setup.identity).await) })),
        ("disabled and enabled again", |setup| {
            Box::pin(async {
                let users = &setup.identity.users;
                let disable = |user: &mut User| (user.disabled, user.epoch) = (true, user.epoch + 1);
                users.change_user("ada", at(1), disable).await.unwrap();
                users.change_user("ada", at(1), |user| user.disabled = false).await.unwrap();
            })
        }),
        ("disabled", |setup| {
            Box::pin(async {
                let users = &setup.identity.users;
                users.change_user("ada", at(1), |user| user.disabled = true).await.map(drop).unwrap();
            })
        }),
        ("deleted", |setup| {
            Box::pin(async {
                setup.identity.users.delete_user("ada", AccountsOfDeleted::Remember, at(1)).await.unwrap();
            })
        }),
        ("a new password", |setup| {
            Box::pin(async {
                let users = &setup.identity.users;
                let set = users.reset_password(&setup.user.sub, None, "$new", OtherMethods::Keep, at(1));
                set.await.map(drop).unwrap();
            })
        }),
        ("a sign-out everywhere", |setup| {
            Box::pin(async { setup.identity.users.sign_out_everywhere("ada", at(1)).await.unwrap() })
        }),
        ("the user became an administrator", |setup| {
            Box::pin(async {
                let users = &setup.identity.users;
                users.change_user("ada", at(1), |user| user.administrator = true).await.map(drop).unwrap();
            })
        }),
        ("a provider without own methods", |setup| {
            Box::pin(async {
                let provider = IdentityProvider { own_methods: false, ..provider() };
                let external = ExternalUser {
                    issuer: provider.issuer.clone(),
                    sub: "ada".to_owned(),
                    claims: Default::default(),
                    rights: Default::default(),
                };
                let sign_in = &setup.identity.sign_in;
                sign_in.link_account(&setup.user, &provider.name, &external, at(1)).await.unwrap();
                setup.identity.provider_rules.configure(vec![provider]);
            })
        }),
        ("a database that went back in time", |setup| {
            Box::pin(async { end_all_before(setup.store.clone(), at(1)).await.unwrap() })
        }),
    ];
    for (event, happen) in events {
        let setup = Setup::new().await;
        let secret = link(&setup.identity).await;
        assert!(is_live(&setup.identity, &secret, 1).await, "{event}");
        happen(&setup).await;
        assert!(!is_live(&setup.identity, &secret, 1).await, "the link outlived: {event}");
        let redeemed = setup.identity.sign_in.redeem_one_time_link(&secret, "$hash", at(1)).await.unwrap();
        assert!(redeemed.is_none(), "the link was used after: {event}");
    }
    let setup = Setup::new().await;
    let secret = link(&setup.identity).await;
    let day = DAY.as_secs();
    assert!(
        is_live(&setup.identity, &secret, day - 1).await && !is_live(&setup.identity, &secret, day).await
    );
}

#[tokio::test]
async fn who_may_not_sign_in_by_password_gets_no_link() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    identity.users.change_user("ada", at(0), |user| user.disabled = true).await.unwrap();
    let result = identity.sign_in.make_one_time_link(&ada(identity).await, DAY, at(0)).await;
    assert!(matches!(result, Err(OneTimeLinkError::Disabled)), "{result:?}");
}
