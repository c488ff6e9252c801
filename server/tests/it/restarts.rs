//! Restarts of a server whose socket a service manager holds: no new client is refused.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{TREFOIL, have};

/// Starts the program with the socket as its third descriptor, as a service manager does (sd_listen_fds(3)).
fn start(socket: &TcpListener, data: &Path) -> Child {
    let script = format!(
        "exec 3<&{}; LISTEN_FDS=1 LISTEN_PID=$$ exec '{TREFOIL}' serve --insecure-http --data '{}'",
        socket.as_raw_fd(),
        data.display()
    );
    let mut child = Command::new("bash")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready http://localhost:"), "{line}");
    child
}

fn stop(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

/// Sends requests on new connections until `is_over` is set. Returns the number of answers.
async fn ask(address: SocketAddr, is_over: Arc<AtomicBool>) -> Result<usize, String> {
    let client = reqwest::Client::builder()
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_secs(60))
        .build()
        .map_err(|error| error.to_string())?;
    let mut answers = 0;
    while !is_over.load(Ordering::Relaxed) {
        let answer = client.get(format!("http://{address}/health/live")).send().await;
        let status = answer.map_err(|error| format!("{error:?}"))?.status();
        if !status.is_success() {
            return Err(status.to_string());
        }
        answers += 1;
    }
    Ok(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_new_client_is_refused_while_the_socket_is_inherited() {
    if !have("bash", "passing a socket to the server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    // The child must have the descriptor.
    rustix::io::fcntl_setfd(&socket, FdFlags::empty()).unwrap();
    let address = socket.local_addr().unwrap();
    let mut child = start(&socket, folder.path());
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4).map(|_| tokio::spawn(ask(address, Arc::clone(&is_over)))).collect();
    let restarted = tokio::task::spawn_blocking(move || {
        for _ in 0..3 {
            stop(child);
            child = start(&socket, folder.path());
        }
        child
    });
    let child = restarted.await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        let answers = client.await.unwrap().unwrap();
        assert!(answers > 0);
    }
    stop(child);
}
