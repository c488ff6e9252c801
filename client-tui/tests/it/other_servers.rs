//! Journeys of the client against servers of other makers: oidc-provider (Node) as an OpenID provider, with a
//! sign-in by the browser and one on another device.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::browser::{FilledForm, submit_forms};
use crate::headless::result;

/// A running oidc-provider.
struct Provider {
    child: Child,
    /// Output of the program, which fails if it cannot print.
    _output: BufReader<ChildStdout>,
    issuer: String,
    /// Tokens and profiles of the client.
    state: tempfile::TempDir,
}

impl Provider {
    /// Returns `None` if Node or the package is not installed.
    fn start() -> Option<Self> {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/it/clients");
        if !clients.join("node_modules/oidc-provider").exists() {
            println!("left out: oidc-provider: not installed; .ci/run does that");
            return None;
        }
        let script: PathBuf = clients.join("oidc_provider.mjs");
        let mut command = Command::new("node");
        command.arg(script).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            println!("left out: oidc-provider: node is not here");
            return None;
        };
        let mut issuer = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut issuer).unwrap();
        let state = tempfile::tempdir().unwrap();
        Some(Self { child, _output: output, issuer: issuer.trim().to_owned(), state })
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
        command.env("XDG_STATE_HOME", self.state.path()).env("XDG_CONFIG_HOME", self.state.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.args(args).args(["--base-url", &self.issuer, "--client-id", "native", "--json"]);
        command
    }

    /// Signs in; `address` names the member of the first event that contains the address for the browser.
    async fn sign_in(&self, options: &[&str], address: &str) -> Value {
        let args =
            [&["sign-in", "--no-browser", "--scope", "openid profile offline_access"], options].concat();
        let mut child = self.client(&args).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let event: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        submit_forms(None, event[address].as_str().unwrap(), |_, page| form(page)).await;
        let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{:?}", lines.collect::<Vec<_>>());
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // An error means that the provider has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the address of the form of a page, and its fields with the values of a user.
fn form(page: &str) -> Option<FilledForm> {
    let form = page.split("<form").nth(1)?.split("</form>").next()?;
    let fields = form.split("<input").skip(1).filter_map(|input| {
        let tag = input.split('>').next()?;
        let name = attribute(tag, "name")?;
        let value = match attribute(tag, "value") {
            Some(value) => value,
            None if name == "login" => "ada".to_owned(),
            None => "any password".to_owned(),
        };
        Some((name, value))
    });
    Some((attribute(form, "action")?, fields.collect()))
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!("{name}=\""))?;
    Some(rest.split('"').next()?.replace("&amp;", "&"))
}

#[tokio::test]
async fn a_user_of_oidc_provider_signs_in_with_the_browser() {
    let Some(provider) = Provider::start() else { return };
    let tokens = provider.sign_in(&[], "url").await;
    assert!(tokens["id_token"].is_string() && tokens["refresh_token"].is_string(), "{tokens}");
    // Later runs continue the session.
    let claims = result(&provider.client(&["userinfo"]).output().unwrap());
    assert_eq!((&claims["sub"], &claims["name"]), (&"ada".into(), &"Ada Example".into()));
    let inspection = result(&provider.client(&["token", "inspect", "--id-token"]).output().unwrap());
    assert_eq!(inspection["signature"]["status"], "valid", "{inspection}");
    let report = result(&provider.client(&["sign-out"]).output().unwrap());
    assert_eq!(report["signedOut"], true);
    let after = provider.client(&["sign-out"]).output().unwrap();
    assert_eq!(after.status.code(), Some(1), "no user is signed in");
}

#[tokio::test]
async fn the_path_of_the_redirect_uri_can_be_another_one() {
    let Some(provider) = Provider::start() else { return };
    let tokens = provider.sign_in(&["--redirect-path", "/signed/in"], "url").await;
    assert!(tokens["id_token"].is_string(), "{tokens}");
}

#[tokio::test]
async fn a_user_of_oidc_provider_signs_in_on_another_device() {
    let Some(provider) = Provider::start() else { return };
    let tokens = provider.sign_in(&["--device"], "completeAddress").await;
    assert!(tokens["access_token"].is_string(), "{tokens}");
    let claims = result(&provider.client(&["userinfo"]).output().unwrap());
    assert_eq!(claims["sub"], "ada");
}
