//! The process of a server, from its start to its end.

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Announcement of `trefoil serve`, which the base URL follows.
pub const READY: &str = "ready ";
/// Maximum time from the start to the announcement.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a server did not become ready.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program could not be started.
    #[error("cannot start {program}: {error}")]
    Spawn {
        /// The path of the program.
        program: String,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// The server ended first.
    #[error("the server ended with {status} before it was ready; its standard output: {output:?}")]
    Ended {
        /// The status of its process.
        status: ExitStatus,
        /// The lines of its standard output.
        output: String,
    },
    /// The server took too long. It was killed.
    #[error("the server was not ready after {} s", PATIENCE.as_secs())]
    TooSlow,
    /// The operating system did not say how the process ended.
    #[error("cannot wait for the server: {0}")]
    Wait(#[source] io::Error),
}

/// The process of a server that is ready. Dropping this value kills it.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: String,
}

impl ServerProcess {
    /// Starts `trefoil serve`, and waits until it is ready.
    ///
    /// # Errors
    /// An error if the program cannot be started, ends, or is not ready after a minute.
    pub fn start(command: &mut Command) -> Result<Self, StartError> {
        Self::start_announced(command, READY)
    }

    /// Starts a server, and waits until it prints a line of an announcement and its address.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_announced(command: &mut Command, announcement: &str) -> Result<Self, StartError> {
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| StartError::Spawn {
            program: command.get_program().to_string_lossy().into_owned(),
            error,
        })?;
        let stdout = child.stdout.take();
        // From here, an early return kills the process.
        let mut process = Self { child, address: String::new() };
        match await_announcement(stdout, announcement)? {
            Ok(address) => {
                process.address = address;
                Ok(process)
            }
            Err(output) => {
                let status = process.child.wait().map_err(StartError::Wait)?;
                Err(StartError::Ended { status, output })
            }
        }
    }

    /// The rest of the announcement: for `trefoil serve`, the base URL.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name, such as `HUP`, with the program `kill`.
    ///
    /// # Errors
    /// An error if `kill` cannot be started or fails.
    pub fn signal(&self, name: &str) -> io::Result<()> {
        let status = Command::new("kill").args(["-s", name]).arg(self.id().to_string()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("`kill -s {name} {}` ended with {status}", self.id())));
        }
        Ok(())
    }

    /// Waits until the server ends by itself.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Asks the server to stop, and waits until it has ended.
    ///
    /// # Errors
    /// The errors of [`Self::signal`] and [`Self::wait`].
    pub fn stop(self) -> io::Result<ExitStatus> {
        self.signal("TERM")?;
        self.wait()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // An error means that the server has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads lines until one is an announcement. Returns the rest of that line, or all lines if the output ends
/// first.
fn await_announcement(
    stdout: Option<ChildStdout>,
    announcement: &str,
) -> Result<Result<String, String>, StartError> {
    let announcement = announcement.to_owned();
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut output = String::new();
        for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
        {
            if let Some(address) = line.strip_prefix(&announcement) {
                drop(sender.send(Ok(address.to_owned())));
                return;
            }
            output += &line;
            output.push('\n');
        }
        drop(sender.send(Err(output)));
    });
    received.recv_timeout(PATIENCE).map_err(|_| StartError::TooSlow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_address_follows_the_announcement() {
        let mut command = shell("echo first; echo ready http://localhost:1; exec sleep 60");
        let server = ServerProcess::start(&mut command).unwrap();
        assert_eq!(server.address(), "http://localhost:1");
        assert!(!server.stop().unwrap().success(), "the signal ends it");
    }

    #[test]
    fn a_server_that_ends_first_is_reported_with_its_output() {
        let error = ServerProcess::start(&mut shell("echo no room; exit 3")).unwrap_err();
        let StartError::Ended { status, output } = error else { panic!("{error}") };
        assert_eq!((status.code(), output.as_str()), (Some(3), "no room\n"));
    }
}
