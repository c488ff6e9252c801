//! Faults of signing. A private key in memory signs any message, so that its only fault is a panic: the
//! server of this test runs in the process of the test, with keys that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use identity::private_key::PrivateKey;
use identity::{KeyProvider, SigningAlg, SystemKeys};
use serde_json::Value;
use store::Store;
use test_parties::{BrowserCookies, answer_parameter, hidden_fields};
use tokio::sync::watch;
use trefoil_server::clock::Clock;
use trefoil_server::config::{Config, ConnectionLimits, PlainHttp, ServeFlags};
use trefoil_server::http::dispatch;
use trefoil_server::http::listen::admission::Admission;
use trefoil_server::http::listen::{ConnectionTimers, HttpServer, ServingPhase, Transport};
use trefoil_server::node::app::Outside;
use trefoil_server::serve;

use crate::sign_in::location;

/// Keys that sign until they are broken.
struct BreakableKeys(Arc<AtomicBool>);

struct BreakableKey {
    key: Box<dyn PrivateKey>,
    is_broken: Arc<AtomicBool>,
}

impl KeyProvider for BreakableKeys {
    fn generate(&self, alg: SigningAlg) -> Vec<u8> {
        SystemKeys.generate(alg)
    }

    fn open(&self, alg: SigningAlg, pkcs8: &[u8]) -> Option<Box<dyn PrivateKey>> {
        let key = SystemKeys.open(alg, pkcs8)?;
        Some(Box::new(BreakableKey { key, is_broken: Arc::clone(&self.0) }))
    }
}

impl PrivateKey for BreakableKey {
    fn sign(&self, message: &[u8]) -> Vec<u8> {
        assert!(!self.is_broken.load(Ordering::Relaxed), "the key is broken");
        self.key.sign(message)
    }

    fn public_jwk(&self) -> Value {
        self.key.public_jwk()
    }
}

/// A server with the demo project in the process of the test.
struct OwnProcessServer {
    base: String,
    demo: Value,
    keys_are_broken: Arc<AtomicBool>,
    _folder: tempfile::TempDir,
}

impl OwnProcessServer {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        let flags = ServeFlags {
            demo: true,
            data: Some(folder.path().to_owned()),
            insecure_http: true,
            ..ServeFlags::default()
        };
        let keys_are_broken = Arc::new(AtomicBool::new(false));
        let keys = Arc::new(BreakableKeys(Arc::clone(&keys_are_broken)));
        let outside = Outside { keys, ..Outside::from(Clock::system()) };
        let config = Config::load(&flags).unwrap();
        let node = serve::open_node(config, &flags, base.clone(), Store::memory(), outside);
        let app = Box::pin(node).await.unwrap();
        let admission = Admission::new(ConnectionLimits { total: 100, per_address: 100 });
        let server = HttpServer {
            routes: dispatch::routes(app),
            transport: Transport::Plain(Arc::new(PlainHttp::Loopback)),
            admission: Arc::clone(&admission),
            is_proxy: Box::new(|_| false),
            proxy_protocol_from: Arc::default(),
            timers: ConnectionTimers::default(),
        };
        tokio::spawn(async move {
            let (_phase, mut phases) = watch::channel(ServingPhase::Serving);
            server.serve_accepted(|| listener.accept(), &admission, &mut phases).await;
        });
        let demo = std::fs::read(folder.path().join("demo.json")).unwrap();
        let demo = serde_json::from_slice(&demo).unwrap();
        Self { base, demo, keys_are_broken, _folder: folder }
    }
}

/// An application learns of a fault of signing by redirect, in each flow that signs, and afterwards
/// everything works. Errors of `token` are in the query, those of OpenID Connect in the fragment.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_signing_is_an_error_by_redirect() {
    let server = OwnProcessServer::start().await;
    let redirects = reqwest::redirect::Policy::none();
    let client = reqwest::Client::builder().redirect(redirects).build().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let application = &server.demo["implicit"];
    let redirect_uri = text(&application["redirect_uris"][0]);
    let query = |kind: &str| {
        form_urlencoded::Serializer::new(String::new())
            .append_pair("response_type", kind)
            .append_pair("client_id", &text(&application["client_id"]))
            .append_pair("redirect_uri", &redirect_uri)
            .append_pair("scope", "openid")
            .append_pair("nonce", "n-0S6_WzA2Mj")
            .append_pair("state", "the state")
            .finish()
    };
    let mut cookies = BrowserCookies::default();
    let address = |kind: &str| format!("{}/oauth2/authorize?{}", server.base, query(kind));
    let to = client.get(address("id_token")).send().await.unwrap();
    cookies.keep(to.headers()["set-cookie"].to_str().unwrap());
    let page = client.get(location(&to)).header("cookie", cookies.header()).send().await.unwrap();
    for set in page.headers().get_all("set-cookie") {
        cookies.keep(set.to_str().unwrap());
    }
    let mut form = hidden_fields(&page.text().await.unwrap());
    let user = &server.demo["users"][0];
    form.extend(["username", "password"].map(|name| (name.to_owned(), text(&user[name]))));
    let request = client.post(format!("{}/sign-in", server.base)).header("cookie", cookies.header());
    let response = request.form(&form).send().await.unwrap();
    assert_eq!(response.status(), 303);
    for set in response.headers().get_all("set-cookie") {
        cookies.keep(set.to_str().unwrap());
    }
    let response = async |kind: &str| {
        let request = client.get(address(kind)).header("cookie", cookies.header());
        location(&request.send().await.unwrap())
    };
    for kind in ["token", "id_token", "id_token token"] {
        server.keys_are_broken.store(true, Ordering::Relaxed);
        let to = response(kind).await;
        let separator = if kind == "token" { "?" } else { "#" };
        assert!(to.starts_with(&format!("{redirect_uri}{separator}")), "{kind}: {to}");
        assert_eq!(answer_parameter(&to, "error").as_deref(), Some("server_error"), "{kind}");
        assert_eq!(answer_parameter(&to, "state").as_deref(), Some("the state"), "{kind}");
        for secret in ["access_token", "id_token", "error_description"] {
            assert_eq!(answer_parameter(&to, secret), None, "{kind}");
        }
        server.keys_are_broken.store(false, Ordering::Relaxed);
        assert_eq!(answer_parameter(&response(kind).await, "error"), None, "{kind}");
    }
}
