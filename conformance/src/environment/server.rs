//! Our own server as a separate process: found or built, started on a free port with an empty store and the
//! demo project, and stopped when it is dropped.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use test_database::TestDatabase;
use test_server::{DataFolder, ServerProcess};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::error::SetupError;
use super::target::{self, TargetKind, TestTarget};
use crate::profile::Profile;

/// Whether servers are started in process groups of their own.
static SURVIVE_INTERRUPTS: AtomicBool = AtomicBool::new(false);

/// The storage engine of the servers that are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OwnStore {
    /// In memory. Cases that restart a server are skipped.
    Memory,
    /// In a folder.
    #[default]
    File,
    /// In a database of a private PostgreSQL server, which must be installed.
    Postgres,
}

static STORE: OnceLock<OwnStore> = OnceLock::new();

/// Sets the storage engine of all servers that are started from now on. Only the first call has an effect.
pub fn use_store(store: OwnStore) {
    STORE.get_or_init(|| store);
}

/// The storage engine of the servers that are started.
pub fn own_store() -> OwnStore {
    STORE.get().copied().unwrap_or_default()
}

/// The value of `--store` for a new server.
fn new_store() -> Result<String> {
    Ok(match own_store() {
        OwnStore::Memory => "memory".to_owned(),
        OwnStore::File => "file".to_owned(),
        OwnStore::Postgres => {
            let database =
                TestDatabase::shared().context("PostgreSQL is not installed (Debian: postgresql)")?;
            database.create().context("failed to create a database")?
        }
    })
}

/// Keeps servers that are started from now on running when a terminal interrupts this program (Ctrl-C), so
/// that the cases that run can end. The program must handle the signal, and drop the servers.
pub fn survive_interrupts() {
    SURVIVE_INTERRUPTS.store(true, Ordering::Relaxed);
}

/// A running server.
pub struct OwnServer {
    folder: TempDir,
    /// Value of `--store`.
    store: String,
    config: String,
    port: u16,
    program: PathBuf,
    process: ServerProcess,
}

impl OwnServer {
    /// Starts a server with an empty folder. `config` is the text of its `trefoil.toml`.
    ///
    /// # Errors
    /// An error if the server does not become ready.
    pub async fn start(config: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("failed to create a temporary folder")?;
        Self::spawn(folder, new_store()?, config.to_owned(), 0, 0).await
    }

    /// Kills the server, which its store must survive as it survives a crash, and restarts it with the same
    /// configuration on the same port, with a clock that is `ahead_s` seconds ahead.
    ///
    /// # Errors
    /// An error if the server does not become ready.
    pub async fn restart(self, ahead_s: i64) -> Result<Self> {
        drop(self.process);
        Self::spawn(self.folder, self.store, self.config, self.port, ahead_s).await
    }

    async fn spawn(folder: TempDir, store: String, config: String, port: u16, ahead_s: i64) -> Result<Self> {
        let program = test_server::program()?;
        let data = folder.path();
        let file = data.join("trefoil.toml");
        std::fs::write(&file, &config)?;
        let log_path = data.join("server.log");
        let mut command = std::process::Command::new(&program);
        #[cfg(unix)]
        if SURVIVE_INTERRUPTS.load(Ordering::Relaxed) {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
        }
        command
            .args(["serve", "--demo", "--listen", &format!("127.0.0.1:{port}"), "--data"])
            .arg(data)
            .args(["--store", &store, "--config"])
            .arg(&file)
            .env("TREFOIL_DEMO_AHEAD_S", ahead_s.to_string())
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&log_path)?);
        // The start waits for the server, which would stop other tasks of this thread.
        let started = tokio::task::spawn_blocking(move || ServerProcess::start(&mut command)).await?;
        let process = started.with_context(|| {
            format!("the log of the server:\n{}", std::fs::read_to_string(log_path).unwrap_or_default())
        })?;
        let port = url::Url::parse(process.address())?.port().unwrap_or(443);
        Ok(Self { folder, store, config, port, program, process })
    }

    /// Replaces the folder of export files with a file, so that no export file can be written.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn block_exports(&self) -> Result<()> {
        let folder = self.folder.path().join("exports");
        if folder.is_dir() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::write(&folder, "in the way").context("failed to block the export files")
    }

    /// Returns everything that the server has logged so far: its log and, if it exists, its audit log.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn logs(&self) -> Result<String> {
        let mut logs = std::fs::read_to_string(self.folder.path().join("server.log"))?;
        if let Ok(files) = std::fs::read_dir(self.folder.path().join("audit")) {
            for file in files {
                logs.push_str(&std::fs::read_to_string(file?.path())?);
            }
        }
        Ok(logs)
    }

    /// The CA certificate that signs the server's certificate, as PEM, if the server generated one.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn ca(&self) -> Result<Option<Vec<u8>>> {
        Ok(DataFolder(self.folder.path()).ca()?.map(std::fs::read).transpose()?)
    }

    /// The base URL of the server.
    pub fn base_url(&self) -> &str {
        self.process.address()
    }

    /// The users, clients and resources of the demo project.
    ///
    /// # Errors
    /// An error if a file is missing or is not valid.
    pub fn profile(&self) -> Result<Profile> {
        let Value::Object(members) = DataFolder(self.folder.path()).demo()? else {
            bail!("demo.json is not a JSON object")
        };
        Ok(Profile { members, ca_pem: self.ca()? })
    }

    /// Connects to the server with the addresses and credentials in its folder.
    ///
    /// # Errors
    /// An error if a file is missing or the server does not answer.
    pub async fn target(&self) -> Result<TestTarget> {
        TestTarget::connect(self.base_url(), self.profile()?, TargetKind::Trefoil, target::TIMEOUT).await
    }

    /// The number of exports whose files the server keeps.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn count_exports(&self) -> Result<usize> {
        match std::fs::read_dir(self.folder.path().join("exports")) {
            Ok(entries) => Ok(entries.count()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs an administration command on the data of the server, with `input` as its standard input. Returns
    /// its output.
    ///
    /// # Errors
    /// [`SetupError::Failed`] with the output of a command that failed.
    pub async fn admin(&self, args: &[&str], input: &str) -> Result<String, SetupError> {
        let failed = |text: String| SetupError::Failed(format!("`trefoil {}`: {text}", args.join(" ")));
        let mut child = Command::new(&self.program)
            .args(args)
            .args(["--store", &self.store, "--data"])
            .arg(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // Writing fails if the command has closed its standard input without reading it.
            drop(stdin.write_all(input.as_bytes()).await);
        }
        let output = child.wait_with_output().await.map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
