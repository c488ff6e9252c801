//! Why a profile cannot be used.

use std::path::PathBuf;

use crate::key::KeyError;

/// Failure to read a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No server is selected.
    #[error(
        "a server is required: use --demo DIR (the --data folder of 'trefoil serve --demo') or --base-url URL, \
         or store a profile with 'trefoil-tui setup URL'"
    )]
    NoServer,
    /// The profile file is invalid.
    #[error("the profile file {} is invalid: {reason}", path.display())]
    ProfileFile { path: PathBuf, reason: String },
    /// The profile file has no such profile.
    #[error("there is no profile '{name}'; {} has {known}", path.display())]
    UnknownProfile {
        name: String,
        path: PathBuf,
        /// Existing names, separated by commas.
        known: String,
    },
    /// A file cannot be written.
    #[error("failed to write {}: {error}", path.display())]
    Write {
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A file does not exist or cannot be read.
    #[error("failed to read {}: {error}", path.display())]
    File {
        path: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// A file of the demo server is invalid.
    #[error("{} is not the file that 'trefoil serve --demo' writes: {error}", path.display())]
    Demo {
        path: PathBuf,
        /// Error of the JSON parser.
        error: serde_json::Error,
    },
    /// The demo server has no backend client with this id.
    #[error("demo.json has no backend client '{client_id}'; it has {known}")]
    UnknownBackend {
        /// Requested client_id.
        client_id: String,
        /// Existing client_ids, separated by commas.
        known: String,
    },
    /// Only one of `--backend-client` and `--backend-key` is set.
    #[error("a backend client needs both --backend-client ID and --backend-key FILE")]
    HalfBackend,
    /// The base URL is invalid.
    #[error("'{text}' is not a valid base URL: {reason}")]
    BaseUrl {
        /// Base address on the command line.
        text: String,
        /// Reason why the address is invalid.
        reason: String,
    },
    /// The backend key cannot be used.
    #[error("{from} cannot sign: {error}")]
    Key {
        /// Path of the key file, or client_id of a demo client.
        from: String,
        /// Reason why the key cannot be used.
        error: KeyError,
    },
}
