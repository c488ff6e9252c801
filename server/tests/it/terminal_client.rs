//! A journey of the terminal client in tmux, with Chromium: sign-in, a validation, an export whose connection
//! is cut, a restart that resumes it, and sign-out.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::driver::{Driver, have_browser};
use crate::support::{Server, TREFOIL};

/// Time between two looks at the screen.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum number of looks until the expected text is on the screen.
const LOOKS: usize = 600;

/// A terminal of 80 columns and 24 rows in which the client runs.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// Returns `None` if tmux is not installed.
    fn new(name: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            println!("left out: the terminal client in tmux: tmux is not here");
            return None;
        }
        Some(Self { socket: format!("trefoil-{name}-{}", std::process::id()) })
    }

    fn tmux(&self, args: &[&str]) -> Output {
        Command::new("tmux").args(["-L", &self.socket, "-f", "/dev/null"]).args(args).output().unwrap()
    }

    /// Runs a shell command in a new session. The server of tmux stays when the session ends: one that is
    /// just ending would refuse the next session.
    fn run(&self, command: &str) {
        let session = ["new-session", "-d", "-x", "80", "-y", "24", command];
        let output = self.tmux(&[&session[..], &[";", "set-option", "-s", "exit-empty", "off"]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// Waits until the screen contains a text and returns the screen.
    async fn wait_for(&self, text: &str) -> String {
        let mut looks = tokio::time::interval(LOOK);
        for _ in 0..LOOKS {
            looks.tick().await;
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
        }
        panic!("'{text}' is not on the screen:\n{}", self.screen());
    }

    /// Answers a question with yes. The client ignores the first half second, so that a key is repeated until
    /// the question has gone.
    async fn confirm(&self) {
        self.wait_for("Press y for").await;
        let mut looks = tokio::time::interval(LOOK);
        for _ in 0..LOOKS {
            looks.tick().await;
            if !self.screen().contains("Press y for") {
                return;
            }
            self.press(&["y"]);
        }
        panic!("the question stays:\n{}", self.screen());
    }

    /// Waits until the client has ended, and with it the session.
    async fn wait_for_end(&self) {
        let mut looks = tokio::time::interval(LOOK);
        for _ in 0..LOOKS {
            looks.tick().await;
            if !self.tmux(&["has-session"]).status.success() {
                return;
            }
        }
        panic!("the client is still running:\n{}", self.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A proxy (HTTP CONNECT) whose connections can be cut.
struct CuttingProxy {
    port: u16,
    /// Number of bytes of the server after which all connections are cut.
    limit: Arc<AtomicU64>,
    down: Arc<AtomicBool>,
}

impl CuttingProxy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (limit, down) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicBool::new(false)));
        let proxy = Self { port, limit: limit.clone(), down: down.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !down.load(Ordering::SeqCst) {
                    tokio::spawn(forward(client, limit.clone(), down.clone()));
                }
            }
        });
        proxy
    }

    /// Cuts all connections after this number of further bytes, and refuses new ones.
    fn cut_after(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::SeqCst);
    }

    fn restore(&self) {
        self.limit.store(u64::MAX, Ordering::SeqCst);
        self.down.store(false, Ordering::SeqCst);
    }
}

/// Forwards one connection until it ends or is cut.
async fn forward(mut client: TcpStream, limit: Arc<AtomicU64>, down: Arc<AtomicBool>) -> Option<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if client.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let target = head.strip_prefix("CONNECT ")?.split(' ').next()?.to_owned();
    let mut server = TcpStream::connect(target).await.ok()?;
    client.write_all(b"HTTP/1.1 200 connected\r\n\r\n").await.ok()?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let responses = async {
        let mut buffer = [0; 4096];
        loop {
            let size = from_server.read(&mut buffer).await.ok()?;
            let bytes_left = limit.load(Ordering::SeqCst);
            if size == 0 || down.load(Ordering::SeqCst) {
                return Some(());
            }
            if bytes_left < size as u64 {
                down.store(true, Ordering::SeqCst);
                return Some(());
            }
            if bytes_left < u64::MAX {
                limit.fetch_sub(size as u64, Ordering::SeqCst);
            }
            to_client.write_all(&buffer[..size]).await.ok()?;
        }
    };
    tokio::select! {
        _ = requests => None,
        ended = responses => ended,
    }
}

