//! The program in a pseudo-terminal of 80 columns and 24 rows, which answers nothing by itself. Tests and the
//! benchmark share it.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Time after which something that a test waits for counts as stuck. Busy machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A pseudo-terminal.
pub struct PseudoTerminal {
    screen: File,
    /// Side of the program.
    pub program: OwnedFd,
}

impl PseudoTerminal {
    pub fn new() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let program: OwnedFd =
            File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap().into();
        fcntl_setfl(&master, OFlags::NONBLOCK).unwrap();
        let terminal = Self { screen: File::from(master), program };
        terminal.resize(80, 24);
        terminal
    }

    /// Changes the size. The process in the terminal must be told by SIGWINCH.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.program, size).unwrap();
    }

    /// Starts a program in the terminal.
    pub fn spawn(&self, command: &mut Command) -> Child {
        let side = || self.program.try_clone().unwrap();
        command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap()
    }

    /// Reads the output of the program until it contains this text. Panics if it does not within a minute.
    pub fn read_until(&mut self, text: &str) -> String {
        let read = self.read_for(PATIENCE, text);
        read.unwrap_or_else(|output| panic!("{text:?} is not shown, only {output:?}"))
    }

    /// Reads the output of the program until it contains this text, or for this time. Without the text, the
    /// error is the output.
    pub fn read_for(&mut self, patience: Duration, text: &str) -> Result<String, String> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        let deadline = Instant::now() + patience;
        while !String::from_utf8_lossy(&bytes).contains(text) {
            match self.screen.read(&mut buffer) {
                Ok(size) if size > 0 => bytes.extend_from_slice(&buffer[..size]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(String::from_utf8_lossy(&bytes).into_owned());
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                _ => break,
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Types a text.
    pub fn send(&mut self, text: &str) {
        self.screen.write_all(text.as_bytes()).unwrap();
    }
}
