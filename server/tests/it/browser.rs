//! Test of sign-in and sign-out with a real browser.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::driver::{Driver, have_browser};
use crate::support::Server;

#[tokio::test]
async fn a_browser_signs_in_and_out() {
    if !have_browser() {
        return;
    }
    let server = Server::demo();
    let demo = server.demo_json();
    let driver = Driver::start().await;

    // The app listens on a local port, as a native app does.
    let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback = format!("http://localhost:{}/callback", app.local_addr().unwrap().port());
    let received = tokio::spawn(async move {
        let (requests, mut received) = mpsc::unbounded_channel();
        loop {
            // A connection that the browser opened in advance may have no request.
            let (mut stream, requests) = tokio::select! {
                Some(line) = received.recv() => return line,
                accepted = app.accept() => (accepted.unwrap().0, requests.clone()),
            };
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).await.unwrap_or_default();
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone";
                if length > 0 && stream.write_all(response).await.is_ok() {
                    let line = String::from_utf8_lossy(&head[..length]).lines().next().map(str::to_owned);
                    _ = requests.send(line.unwrap_or_default());
                }
            });
        }
    });
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs([
            ("response_type", "code"),
            ("client_id", demo["native"]["client_id"].as_str().unwrap()),
            ("redirect_uri", &callback),
            ("scope", "openid profile"),
            ("state", "from-the-browser"),
            ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
            ("code_challenge_method", "S256"),
        ])
        .finish();
    driver.go(&format!("{}/oauth2/authorize?{query}", server.base())).await;
    assert_eq!(driver.text("h1").await, "Sign in");
    driver.fill("#username", "willow").await;
    driver.fill("#password", "not the password").await;
    driver.press("button").await;
    assert_eq!(driver.text("[role=alert]").await, "The user name or the password is wrong.");
    driver.fill("#password", demo["user"]["password"].as_str().unwrap()).await;
    driver.press("button").await;
    driver.find("form[action='/consent']").await;
    driver.press("button[value=allow]").await;
    let line = tokio::time::timeout(Duration::from_secs(60), received)
        .await
        .expect("the browser is redirected to the app")
        .unwrap();
    assert!(line.starts_with("GET /callback?code=") && line.contains("state=from-the-browser"), "{line}");

    let code = line.split("code=").nth(1).unwrap().split(['&', ' ']).next().unwrap();
    let form = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("client_id", demo["native"]["client_id"].as_str().unwrap()),
        ("redirect_uri", &callback),
        ("code_verifier", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
    ];
    let response = server.client().post(format!("{}/oauth2/token", server.base())).form(&form).send().await;
    let response: Value = response.unwrap().json().await.unwrap();
    let hint = response["id_token"].as_str().unwrap_or_else(|| panic!("{response}"));

    driver.go(&format!("{}/account", server.base())).await;
    assert!(driver.text("main").await.contains("Willow Marsh"));
    driver.press("form[action='/sign-out'] button").await;
    driver.find("p:not([class])").await;
    assert_eq!(driver.text("h1").await, "You are signed out");
    driver.go(&format!("{}/account", server.base())).await;
    assert_eq!(driver.text("h1").await, "Sign in");

    // An application on another site sends the user to sign out by a form. Browsers send no SameSite=Lax
    // cookie with it.
    driver.fill("#username", "willow").await;
    driver.fill("#password", demo["user"]["password"].as_str().unwrap()).await;
    driver.press("button").await;
    driver.find("form[action='/sign-out']").await;
    let page = format!(
        "<!doctype html><h1>Other site</h1><form method=post action='{}/logout'>\
         <input type=hidden name=id_token_hint value='{hint}'><button>Sign out</button></form>",
        server.base()
    );
    driver.go(&serve_page(page).await).await;
    assert_eq!(driver.text("h1").await, "Other site");
    driver.press("button").await;
    driver.find("p:not([class])").await;
    assert_eq!(driver.text("h1").await, "You are signed out");
    driver.go(&format!("{}/account", server.base())).await;
    assert_eq!(driver.text("h1").await, "Sign in");
}

/// Serves a page at another site than `localhost`, and returns its address.
async fn serve_page(page: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n", page.len());
            let response = format!("{head}Connection: close\r\n\r\n{page}");
            tokio::spawn(async move {
                let length = stream.read(&mut [0; 4096]).await.unwrap_or_default();
                if length > 0 {
                    _ = stream.write_all(response.as_bytes()).await;
                }
            });
        }
    });
    address
}
