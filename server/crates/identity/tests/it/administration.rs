//! Tests of declared clients, paging and versioned changes of users, and audit events.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use store::shared_memory::{SharedMemory, StoppingLink, StoreStep};
use store::{Expect, Ledger as _, LedgerWrite, Store};
use trefoil_identity::audit::{AuditEvent, AuditSink};
use trefoil_identity::directory::client_registry::ChangeClientError;
use trefoil_identity::directory::user_directory::{AccountsOfDeleted, ChangeUserError};
use trefoil_identity::lifetimes;
use trefoil_identity::model::client::{Client, RegistrationError};
use trefoil_identity::model::scope::Scopes;
use trefoil_identity::model::user::User;
use trefoil_identity::tokens::grant::{CodeExchange, Grant};
use trefoil_identity::{Dependencies, Identity, SystemRandom};

use crate::support::{Setup, at, client};

#[tokio::test]
async fn declared_clients_are_replaced_by_those_of_the_configuration() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    let find = async |id: &str| identity.clients.active_client(id, at(0)).await.unwrap();
    identity.clients.declare_clients(&[client("web"), client("batch")], 0, at(0)).await.unwrap();
    let before = find("web").await.unwrap();
    assert!(before.declared);
    // Declaring the same clients again changes nothing, including their generation.
    identity.clients.declare_clients(&[client("web"), client("batch")], 0, at(1)).await.unwrap();
    assert_eq!(find("web").await.unwrap(), before);
    // A changed client keeps its generation. A client that is no longer declared is deleted, and clients that
    // were not declared are kept.
    let renamed = Client { name: "Web".to_owned(), ..client("web") };
    identity.clients.declare_clients(std::slice::from_ref(&renamed), 0, at(2)).await.unwrap();
    let after = find("web").await.unwrap();
    assert_eq!((after.name.as_str(), &after.generation), ("Web", &before.generation));
    assert!(find("batch").await.is_none());
    assert!(find("app").await.is_some());
    // Commands cannot change declared clients, and the configuration cannot replace clients added by command.
    assert!(matches!(
        identity.clients.delete_client("web", at(3)).await,
        Err(RegistrationError::Declared(_))
    ));
    assert!(matches!(
        identity.clients.rotate_client_secret("web", SignedDuration::ZERO, at(3)).await,
        Err(ChangeClientError::Registration(RegistrationError::Declared(_)))
    ));
    // A node with an earlier edition of the configuration leaves the clients as they are.
    assert!(identity.clients.declare_clients(std::slice::from_ref(&renamed), 7, at(2)).await.unwrap());
    let before = identity.clients.all_clients(at(2)).await.unwrap();
    assert!(!identity.clients.declare_clients(&[], 6, at(2)).await.unwrap());
    assert_eq!(identity.clients.all_clients(at(2)).await.unwrap(), before);
    let declaration = identity.clients.declare_clients(&[client("new"), client("app")], 7, at(3)).await;
    assert!(matches!(declaration, Err(RegistrationError::AddedByCommand(id)) if id == "app"));
    assert!(find("new").await.is_none(), "a rejected configuration changes nothing");
    assert!(find("web").await.is_some());
}

#[tokio::test]
async fn an_older_edition_does_not_replace_a_newer_one() {
    let shared = SharedMemory::default();
    let link = Arc::<StoppingLink>::default();
    let open = async |link: Arc<StoppingLink>| {
        let store = Store::shared_memory(&shared, link);
        Identity::open(store, Arc::new(SystemRandom), "https://as.example", false, at(0)).await.unwrap()
    };
    let (older, newer) = (open(Arc::clone(&link)).await, open(Arc::default()).await);
    older.clients.declare_clients(&[client("web")], 1, at(0)).await.unwrap();
    // The node with the older edition has read the clients when the other one replaces them.
    let stop = link.stop_at(StoreStep::Transaction, 0);
    let declared = [client("old")];
    let (was_applied, ()) = tokio::join!(older.clients.declare_clients(&declared, 2, at(1)), async {
        stop.reached().await;
        assert!(newer.clients.declare_clients(&[client("new")], 3, at(1)).await.unwrap());
        stop.release();
    });
    assert!(!was_applied.unwrap(), "the older edition was applied");
    let clients = newer.clients.all_clients(at(1)).await.unwrap();
    assert_eq!(clients.iter().map(|client| &*client.client_id).collect::<Vec<_>>(), ["new"]);
}

