//! Runs against a server that repeats every secret in every response, and searches all reports for them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use trefoil_conformance::environment::TestEnvironment;
use trefoil_conformance::environment::target::{TIMEOUT, TargetKind, TestTarget};
use trefoil_conformance::profile::Profile;
use trefoil_conformance::report::{self, live_line::LiveLine, terminal::TerminalReport};
use trefoil_conformance::run::{self, RunListener, RunOptions};
use trefoil_conformance::spec::Specification;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

const PASSWORD: &str = "o'n&1";
const CLIENT_SECRET: &str = "a-secret <of> \"7\"";
const ACCESS_TOKEN: &str = "the-access-token-1";
const CODE: &str = "code-of-the-user";
const COOKIE: &str = "cookie-7f";
/// A key on P-256 that no server uses; `D` is its private part.
const D: &str = "870MB6gfuTJ4HtUnUvYMyJpr5eUZNP4Bk43bVdj3eAE";
const X: &str = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4";
const Y: &str = "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM";

/// The kinds of reports, with the ends of their names.
const KINDS: [&str; 5] = ["json", "junit", "html", "markdown", "badge"];

/// Returns the response to a request: metadata, a sign-in page, a redirect with a code, or a token. Each
/// contains what was sent, the secrets of the profile, and those that the server has `issued`.
fn answer(request: &Request, base: &str, issued: &Mutex<BTreeSet<&'static str>>) -> ResponseTemplate {
    let mut issued = issued.lock().unwrap();
    let path = request.url.path();
    let pairs: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("")))
        .collect();
    let body = String::from_utf8_lossy(&request.body).into_owned();
    match path {
        "/token" => drop(issued.insert(ACCESS_TOKEN)),
        "/login" => drop(issued.insert(CODE)),
        _ => {}
    }
    let issued = issued.iter().copied().collect::<Vec<_>>().join(" ");
    let secrets = format!("{PASSWORD} {CLIENT_SECRET} {COOKIE} {D} {issued}");
    let echo = json!({ "secrets": secrets, "sent": pairs, "body": body, "url": request.url.as_str() });
    let response = ResponseTemplate::new(200)
        .insert_header("set-cookie", format!("sid={COOKIE}; Path=/").as_str())
        .insert_header("x-secrets", secrets.as_str());
    let mut members = json!({ "echo": echo });
    if path.contains(".well-known") {
        members = json!({
            "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
            "userinfo_endpoint": format!("{base}/userinfo"), "jwks_uri": format!("{base}/jwks"),
            "introspection_endpoint": format!("{base}/introspect"), "revocation_endpoint": format!("{base}/revoke"),
            "response_types_supported": ["code"], "echo": echo,
        });
    } else if path == "/token" {
        members["access_token"] = ACCESS_TOKEN.into();
        members["token_type"] = "Bearer".into();
    } else if path == "/authorize" {
        let form = "<form method=post action=/login><input name=username><input name=password type=password>";
        return response.set_body_raw(format!("<html>{form}</form>{echo}</html>"), "text/html");
    } else if path == "/login" {
        let to = format!("https://app.example/callback?code={CODE}&password={PASSWORD}");
        return ResponseTemplate::new(302).insert_header("location", to.as_str()).set_body_json(echo);
    }
    response.set_body_json(members)
}

fn profile() -> Profile {
    let text = json!({
        "users": [{ "username": "willow", "password": PASSWORD }],
        "public": { "client_id": "app", "redirect_uris": ["https://app.example/callback"], "scopes": ["openid"] },
        "confidential": {
            "client_id": "secret-app", "client_secret": CLIENT_SECRET,
            "redirect_uris": ["https://app.example/callback"], "scopes": ["openid"],
        },
        "resource_server": { "client_id": "rs", "client_secret": CLIENT_SECRET },
        "backend": [{
            "client_id": "back", "scopes": "system/*.read", "alg": "ES256",
            "jwk": { "kty": "EC", "crv": "P-256", "kid": "k", "x": X, "y": Y, "d": D },
        }],
    });
    Profile::from_toml(&toml::to_string(&text).unwrap(), Path::new(".")).unwrap()
}

#[test]
fn no_report_contains_a_secret() {
    let folder = tempfile::tempdir().unwrap();
    let path = |kind: &str| folder.path().join(kind).display().to_string();
    let reports: Vec<_> = KINDS.iter().map(|kind| format!("{kind}={}", path(kind))).collect();
    let mut listeners = report::to_files(&reports).unwrap();
    let terminal = std::fs::File::create(path("terminal")).unwrap();
    listeners.push(Box::new(TerminalReport::new(terminal, LiveLine::hidden())));
    let issued = Arc::new(Mutex::default());
    let end = Runtime::new().unwrap().block_on(async {
        let server = MockServer::start().await;
        let base = server.uri();
        let shared = issued.clone();
        let respond = move |request: &Request| answer(request, &base, &shared);
        Mock::given(any()).respond_with(respond).mount(&server).await;
        let target = TestTarget::connect(&server.uri(), profile(), TargetKind::Other, TIMEOUT).await.unwrap();
        let spec = Specification::load().unwrap();
        let environment = TestEnvironment::of(target);
        // One case at a time: a secret is masked as soon as the run has received it.
        let options = RunOptions { jobs: 1, ..RunOptions::default() };
        let listeners: &mut [Box<dyn RunListener>] = &mut listeners;
        run::run(&environment, &spec, &options, &AtomicBool::new(false), listeners).await
    });
    drop(listeners);
    assert!(end.summary.failed > 50, "{}", end.summary);
    assert_eq!(issued.lock().unwrap().len(), 2);

    let basic = |id: &str, secret: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(format!("{id}:{secret}"))
    };
    let form = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let json = |text: &str| Value::from(text).to_string().trim_matches('"').to_owned();
    let html = |text: &str| {
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
    };
    let mut secrets = vec![
        basic("secret-app", CLIENT_SECRET),
        basic("secret-app", &form(CLIENT_SECRET)),
        basic("rs", &form(CLIENT_SECRET)),
    ];
    for secret in [PASSWORD, CLIENT_SECRET, ACCESS_TOKEN, CODE, COOKIE, D] {
        secrets.extend([
            secret.to_owned(),
            form(secret),
            json(secret),
            html(secret),
            json(&json(secret)),
            html(&json(secret)),
        ]);
    }
    for kind in KINDS.iter().copied().chain(["terminal"]) {
        let text = std::fs::read_to_string(path(kind)).unwrap();
        let leaks: Vec<_> = secrets.iter().filter(|secret| text.contains(secret.as_str())).collect();
        assert!(leaks.is_empty(), "{kind} contains {leaks:?}");
        // Reports with exchanges contain the masked responses.
        assert!(text.contains("***") || ["markdown", "badge"].contains(&kind), "{kind}");
    }
}

#[test]
fn a_url_with_a_password_is_rejected() {
    let connected = Runtime::new().unwrap().block_on(TestTarget::connect(
        "http://willow:secret@localhost:1",
        Profile::default(),
        TargetKind::Other,
        TIMEOUT,
    ));
    let error = connected.err().unwrap().to_string();
    assert_eq!(error, "the URL of the server must not contain a user name or a password");
}
