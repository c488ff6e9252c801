//! A browser for tests: Chromium, controlled through chromedriver with the WebDriver protocol.
//!
//! A client library would not make this file shorter. `fantoccini` 0.22 would add 19 crates to `Cargo.lock`
//! (among them `http` 0.2, `cookie` twice and ICU 1.5), and this file would still have to start chromedriver
//! and send the commands of the virtual authenticator and of DevTools.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::have;

/// Returns `true` if a browser is installed.
pub fn have_browser() -> bool {
    have("chromedriver", "the browser") && have("chromium", "the browser")
}

/// Starts chromedriver, and returns its port. It needs the same port of IPv4 and IPv6, and ends if another
/// program has one of them; the next attempt chooses another port.
fn start_chromedriver() -> (Child, u16) {
    for _ in 0..5 {
        let mut command = Command::new("chromedriver");
        let mut child = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse::<u16>().ok()
        });
        match port {
            Some(port) => return (child, port),
            None => drop(child.wait()),
        }
    }
    panic!("chromedriver found no port in five attempts");
}

/// A browser with the chromedriver process that controls it.
pub struct Driver {
    child: Child,
    base: String,
    http: reqwest::Client,
}

impl Driver {
    /// Starts chromedriver on a free port, and one browser.
    pub async fn start() -> Self {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let (child, port) = start_chromedriver();
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
        // Finding an element waits, because its page may still be loading.
        driver.post("/timeouts", json!({ "implicit": 20_000 })).await;
        driver
    }

    /// Runs a script in the page. Returns its result, or the value of its promise.
    pub async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Sends a command of the Chrome DevTools protocol.
    async fn devtools(&self, command: &str, params: Value) {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": params })).await;
    }

    /// Sets the size of the page, for example to that of a phone.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Sets the user preferences of the browser: this color scheme, and reduced motion.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ] });
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Writes pictures of the page for a tutorial, light and dark, if `TREFOIL_TUTORIAL_PICTURES` names their
    /// folder.
    pub async fn illustrate(&self, name: &str) {
        let Some(folder) = std::env::var_os("TREFOIL_TUTORIAL_PICTURES").map(PathBuf::from) else { return };
        self.resize(480, 560).await;
        for scheme in ["dark", "light"] {
            self.prefer(scheme).await;
            std::fs::write(folder.join(format!("{name}-{scheme}.png")), self.picture().await).unwrap();
        }
    }

    /// Returns a screenshot of the whole page as PNG.
    pub async fn picture(&self) -> Vec<u8> {
        let height = self.run("return document.documentElement.scrollHeight").await.as_u64().unwrap();
        let width = self.run("return document.documentElement.clientWidth").await.as_u64().unwrap();
        self.resize(u32::try_from(width).unwrap(), u32::try_from(height.max(800)).unwrap()).await;
        let picture = self.get("/screenshot").await;
        STANDARD.decode(picture.as_str().unwrap()).unwrap()
    }

    /// Presses one key.
    pub async fn key(&self, key: char) {
        let presses = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": presses }] });
        self.post("/actions", actions).await;
    }

    /// Disables passkey suggestions in the user name field for all later pages. Otherwise a virtual
    /// authenticator, which always confirms, signs in as soon as the page is loaded.
    pub async fn refuse_suggestions(&self) {
        let source = "PublicKeyCredential.isConditionalMediationAvailable = async () => false;";
        self.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source })).await;
    }

    /// Adds a virtual authenticator inside the device, whose user always confirms (Web Authentication section
    /// 11.2). Returns its id.
    pub async fn add_authenticator(&self) -> String {
        let authenticator = json!({
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": true, "hasUserVerification": true,
            "isUserVerified": true, "isUserConsenting": true,
        });
        self.post("/webauthn/authenticator", authenticator).await.as_str().unwrap().to_owned()
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        let response = self.http.post(format!("{}{path}", self.base)).json(&body).send().await.unwrap();
        let response: Value = response.json().await.unwrap();
        assert!(response["value"]["error"].is_null(), "{path}: {response}");
        response["value"].clone()
    }

    pub async fn get(&self, path: &str) -> Value {
        self.http.get(format!("{}{path}", self.base)).send().await.unwrap().json::<Value>().await.unwrap()["value"].clone()
    }

    /// Goes on in the window that is not the current one, when it has opened. Returns the former window.
    pub async fn enter_popup(&self) -> String {
        let current = self.get("/window").await;
        loop {
            let windows = self.get("/window/handles").await;
            if let Some(popup) = windows.as_array().unwrap().iter().find(|window| **window != current) {
                self.enter_window(popup.as_str().unwrap()).await;
                return current.as_str().unwrap().to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Goes on in a window.
    pub async fn enter_window(&self, window: &str) {
        self.post("/window", json!({ "handle": window })).await;
    }

    pub async fn go(&self, address: &str) {
        self.post("/url", json!({ "url": address })).await;
    }

    pub async fn find(&self, css: &str) -> String {
        let element = self.post("/element", json!({ "using": "css selector", "value": css })).await;
        element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    pub async fn text(&self, css: &str) -> String {
        let element = self.find(css).await;
        self.get(&format!("/element/{element}/text")).await.as_str().unwrap_or_default().to_owned()
    }

    pub async fn fill(&self, css: &str, text: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/clear"), json!({})).await;
        self.post(&format!("/element/{element}/value"), json!({ "text": text })).await;
    }

    pub async fn press(&self, css: &str) {
        let element = self.find(css).await;
        self.post(&format!("/element/{element}/click"), json!({})).await;
    }
}

impl Drop for Driver {
    /// Ends the browser, which would otherwise keep running after its driver.
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
