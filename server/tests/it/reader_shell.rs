//! The shell of a reader of the documents: commands that a page, an example or a program prints are run with
//! the programs of the project and the libraries of the tests.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::support::{TREFOIL, python_packages};

/// A shell that will run these commands in a folder, and stop at the first that fails.
pub fn reader_shell(commands: &str, folder: &Path) -> Command {
    let of_machine = std::env::var_os("PATH").unwrap_or_default();
    let programs = [Path::new(TREFOIL).parent().unwrap().to_owned(), python_packages().join("bin")];
    let path = std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&of_machine)));
    let mut bash = Command::new("bash");
    bash.args(["-euc", commands]).current_dir(folder).stdin(Stdio::null());
    bash.env("PATH", path.unwrap()).env("PYTHONPATH", python_packages());
    // The test is the browser; no other is opened on this machine.
    bash.env("BROWSER", "true");
    bash
}

/// A running shell or program, which ends with all programs that it has started.
pub struct RunningShell(pub Child);

impl RunningShell {
    /// Starts it in a process group of its own.
    pub fn start(mut shell: Command) -> Self {
        Self(shell.process_group(0).spawn().unwrap())
    }
}

impl Drop for RunningShell {
    fn drop(&mut self) {
        let _ended = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        drop(self.0.wait());
    }
}

/// A fenced code block of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct FencedBlock {
    /// Document and line of the opening fence, for messages.
    pub place: String,
    pub language: String,
    pub text: String,
    /// Whether it follows another block directly, as the output of its commands does.
    pub follows_block: bool,
}

/// The fenced blocks of a document.
pub fn fenced_blocks(name: &str, text: &str) -> Vec<FencedBlock> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut follows_block = false;
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            follows_block &= line.trim().is_empty();
            continue;
        };
        let place = format!("{name}:{}", at + 1);
        let mut block =
            FencedBlock { place, language: language.to_owned(), text: String::new(), follows_block };
        loop {
            let (_, line) = lines.next().unwrap_or_else(|| panic!("{}: the block has no end", block.place));
            if line.trim() == "```" {
                break;
            }
            block.text.push_str(line);
            block.text.push('\n');
        }
        follows_block = true;
        blocks.push(block);
    }
    blocks
}
