//! Tests of linked accounts at external providers.

use std::sync::Barrier;

use trefoil_identity::directory::user_directory::{AccountsOfDeleted, OtherMethods};
use trefoil_identity::model::provider::{ExternalUser, IdentityProvider, ProviderClientAuth};
use trefoil_identity::model::user::{StandardClaims, User};
use trefoil_identity::sign_in::linked_account::{LinkError, LinkedUser};
use trefoil_identity::sign_in::sign_in_methods::MethodsToRemove;

use crate::support::{Setup, at};

pub fn provider() -> IdentityProvider {
    IdentityProvider {
        name: "Clinic".to_owned(),
        issuer: "https://idp.example".to_owned(),
        endpoints: None,
        client_id: "trefoil".to_owned(),
        client_auth: ProviderClientAuth::None,
        scopes: "openid".to_owned(),
        google: false,
        create_users: false,
        link_by_email: false,
        own_methods: true,
        rights_max_age: jiff::SignedDuration::from_hours(24),
        mapping: Default::default(),
    }
}

fn external(sub: &str, email: &str, verified: Option<bool>) -> ExternalUser {
    let claims = StandardClaims {
        email: Some(email.to_owned()),
        email_verified: verified,
        ..StandardClaims::default()
    };
    ExternalUser {
        issuer: "https://idp.example".to_owned(),
        sub: sub.to_owned(),
        claims,
        rights: Default::default(),
    }
}

/// Returns the active linked user, if there is one.
fn active(linked: LinkedUser) -> Option<User> {
    match linked {
        LinkedUser::Active(user) => Some(*user),
        LinkedUser::None | LinkedUser::Refused(_) => None,
    }
}

async fn with_email(setup: &Setup, verified: bool) {
    let change = |user: &mut User| {
        user.claims.email = Some("Ada@mail.example".to_owned());
        user.claims.email_verified = Some(verified);
    };
    setup.identity.users.change_user("ada", at(0), change).await.unwrap();
}

#[tokio::test]
async fn no_user_is_linked_or_created_by_default() {
    let setup = Setup::new().await;
    with_email(&setup, true).await;
    let ash = external("ash", "ada@mail.example", Some(true));
    assert!(
        active(setup.identity.sign_in.admit_external_user(&provider(), &ash, at(0)).await.unwrap()).is_none()
    );
    assert!(active(setup.identity.sign_in.linked_user(&ash, at(0)).await.unwrap()).is_none());
}

#[tokio::test]
async fn an_email_links_only_if_both_sides_verified_it_and_never_an_administrator() {
    let by_email = IdentityProvider { link_by_email: true, mapping: Default::default(), ..provider() };
    let address = "ada@mail.example";
    for (ours, theirs, administrator, linked) in [
        (true, Some(true), false, true),
        (true, Some(false), false, false),
        (true, None, false, false),
        (false, Some(true), false, false),
        (true, Some(true), true, false),
    ] {
        let setup = Setup::new().await;
        with_email(&setup, ours).await;
        let set = |user: &mut User| user.administrator = administrator;
        setup.identity.users.change_user("ada", at(0), set).await.unwrap();
        let ash = external("ash", address, theirs);
        let admitted =
            active(setup.identity.sign_in.admit_external_user(&by_email, &ash, at(0)).await.unwrap());
        assert_eq!(admitted.map(|user| user.username).as_deref(), linked.then_some("ada"));
        assert_eq!(active(setup.identity.sign_in.linked_user(&ash, at(0)).await.unwrap()).is_some(), linked);
    }
}

#[tokio::test]
async fn an_email_verified_by_another_provider_does_not_link() {
    let lenient = IdentityProvider {
        name: "Lenient".to_owned(),
        issuer: "https://lenient.example".to_owned(),
        create_users: true,
        ..provider()
    };
    let by_email = IdentityProvider { link_by_email: true, mapping: Default::default(), ..provider() };
    let setup = Setup::new().await;
    // The provider `lenient` lets anyone claim an e-mail address.
    let claimed = ExternalUser {
        issuer: lenient.issuer.clone(),
        ..external("mallory", "ash@mail.example", Some(true))
    };
    let user =
        active(setup.identity.sign_in.admit_external_user(&lenient, &claimed, at(0)).await.unwrap()).unwrap();
    let owner = external("ash", "ash@mail.example", Some(true));
    assert!(
        active(setup.identity.sign_in.admit_external_user(&by_email, &owner, at(1)).await.unwrap()).is_none()
    );
    // An administrator verifies the address. The account that the user was created for is a sign-in method.
    let verify = |user: &mut User| user.email_verified_by = None;
    setup.identity.users.change_user(&user.username, at(2), verify).await.unwrap();
    let sign_in = &setup.identity.sign_in;
    assert!(active(sign_in.admit_external_user(&by_email, &owner, at(3)).await.unwrap()).is_none());
    sign_in.remove_sign_in_methods(&user.sub, &MethodsToRemove::All, at(4)).await.unwrap();
    let admitted = active(sign_in.admit_external_user(&by_email, &owner, at(5)).await.unwrap());
    assert_eq!(admitted.map(|user| user.sub), Some(user.sub));
}

