//! The files of a data folder in which a running server tells about itself.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The data folder of a server, with the files that `trefoil serve --demo` writes into it.
#[derive(Debug, Clone, Copy)]
pub struct DataFolder<'a>(pub &'a Path);

impl DataFolder<'_> {
    /// The value of a JSON file of this name.
    ///
    /// # Errors
    /// The error of the operating system or of the JSON parser, with the path of the file.
    pub fn json(&self, name: &str) -> io::Result<Value> {
        let path = self.0.join(name);
        let with_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let text = std::fs::read(&path).map_err(with_path)?;
        serde_json::from_slice(&text).map_err(|error| with_path(error.into()))
    }

    /// The addresses of the server: `endpoint.json`, which exists while the server runs.
    ///
    /// # Errors
    /// As [`Self::json`].
    pub fn endpoint(&self) -> io::Result<Value> {
        self.json("endpoint.json")
    }

    /// The users, clients and resources of the demo project: `demo.json`.
    ///
    /// # Errors
    /// As [`Self::json`].
    pub fn demo(&self) -> io::Result<Value> {
        self.json("demo.json")
    }

    /// The PEM file of the certificate authority that signed the certificate of the server, if the server
    /// generated one.
    ///
    /// # Errors
    /// As [`Self::json`].
    pub fn ca(&self) -> io::Result<Option<PathBuf>> {
        Ok(self.endpoint()?["ca"].as_str().map(PathBuf::from))
    }
}
