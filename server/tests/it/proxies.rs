//! Tests behind real proxies that end TLS, with the blocks of `server/docs/proxies.md`, and of plain
//! HTTP on the port of HTTPS.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use test_database::free_port;
use test_parties::hidden_fields;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trefoil_server::node::tls::load_tls;

use crate::sign_in::Browser;
use crate::support::{Proxy, Server, TREFOIL};
use crate::{clients, large_requests};

/// HAProxy with its second block, which forwards TCP.
const HAPROXY_TCP: &str = "haproxy-tcp";

/// A running proxy, and the folder with its configuration.
struct RunningProxy {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The first block of the document in this language.
fn documented_block(language: &str) -> String {
    documented_blocks(language).remove(0)
}

/// The blocks of the document in this language.
fn documented_blocks(language: &str) -> Vec<String> {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proxies.md");
    let text = std::fs::read_to_string(document).unwrap();
    let opening = format!("```{language}\n");
    let blocks = text.split(&opening).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

fn is_installed(program: &str) -> bool {
    let here = Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !here {
        println!("left out: {program} is not here");
    }
    here
}

/// Starts a proxy with the documented block, for a server on `upstream`.
async fn start_proxy(language: &str, upstream: u16, port: u16) -> (RunningProxy, Proxy) {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let folder = tempfile::tempdir().unwrap();
    load_tls(None, folder.path(), Timestamp::now()).unwrap();
    let tls = folder.path().join("tls");
    let both = [tls.join("cert.pem"), tls.join("key.pem")].map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(tls.join("cert-and-key.pem"), both.concat()).unwrap();
    let (program, block) = match language {
        HAPROXY_TCP => ("haproxy", documented_blocks("haproxy").remove(1)),
        language => (language, documented_block(language)),
    };
    let block = block
        .replace("/etc/trefoil", tls.to_str().unwrap())
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{upstream}"))
        .replace("127.0.0.1:8443", &format!("127.0.0.1:{upstream}"))
        .replace("id.example {", &format!("localhost:{port} {{"))
        .replace("id.example", "localhost")
        .replace("listen 443", &format!("listen 127.0.0.1:{port}"))
        .replace("bind :443", &format!("bind 127.0.0.1:{port}"));
    let config = folder.path().join("proxy.conf");
    let mut command = Command::new(program);
    match program {
        "nginx" => {
            let log = folder.path().join("error.log");
            let (pid, log) = (folder.path().join("pid"), log.display());
            let text = format!(
                "daemon off;\nuser root;\npid {};\nerror_log {log};\nevents {{}}\nhttp {{\naccess_log off;\n{block}\n}}\n",
                pid.display()
            );
            std::fs::write(&config, text).unwrap();
            command.arg("-c").arg(&config).arg("-e").arg(log.to_string()).arg("-p").arg(folder.path());
        }
        "caddy" => {
            let global = "{\nadmin off\nauto_https disable_redirects\nskip_install_trust\n}\n";
            std::fs::write(&config, format!("{global}{block}")).unwrap();
            command
                .args(["run", "--adapter", "caddyfile", "--config"])
                .arg(&config)
                .env("HOME", folder.path());
        }
        "haproxy" => {
            std::fs::write(&config, block).unwrap();
            command.args(["-db", "-f"]).arg(&config);
        }
        other => panic!("{other} is not a proxy"),
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = RunningProxy { child, _folder: folder };
    for _ in 0..300 {
        if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            let ca = tls.join("ca.pem");
            return (running, Proxy { port, ca });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{language} does not listen");
}

/// Starts a server behind a proxy, with the documented settings. `None` if the proxy is not installed.
async fn server_behind(language: &str) -> Option<(Server, RunningProxy)> {
    if !is_installed(language) {
        return None;
    }
    let port = free_port().unwrap();
    let settings = documented_block("toml")
        .replace("https://id.example", &format!("https://localhost:{port}"))
        .replace("listen =", "# listen =");
    let server = Server::in_fresh_folder().with_settings(&settings);
    let (running, proxy) = start_proxy(language, server.address().port(), port).await;
    Some((server.behind(proxy), running))
}

/// Fails to sign in, with hostile headers, from another address of this machine.
async fn check_client_address(server: &Server) {
    let client = server.client_from([127, 0, 0, 2]);
    let mut browser = Browser::new(server);
    browser.client = client;
    let page = browser.get(&format!("{}/sign-in", server.base())).await.text().await.unwrap();
    let mut form = hidden_fields(&page);
    form.extend([("username".to_owned(), "willow".to_owned()), ("password".to_owned(), "wrong".to_owned())]);
    let request = browser.client.post(format!("{}/sign-in", server.base())).form(&form);
    let request = request
        .header("x-forwarded-for", "203.0.113.9, 127.0.0.1")
        .header("forwarded", "for=203.0.113.9")
        .header("x-forwarded-host", "evil.example")
        .header("x-forwarded-proto", "http")
        .header("x-real-ip", "203.0.113.9");
    let refusal = browser.send(request).await;
    assert!(!refusal.status().is_success() || refusal.status() == 200, "{}", refusal.status());
    let files = std::fs::read_dir(server.data().join("audit")).unwrap();
    let audit: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert!(audit.contains("127.0.0.2"), "the address is that of the client: {audit}");
    assert!(!audit.contains("203.0.113.9"), "a client cannot write its address: {audit}");
    let discovery = server.client().get(format!("{}/.well-known/openid-configuration", server.base()));
    let discovery = discovery.header("x-forwarded-host", "evil.example").send().await.unwrap();
    assert!(!discovery.text().await.unwrap().contains("evil"));
}

/// Runs the rows of the suite that a running server can answer, through the proxy: pages, passkeys, DPoP,
/// pushed requests, tokens, and all of FHIR.
fn check_suite(server: &Server) {
    let suite = Path::new(TREFOIL).with_file_name("trefoil-conformance");
    if !suite.exists() {
        println!("left out: the suite through a proxy: trefoil-conformance was not built");
        return;
    }
    let mut profile = server.demo_json();
    profile["ca"] = server.ca().to_str().unwrap().into();
    let file = server.data().join("profile.json");
    std::fs::write(&file, profile.to_string()).unwrap();
    // Proxies answer malformed requests themselves, and the home page does not know of their certificates.
    let skipped = [
        "design/malformed",
        "spec/userinfo-errors/invalid-request/two-headers",
        "design/pages/home/stranger",
    ];
    let output = Command::new(suite)
        .args(["run", "--house", "--write"])
        .args(skipped.iter().flat_map(|rows| ["--skip", rows]))
        .args(["--target", &server.base(), "--profile"])
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

async fn check_behind(language: &str) {
    let Some((mut server, _proxy)) = server_behind(language).await else { return };
    large_requests::prepare(&server);
    server.start();
    large_requests::check_largest(&server).await;
    check_client_address(&server).await;
    clients::check_popup(&server).await;
    check_suite(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_behind_nginx() {
    check_behind("nginx").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_behind_caddy() {
    check_behind("caddy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_behind_haproxy() {
    check_behind("haproxy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_forwards_tcp_says_the_address_of_its_client() {
    if !is_installed("haproxy") {
        return;
    }
    let port = free_port().unwrap();
    let mut server = Server::in_fresh_folder();
    let (running, mut proxy) = start_proxy(HAPROXY_TCP, server.address().port(), port).await;
    // The server has the certificate that was made for the proxy.
    let settings = documented_blocks("toml")
        .into_iter()
        .find(|block| block.contains("proxy_protocol_from"))
        .unwrap()
        .replace("https://id.example", &format!("https://localhost:{port}"))
        .replace("/etc/trefoil", proxy.ca.parent().unwrap().to_str().unwrap());
    proxy.port = port;
    server = server.with_settings(&settings).behind(proxy);
    server.start();
    check_client_address(&server).await;
    assert!(!server.log().contains("PROXY protocol"), "{}", server.log());
    // A connection without the header is closed, with one line in the log.
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut bytes = Vec::new();
        // A reset is an end, too.
        drop(stream.read_to_end(&mut bytes).await);
        assert!(bytes.is_empty(), "{}", String::from_utf8_lossy(&bytes));
    }
    assert_eq!(server.log().matches("PROXY protocol").count(), 1, "{}", server.log());
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_proxy_may_use_plain_http() {
    let settings = "[server]\nbase_url = \"https://id.example\"\nplain_http_from = [\"127.0.0.3\"]\n";
    let mut server = Server::in_fresh_folder().with_settings(settings);
    server.start();
    let get = async |from: [u8; 4], path: &str| {
        let client = reqwest::Client::builder().local_address(Some(from.into())).no_proxy().build().unwrap();
        let address = format!("http://{}{path}", server.address());
        let bytes = client.get(address).send().await.unwrap();
        (bytes.status().as_u16(), bytes.text().await.unwrap())
    };
    assert_eq!(get([127, 0, 0, 3], "/fhir/R4/metadata").await.0, 200);
    for path in ["/fhir/R4/metadata", "/", "/oauth2/token", "/health", "/health/../fhir/R4/metadata"] {
        let (status, text) = get([127, 0, 0, 2], path).await;
        assert_eq!(status, 403, "{path}");
        assert!(text.contains("plain_http_from"), "{text}");
    }
    assert_eq!(get([127, 0, 0, 2], "/health/live").await.0, 200);
    assert_eq!(get([127, 0, 0, 2], "/health/ready").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_on_the_port_of_https_is_redirected() {
    let server = Server::demo();
    for (request, target) in [
        (
            "GET /fhir/R4/metadata?_format=json HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "/fhir/R4/metadata?_format=json",
        ),
        ("POST /oauth2/token HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "/oauth2/token"),
        ("GET http://evil.example/a HTTP/1.1\r\nHost: evil.example\r\n\r\n", "/a"),
        ("GET / HTTP/1.0\r\n\r\n", "/"),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = String::new();
        stream.read_to_string(&mut bytes).await.unwrap();
        assert!(bytes.contains(" 308 Permanent Redirect\r\n"), "{bytes}");
        assert!(bytes.contains(&format!("location: {}{target}\r\n", server.base())), "{bytes}");
    }
}
