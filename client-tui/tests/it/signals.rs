//! Signals end the screens and restore the terminal. The program runs in a pseudo-terminal.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Switches to the alternate screen, which contains the screens of the program.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

#[test]
fn the_terminal_is_restored_after_a_signal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave: OwnedFd =
            File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&slave).unwrap().local_modes;
        let state = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"))
            .args(["--base-url", "https://t.example"])
            .env("XDG_STATE_HOME", state.path())
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap())
            .spawn()
            .unwrap();
        let mut screen = File::from(master);
        let shown = read_until(&mut screen, "quit");
        assert!(shown.contains(ENTER), "{shown:?}");
        assert!(!tcgetattr(&slave).unwrap().local_modes.contains(LocalModes::ECHO), "raw mode");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let rest = read_until(&mut screen, LEAVE);
        assert!(rest.contains(LEAVE), "{rest:?}");
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal.as_raw()), "{:?}", status.signal());
        assert_eq!(tcgetattr(&slave).unwrap().local_modes, before, "{signal:?}");
    }
}

/// Reads the output of the program until it contains this text.
fn read_until(screen: &mut File, text: &str) -> String {
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains(text) {
        match screen.read(&mut buffer) {
            Ok(size) if size > 0 => shown.extend_from_slice(&buffer[..size]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&shown).into_owned()
}
