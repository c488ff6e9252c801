//! Signals end the screens and restore the terminal. The program runs in a pseudo-terminal.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use crate::pty::PseudoTerminal;

/// Switches to the alternate screen, which contains the screens of the program.
pub const ENTER: &str = "\u{1b}[?1049h";
pub const LEAVE: &str = "\u{1b}[?1049l";

#[test]
fn the_terminal_is_restored_after_a_signal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let mut terminal = PseudoTerminal::new();
        let before = tcgetattr(&terminal.program).unwrap().local_modes;
        let state = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
        command.args(["--base-url", "https://t.example"]).env("XDG_STATE_HOME", state.path());
        let mut child = terminal.spawn(&mut command);
        let screen = terminal.read_until("quit");
        assert!(screen.contains(ENTER), "{screen:?}");
        assert!(!tcgetattr(&terminal.program).unwrap().local_modes.contains(LocalModes::ECHO), "raw mode");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let rest = terminal.read_until(LEAVE);
        assert!(rest.contains(LEAVE), "{rest:?}");
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{:?}", status.signal());
        assert_eq!(tcgetattr(&terminal.program).unwrap().local_modes, before, "{signal:?}");
    }
}
