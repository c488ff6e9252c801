//! A running server of the real binary, and helper functions for clients of it.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rustix::io::FdFlags;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_server::{DataFolder, ServerProcess, StartError};

/// Path of the server program.
pub const TREFOIL: &str = env!("CARGO_BIN_EXE_trefoil");
/// Time after which something that a test waits for counts as stuck. Busy machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A data folder and the server that runs on it.
pub struct Server {
    pub dir: TempDir,
    port: u16,
    plain: bool,
    open: bool,
    /// Shell commands that prepare the process of the server.
    prepare: String,
    program: PathBuf,
    /// The socket that the server inherits.
    socket: Option<TcpListener>,
    /// Base URL and database that the server shares with other nodes.
    shared: Option<(String, String)>,
    /// The proxy in front of the server, which ends TLS.
    proxy: Option<Proxy>,
    process: Option<ServerProcess>,
}

/// A proxy in front of a server.
#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
    /// PEM file of the CA of its certificate.
    pub ca: PathBuf,
}

impl Server {
    /// Starts a server with the demo project in a new folder.
    pub fn demo() -> Self {
        let mut server = Self::in_fresh_folder();
        server.start();
        server
    }

    /// Starts a server with the demo project over plain HTTP on this machine. Browsers store passkeys for it
    /// without having to trust a certificate.
    pub fn plain_demo() -> Self {
        let mut server = Self::in_fresh_folder();
        server.plain = true;
        server.start();
        server
    }

    /// Prepares a server in a new folder with a free port. The port stays the same over restarts.
    pub fn in_fresh_folder() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    /// Prepares a server in an existing folder.
    pub fn in_folder(dir: TempDir) -> Self {
        let port = test_database::free_port().unwrap();
        Self {
            dir,
            port,
            plain: false,
            open: false,
            prepare: String::new(),
            program: TREFOIL.into(),
            socket: None,
            shared: None,
            proxy: None,
            process: None,
        }
    }

    pub fn data(&self) -> &Path {
        self.dir.path()
    }

    /// Prepares a server in a new folder with anonymous terminology and a log file.
    pub fn open_terminology() -> Self {
        Self::in_fresh_folder().with_settings("[terminology]\nanonymous = true\n")
    }

    /// Sets the server to plain HTTP on this machine.
    pub fn over_plain_http(mut self) -> Self {
        self.plain = true;
        self
    }

    /// Makes the server a node that shares a base URL and a database with others.
    pub fn sharing(mut self, base: &str, database: &str) -> Self {
        self.plain = true;
        self.shared = Some((base.to_owned(), database.to_owned()));
        self
    }

    /// Makes the server use the store in its folder again, over plain HTTP.
    pub fn alone(mut self) -> Self {
        self.shared = None;
        self
    }

    /// Sets the proxy through which the server is reached.
    pub fn behind(mut self, proxy: Proxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Limits the number of file descriptors of the server.
    pub fn with_descriptors(self, limit: u32) -> Self {
        self.prepared(&format!("ulimit -n {limit}"))
    }

    /// Runs the server in a control group.
    pub fn in_control_group(self, group: &Path) -> Self {
        self.prepared(&format!("echo $$ > {}/cgroup.procs", group.display()))
    }

    /// Sets variables in the environment of the server.
    pub fn with_variables(self, variables: &[(&str, &str)]) -> Self {
        variables
            .iter()
            .fold(self, |server, (name, value)| server.prepared(&format!("export {name}={value}")))
    }

    /// Sets the program of the next start.
    pub fn set_program(&mut self, program: &Path) {
        self.program = program.to_owned();
    }

    /// Holds the socket of the server and passes it to each process, as a service manager does
    /// (`sd_listen_fds(3)`). Connections wait during a restart. Needs bash.
    pub fn holding_its_socket(mut self) -> Self {
        let socket = TcpListener::bind(self.address()).unwrap();
        // The child must have the descriptor.
        rustix::io::fcntl_setfd(&socket, FdFlags::empty()).unwrap();
        let pass = format!("exec 3<&{}; export LISTEN_FDS=1 LISTEN_PID=$$", socket.as_raw_fd());
        self.socket = Some(socket);
        self.prepared(&pass)
    }

    /// Runs a shell command in the process of the server before the server.
    fn prepared(mut self, command: &str) -> Self {
        self.prepare += &format!("{command}; ");
        self
    }

    /// Sets the content of the configuration file. The server writes a log file.
    pub fn with_settings(mut self, text: &str) -> Self {
        self.open = true;
        std::fs::write(self.settings(), text).unwrap();
        self
    }

    /// Returns the path of the configuration file.
    fn settings(&self) -> PathBuf {
        self.data().join("trefoil.toml")
    }

    /// Returns the log since the last start, if the server writes one.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data().join("server.log")).unwrap()
    }

