//! The redirect target of the browser: a listener on a free port of this machine (RFC 8252 7.3), open during
//! one sign-in.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::api::{BadRedirect, PendingSignIn};

/// Maximum size of a request head, in bytes. A request with code, state and issuer is far shorter.
const HEAD_LIMIT: usize = 16 * 1024;
/// Time after which a silent connection is closed. Browsers open connections that they do not use.
const SILENCE: Duration = Duration::from_secs(30);

/// Listens on the same port of 127.0.0.1 and, if IPv6 is available, of `::1`, because `localhost` may mean
/// either.
#[derive(Debug)]
pub struct LoopbackListener {
    v4: TcpListener,
    v6: Option<TcpListener>,
    port: u16,
    host: String,
    path: String,
}

impl LoopbackListener {
    /// Listens on a free port. `host` is the host of the redirect URI, `localhost` or `127.0.0.1`, and `path`
    /// its path.
    ///
    /// # Errors
    /// The error of the operating system.
    pub async fn bind(host: &str, path: &str) -> io::Result<Self> {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = v4.local_addr()?.port();
        // If the port is in use on `::1`, browsers fall back to 127.0.0.1.
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await.ok();
        Ok(Self { v4, v6, port, host: host.to_owned(), path: path.to_owned() })
    }

    /// The redirect URI of this sign-in.
    pub fn redirect_uri(&self) -> String {
        format!("http://{}:{}{}", self.host, self.port, self.path)
    }

    /// Waits for a response of the browser that has a code or ends the sign-in. A browser with a code waits
    /// for the result. Queries of other sign-ins are rejected, and the sign-in continues.
    ///
    /// # Errors
    /// The reason why the response ended the sign-in.
    pub async fn wait(&self, pending: &PendingSignIn) -> Result<(String, WaitingBrowser), BadRedirect> {
        let (sender, mut requests) = mpsc::channel(8);
        loop {
            tokio::select! {
                accepted = self.accept() => {
                    if let Ok((stream, _)) = accepted {
                        tokio::spawn(read_target(stream, sender.clone()));
                    }
                }
                Some((stream, target)) = requests.recv() => {
                    let Some(query) = target.strip_prefix(self.path.as_str()).and_then(|rest| rest.strip_prefix('?')) else {
                        tokio::spawn(answer(stream, "404 Not Found", page("This page does not exist", "")));
                        continue;
                    };
                    let browser = WaitingBrowser(stream);
                    match pending.judge(query) {
                        Ok(code) => return Ok((code, browser)),
                        Err(error) => {
                            browser.show(SignInResult::Failed(&error.to_string())).await;
                            if error.ends_sign_in() {
                                return Err(error);
                            }
                        }
                    }
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.v6 {
            Some(v6) => tokio::select! {
                accepted = self.v4.accept() => accepted,
                accepted = v6.accept() => accepted,
            },
            None => self.v4.accept().await,
        }
    }
}

/// A browser that has sent a code, and waits for a page.
#[derive(Debug)]
pub struct WaitingBrowser(TcpStream);

/// The result of a sign-in, for the browser.
#[derive(Clone, Copy, Debug)]
pub enum SignInResult<'a> {
    /// The server has issued tokens.
    SignedIn,
    /// The server has not answered yet.
    Pending,
    Failed(&'a str),
}

impl WaitingBrowser {
    /// Shows a page with the result.
    pub async fn show(self, result: SignInResult<'_>) {
        let close = "You can close this window and go back to the terminal.";
        let (status, page) = match result {
            SignInResult::SignedIn => ("200 OK", page("You are signed in", close)),
            SignInResult::Pending => {
                let text = "The server does not answer yet. The terminal shows whether you are signed in.";
                ("200 OK", page("The sign-in continues in the terminal", text))
            }
            SignInResult::Failed(error) => ("400 Bad Request", page("The sign-in did not succeed", error)),
        };
        answer(self.0, status, page).await;
    }
}

/// Reads the head of one request and sends the target of a GET to `sender`.
async fn read_target(mut stream: TcpStream, sender: mpsc::Sender<(TcpStream, String)>) {
    let mut head = Vec::new();
    let read = async {
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            if head.len() > HEAD_LIMIT || stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                return None;
            }
        }
        let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
        let (target, version) = line.strip_prefix("GET ")?.rsplit_once(' ')?;
        version.starts_with("HTTP/1.").then(|| target.to_owned())
    };
    if let Ok(Some(target)) = tokio::time::timeout(SILENCE, read).await {
        // Sending fails if the sign-in has ended and the receiver is dropped.
        let _ = sender.send((stream, target)).await;
    }
}

async fn answer(mut stream: TcpStream, status: &str, page: String) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n",
        page.len(),
    );
    // Writing fails if the browser has closed the connection.
    let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A page. Its script removes the code from the address bar and the history of the browser.
fn page(title: &str, text: &str) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (title, text) = (escape(title), escape(text));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>\
         :root{{color-scheme:light dark}}body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:32rem;\
         margin:20vh auto;padding:0 1rem;text-align:center}}</style></head>\
         <body><main id=\"result\"><h1>{title}</h1><p>{text}</p></main>\
         <script>history.replaceState(null, \"\", \"/\")</script></body></html>"
    )
}