#[tokio::test]
async fn a_second_account_of_the_issuer_never_becomes_the_user_of_the_first() {
    let admits = IdentityProvider {
        link_by_email: true,
        mapping: Default::default(),
        create_users: true,
        ..provider()
    };
    let setup = Setup::new().await;
    let sign_in = &setup.identity.sign_in;
    let first = external("first", "ash@mail.example", Some(true));
    let user = active(sign_in.admit_external_user(&admits, &first, at(0)).await.unwrap()).unwrap();
    let second = external("second", "ASH@mail.example", Some(true));
    let other = active(sign_in.admit_external_user(&admits, &second, at(1)).await.unwrap()).unwrap();
    assert_ne!(other.sub, user.sub);
    let only_links = IdentityProvider { create_users: false, ..admits };
    let third = external("third", "ash@mail.example", Some(true));
    assert!(active(sign_in.admit_external_user(&only_links, &third, at(2)).await.unwrap()).is_none());
}

#[tokio::test]
async fn a_user_with_a_sign_in_method_confirms_a_link_by_email() {
    let by_email = IdentityProvider {
        link_by_email: true,
        mapping: Default::default(),
        create_users: true,
        ..provider()
    };
    let ash = external("ash", "ada@mail.example", Some(true));
    let with_password = |user: &mut User| user.password = Some("a hash".to_owned());

    let setup = Setup::new().await;
    with_email(&setup, true).await;
    setup.identity.users.change_user("ada", at(0), with_password).await.unwrap();
    let sign_in = &setup.identity.sign_in;
    let before = setup.identity.users.all_users(at(1)).await.unwrap().len();
    assert!(active(sign_in.admit_external_user(&by_email, &ash, at(1)).await.unwrap()).is_none());
    assert_eq!(
        setup.identity.users.all_users(at(1)).await.unwrap().len(),
        before,
        "no second user is created"
    );

    // A link that was made before a password reset does not return by itself.
    let setup = Setup::new().await;
    with_email(&setup, true).await;
    let sign_in = &setup.identity.sign_in;
    assert!(active(sign_in.admit_external_user(&by_email, &ash, at(1)).await.unwrap()).is_some());
    let sub = &setup.user.sub;
    setup.identity.users.reset_password(sub, None, "a hash", OtherMethods::RemoveAdded, at(2)).await.unwrap();
    assert!(active(sign_in.admit_external_user(&by_email, &ash, at(3)).await.unwrap()).is_none());

    // Neither does an account of another issuer confirm itself.
    let setup = Setup::new().await;
    with_email(&setup, true).await;
    let sign_in = &setup.identity.sign_in;
    let elsewhere = ExternalUser { issuer: "https://other.example".to_owned(), ..ash.clone() };
    sign_in.link_account(&setup.user, "Other", &elsewhere, at(1)).await.unwrap();
    assert!(active(sign_in.admit_external_user(&by_email, &ash, at(2)).await.unwrap()).is_none());
}

