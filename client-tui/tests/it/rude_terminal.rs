//! Terminals that answer late or never, that are stopped, closed or tiny, and a stdout that is no terminal.

use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use crate::pty::{PATIENCE, PseudoTerminal};
use crate::signals::{ENTER, LEAVE};

/// The query of the background colour.
const QUERY: &str = "\x1b]11;?\x1b\\";

/// A client without a server, with state and settings in a folder.
fn client(folder: &tempfile::TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
    command.args(["--base-url", "http://127.0.0.1:1"]);
    command.env("XDG_STATE_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
    command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
    for name in ["SSH_CONNECTION", "SSH_TTY", "COLORFGBG", "NO_COLOR", "LC_ALL", "LC_CTYPE"] {
        command.env_remove(name);
    }
    command
}

/// The exit code of a program that must end by itself.
#[track_caller]
fn exit_code(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("the program did not end");
}

#[test]
fn a_late_colour_answer_is_not_read_as_keys() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = PseudoTerminal::new();
    let mut child = terminal.spawn(&mut client(&folder));
    let screen = terminal.read_until("quit");
    let screen = if screen.contains(QUERY) { screen } else { screen + &terminal.read_until(QUERY) };
    assert!(screen.contains(ENTER), "{screen:?}");
    // The answer contains `b`, which signs out, and `:`, which opens the palette. It arrives in two pieces.
    terminal.send("\x1b]11;rgb:bbbb/bb");
    std::thread::sleep(Duration::from_millis(500));
    terminal.send("bb/bbbb\x1b\\");
    terminal.send("6");
    terminal.read_until("search-everything");
    // With an open palette, the key would be a character of its text.
    terminal.send("q");
    assert_eq!(exit_code(&mut child), Some(0));
}

#[test]
fn nothing_is_asked_over_ssh_or_with_a_theme() {
    for (name, settings) in [("SSH_CONNECTION", ""), ("UNUSED", "theme = \"light\"\n")] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("trefoil-tui")).unwrap();
        std::fs::write(folder.path().join("trefoil-tui/settings.toml"), settings).unwrap();
        let mut terminal = PseudoTerminal::new();
        let mut child = terminal.spawn(client(&folder).env(name, "192.0.2.1 1 192.0.2.2 22"));
        let mut screen = terminal.read_until("quit");
        terminal.send("q");
        screen.push_str(&terminal.read_until(LEAVE));
        assert!(!screen.contains(QUERY), "{screen:?}");
        assert_eq!(exit_code(&mut child), Some(0));
    }
}

#[test]
fn the_cursor_is_not_asked_for_after_the_editor() {
    let folder = tempfile::tempdir().unwrap();
    let editor = folder.path().join("editor.sh");
    std::fs::write(&editor, "echo the editor is open\n").unwrap();
    let mut terminal = PseudoTerminal::new();
    let mut child = terminal.spawn(client(&folder).env("VISUAL", format!("sh {}", editor.display())));
    terminal.read_until("quit");
    // A question whose answer never comes is recorded as a request.
    terminal.send("2\thttps://vs.example\thttps://cs.example\tcode\r");
    terminal.read_until("cannot be reached");
    // The palette, because a single Esc is a key only after a time without others.
    terminal.send("\x10open-requests\r");
    terminal.read_until("JSONPath");
    terminal.send("e");
    // Nothing was written, so that nothing is sent.
    let screen = terminal.read_until("Nothing was sent");
    assert!(screen.contains("the editor is open") && !screen.contains("\x1b[6n"), "{screen:?}");
    terminal.send("q");
    assert_eq!(exit_code(&mut child), Some(0));
}

#[test]
fn a_suspended_program_leaves_the_terminal_and_comes_back() {
    for by_key in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut terminal = PseudoTerminal::new();
        let before = tcgetattr(&terminal.program).unwrap().local_modes;
        let mut child = terminal.spawn(&mut client(&folder));
        terminal.read_until("quit");
        let process = Pid::from_child(&child);
        if by_key {
            terminal.send("\x1a");
        } else {
            kill_process(process, Signal::TSTP).unwrap();
        }
        terminal.read_until(LEAVE);
        let stat = format!("/proc/{}/stat", child.id());
        let deadline = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(Instant::now() < deadline, "the program is not stopped");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(tcgetattr(&terminal.program).unwrap().local_modes, before, "as before the start");
        kill_process(process, Signal::CONT).unwrap();
        let screen = terminal.read_until("quit");
        assert!(screen.contains(ENTER), "{screen:?}");
        assert!(!screen.contains("\x1b[6n"), "{screen:?}");
        assert!(!tcgetattr(&terminal.program).unwrap().local_modes.contains(LocalModes::ECHO), "raw mode");
        terminal.send("q");
        assert_eq!(exit_code(&mut child), Some(0));
    }
}

#[test]
fn a_closed_window_ends_the_program_as_a_hangup() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = PseudoTerminal::new();
    // `setsid -c` makes it the controlling terminal, whose end is a signal.
    let inner = client(&folder);
    let mut command = Command::new("setsid");
    command.args(["-c", "-w"]).arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut child = terminal.spawn(&mut command);
    terminal.read_until("quit");
    drop(terminal);
    assert_eq!(exit_code(&mut child), Some(129));
}

#[test]
fn any_size_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = PseudoTerminal::new();
    let mut child = terminal.spawn(&mut client(&folder));
    terminal.read_until("quit");
    for (columns, rows) in [(1, 1), (2, 40), (300, 1), (100, 30)] {
        terminal.resize(columns, rows);
        kill_process(Pid::from_child(&child), Signal::WINCH).unwrap();
        // Everything is drawn again.
        terminal.read_until("\x1b[2J");
        terminal.send("2365");
    }
    // crossterm reads a key that arrives together with a change of the size only at the next key.
    let deadline = Instant::now() + PATIENCE;
    let code = loop {
        terminal.send("q");
        std::thread::sleep(Duration::from_millis(100));
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None => assert!(Instant::now() < deadline, "the program did not end"),
        }
    };
    assert_eq!(code, Some(0));
}

#[test]
fn a_file_is_not_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let terminal = PseudoTerminal::new();
    let input = terminal.program.as_fd().try_clone_to_owned().unwrap();
    let output = client(&folder).stdin(input).stdout(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("stdout is not a terminal") && error.contains("trefoil-tui"), "{error}");
    assert!(output.stdout.is_empty(), "no sequence is written to the file");
}