    /// Starts the server and waits until it is ready.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts the server with further command-line options and waits until it is ready.
    pub fn start_with(&mut self, flags: &[&str]) {
        self.try_start(flags).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Starts the server and waits until it is ready, or returns why it is not.
    pub fn try_start(&mut self, flags: &[&str]) -> Result<(), StartError> {
        let mut command = Command::new(&self.program);
        if !self.prepare.is_empty() {
            // Other shells have descriptors of one digit only.
            command = Command::new(if self.socket.is_some() { "bash" } else { "sh" });
            command.args(["-c", &format!("{}exec \"$@\"", self.prepare), "sh"]).arg(&self.program);
        }
        command.arg("serve");
        if self.plain {
            let base = self.shared.as_ref().map_or_else(|| self.base(), |(base, _)| base.clone());
            command.args(["--insecure-http", "--base-url", &base]);
        }
        if let Some((_, database)) = &self.shared {
            command.args(["--store", database]);
        }
        let mut log = Stdio::inherit();
        if self.open {
            command.arg("--config").arg(self.settings());
            log = std::fs::File::create(self.data().join("server.log")).unwrap().into();
        }
        if self.socket.is_none() {
            command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        }
        command
            .args(["--demo", "--data"])
            .arg(self.dir.path())
            .args(flags)
            .env("TREFOIL_LOG", "warn")
            .stderr(log);
        self.process = Some(ServerProcess::start(&mut command)?);
        Ok(())
    }

    /// Starts a server that is expected to fail, and returns its output.
    pub fn start_in_vain(&self) -> std::process::Output {
        let mut command = Command::new(TREFOIL);
        command.args(["serve", "--demo", "--insecure-http", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(self.data()).env("TREFOIL_LOG", "warn").stdin(Stdio::null()).output().unwrap()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.process.take().expect("the server runs");
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.process.take().expect("the server runs").stop().unwrap().code()
    }

    /// Waits until a stopped server ends, and returns the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.process.take().expect("the server runs").wait().unwrap().code()
    }

    /// Returns the resident memory of the server in MiB; 0 if the system does not report it.
    pub fn resident_mib(&self) -> u64 {
        let pid = self.process.as_ref().expect("the server runs").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        self.process.as_ref().expect("the server runs").signal(name).unwrap();
    }

    pub fn json(&self, file: &str) -> Value {
        DataFolder(self.data()).json(file).unwrap()
    }

    pub fn demo_json(&self) -> Value {
        self.json("demo.json")
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub fn base(&self) -> String {
        if let Some(proxy) = &self.proxy {
            return format!("https://localhost:{}", proxy.port);
        }
        format!("{}://localhost:{}", if self.plain { "http" } else { "https" }, self.port)
    }

    pub fn fhir(&self) -> String {
        format!("{}/fhir/R4", self.base())
    }

    pub fn ca(&self) -> PathBuf {
        match &self.proxy {
            Some(proxy) => proxy.ca.clone(),
            None => DataFolder(self.data()).ca().unwrap().unwrap(),
        }
    }

    /// Returns a client that trusts the development CA and follows no redirects.
    pub fn client(&self) -> reqwest::Client {
        self.try_client().unwrap()
    }

    /// Returns such a client, or an error if the CA file is not a certificate.
    pub fn try_client(&self) -> reqwest::Result<reqwest::Client> {
        self.client_builder()?.build()
    }

    /// Returns a client that connects from this address of the machine.
    pub fn client_from(&self, address: [u8; 4]) -> reqwest::Client {
        self.client_builder().and_then(|builder| builder.local_address(Some(address.into())).build()).unwrap()
    }

    fn client_builder(&self) -> reqwest::Result<reqwest::ClientBuilder> {
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let ca = (!self.plain).then(|| std::fs::read(self.ca()).unwrap());
        let ca = ca.map(|pem| reqwest::Certificate::from_pem(&pem)).transpose()?;
        Ok(reqwest::Client::builder()
            .tls_certs_only(ca)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(PATIENCE))
    }

    /// Returns an access token of the back-end client that signs with ES384.
    pub async fn backend_token(&self, scope: &str) -> String {
        self.try_backend_token(scope).await.unwrap_or_else(|response| panic!("{response}"))
    }

    /// Returns such an access token, or the response of the server if it is not issued.
    pub async fn try_backend_token(&self, scope: &str) -> Result<String, String> {
        let demo = self.demo_json();
        let backend = demo["backend"].as_array().unwrap().iter().find(|c| c["alg"] == "ES384").unwrap();
        let form = [
            ("grant_type", "client_credentials"),
            ("scope", scope),
            ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
            ("client_assertion", &assertion(backend, &format!("{}/oauth2/token", self.base()))),
        ];
        let client = self.try_client().map_err(|error| error.to_string())?;
        let response = client.post(format!("{}/oauth2/token", self.base())).form(&form).send().await;
        let response: Value = response.map_err(|error| error.to_string())?.json().await.unwrap();
        response["access_token"].as_str().map(str::to_owned).ok_or_else(|| response.to_string())
    }

    /// Runs an administration command.
    pub fn trefoil(&self, args: &[&str]) -> std::process::Output {
        Command::new(TREFOIL).args(args).arg("--data").arg(self.data()).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `trefoil user add` with the password on its standard input.
    pub fn add_user(&self, args: &[&str], password: &str) -> std::process::Output {
        self.with_password(&[&["user", "add"], args].concat(), password)
    }

    /// Runs a command with the password on its standard input.
    pub fn with_password(&self, args: &[&str], password: &str) -> std::process::Output {
        let mut child = Command::new(TREFOIL)
            .args(args)
            .arg("--data")
            .arg(self.data())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that exits before it reads the password closes the pipe. This is not an error of the
        // test.
        drop(child.stdin.take().unwrap().write_all(password.as_bytes()));
        child.wait_with_output().unwrap()
    }
}

/// Returns a client assertion, signed with the private JWK (P-384) in `demo.json`.
pub fn assertion(backend: &Value, audience: &str) -> String {
    let (jwk, id) = (&backend["jwk"], &backend["client_id"]);
    let header = json!({ "alg": "ES384", "typ": "JWT", "kid": jwk["kid"] });
    let expires = jiff::Timestamp::now().as_second() + 300;
    let claims = json!({ "iss": id, "sub": id, "aud": audience, "exp": expires, "jti": fresh_id() });
    sign_jwt(jwk, &header, &claims)
}

/// Returns an id that no other call returns.
pub fn fresh_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = jiff::Timestamp::now().as_second();
    format!("{}-{}-{now}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a JWT, signed with a private JWK (P-384).
pub fn sign_jwt(jwk: &Value, header: &Value, claims: &Value) -> String {
    let part = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap();
    let point = [vec![4], part("x"), part("y")].concat();
    let key =
        EcdsaKeyPair::from_private_key_and_public_key(&ECDSA_P384_SHA384_FIXED_SIGNING, &part("d"), &point)
            .unwrap();
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

/// Returns `true` if a program is installed. Otherwise prints that the test is left out.
pub fn have(program: &str, what: &str) -> bool {
    let here = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !here {
        println!("left out: {what}: {program} is not here");
    }
    here
}

/// Returns the folder of the Python packages that `.ci/run` installs.
pub fn python_packages() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python")
}

/// Returns `true` if the packages of a language are installed. Otherwise prints that the test is left out.
pub fn installed(what: &str, at: &std::path::Path) -> bool {
    if !at.exists() {
        println!("left out: {what}: not installed; .ci/run does that");
    }
    at.exists()
}

/// Polls an export until it is complete and returns its manifest.
pub async fn manifest_at(client: &reqwest::Client, token: &str, status: &str) -> Value {
    loop {
        let response = client.get(status).bearer_auth(token).send().await.unwrap();
        if response.status() == 200 {
            return response.json().await.unwrap();
        }
        assert_eq!(response.status(), 202);
    }
}
