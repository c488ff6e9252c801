//! `trefoil serve --ephemeral`: the folder of a server for the tests of an app, its announcement, and its end
//! with the program that started it.

use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use identity::{Random as _, SystemRandom};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::process::{Pid, geteuid, test_kill_process};
use serde_json::Value;
use tokio::sync::Notify;

/// Beginning of the names of the folders, which 16 hexadecimal digits follow.
const PREFIX: &str = "trefoil-";
/// Age from which a folder without an endpoint belongs to no server that starts or ends.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// A new folder, accessible only by this user, for the certificate and the exports. Removes the folders of
/// servers that were killed.
///
/// # Errors
/// An error if the folder cannot be created.
pub fn make_folder() -> io::Result<PathBuf> {
    let parent = std::env::temp_dir();
    remove_abandoned(&parent);
    let mut random = [0; 8];
    SystemRandom.fill(&mut random);
    let folder = parent.join(format!("{PREFIX}{:016x}", u64::from_be_bytes(random)));
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Removes the folders of this user's ephemeral servers that do not run any more. What cannot be read or
/// removed is left.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).unwrap_or_default();
        let is_ours = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_ours && is_abandoned(&entry.path()).unwrap_or(false) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_abandoned(folder: &Path) -> io::Result<bool> {
    let metadata = std::fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Ok(false);
    }
    let Ok(endpoint) = std::fs::read(folder.join("endpoint.json")) else {
        return Ok(metadata.modified()?.elapsed().is_ok_and(|age| age > ABANDONED));
    };
    let endpoint: Value = serde_json::from_slice(&endpoint)?;
    let pid = endpoint["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let has_ended = pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
    // The process may be in another container that shares the folder.
    Ok(has_ended && UnixStream::connect(folder.join("admin.sock")).is_err())
}

/// The line of an ephemeral server: the members of `endpoint.json`, the data folder for administration
/// commands, and under `demo` the members of `demo.json`.
///
/// # Errors
/// An error if one of these files cannot be read.
pub fn announcement(data: &Path) -> Result<String> {
    let read =
        |name: &str| -> Result<Value> { Ok(serde_json::from_slice(&std::fs::read(data.join(name))?)?) };
    let mut line = read("endpoint.json")?;
    line["data"] = data.display().to_string().into();
    line["demo"] = read("demo.json")?;
    Ok(line.to_string())
}

/// Notified when standard input was closed.
static INPUT_CLOSED: Notify = Notify::const_new();

/// Begins to watch the program that started the server: its end closes the pipe of standard input. Watches
/// nothing if standard input is not a pipe, or is already closed. Call it before the announcement; after that
/// the pipe may be closed at any time.
pub fn watch_parent() {
    if is_open_pipe() {
        // A blocking read: the thread ends with the process.
        std::thread::spawn(|| {
            let (mut input, mut ignored) = (io::stdin().lock(), [0; 1024]);
            while input.read(&mut ignored).is_ok_and(|read| read > 0) {}
            INPUT_CLOSED.notify_one();
        });
    }
}

/// Waits until the watched program has ended. Never ends if no program is watched.
pub async fn parent_ended() {
    INPUT_CLOSED.notified().await;
}

fn is_open_pipe() -> bool {
    let input = io::stdin();
    let kind = fstat(&input).map(|status| FileType::from_raw_mode(status.st_mode));
    if !matches!(kind, Ok(FileType::Fifo | FileType::Socket)) {
        return false;
    }
    let mut inputs = [PollFd::new(&input, PollFlags::IN)];
    let waited = poll(&mut inputs, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    waited.is_ok() && !inputs[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_servers_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, pid: Option<u32>| {
            let folder = parent.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            if let Some(pid) = pid {
                std::fs::write(folder.join("endpoint.json"), format!("{{\"pid\":{pid}}}")).unwrap();
            }
            folder
        };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let killed = make("trefoil-0123456789abcdef", Some(child.id()));
        let elsewhere = make("trefoil-4123456789abcdef", Some(child.id()));
        let _socket = std::os::unix::net::UnixListener::bind(elsewhere.join("admin.sock")).unwrap();
        let folders = [
            elsewhere,
            make("trefoil-1123456789abcdef", Some(std::process::id())),
            make("trefoil-2123456789abcdef", None),
            make("trefoil-3123", Some(child.id())),
            make("other-0123456789abcdef", Some(child.id())),
        ];
        remove_abandoned(parent.path());
        assert!(!killed.exists());
        assert!(folders.iter().all(|folder| folder.exists()));
    }
}
