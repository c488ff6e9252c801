//! Arguments of the command line that all administration commands have.

use std::path::PathBuf;

use clap::Args;

use crate::config::ServeFlags;
use crate::config::sections::DEFAULT_DATA_FOLDER;

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

impl DataArgs {
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
