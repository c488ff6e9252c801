//! One-time links as operators make them and users open them, with a restore and a copy beside them.

use std::process::Output;

use regex::Regex;
use reqwest::{Response, StatusCode, header};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::Server;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that succeeds, and returns its JSON.
#[track_caller]
fn record(server: &Server, args: &[&str]) -> Value {
    let output = server.trefoil(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

/// Makes a link for a user, and returns its address.
pub fn link(server: &Server, user: &str) -> String {
    record(server, &["user", "one-time-link", user])["url"].as_str().unwrap().to_owned()
}

/// The page of a link in a browser without scripts.
struct LinkPage {
    status: StatusCode,
    body: String,
    cookie: String,
}

impl LinkPage {
    async fn open(server: &Server, url: &str) -> Self {
        let response = server.client().get(url).send().await.unwrap();
        let status = response.status();
        for (name, value) in [(header::CACHE_CONTROL, "no-store"), (header::REFERRER_POLICY, "no-referrer")] {
            assert_eq!(response.headers()[name], value);
        }
        let cookies = response.headers().get_all(header::SET_COOKIE).iter();
        let cookie = cookies.map(|value| value.to_str().unwrap().split(';').next().unwrap());
        let cookie = cookie.collect::<Vec<_>>().join("; ");
        Self { status, cookie, body: response.text().await.unwrap() }
    }

    fn hidden(&self, name: &str) -> String {
        let pattern = Regex::new(&format!("name=\"{name}\" value=\"([^\"]*)\"")).unwrap();
        pattern.captures(&self.body).unwrap_or_else(|| panic!("{}", self.body))[1].to_owned()
    }

    /// Sends the form, as a browser does that hides the referrer.
    async fn submit(&self, server: &Server, password: &str) -> Response {
        let form = [("csrf", self.hidden("csrf")), ("key", self.hidden("key")), ("new", password.to_owned())];
        let request = server.client().post(format!("{}/one-time-link", server.base())).form(&form);
        let request = request.header("cookie", &self.cookie).header("origin", "null");
        request.header("sec-fetch-site", "same-origin").send().await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invited_user_sets_a_password_once() {
    let mut server = Server::in_fresh_folder().with_settings("");
    server.start();
    let invited = record(&server, &["user", "add", "mia", "--invite", "--name", "Mia Example"]);
    assert_eq!(invited["has_password"], false);
    let url = invited["one_time_link"]["url"].as_str().unwrap();
    let secret = url.strip_prefix(&format!("{}/one-time-link?key=", server.base())).unwrap();
    assert_eq!(secret.len(), 43);
    // Scanners of mails open a link, too.
    for _ in 0..3 {
        let page = LinkPage::open(&server, url).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.body.contains("mia") && !page.body.contains("Example"), "{}", page.body);
        assert!(!page.body.contains(invited["sub"].as_str().unwrap()), "{}", page.body);
    }
    let page = LinkPage::open(&server, url).await;
    assert_eq!(page.submit(&server, "mia").await.status(), StatusCode::BAD_REQUEST);
    let elsewhere = LinkPage { cookie: String::new(), ..LinkPage::open(&server, url).await };
    assert_eq!(elsewhere.submit(&server, "a walk in the garden").await.status(), StatusCode::FORBIDDEN);
    let response = page.submit(&server, "a walk in the garden").await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers()[header::LOCATION], format!("{}/account", server.base()));
    // The same form again, and the link again.
    assert_eq!(page.submit(&server, "another walk there").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(LinkPage::open(&server, url).await.status, StatusCode::NOT_FOUND);
    assert_eq!(record(&server, &["user", "show", "mia"])["has_password"], true);

    // A newer link ends the one before.
    let (older, newer) = (link(&server, "mia"), link(&server, "mia"));
    assert_eq!(LinkPage::open(&server, &older).await.status, StatusCode::NOT_FOUND);
    assert_eq!(LinkPage::open(&server, &newer).await.status, StatusCode::OK);
    let qr = text(&server.trefoil(&["user", "one-time-link", "mia", "--qr"]));
    assert!(qr.contains('█') && qr.lines().count() > 20, "{qr}");
    for (args, reason) in [
        (&["one-time-link", "nobody"][..], "does not exist"),
        (&["one-time-link", "mia", "--hours", "721"], "1..=720"),
        (&["one-time-link", "mia", "--hours", "0"], "1..=720"),
    ] {
        let output = server.trefoil(&[&["user"], args].concat());
        assert!(!output.status.success() && text(&output).contains(reason), "{}", text(&output));
    }
    assert!(server.trefoil(&["user", "disable", "mia"]).status.success());
    let output = server.trefoil(&["user", "one-time-link", "mia"]);
    assert!(text(&output).contains("enable the user first"), "{}", text(&output));

    // The audit log has the links by their ids. No log and no file of the store has a secret.
    let id = invited["one_time_link"]["id"].as_str().unwrap();
    assert_eq!(server.stop(), Some(0));
    let files = walk(server.data());
    let with = |needle: &str| files.iter().filter(|file| contains(file, needle)).count();
    assert!(with(id) > 0, "the audit log has no id");
    for url in [url, older.as_str(), newer.as_str()] {
        assert_eq!(with(url.split_once("key=").unwrap().1), 0, "a secret is in a file");
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

fn contains(file: &std::path::Path, needle: &str) -> bool {
    let bytes = std::fs::read(file).unwrap_or_default();
    bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_signed_in_administrator_makes_links_for_administrators() {
    let mut server = Server::in_fresh_folder();
    server.start();
    record(&server, &["user", "add", "mia", "--invite"]);
    let boss = record(&server, &["user", "add", "boss", "--invite", "--administrator"]);
    let client = ["client", "add", "portal", "--with-secret", "--scope", "trefoil/admin"];
    let secret = record(&server, &client)["client_secret"].as_str().unwrap().to_owned();
    let form = [("grant_type", "client_credentials"), ("client_id", "portal"), ("client_secret", &secret)];
    let tokens = server.client().post(format!("{}/oauth2/token", server.base())).form(&form).send();
    let tokens: Value = tokens.await.unwrap().json().await.unwrap();
    let token = tokens["access_token"].as_str().unwrap_or_else(|| panic!("{tokens}"));
    let post = async |path: &str, body: &Value| {
        let request = server.client().post(format!("{}/admin/{path}", server.base())).bearer_auth(token);
        let response = request.json(body).send().await.unwrap();
        (response.status(), response.json::<Value>().await.unwrap())
    };
    let mia = record(&server, &["user", "show", "mia"])["sub"].as_str().unwrap().to_owned();
    let (status, made) = post(&format!("users/{mia}/one-time-link"), &json!({ "hours": 1 })).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    assert_eq!(LinkPage::open(&server, made["url"].as_str().unwrap()).await.status, StatusCode::OK);
    let (status, added) = post("users", &json!({ "username": "noa", "invite": true })).await;
    assert_eq!(status, StatusCode::CREATED, "{added}");
    assert!(added["one_time_link"]["url"].is_string(), "{added}");
    let boss = format!("users/{}/one-time-link", boss["sub"].as_str().unwrap());
    let new_boss = json!({ "username": "other-boss", "invite": true, "administrator": true });
    for (path, body) in [(boss.as_str(), json!({})), ("users", new_boss)] {
        let (status, problem) = post(path, &body).await;
        assert_eq!((status, &problem["error"]), (StatusCode::FORBIDDEN, &"access_denied".into()), "{path}");
    }
    let output = server.trefoil(&["user", "show", "other-boss"]);
    assert!(!output.status.success(), "a user was added without a link");
    // The link of a user is none for the administrator that the user becomes.
    assert!(server.trefoil(&["user", "change", "mia", "--administrator"]).status.success());
    let page = LinkPage::open(&server, made["url"].as_str().unwrap()).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_restored_nor_a_copied_store_accepts_links_of_before() {
    let mut server = Server::in_fresh_folder().over_plain_http();
    server.start();
    record(&server, &["user", "add", "mia", "--invite"]);
    let url = link(&server, "mia");
    let (backups, copy) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let to = backups.path().to_str().unwrap();
    assert!(server.trefoil(&["backup", "--to", to]).status.success());
    let copied =
        server.trefoil(&["copy", "--keep-source", "--to", &format!("file:{}", copy.path().display())]);
    assert!(copied.status.success(), "{}", text(&copied));
    assert_eq!(LinkPage::open(&server, &url).await.status, StatusCode::OK, "the source keeps its link");
    assert_eq!(server.stop(), Some(0));
    for options in [&[][..], &["--keep-sessions"]] {
        let restored = TempDir::new().unwrap();
        let folder = restored.path().to_str().unwrap().to_owned();
        server.dir = restored;
        let output = server.trefoil(&[&["restore", "--from", to], options].concat());
        assert!(output.status.success(), "{}", text(&output));
        server.start();
        assert_eq!(LinkPage::open(&server, &url).await.status, StatusCode::NOT_FOUND, "{options:?} {folder}");
        assert_eq!(LinkPage::open(&server, &link(&server, "mia")).await.status, StatusCode::OK);
        assert_eq!(server.stop(), Some(0));
    }
    server.dir = copy;
    server.start();
    assert_eq!(LinkPage::open(&server, &url).await.status, StatusCode::NOT_FOUND, "the copy");
}
