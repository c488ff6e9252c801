//! Test of sign-in and sign-out with a real browser.

use std::time::Duration;

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
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone";
                if length > 0 && stream.write_all(answer).await.is_ok() {
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

    driver.go(&format!("{}/account", server.base())).await;
    assert!(driver.text("main").await.contains("Willow Marsh"));
    driver.press("form[action='/sign-out'] button").await;
    driver.find("p:not([class])").await;
    assert_eq!(driver.text("h1").await, "You are signed out");
    driver.go(&format!("{}/account", server.base())).await;
    assert_eq!(driver.text("h1").await, "Sign in");
}
