//! The tutorials, each as one session: their commands in order, in an empty folder, with the outputs that the
//! page shows. In an output, `…` stands for the rest of a line, and on a line of its own for any lines.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use test_database::free_port;

use crate::driver::{Driver, have_browser};
use crate::support::{TREFOIL, have, installed, python_packages};

/// Commands that install what the tests bring.
const INSTALLS: &str = "python3 -m pip install ";
/// Files of the output of each block, and of all errors.
const OUTPUT: &str = "output-";
const ERRORS: &str = "errors";
/// Files that say that the reader uses the browser, and has used it.
const READY: &str = "at-browser";
const CONTINUE: &str = "after-browser";

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let fenced = text.split("\n```").skip(1).step_by(2);
    fenced
        .map(|block| {
            let (language, text) = block.split_once('\n').unwrap();
            (language.to_owned(), format!("{text}\n"))
        })
        .collect()
}

/// Whether an output is the one that the page shows.
fn is_as_shown(output: &str, shown: &str) -> bool {
    let pattern: String = shown
        .lines()
        .map(|line| match line {
            "…" => "(?:.*\n)*?".to_owned(),
            _ => regex::escape(line).replace('…', ".*") + "\n",
        })
        .collect();
    let output = format!("{}\n", output.trim_end());
    regex::Regex::new(&format!("^{pattern}$")).unwrap().is_match(&output)
}

/// A session that follows a page.
struct Session {
    page: &'static str,
    blocks: Vec<(String, String)>,
    folder: TempDir,
    shell: Child,
    /// The ports of the page, and those that stand for them.
    ports: [(&'static str, String); 2],
}

impl Session {
    /// Begins with the commands. Before the last block, they wait for the file [`CONTINUE`] if
    /// the page asks its reader to use a browser.
    fn begin(page: &'static str, uses_browser: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The commands change the current folder.
        let at = |name: &str| folder.path().join(name).display().to_string();
        let ports = ["8443", "9443"].map(|port| (port, free_port().unwrap().to_string()));
        let blocks = blocks(page);
        let last = blocks.iter().rposition(|(language, _)| language == "sh").unwrap();
        let mut script = "set -eu\n".to_owned();
        for (number, (_, text)) in blocks.iter().enumerate().filter(|(_, (language, _))| language == "sh") {
            if uses_browser && number == last {
                let (ready, go) = (at(READY), at(CONTINUE));
                script += &format!("touch {ready}; until [ -e {go} ]; do sleep 0.05; done\n");
            }
            let is_command = |line: &&str| !line.starts_with(INSTALLS);
            let commands: String = text.lines().filter(is_command).map(|line| format!("{line}\n")).collect();
            let output = at(&format!("{OUTPUT}{number}"));
            script += &format!("{{\n{commands}}} > {output}\n");
            // A reader waits for the announcement.
            if commands.contains("trefoil serve") {
                script += &format!("until grep -q ready {output}; do sleep 0.05; done\n");
            }
        }
        script = script.replace("trefoil serve --config", "trefoil serve --listen 127.0.0.1:8443 --config");
        script = script.replace("trefoil serve 2>", "trefoil serve --listen 127.0.0.1:8443 2>");
        for (of_page, port) in &ports {
            script = script.replace(&format!(":{of_page}"), &format!(":{port}"));
        }
        let of_machine = std::env::var_os("PATH").unwrap_or_default();
        let programs = [Path::new(TREFOIL).parent().unwrap().to_owned(), python_packages().join("bin")];
        let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&of_machine)));
        let errors = File::create(folder.path().join(ERRORS)).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-c", &script]).current_dir(folder.path()).process_group(0);
        bash.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME").env("PATH", path.unwrap());
        bash.env("PYTHONPATH", python_packages());
        let shell = bash.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        Self { page, blocks, folder, shell, ports }
    }

    fn read(&self, file: &str) -> String {
        let mut text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        for (of_page, port) in &self.ports {
            text = text.replace(port, of_page);
        }
        text
    }

    /// Waits for the end of the commands, and compares their outputs with those that the page shows.
    fn end(mut self) {
        let status = self.shell.wait().unwrap();
        let outputs: String =
            (0..self.blocks.len()).map(|number| self.read(&format!("{OUTPUT}{number}"))).collect();
        assert!(status.success(), "{}: {outputs}\n{}", self.page, self.read(ERRORS));
        let mut shown = 0;
        for (number, pair) in self.blocks.windows(2).enumerate() {
            if let [(commands, _), (language, expected)] = pair
                && commands == "sh"
                && language != "sh"
            {
                let output = self.read(&format!("{OUTPUT}{number}"));
                let is_right = is_as_shown(&output, expected);
                assert!(is_right, "{} shows:\n{expected}\nthe commands print:\n{output}", self.page);
                shown += 1;
            }
        }
        assert!(shown > 0, "{} shows no output", self.page);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The servers of the session.
        let _ended = kill_process_group(Pid::from_child(&self.shell), Signal::KILL);
    }
}

#[test]
fn an_own_app() {
    if have("bash", "tutorials") && have("curl", "tutorials") {
        Session::begin("first-app.md", false).end();
    }
}

#[test]
fn the_first_export_and_its_second_day() {
    if have("bash", "tutorials") && installed("duckdb-cli", &python_packages().join("duckdb_cli")) {
        Session::begin("first-export.md", false).end();
    }
}

#[test]
fn an_own_terminology() {
    if have("bash", "tutorials") && have("curl", "tutorials") {
        Session::begin("first-terminology.md", false).end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_a_hospital() {
    if !have("bash", "tutorials") || !have_browser() {
        return;
    }
    let session = Session::begin("first-provider.md", true);
    let driver = Driver::start().await;
    while !session.folder.path().join(READY).exists() {
        let has_failed = session.read(ERRORS).contains("error: ");
        assert!(!has_failed, "{}", session.read(ERRORS));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let account = format!("https://localhost:{}/account", session.ports[0].1);
    driver.go(&account).await;
    driver.illustrate("first-provider-sign-in").await;
    driver.press("a[href^='/sign-in/with/Hospital']").await;
    driver.fill("#username", "ada").await;
    driver.fill("#password", "a walk in the garden").await;
    driver.press("button").await;
    driver.illustrate("first-provider-consent").await;
    driver.press("button[value=allow]").await;
    let page = driver.text("body").await;
    assert!(page.contains("Ada Example"), "{page}");
    File::create(session.folder.path().join(CONTINUE)).unwrap();
    session.end();
}
