//! The commands of a page of the documents, run as one session: in order, in an empty folder.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use regex::Regex;
use tempfile::TempDir;
use test_database::free_port;

use crate::reader_shell::{FencedBlock, RunningShell, fenced_blocks, reader_shell};

/// Commands that other tests run: builds and installations.
const ELSEWHERE: [&str; 5] = [
    // `.ci/run` installs what the tests need.
    "python3 -m venv ",
    // `cargo xtask dist`, `cargo xtask ci` and `.ci/run`.
    "cargo ",
    // The trials of the package.
    "dpkg ",
    "systemctl ",
    "sudo ",
];
/// Files of the output of each block, and of all errors.
const OUTPUT: &str = "output-";
const ERRORS: &str = "errors";
/// Files that say that the reader uses the browser, and has used it.
const READY: &str = "at-browser";
const CONTINUE: &str = "after-browser";

/// A page, and what the tests add to it.
#[derive(Default)]
pub struct Page {
    /// Path from the root of the project.
    pub path: &'static str,
    /// Commands that make what a block assumes: the number of the block among those of commands, from 0, and
    /// the commands.
    pub before: &'static [(usize, &'static str)],
    /// Names of other people's hosts and files, and what stands for them.
    pub instead: Vec<(&'static str, String)>,
    /// Whether the page asks its reader to use a browser before the last block.
    pub uses_browser: bool,
}

/// Whether an output is the one that the page shows. In a shown output, `…` stands for the rest of a line,
/// and on a line of its own for any lines.
fn is_as_shown(output: &str, documented: &str) -> bool {
    let pattern: String = documented
        .lines()
        .map(|line| match line {
            "…" => "(?:.*\n)*?".to_owned(),
            _ => regex::escape(line).replace('…', ".*") + "\n",
        })
        .collect();
    let output = format!("{}\n", output.trim_end());
    Regex::new(&format!("^{pattern}$")).unwrap().is_match(&output)
}

/// The command that a reader's line becomes: a server runs in the background, on a port of the page, and the
/// reader waits for its announcement in this file.
fn command(line: &str, output: &str) -> String {
    if ELSEWHERE.iter().any(|start| line.starts_with(start)) {
        return String::new();
    }
    let serve = Regex::new(r"^((?:\w+=\S+ )*)trefoil serve([^#&]*)").unwrap();
    let Some(parts) = serve.captures(line) else { return format!("{line}\n") };
    let listen = if parts[2].contains("--listen") { "" } else { " --listen 127.0.0.1:8443" };
    format!(
        "{}trefoil serve{listen}{} & SERVER=$!\nuntil grep -q ready {output}; do kill -0 $SERVER; sleep 0.05; done\n",
        &parts[1], &parts[2]
    )
}

/// A session that follows a page.
pub struct PageSession {
    path: &'static str,
    blocks: Vec<FencedBlock>,
    pub folder: TempDir,
    shell: RunningShell,
    /// The ports of the page, and those that stand for them.
    pub ports: [(&'static str, String); 2],
}

impl PageSession {
    /// Begins with the commands. If the page uses a browser, they wait for [`continue_after_browser`].
    ///
    /// [`continue_after_browser`]: Self::continue_after_browser
    pub fn begin(page: &Page) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The commands change the current folder.
        let at = |name: &str| folder.path().join(name).display().to_string();
        let ports = ["8443", "9443"].map(|port| (port, free_port().unwrap().to_string()));
        let blocks = blocks(page.path);
        let numbers: Vec<usize> = (0..blocks.len()).filter(|number| is_shell(&blocks[*number])).collect();
        let mut script = "stop() { kill $SERVER; wait $SERVER || true; }\n".to_owned();
        for (of_commands, number) in numbers.iter().enumerate() {
            if page.uses_browser && of_commands + 1 == numbers.len() {
                let (ready, go) = (at(READY), at(CONTINUE));
                script += &format!("touch {ready}; until [ -e {go} ]; do sleep 0.05; done\n");
            }
            let prepared = at(&format!("before-{number}"));
            for (_, commands) in page.before.iter().filter(|(before, _)| *before == of_commands) {
                let commands: String = commands.lines().map(|line| command(line.trim(), &prepared)).collect();
                script += &format!("{{\n{commands}}} > {prepared}\n");
            }
            let output = at(&format!("{OUTPUT}{number}"));
            let commands: String = blocks[*number].text.lines().map(|line| command(line, &output)).collect();
            script += &format!("{{\n:\n{commands}}} > {output}\n");
        }
        for (of_page, stand_in) in &page.instead {
            assert!(script.contains(of_page), "{} has no '{of_page}'", page.path);
            script = script.replace(of_page, stand_in);
        }
        for (of_page, port) in &ports {
            script = script.replace(&format!(":{of_page}"), &format!(":{port}"));
        }
        let errors = File::create(folder.path().join(ERRORS)).unwrap();
        let mut shell = reader_shell(&script, folder.path());
        shell.env("HOME", folder.path()).env_remove("XDG_CONFIG_HOME");
        shell.stdout(Stdio::null()).stderr(errors);
        let shell = RunningShell::start(shell);
        Self { path: page.path, blocks, folder, shell, ports }
    }

    /// Whether the commands wait for the reader to use a browser.
    ///
    /// # Panics
    /// Panics if a command has failed.
    pub fn is_at_browser(&self) -> bool {
        let errors = self.read(ERRORS);
        assert!(!errors.contains("error: "), "{errors}");
        self.folder.path().join(READY).exists()
    }

    /// Lets the commands continue.
    pub fn continue_after_browser(&self) {
        File::create(self.folder.path().join(CONTINUE)).unwrap();
    }

    fn read(&self, file: &str) -> String {
        let mut text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        for (of_page, port) in &self.ports {
            text = text.replace(port, of_page);
        }
        text
    }

    /// Waits for the end of the commands, and compares their outputs with those that the page shows after
    /// them. Returns the number of the compared ones.
    pub fn end(mut self) -> usize {
        let status = self.shell.0.wait().unwrap();
        let outputs: String =
            (0..self.blocks.len()).map(|number| self.read(&format!("{OUTPUT}{number}"))).collect();
        assert!(status.success(), "{}: {outputs}\n{}", self.path, self.read(ERRORS));
        let mut count = 0;
        for (number, pair) in self.blocks.windows(2).enumerate() {
            let [commands, FencedBlock { text: expected, .. }] = pair else { continue };
            if is_shell(commands) && pair[1].follows_block && !is_shell(&pair[1]) {
                let output = self.read(&format!("{OUTPUT}{number}"));
                let is_right = is_as_shown(&output, expected);
                assert!(is_right, "{} shows:\n{expected}\nthe commands print:\n{output}", self.path);
                count += 1;
            }
        }
        count
    }
}

fn is_shell(block: &FencedBlock) -> bool {
    block.language == "sh"
}

/// Whether a page has commands.
pub fn has_commands(path: &str) -> bool {
    blocks(path).iter().any(is_shell)
}

/// The fenced blocks of a page.
fn blocks(path: &str) -> Vec<FencedBlock> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fenced_blocks(path, &std::fs::read_to_string(page).unwrap())
}
