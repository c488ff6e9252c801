//! Declared clients, users by page and by revision, and what is told of it all.

use std::sync::{Arc, Mutex};

use store::Store;
use trefoil_identity::audit::{Event, Sink};
use trefoil_identity::client::{Client, RegistrationError};
use trefoil_identity::directory::ChangeError;
use trefoil_identity::grant::{CodeExchange, Grant};
use trefoil_identity::user::User;
use trefoil_identity::{Identity, Outside, SystemRandom};

use crate::support::{World, at, client};

#[tokio::test]
async fn declared_clients_follow_the_configuration() {
    let world = World::new().await;
    let identity = &world.identity;
    let find = async |id: &str| identity.client(id, at(0)).await.unwrap();
    identity.declare_clients(&[client("web"), client("batch")], at(0)).await.unwrap();
    let before = find("web").await.unwrap();
    assert!(before.declared);
    // The same once more changes nothing, also not what tokens are bound to.
    identity.declare_clients(&[client("web"), client("batch")], at(1)).await.unwrap();
    assert_eq!(find("web").await.unwrap(), before);
    // A change keeps the tokens; what is declared no longer goes; others stay.
    let renamed = Client { name: "Web".to_owned(), ..client("web") };
    identity.declare_clients(std::slice::from_ref(&renamed), at(2)).await.unwrap();
    let after = find("web").await.unwrap();
    assert_eq!((after.name.as_str(), &after.generation), ("Web", &before.generation));
    assert!(find("batch").await.is_none());
    assert!(find("app").await.is_some());
    // Commands leave declared clients alone, and the file those of commands.
    assert!(matches!(identity.delete_client("web", at(3)).await, Err(RegistrationError::Declared(_))));
    assert!(matches!(identity.rotate_secret("web", at(3)).await, Err(RegistrationError::Declared(_))));
    let taken = identity.declare_clients(&[client("new"), client("app")], at(3)).await;
    assert!(matches!(taken, Err(RegistrationError::AddedByCommand(id)) if id == "app"));
    assert!(find("new").await.is_none(), "a refused file changes nothing");
    assert!(find("web").await.is_some());
}

#[tokio::test]
async fn contradictions_are_refused() {
    let world = World::new().await;
    let check = async |change: fn(&mut Client), says: &str| {
        let mut wrong = client("wrong");
        change(&mut wrong);
        let error = world.identity.add_client(&wrong, at(0)).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    use trefoil_identity::client::AuthMethod;
    check(|c| c.auth_methods = vec![AuthMethod::PrivateKeyJwt], "needs a JWK Set or a jwks_uri").await;
    check(|c| c.auth_methods.push(AuthMethod::None), "does not go with").await;
    check(|c| c.refresh_grace_s = 61, "at most 60").await;
    check(|c| c.assertion_algs = vec!["HS256".to_owned()], "'HS256' is no algorithm for assertions").await;
    for address in ["http://keys.example/", "ftp://keys.example", "https://u:p@keys.example/", "keys"] {
        let wrong = Client { jwks_uri: Some(address.to_owned()), ..client("wrong") };
        let refused = world.identity.add_client(&wrong, at(0)).await;
        assert!(matches!(refused, Err(RegistrationError::BadKeySetAddress(_))), "{address}");
    }
}

fn user(name: &str) -> User {
    User {
        sub: String::new(),
        username: name.to_owned(),
        claims: Default::default(),
        email_verified_by: None,
        allowed_scopes: Default::default(),
        fhir_user: None,
        administrator: false,
        password: None,
        disabled: false,
        epoch: 0,
        demo: false,
    }
}

#[tokio::test]
async fn users_come_in_pages_and_change_against_a_revision() {
    let world = World::new().await;
    let identity = &world.identity;
    for number in 0..6 {
        identity.add_user(user(&format!("user{number}")), at(0)).await.unwrap();
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = identity.users_page(after.as_deref(), 3, at(0)).await.unwrap();
        seen.extend(page.into_iter().map(|user| user.username));
        after = next;
        if after.is_none() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7, "{seen:?}");
    let entry = identity.user_entry(&world.user.sub, at(0)).await.unwrap().unwrap();
    let disable = |user: &mut User| (user.disabled, user.username) = (true, "other".to_owned());
    let changed = identity.change_entry(&world.user.sub, Some(entry.revision), at(0), disable).await.unwrap();
    assert!(changed.user.disabled && changed.user.username == "ada");
    let stale = identity.change_entry(&world.user.sub, Some(entry.revision), at(0), disable).await;
    assert!(matches!(stale, Err(ChangeError::Stale)));
    assert!(matches!(identity.change_entry("nobody", None, at(0), disable).await, Err(ChangeError::Unknown)));
}

/// Keeps all events.
#[derive(Default)]
struct Kept(Mutex<Vec<Event>>);

impl Sink for Kept {
    fn record(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

#[tokio::test]
async fn what_happens_is_told_without_secrets() {
    let kept = Arc::new(Kept::default());
    let outside = Outside { audit: kept.clone(), ..Outside::default() };
    let random = Arc::new(SystemRandom);
    let identity = Identity::open_with(Store::memory(), random, outside, "https://as.example", false, at(0))
        .await
        .unwrap();
    let ada = User { allowed_scopes: ["openid"].into_iter().collect(), ..user("ada") };
    let user = identity.add_user(ada, at(0)).await.unwrap();
    identity.add_client(&client("app"), at(0)).await.unwrap();
    // As it was registered, with its generation.
    let app = identity.client("app", at(0)).await.unwrap().unwrap();
    let grant = Grant {
        sub: user.sub.clone(),
        generation: app.generation.clone(),
        ..World::new().await.grant("openid")
    };
    let code = {
        use trefoil_identity::redirect_uri::RegisteredRedirectUri;
        let to = RegisteredRedirectUri::parse(crate::support::CALLBACK, false).unwrap();
        identity.issue_code(grant.clone(), to, None, None, at(0)).await.unwrap()
    };
    let sent =
        CodeExchange { code: &code, redirect_uri: crate::support::CALLBACK, verifier: None, jkt: None };
    let redeem = async || identity.redeem_code(&sent, &app, at(1)).await;
    assert!(redeem().await.is_ok());
    assert!(redeem().await.is_err());
    let access = identity.mint_access_token(&grant, at(1));
    let form = trefoil_identity::params::Params::parse(b"client_id=app&client_secret=not-this-one");
    assert!(identity.authenticate_client(None, &form, at(1)).await.is_err());
    let form = trefoil_identity::params::Params::parse(b"client_id=my-pass-word&client_secret=x");
    assert!(identity.authenticate_client(None, &form, at(1)).await.is_err());
    identity.rotate_keys(true, at(2)).await.unwrap();
    let told = format!("{:?}", kept.0.lock().unwrap());
    for word in
        ["Reused { what: \"code\"", "TokenIssued", "ClientRefused { client_id: Some(\"app\")", "KeysRotated"]
    {
        assert!(told.contains(word), "{word} is not in {told}");
    }
    for secret in [code.as_str(), access.as_str(), "not-this-one", "my-pass-word"] {
        assert!(!told.contains(secret), "{told}");
    }
}
