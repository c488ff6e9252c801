//! Why a profile cannot be used.

use std::path::PathBuf;

use crate::key::KeyError;

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No server is selected.
    #[error(
        "a server is required: use --demo DIR (the --data folder of 'trefoil serve --demo') or --base-url URL, \
         or store a profile with 'trefoil-tui setup URL'"
    )]
    NoServer,
    #[error("the profile file {} is invalid: {reason}", path.display())]
    ProfileFile { path: PathBuf, reason: String },
    /// The profile file has no such profile.
    #[error("profile '{name}' does not exist; {} has {known}", path.display())]
    UnknownProfile { name: String, path: PathBuf, known: String },
    #[error("failed to write {}: {error}", path.display())]
    Write { path: PathBuf, error: std::io::Error },
    /// A file does not exist or cannot be read.
    #[error("failed to read {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    /// A file of the demo server is invalid.
    #[error("{} is not the file that 'trefoil serve --demo' writes: {error}", path.display())]
    Demo {
        path: PathBuf,
        /// Error of the JSON parser.
        error: serde_json::Error,
    },
    /// The demo server has no backend client with this id.
    #[error("demo.json has no backend client '{client_id}'; it has {known}")]
    UnknownBackend { client_id: String, known: String },
    /// The backend client has no id, or no credential.
    #[error(
        "a backend client needs both --backend-client ID and --backend-key FILE (or --backend-secret-file FILE)"
    )]
    HalfBackend,
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
