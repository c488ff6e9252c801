//! The administration socket of a running server, `DIR/admin.sock`, which carries the messages of the
//! [protocol](super::protocol). Only the owner of the folder can open it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::all_commands::AdminCommand;
use super::events::{CommandEvent, EventSink};
use super::execute::execute_command;
use super::protocol::{STOP, decode_command, encode_command};
use super::services::AdminServices;
use crate::config::ConfigError;
use crate::node::app::App;
use crate::records::audit::AuditCaller;

const SOCKET_NAME: &str = "admin.sock";
/// Time after which a command is accepted again if the last one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// The path of the socket. The operating system limits such a path to 108 bytes. A longer path is replaced by
/// a path through an open descriptor of the folder; the descriptor is returned too and must stay open.
fn socket_path(data: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let direct = data.join(SOCKET_NAME);
    if direct.as_os_str().len() < 100 || !cfg!(target_os = "linux") {
        return Ok((direct, None));
    }
    let folder = File::open(data)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_NAME}", folder.as_raw_fd())), Some(folder)))
}

/// Waits until the process that serves the socket of this folder has ended.
pub async fn wait_for_end(data: &Path) {
    let Ok((path, _folder)) = socket_path(data) else { return };
    if let Ok(mut stream) = UnixStream::connect(&path).await {
        // No command is sent, so that the connection ends with the process.
        let _ended = stream.read_to_end(&mut Vec::new()).await;
    }
}

/// Listens for commands until the process ends.
///
/// # Errors
/// An error if the socket cannot be created.
pub fn listen_for_commands(app: Arc<App>) -> Result<()> {
    let (path, _folder) = socket_path(&app.config.data)?;
    // A killed process leaves its socket behind. The lock on the data folder ensures that no other process
    // uses it.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener =
        UnixListener::bind(&path).with_context(|| format!("failed to listen on {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    tokio::spawn(async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                // There are too many open files, for example.
                Err(error) => {
                    tracing::warn!(%error, "an administration command could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let app = app.clone();
            tokio::spawn(async move {
                if let Err(error) = Box::pin(serve_command(&app, stream)).await {
                    tracing::warn!(%error, "administration");
                }
            });
        }
    });
    Ok(())
}

async fn serve_command(app: &App, stream: UnixStream) -> Result<()> {
    let (read, mut write) = stream.into_split();
    let (mut line, mut read) = (String::new(), BufReader::new(read));
    read.read_line(&mut line).await?;
    let command = match decode_command(&line) {
        Ok(command) => command,
        Err(error) => {
            for event in [CommandEvent::Trouble(format!("error: {error}")), CommandEvent::Exit(1)] {
                write.write_all(&event_line(&event)?).await?;
            }
            return Ok(());
        }
    };
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let work = async {
        let services = AdminServices::of_running(app, &stop);
        let progress = sender.clone();
        let mut events = move |event| drop(progress.send(event));
        let execution = execute_command(&services, command, &mut events);
        let (execution, recorded) =
            Box::pin(app.logs.audit.on_behalf(AuditCaller::operator(), execution)).await;
        let code = match execution.and_then(|code| {
            recorded.map(|()| code).context("the command succeeded, but its audit event was not written")
        }) {
            Ok(code) => code,
            Err(error) => {
                events(CommandEvent::Trouble(format!("error: {error:#}")));
                if error.downcast_ref::<ConfigError>().is_some() { 3 } else { 1 }
            }
        };
        drop(sender.send(CommandEvent::Exit(code)));
        drop(sender);
    };
    let talk = async {
        while let Some(event) = receiver.recv().await {
            write.write_all(&event_line(&event)?).await?;
        }
        anyhow::Ok(())
    };
    let listen = async {
        let mut line = String::new();
        match read.read_line(&mut line).await {
            Ok(_) if line.trim_end() == STOP => stop.cancel(),
            // The command continues to its end even if the client disconnects.
            _ => std::future::pending().await,
        }
        std::future::pending::<()>().await;
    };
    let work_and_talk = async { tokio::join!(work, talk).1 };
    tokio::select! {
        talked = work_and_talk => talked,
        () = listen => Ok(()),
    }
}

fn event_line(event: &CommandEvent) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends a command to a running server. Returns `None` if no server runs on this folder.
///
/// # Errors
/// An error if the connection fails.
pub async fn send_command(
    data: &Path,
    command: &AdminCommand,
    stop: &CancellationToken,
    events: EventSink<'_>,
) -> Result<Option<u8>> {
    let Ok((path, _folder)) = socket_path(data) else { return Ok(None) };
    let Ok(stream) = UnixStream::connect(&path).await else { return Ok(None) };
    let (read, mut write) = stream.into_split();
    let mut line = encode_command(command)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    let mut lines = BufReader::new(read).lines();
    let mut is_stopped = false;
    loop {
        let line = tokio::select! {
            () = stop.cancelled(), if !is_stopped => {
                is_stopped = true;
                write.write_all(format!("{STOP}\n").as_bytes()).await?;
                continue;
            }
            line = lines.next_line() => line?,
        };
        let Some(line) = line else { break };
        match serde_json::from_str(&line)? {
            CommandEvent::Exit(code) => return Ok(Some(code)),
            event => events(event),
        }
    }
    bail!("the server stopped before the command completed; acknowledged changes are not lost")
}
