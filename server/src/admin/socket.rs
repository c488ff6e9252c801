//! The socket of a running server, `DIR/admin.sock`: one command as a line of JSON in, events as
//! lines of JSON out. Only the folder's owner can open it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::{Command, Event, Events, Services, execute};
use crate::app::App;
use crate::audit::Caller;
use crate::config::ConfigError;

const NAME: &str = "admin.sock";

/// The socket's path, short enough for the operating system (108 bytes) however deep the folder
/// lies: a long one goes through a descriptor of the folder, which is kept open meanwhile.
fn path(data: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let direct = data.join(NAME);
    if direct.as_os_str().len() < 100 || !cfg!(target_os = "linux") {
        return Ok((direct, None));
    }
    let folder = File::open(data)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{NAME}", folder.as_raw_fd())), Some(folder)))
}

/// Listens for commands until the process ends.
///
/// # Errors
/// The socket cannot be made.
pub fn listen(app: Arc<App>) -> Result<()> {
    let (path, _folder) = path(&app.data)?;
    // A socket left behind by a killed process; the store's lock says that nobody uses it.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener =
        UnixListener::bind(&path).with_context(|| format!("failed to listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let app = app.clone();
            tokio::spawn(async move {
                if let Err(error) = serve(&app, stream).await {
                    tracing::warn!(%error, "administration");
                }
            });
        }
    });
    Ok(())
}

async fn serve(app: &App, stream: UnixStream) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read).read_line(&mut line).await?;
    let command: Command = serde_json::from_str(&line)?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let work = async {
        let (identity, resources, audit) = (&app.identity, &app.resources, &*app.audit);
        let (clock, passwords) = (&app.clock, app.settings().passwords);
        let services =
            Services { identity, resources, data: &app.data, clock, audit, passwords, app: Some(app) };
        let progress = sender.clone();
        let mut events = move |event| drop(progress.send(event));
        let done = execute(&services, command, &mut events);
        let (done, recorded) = app.audit.on_behalf(Caller::operator(), done).await;
        let code = match done.and_then(|code| recorded.map(|()| code).context("the command was carried out"))
        {
            Ok(code) => code,
            Err(error) => {
                events(Event::Trouble(format!("error: {error:#}")));
                if error.downcast_ref::<ConfigError>().is_some() { 3 } else { 1 }
            }
        };
        drop(sender.send(Event::Exit(code)));
        drop(sender);
    };
    let talk = async {
        while let Some(event) = receiver.recv().await {
            let mut line = serde_json::to_vec(&event)?;
            line.push(b'\n');
            write.write_all(&line).await?;
        }
        anyhow::Ok(())
    };
    // The work goes on when the caller leaves: what began is brought to its end.
    let ((), talked) = tokio::join!(work, talk);
    talked
}

/// Sends a command to a running server. `None`: none runs on this folder.
///
/// # Errors
/// The connection broke.
pub async fn send(data: &Path, command: &Command, events: Events<'_>) -> Result<Option<u8>> {
    let Ok((path, _folder)) = path(data) else { return Ok(None) };
    let Ok(stream) = UnixStream::connect(&path).await else { return Ok(None) };
    let (read, mut write) = stream.into_split();
    let mut line = serde_json::to_vec(command)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line)? {
            Event::Exit(code) => return Ok(Some(code)),
            event => events(event),
        }
    }
    bail!("the server stopped before it was done; nothing that it acknowledged is lost")
}
