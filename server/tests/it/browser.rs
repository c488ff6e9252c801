//! A real browser signs in: Chromium, driven by the WebDriver protocol through chromedriver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Server, have};

struct Driver {
    child: Child,
    base: String,
    http: reqwest::Client,
}

impl Driver {
    /// Starts chromedriver on a free port, and one browser.
    async fn start() -> Self {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines
            .map_while(Result::ok)
            .find_map(|line| {
                line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()
            })
            .expect("chromedriver says its port");
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut driver = Self { child, base: format!("http://127.0.0.1:{port}"), http };
        let options = json!({ "capabilities": { "alwaysMatch": {
            "acceptInsecureCerts": true,
            "goog:chromeOptions": { "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--window-size=390,844",
            ] },
        } } });
        let session = driver.post("/session", options).await;
        driver.base = format!("{}/session/{}", driver.base, session["sessionId"].as_str().unwrap());
        // An element may stand on the page that is being loaded.
        driver.post("/timeouts", json!({ "implicit": 20_000 })).await;
        driver
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.http.post(format!("{}{path}", self.base)).json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {answer}");
        answer["value"].clone()
    }

    async fn get(&self, path: &str) -> Value {
        self.http.get(format!("{}{path}", self.base)).send().await.unwrap().json::<Value>().await.unwrap()["value"].clone()
    }

    async fn go(&self, address: &str) {
        self.post("/url", json!({ "url": address })).await;
    }

    async fn find(&self, css: &str) -> String {
        let found = self.post("/element", json!({ "using": "css selector", "value": css })).await;
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    async fn text(&self, css: &str) -> String {
        let element = self.find(css).await;
        self.get(&format!("/element/{element}/text")).await.as_str().unwrap_or_default().to_owned()
    }

    async fn fill(&self, css: &str, text: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    async fn press(&self, css: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }
}

impl Drop for Driver {
    /// Ends the browser, which would outlive its driver.
    fn drop(&mut self) {
        let address = self.base.trim_start_matches("http://");
        if let Some((host, path)) = address.split_once('/')
            && let Ok(mut stream) = TcpStream::connect(host)
        {
            let request = format!("DELETE /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            drop(stream.write_all(request.as_bytes()));
            drop(stream.read(&mut [0; 256]));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn a_browser_signs_in_and_out() {
    if !(have("chromedriver", "the browser") && have("chromium", "the browser")) {
        return;
    }
    let server = Server::demo();
    let demo = server.demo_json();
    drop(server.client());
    let driver = Driver::start().await;

    // The app listens on the person's own machine, on a port of its own.
    let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback = format!("http://localhost:{}/callback", app.local_addr().unwrap().port());
    let received = tokio::spawn(async move {
        let (mut stream, _) = app.accept().await.unwrap();
        let mut head = [0; 4096];
        let length = stream.read(&mut head).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")
            .await
            .unwrap();
        String::from_utf8_lossy(&head[..length]).lines().next().unwrap_or_default().to_owned()
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
    let line =
        tokio::time::timeout(Duration::from_secs(60), received).await.expect("the app is called").unwrap();
    assert!(line.starts_with("GET /callback?code=") && line.contains("state=from-the-browser"), "{line}");

    driver.go(&format!("{}/account", server.base())).await;
    assert!(driver.text("main").await.contains("Willow Marsh"));
    driver.press("form[action='/sign-out'] button").await;
    driver.find("p:not([class])").await;
    assert_eq!(driver.text("h1").await, "You are signed out");
    driver.go(&format!("{}/account", server.base())).await;
    assert_eq!(driver.text("h1").await, "Sign in");
}
