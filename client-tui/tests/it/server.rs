//! The real server with its demo project, and a simulated browser of a user.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::browser::submit_forms;

/// A demo server in a temporary folder. It is stopped at the end of the test.
pub struct Server {
    child: Child,
    /// Data folder of the server.
    pub data: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the server if necessary, and returns the path of the program next to this one.
fn program() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_trefoil-tui")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    // Uses the features of the whole workspace, so that Cargo does not rebuild crates that `cargo test` has
    // built.
    build.args(["build", "--quiet", "--workspace", "--bin", "trefoil"]);
    build.args(folder.ends_with("release").then_some("--release"));
    build.arg("--target-dir").arg(folder.parent().unwrap());
    assert!(build.status().unwrap().success(), "the server cannot be built");
    folder.join("trefoil")
}

impl Server {
    /// Starts the server and waits until it is ready.
    pub fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(program());
        command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = Self { child, data };
        assert!(line.starts_with("ready "), "the server did not start: {line}");
        server
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.data.path().join(name)).unwrap()).unwrap()
    }

    /// Returns name and password of a user.
    pub fn person(&self) -> (String, String) {
        let user = &self.json("demo.json")["user"];
        let text = |name: &str| user[name].as_str().unwrap().to_owned();
        (text("username"), text("password"))
    }

    /// Returns the certificate to trust, as PEM.
    pub fn ca(&self) -> Vec<u8> {
        std::fs::read(self.json("endpoint.json")["ca"].as_str().unwrap()).unwrap()
    }
}

/// Signs in as a user of the server does in a browser. Returns the last page.
pub async fn browse(ca: Vec<u8>, start: String, username: String, password: String) -> String {
    let answer = |place: &str, page: &str| {
        // Users of a native app are asked for consent each time.
        let (typed, scope): (&[_], _) = match place {
            "/sign-in" => (&[("username", &username), ("password", &password)], None),
            "/consent" => (&[], Some(hidden(page, "scope"))),
            _ => return None,
        };
        let mut fields: Vec<_> =
            ["csrf", "continue"].map(|name| (name.to_owned(), hidden(page, name))).into();
        fields.extend(typed.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())));
        if let Some(scope) = scope {
            fields.extend([("scope".to_owned(), scope), ("answer".to_owned(), "allow".to_owned())]);
        }
        Some((place.to_owned(), fields))
    };
    submit_forms(Some(&ca), &start, answer).await
}

/// Returns the value of a hidden field.
fn hidden(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
    rest.split('"').next().unwrap().replace("&amp;", "&")
}