#[tokio::test]
async fn the_issuer_that_linked_a_user_renews_the_email() {
    let by_email = IdentityProvider { link_by_email: true, mapping: Default::default(), ..provider() };
    let setup = Setup::new().await;
    with_email(&setup, true).await;
    let users = &setup.identity.users;
    let sign_in = async |email: &str, verified, second| {
        let ash = external("ash", email, verified);
        active(setup.identity.sign_in.admit_external_user(&by_email, &ash, at(second)).await.unwrap())
            .unwrap()
    };
    sign_in("ada@mail.example", Some(true), 0).await;
    let renewed = sign_in("ada@new.example", Some(false), 1).await;
    assert_eq!(renewed.claims.email.as_deref(), Some("ada@new.example"));
    assert_eq!(renewed.claims.email_verified, Some(false));
    let names_with = async |email: &str| -> Vec<String> {
        let matches = users.users_by_email(email, at(2)).await.unwrap();
        matches.into_iter().map(|user| user.username).collect()
    };
    assert_eq!(
        (names_with("ada@mail.example").await, names_with("ADA@new.example").await),
        (vec![], vec!["ada".to_owned()])
    );

    // An address that an administrator set is not replaced.
    let set = |user: &mut User| {
        user.claims.email = Some("ada@office.example".to_owned());
        user.email_verified_by = None;
    };
    users.change_user("ada", at(3), set).await.unwrap();
    let user = sign_in("ada@new.example", Some(true), 4).await;
    assert_eq!(user.claims.email.as_deref(), Some("ada@office.example"));
    users.delete_user("ada", AccountsOfDeleted::Forget, at(5)).await.unwrap();
    assert!(names_with("ada@office.example").await.is_empty());
}

#[tokio::test]
async fn an_account_has_one_user_and_the_last_way_to_sign_in_is_kept() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let ash = external("ash", "ash@mail.example", None);
    identity.sign_in.link_account(&setup.user, "Clinic", &ash, at(0)).await.unwrap();
    identity.sign_in.link_account(&setup.user, "Clinic", &ash, at(1)).await.unwrap();
    let links = identity.sign_in.linked_accounts(&setup.user.sub, at(1)).await.unwrap();
    assert_eq!((links.len(), links[0].label.as_str()), (1, "ash@mail.example"));

    let other = User { username: "grace".to_owned(), ..setup.user.clone() };
    let other = identity.users.add_user(other, at(1)).await.unwrap();
    assert!(matches!(
        identity.sign_in.link_account(&other, "Clinic", &ash, at(1)).await,
        Err(LinkError::Taken)
    ));
    assert!(!identity.sign_in.unlink_account(&other, &links[0].id, at(1)).await.unwrap());

    let only = identity.sign_in.unlink_account(&setup.user, &links[0].id, at(1)).await;
    assert!(matches!(only, Err(LinkError::OnlyWay)), "ada has no password");
    let set = |user: &mut User| user.password = Some("a hash".to_owned());
    let user = identity.users.change_user("ada", at(1), set).await.unwrap();
    assert!(identity.sign_in.unlink_account(&user, &links[0].id, at(1)).await.unwrap());
    assert!(active(identity.sign_in.linked_user(&ash, at(1)).await.unwrap()).is_none());

    // The account stays known: another user cannot take it, and its own user can link it again.
    let refusal = identity.sign_in.linked_user(&ash, at(1)).await.unwrap();
    assert!(matches!(refusal, LinkedUser::Refused(_)), "{refusal:?}");
    assert!(matches!(
        identity.sign_in.link_account(&other, "Clinic", &ash, at(1)).await,
        Err(LinkError::Taken)
    ));

    // When the user is deleted and the account forgotten, it can be linked to another user.
    identity.sign_in.link_account(&user, "Clinic", &ash, at(2)).await.unwrap();
    identity.users.delete_user("ada", AccountsOfDeleted::Forget, at(2)).await.unwrap();
    identity.sign_in.link_account(&other, "Clinic", &ash, at(3)).await.unwrap();
    assert_eq!(active(identity.sign_in.linked_user(&ash, at(3)).await.unwrap()).unwrap().username, "grace");
}