#[tokio::test]
async fn a_delayed_read_of_keys_does_not_replace_later_ones() {
    for stops in 0.. {
        let (shared, link) = (SharedMemory::default(), Arc::<StoppingLink>::default());
        let open = async |link: Arc<StoppingLink>| {
            let store = Store::shared_memory(&shared, link);
            Identity::open(store, Arc::new(SystemRandom), "https://as.example", false, at(0)).await.unwrap()
        };
        let rotate = async |identity: &Identity, time| {
            identity.signing_keys.rotate_keys(true, at(time)).await.unwrap();
            identity.server_secret.rotate(at(time)).await.unwrap();
        };
        let (slow, other) = (open(Arc::clone(&link)).await, open(Arc::default()).await);
        rotate(&other, 1).await;
        // The node follows the rotation of the other one, and has read something, when it rotates the keys
        // itself.
        let stop = link.stop_at(StoreStep::Answer, stops);
        let mut following = pin!(slow.follow_other_nodes(at(1)));
        tokio::select! {
            biased;
            result = &mut following => {
                result.unwrap();
                assert!(stops >= 3, "the epochs, the keys and the secret are several reads");
                break;
            }
            () = stop.reached() => {}
        }
        let release = async {
            // The rotation comes as far as it can meanwhile.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            stop.release();
        };
        let (followed, (), ()) = tokio::join!(following, rotate(&slow, 2), release);
        followed.unwrap();
        let restarted = open(Arc::default()).await;
        let key_set =
            async |identity: &Identity| identity.signing_keys.published_key_set(at(2)).await.unwrap();
        assert_eq!(key_set(&slow).await, key_set(&restarted).await, "delayed: read {stops}");
        let mac = |identity: &Identity| identity.server_secret.mac("purpose", "text");
        assert_eq!(mac(&slow), mac(&restarted), "delayed: read {stops}");
    }
}

