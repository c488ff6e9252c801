//! Arguments of the command line that all administration commands have.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use command_line::text::shell_word;

use crate::config::sections::DEFAULT_DATA_FOLDER;
use crate::config::{Config, ServeFlags};

/// The option for the data folder that a command works on.
#[derive(Debug, Clone, Args)]
pub struct DataArgs {
    /// Folder with the store, exports, keys and certificate
    #[arg(long, global = true, default_value = DEFAULT_DATA_FOLDER, value_name = "FOLDER")]
    pub data: PathBuf,
    /// Configuration file; required while the server is stopped if it names the key that encrypts secrets in
    /// the store
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Store engine while the server is stopped: file, or the URL of a PostgreSQL database [default: file]
    #[arg(long, global = true, value_name = "ENGINE")]
    pub store: Option<String>,
    /// How the command asks and prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The settings of the service that the package installs.
const SERVICE_SETTINGS: &str = "/etc/trefoil/trefoil.toml";

impl DataArgs {
    /// Finds the data folder, unless it is stated: that of the configuration file, or else the one in the
    /// current folder, or else that of the installed service.
    ///
    /// # Errors
    /// An error if a configuration file cannot be read, or the folder of the service belongs to another user.
    pub fn locate(&mut self) -> Result<()> {
        if self.data != Path::new(DEFAULT_DATA_FOLDER) {
            return Ok(());
        }
        let service = Path::new(SERVICE_SETTINGS);
        if self.config.is_none() && !self.data.exists() && service.exists() {
            self.config = Some(service.to_owned());
            self.data = self.configured_folder()?;
            return check_owner(&self.data);
        }
        if self.config.is_some() {
            self.data = self.configured_folder()?;
        }
        Ok(())
    }

    /// The data folder of the configuration file.
    fn configured_folder(&self) -> Result<PathBuf> {
        Ok(Config::load(&ServeFlags { data: None, ..self.serve_flags() })?.data)
    }

    /// The flags of a server with this data, which determine its configuration.
    pub fn serve_flags(&self) -> ServeFlags {
        ServeFlags {
            config: self.config.clone(),
            data: Some(self.data.clone()),
            store: self.store.clone(),
            ..ServeFlags::default()
        }
    }
}

/// Checks that the folder of the service belongs to the user of this process: another one could not read its
/// files, or would leave some that the service cannot read.
fn check_owner(folder: &Path) -> Result<()> {
    let Ok(metadata) = fs::metadata(folder) else { return Ok(()) };
    if metadata.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let words: Vec<String> = std::env::args().skip(1).map(|word| shell_word(&word)).collect();
    bail!(
        "{SERVICE_SETTINGS} is the configuration of the service, whose data in {} belong to another user; run\n  sudo -u \
         trefoil trefoil {}",
        folder.display(),
        words.join(" ")
    )
}

/// Options of all administration commands for scripts.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Print the result as JSON, one value on each line
    #[arg(long, global = true)]
    pub json: bool,
    /// Do not print progress
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Do not ask before something is deleted or revoked; without a terminal, nothing is asked
    #[arg(long, global = true)]
    pub yes: bool,
}