/// Each way in which an account can lose its user, and whether the account comes from the time before origins
/// were stored. What happens at the next sign-in there, with all settings that admit accounts.
#[tokio::test]
async fn a_known_account_never_becomes_a_second_user() {
    let admits = IdentityProvider { create_users: true, link_by_email: true, ..provider() };
    let ash = external("ash", "ash@mail.example", Some(true));
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Ending {
        None,
        Reset,
        RemoveAll,
        RemoveOne,
        Unlink,
        Disable,
        DisableAndRemoveAll,
        Delete,
        ForgetAccount,
        DeleteAndForget,
        DeleteAndForgetLater,
    }
    use Ending::*;
    let all = [
        (None, "same"),
        (Reset, "same"),
        (RemoveAll, "refused"),
        (RemoveOne, "refused"),
        (Unlink, "refused"),
        (Disable, "refused"),
        (DisableAndRemoveAll, "refused"),
        (Delete, "refused"),
        (ForgetAccount, "other"),
        (DeleteAndForget, "other"),
        (DeleteAndForgetLater, "other"),
    ];
    for (ending, expected) in all {
        let setup = Setup::new().await;
        let (users, sign_in) = (&setup.identity.users, &setup.identity.sign_in);
        let first = active(sign_in.admit_external_user(&admits, &ash, at(0)).await.unwrap()).unwrap();
        let (sub, name) = (first.sub.as_str(), first.username.as_str());
        let id = sign_in.linked_accounts(sub, at(0)).await.unwrap()[0].id.clone();
        let remove = async |methods| {
            assert!(sign_in.remove_sign_in_methods(sub, &methods, at(1)).await.unwrap(), "{methods:?}");
        };
        let disable = async || {
            users.change_user(name, at(1), |user| user.disabled = true).await.unwrap();
        };
        match ending {
            None => {}
            Reset => {
                users
                    .reset_password(sub, Option::None, "hash", OtherMethods::RemoveAdded, at(1))
                    .await
                    .unwrap();
            }
            RemoveAll => remove(MethodsToRemove::All).await,
            RemoveOne => remove(MethodsToRemove::LinkedAccount(id)).await,
            Unlink => {
                let set = |user: &mut User| user.password = Some("hash".to_owned());
                let user = users.change_user(name, at(1), set).await.unwrap();
                assert!(sign_in.unlink_account(&user, &id, at(1)).await.unwrap());
            }
            Disable => disable().await,
            DisableAndRemoveAll => {
                disable().await;
                remove(MethodsToRemove::All).await;
            }
            Delete => users.delete_user(name, AccountsOfDeleted::Remember, at(1)).await.unwrap(),
            // The address would lead back to the user.
            ForgetAccount => {
                users.change_user(name, at(1), |user| user.claims.email = Option::None).await.unwrap();
                remove(MethodsToRemove::KnownAccount(id)).await;
            }
            DeleteAndForget => users.delete_user(name, AccountsOfDeleted::Forget, at(1)).await.unwrap(),
            DeleteAndForgetLater => {
                users.delete_user(name, AccountsOfDeleted::Remember, at(1)).await.unwrap();
                let accounts = users.known_accounts(sub, at(1)).await.unwrap();
                assert_eq!(
                    (accounts.len(), accounts[0].label.as_str()),
                    (1, ""),
                    "nothing about the person is kept"
                );
                users.delete_user(sub, AccountsOfDeleted::Forget, at(1)).await.unwrap();
            }
        }
        let before = users.all_users(at(2)).await.unwrap().len();
        let outcome = match sign_in.admit_external_user(&admits, &ash, at(2)).await.unwrap() {
            LinkedUser::Active(user) if user.sub == sub => "same",
            LinkedUser::Active(_) => "other",
            LinkedUser::Refused(refusal) => {
                assert_eq!(refusal.sub, sub);
                "refused"
            }
            LinkedUser::None => "unlinked",
        };
        assert_eq!(outcome, expected, "{ending:?}");
        let added = users.all_users(at(2)).await.unwrap().len() - before;
        assert_eq!(added, usize::from(expected == "other"), "{ending:?}");
    }
}

#[tokio::test]
async fn the_address_of_a_disabled_user_admits_nobody() {
    let admits = IdentityProvider { create_users: true, link_by_email: true, ..provider() };
    for verified in [Some(true), Some(false), None] {
        let setup = Setup::new().await;
        with_email(&setup, true).await;
        let (users, sign_in) = (&setup.identity.users, &setup.identity.sign_in);
        users.change_user("ada", at(0), |user| user.disabled = true).await.unwrap();
        let ash = external("ash", "ADA@mail.example", verified);
        let admitted = sign_in.admit_external_user(&admits, &ash, at(1)).await.unwrap();
        assert!(matches!(&admitted, LinkedUser::Refused(refusal) if refusal.sub == setup.user.sub));
        // Another address, or no such user any more, frees it.
        users.change_user("ada", at(2), |user| user.claims.email = None).await.unwrap();
        assert!(active(sign_in.admit_external_user(&admits, &ash, at(3)).await.unwrap()).is_some());
    }
}