/// Signs in as the demo user in Chromium.
async fn browse(server: &Server, url: &str) {
    let driver = Driver::start().await;
    driver.go(url).await;
    driver.fill("#username", "willow").await;
    driver.fill("#password", server.demo_json()["user"]["password"].as_str().unwrap()).await;
    driver.run("document.querySelector('#password').form.requestSubmit()").await;
    driver.find("form[action='/consent']").await;
    driver.press("button[value=allow]").await;
    assert_eq!(driver.text("#result h1").await, "You are signed in");
    let address = driver.run("return location.href").await;
    assert!(!address.as_str().unwrap().contains("code="), "{address}");
}

/// Waits until the browser of the client was asked for an address.
async fn requested_address(file: &Path) -> String {
    let mut looks = tokio::time::interval(LOOK);
    for _ in 0..LOOKS {
        looks.tick().await;
        match std::fs::read_to_string(file) {
            Ok(url) if url.ends_with('\n') => return url.trim().to_owned(),
            _ => {}
        }
    }
    panic!("the client opened no browser");
}

/// Returns whether a line of a pane begins with a time of day, which differs in each run.
fn begins_with_time(line: &str) -> bool {
    let line = line.trim_start_matches(['│', ' ']);
    let digits = line.bytes().take(8).filter(u8::is_ascii_digit).count();
    digits == 6 && line.bytes().take(8).filter(|byte| *byte == b':').count() == 2
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_signs_in_validates_exports_restarts_and_signs_out() {
    let Some(terminal) = Terminal::new("journey") else { return };
    let client = Path::new(TREFOIL).with_file_name("trefoil-tui");
    if !client.exists() {
        println!("left out: the terminal client in tmux: trefoil-tui was not built");
        return;
    }
    if !have_browser() {
        return;
    }
    let server = Server::demo();
    let proxy = CuttingProxy::start().await;
    let (data, address) = (server.data().display(), server.data().join("address"));
    // The browser of the client is this command, which writes the address to a file.
    let browser = server.data().join("browser.sh");
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$1\" > '{}'\n", address.display())).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&browser, mode).unwrap();
    let command = format!(
        "cd '{data}' && env -u NO_COLOR BROWSER='{}' HTTPS_PROXY=http://127.0.0.1:{} XDG_STATE_HOME='{data}/state' \
         LC_ALL=C.UTF-8 '{}' --demo '{data}'",
        browser.display(),
        proxy.port,
        client.display()
    );

    terminal.run(&command);
    terminal.wait_for("Walking circle").await;
    terminal.press(&["s"]);
    browse(&server, &requested_address(&address).await).await;
    terminal.wait_for("Willow Marsh").await;

    terminal.press(&["2"]);
    terminal.press(&["Enter"]);
    let screen = terminal.wait_for("Yes: cane is in the value set").await;
    // The header has the time left.
    let lines: Vec<_> = screen.lines().skip(1).take(18).filter(|line| !begins_with_time(line)).collect();
    insta::assert_snapshot!("terminal_client_validation", lines.join("\n"));

    // A concept is found by a word, and validated without a URL.
    terminal.press(&["0"]);
    terminal.press(&["/", "c", "a", "n", "e"]);
    terminal.wait_for("Aid › Mobility aid › Walking aid › Walking stick › Cane").await;
    terminal.press(&["Escape"]);
    terminal.wait_for("subsumes").await;
    terminal.press(&["v"]);
    terminal.wait_for("Yes: cane is a code of the code system").await;

    // The export has 212 kB of files, 11 kB compressed; its connection is cut within them.
    terminal.press(&["0"]);
    terminal.press(&["Escape"]);
    terminal.wait_for("Walking circle").await;
    terminal.press(&["Down", "Down", "Enter"]);
    terminal.wait_for("Walking circle, into a new folder").await;
    proxy.cut_after(10_000);
    terminal.press(&["Enter"]);
    terminal.wait_for("retrying").await;
    terminal.press(&["q"]);
    terminal.wait_for("can be resumed later").await;
    terminal.confirm().await;
    terminal.wait_for_end().await;

    proxy.restore();
    terminal.run(&command);
    // The screen and the session of the earlier run are continued.
    terminal.wait_for("interrupted; r resumes").await;
    terminal.press(&["1"]);
    terminal.wait_for("Willow Marsh").await;
    terminal.press(&["4"]);
    terminal.wait_for("interrupted; r resumes").await;
    terminal.press(&["r"]);
    terminal.wait_for("Saved 440 resources, 212.7 kB").await;
    terminal.press(&["1"]);
    terminal.press(&["o"]);
    terminal.confirm().await;
    terminal.wait_for("Signed out; the token is revoked.").await;
    terminal.press(&["q"]);
    terminal.wait_for_end().await;
    let tokens = server.data().join("state/trefoil-tui/tokens");
    assert_eq!(std::fs::read_dir(tokens).unwrap().count(), 0, "the tokens are deleted");
}