#[tokio::test]
async fn contradictory_metadata_is_rejected() {
    let setup = Setup::new().await;
    let check = async |change: fn(&mut Client), says: &str| {
        let mut invalid = client("invalid");
        change(&mut invalid);
        let error = setup.identity.clients.add_client(&invalid, at(0)).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    use trefoil_identity::model::client::AuthMethod;
    check(|c| c.auth_methods = vec![AuthMethod::PrivateKeyJwt], "requires a JWK Set or a jwks_uri").await;
    check(|c| c.auth_methods.push(AuthMethod::None), "must not be combined").await;
    check(|c| c.refresh_grace_s = Some(61), "must be at most 60").await;
    check(|c| c.assertion_algs = vec!["HS256".to_owned()], "'HS256' is not an algorithm for assertions")
        .await;
    for address in ["http://keys.example/", "ftp://keys.example", "https://u:p@keys.example/", "keys"] {
        let invalid = Client { jwks_uri: Some(address.to_owned()), ..client("invalid") };
        let error = setup.identity.clients.add_client(&invalid, at(0)).await;
        assert!(matches!(error, Err(RegistrationError::BadKeySetAddress(_))), "{address}");
    }
}

fn user(name: &str) -> User {
    User { username: name.to_owned(), ..User::default() }
}

#[tokio::test]
async fn users_are_paged_and_changed_by_revision() {
    let setup = Setup::new().await;
    let identity = &setup.identity;
    for number in 0..6 {
        identity.users.add_user(user(&format!("user{number}")), at(0)).await.unwrap();
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = identity.users.users_page(after.as_deref(), 3, at(0)).await.unwrap();
        seen.extend(page.into_iter().map(|user| user.username));
        after = next;
        if after.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7, "{seen:?}");
    let entry = identity.users.versioned_user(&setup.user.sub, at(0)).await.unwrap().unwrap();
    let disable = |user: &mut User| (user.disabled, user.username) = (true, "other".to_owned());
    let client_after = identity
        .users
        .change_versioned_user(&setup.user.sub, Some(entry.revision), at(0), disable)
        .await
        .unwrap();
    assert!(client_after.user.disabled && client_after.user.username == "ada");
    let stale =
        identity.users.change_versioned_user(&setup.user.sub, Some(entry.revision), at(0), disable).await;
    assert!(matches!(stale, Err(ChangeUserError::Stale)));
    assert!(matches!(
        identity.users.change_versioned_user("nobody", None, at(0), disable).await,
        Err(ChangeUserError::Unknown)
    ));
}

/// An audit sink that collects all events.
#[derive(Default)]
struct CollectedEvents(Mutex<Vec<AuditEvent>>);

impl AuditSink for CollectedEvents {
    fn record(&self, event: AuditEvent) {
        self.0.lock().unwrap().push(event);
    }
}

#[tokio::test]
async fn events_contain_no_secrets() {
    let collector = Arc::new(CollectedEvents::default());
    let dependencies = Dependencies { audit: collector.clone(), ..Dependencies::default() };
    let random = Arc::new(SystemRandom);
    let identity =
        Identity::open_with(Store::memory(), random, dependencies, "https://as.example", false, at(0))
            .await
            .unwrap();
    let ada = User { allowed_scopes: ["openid"].into_iter().collect(), ..user("ada") };
    let user = identity.users.add_user(ada, at(0)).await.unwrap();
    identity.clients.add_client(&client("app"), at(0)).await.unwrap();
    // The client as stored, which has a generation.
    let app = identity.clients.active_client("app", at(0)).await.unwrap().unwrap();
    let grant = Grant {
        sub: user.sub.clone(),
        generation: app.generation.clone(),
        ..Setup::new().await.grant("openid")
    };
    let code = {
        use trefoil_identity::model::redirect_uri::RegisteredRedirectUri;
        let to = RegisteredRedirectUri::parse(crate::support::CALLBACK, false).unwrap();
        identity
            .grants
            .issue_authorization_code(grant.clone(), to, None, None, lifetimes::AUTHORIZATION_CODE, at(0))
            .await
            .unwrap()
    };
    let exchange = CodeExchange {
        code: &code,
        redirect_uri: crate::support::CALLBACK,
        verifier: None,
        jkt: None,
        resource: None,
    };
    let redeem = async || identity.grants.redeem_authorization_code(&exchange, &app, at(1)).await;
    assert!(redeem().await.is_ok());
    assert!(redeem().await.is_err());
    let access = identity.tokens.mint_access_token(&grant, None, lifetimes::ACCESS_TOKEN, at(1));
    let form = trefoil_identity::params::Params::parse(b"client_id=app&client_secret=not-this-one");
    assert!(identity.client_auth.authenticate_client(None, &form, at(1)).await.is_err());
    let form = trefoil_identity::params::Params::parse(b"client_id=my-pass-word&client_secret=x");
    assert!(identity.client_auth.authenticate_client(None, &form, at(1)).await.is_err());
    identity.signing_keys.rotate_keys(true, at(2)).await.unwrap();
    let events = format!("{:?}", collector.0.lock().unwrap());
    for word in
        ["Reused { kind: \"code\"", "TokenIssued", "ClientRejected { client_id: Some(\"app\")", "KeysRotated"]
    {
        assert!(events.contains(word), "{word} is not in {events}");
    }
    for secret in [code.as_str(), access.as_str(), "not-this-one", "my-pass-word"] {
        assert!(!events.contains(secret), "{events}");
    }
}

#[tokio::test]
async fn a_user_with_an_older_name_can_still_sign_in() {
    let store = Store::memory();
    let user = |sub: &str, username: &str, email: &str| {
        serde_json::json!({
            "sub": sub, "username": username, "claims": { "email": email }, "allowed_scopes": ["openid"],
        })
    };
    let old = [("one", "ad\u{200b}a", "one@mail.example"), ("two", "Ａda", "two@mail.example")];
    for (sub, username, email) in old {
        let records = [
            (format!("user/{sub}"), user(sub, username, email)),
            (format!("username/{}", username.to_lowercase()), serde_json::json!({ "sub": sub })),
        ];
        let writes = records.map(|(key, value)| LedgerWrite::put(key, value.to_string(), Expect::Absent));
        store.write(writes.into(), at(0)).await.unwrap();
    }
    let identity =
        Identity::open(store, Arc::new(SystemRandom), "https://as.example", false, at(1)).await.unwrap();
    let sub_of = async |name: &str| {
        identity.users.active_user_by_name(name, at(2)).await.unwrap().map(|user| user.sub)
    };
    assert_eq!(sub_of("ad\u{200b}a").await.as_deref(), Some("one"));
    assert_eq!(sub_of("ａDA").await.as_deref(), Some("two"));
    assert_eq!(sub_of("ada").await, None);
    let by_email = identity.users.users_by_email("two@mail.example", at(2)).await.unwrap();
    assert_eq!(by_email.len(), 1, "the index contains earlier users");

    let new: User = serde_json::from_value(user("", "ADA", "three@mail.example")).unwrap();
    let added = identity.users.add_user(new, at(3)).await.unwrap();
    assert_eq!(sub_of("ａDA").await.as_deref(), Some("two"));
    assert_eq!(sub_of("Ada").await.as_deref(), Some(&*added.sub));
    for name in ["ad\u{200b}a", "Ａda", "аda"] {
        let user: User = serde_json::from_value(user("", name, "four@mail.example")).unwrap();
        assert!(identity.users.add_user(user, at(3)).await.is_err(), "{name:?}");
    }
    identity.users.delete_user("ａDA", AccountsOfDeleted::Forget, at(4)).await.unwrap();
    assert_eq!(sub_of("ada").await.as_deref(), Some(&*added.sub), "the other user keeps the name");
}

#[tokio::test]
async fn new_default_scopes_reach_users_with_the_previous_default_once() {
    let store = Store::memory();
    let open = async || {
        Identity::open(store.clone(), Arc::new(SystemRandom), "https://as.example", false, at(0))
            .await
            .unwrap()
    };
    let identity = open().await;
    let scoped =
        |name: &str, scopes: &str| User { allowed_scopes: Scopes::parse(scopes).unwrap(), ..user(name) };
    let previous = "openid profile email phone";
    for (name, scopes) in [("usual", previous), ("chosen", "openid user/*.rs"), ("fewer", "openid profile")] {
        identity.users.add_user(scoped(name, scopes), at(0)).await.unwrap();
    }
    // A store that an earlier version has written.
    let unmarked = LedgerWrite::Delete { key: "index/user-default-scopes".to_owned(), expect: Expect::Any };
    store.write(vec![unmarked], at(0)).await.unwrap();
    let identity = open().await;
    let scopes = async |identity: &Identity, name: &str| {
        let user = identity.users.user_by_name(name, at(0)).await.unwrap().unwrap();
        user.allowed_scopes.to_string()
    };
    assert_eq!(scopes(&identity, "usual").await, format!("{previous} offline_access online_access"));
    assert_eq!(scopes(&identity, "chosen").await, "openid user/*.rs");
    assert_eq!(scopes(&identity, "fewer").await, "openid profile");
    // Taking them away from one user lasts.
    let take = |user: &mut User| user.allowed_scopes = Scopes::parse(previous).unwrap();
    identity.users.change_user("usual", at(1), take).await.unwrap();
    assert_eq!(scopes(&open().await, "usual").await, previous);
}