#[tokio::test]
async fn a_pending_account_is_linked_once_and_in_its_browser() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let ash = external("ash", "ash@mail.example", None);
    let id = identity.sign_in.store_pending_link("Clinic", ash.clone(), "browser", at(0)).await.unwrap();
    assert!(identity.sign_in.pending_link(&id, "another", at(1)).await.unwrap().is_none());
    identity.sign_in.link_pending_account(&id, "another", &setup.user, at(1)).await.unwrap();
    assert!(active(identity.sign_in.linked_user(&ash, at(1)).await.unwrap()).is_none());
    let pending = identity.sign_in.pending_link(&id, "browser", at(1)).await.unwrap();
    assert_eq!(pending, Some(("Clinic".to_owned(), "ash@mail.example".to_owned())));
    identity.sign_in.link_pending_account(&id, "browser", &setup.user, at(1)).await.unwrap();
    assert!(active(identity.sign_in.linked_user(&ash, at(1)).await.unwrap()).is_some());
    assert!(identity.sign_in.pending_link(&id, "browser", at(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn concurrent_first_sign_ins_create_one_user_and_a_disabled_user_stays_the_only_one() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    for name in
        ["St. Ada / Clinic\u{a0}North", "a name of more than one hundred characters ".repeat(5).as_str()]
    {
        let spaced = IdentityProvider { name: name.to_owned(), create_users: true, ..provider() };
        let before = identity.users.all_users(at(0)).await.unwrap().len();
        let ash = external(name, "ash@mail.example", None);
        let admit = || identity.sign_in.admit_external_user(&spaced, &ash, at(0));
        let (a, b, c, d) = tokio::join!(admit(), admit(), admit(), admit());
        let subs: std::collections::BTreeSet<_> =
            [a, b, c, d].map(|linked| active(linked.unwrap()).unwrap().sub).into();
        assert_eq!(subs.len(), 1);
        let user = active(identity.sign_in.linked_user(&ash, at(1)).await.unwrap()).unwrap();
        identity.users.change_user(&user.username, at(1), |user| user.disabled = true).await.unwrap();
        let admitted = identity.sign_in.admit_external_user(&spaced, &ash, at(2)).await.unwrap();
        assert!(matches!(admitted, LinkedUser::Refused(_)), "{admitted:?}");
        assert_eq!(identity.users.all_users(at(2)).await.unwrap().len(), before + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_removals_leave_a_user_without_a_password_one_way_to_sign_in() {
    let setup = Setup::new().await;
    let accounts = ["ash", "elm"].map(|sub| external(sub, "ada@mail.example", None));
    let runtime = tokio::runtime::Handle::current();
    for _ in 0..1_000 {
        for account in &accounts {
            setup.identity.sign_in.link_account(&setup.user, "Clinic", account, at(0)).await.unwrap();
        }
        let linked = setup.identity.sign_in.linked_accounts(&setup.user.sub, at(0)).await.unwrap();
        let start = Barrier::new(linked.len());
        // Threads, because tasks rarely start at the same moment.
        let remove = |id: &str| {
            start.wait();
            runtime.block_on(setup.identity.sign_in.unlink_account(&setup.user, id, at(0)))
        };
        tokio::task::block_in_place(|| {
            std::thread::scope(|threads| {
                let removals = linked.iter().map(|account| threads.spawn(|| remove(&account.id)));
                for removal in removals.collect::<Vec<_>>() {
                    assert!(matches!(removal.join().unwrap(), Ok(true) | Err(LinkError::OnlyWay)));
                }
            });
        });
        let accounts = setup.identity.sign_in.linked_accounts(&setup.user.sub, at(0)).await.unwrap();
        assert_eq!(accounts.len(), 1);
    }
}

#[tokio::test]
async fn apps_see_a_name_that_no_other_user_has() {
    let creates = IdentityProvider { create_users: true, ..provider() };
    let setup = Setup::new().await;
    let admit = async |sub: &str, wish: Option<&str>| {
        let mut external = external(sub, "x@mail.example", None);
        external.claims.preferred_username = wish.map(str::to_owned);
        active(setup.identity.sign_in.admit_external_user(&creates, &external, at(0)).await.unwrap()).unwrap()
    };
    let wishes = [Some("ash"), Some("ASH"), Some("ada"), Some("a/b"), Some(""), None, Some("ash")];
    let mut names = std::collections::BTreeSet::new();
    for (index, wish) in wishes.into_iter().enumerate() {
        let user = admit(&index.to_string(), wish).await;
        assert_eq!(user.claims.preferred_username.as_ref(), Some(&user.username), "{wish:?}");
        assert_eq!(user.username == "ash", index == 0, "{wish:?}");
        assert!(names.insert(user.username.to_lowercase()) && user.username != "ada", "{wish:?}");
    }
    // A later wish changes nothing.
    assert_eq!(admit("0", Some("other")).await.claims.preferred_username.as_deref(), Some("ash"));
}
