//! The real server with its demo project, and a simulated browser of a user.

use std::process::{Command, Stdio};

use test_parties::hidden_fields;
use test_server::{DataFolder, ServerProcess};

use crate::browser::submit_forms;

/// A demo server in a temporary folder. It is stopped at the end of the test.
pub struct Server {
    _process: ServerProcess,
    /// Data folder of the server.
    pub data: tempfile::TempDir,
}

impl Server {
    /// Builds the server unless it is up to date, starts it, and waits until it is ready.
    pub fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(test_server::build().unwrap());
        command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let process = ServerProcess::start(command.stderr(Stdio::null())).unwrap();
        Self { _process: process, data }
    }

    /// Returns name and password of a user.
    pub fn person(&self) -> (String, String) {
        let user = &DataFolder(self.data.path()).demo().unwrap()["user"];
        let text = |name: &str| user[name].as_str().unwrap().to_owned();
        (text("username"), text("password"))
    }

    /// Returns the certificate to trust, as PEM.
    pub fn ca(&self) -> Vec<u8> {
        std::fs::read(DataFolder(self.data.path()).ca().unwrap().unwrap()).unwrap()
    }
}

/// Signs in as a user of the server does in a browser. Returns the last page.
pub async fn browse(ca: Vec<u8>, start: String, username: String, password: String) -> String {
    let response = |place: &str, page: &str| {
        let typed: &[(&str, &str)] = match place {
            "/sign-in" => &[("username", &username), ("password", &password)],
            // Users of a native app are asked for consent each time.
            "/consent" => &[("answer", "allow")],
            _ => return None,
        };
        let mut fields = hidden_fields(page);
        fields.extend(typed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Some((place.to_owned(), fields))
    };
    submit_forms(Some(&ca), &start, response).await
}
