//! The storage engine that the configuration names.

use std::path::Path;

use store::{DatabaseLimits, DatabasePassword, DatabaseUrl, Store, StoreError};

use super::environment;
use super::source::ConfigError;

/// The storage engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreEngine {
    /// In memory: the data are lost when the process ends.
    Memory,
    /// Files in a folder.
    File,
    /// A PostgreSQL database, which several servers share.
    Postgres {
        /// Its URL.
        url: DatabaseUrl,
        /// Creates and updates its tables when it is opened.
        migrate: bool,
    },
}

impl StoreEngine {
    /// The engine with this name or URL.
    pub(super) fn named(
        name: &str,
        migrate: bool,
        password: Option<DatabasePassword>,
    ) -> Result<Self, ConfigError> {
        match name {
            "file" => Ok(Self::File),
            "memory" => Ok(Self::Memory),
            url if DatabaseUrl::is_url(url) => {
                let variable = || environment::database_password().map(DatabasePassword::Text);
                let file = || {
                    let file = environment::database_password_file();
                    file.map(|file| DatabasePassword::PasswordFile(file.into()))
                };
                let url = DatabaseUrl::new(url, password.or_else(variable).or_else(file));
                url.check().map_err(|error| ConfigError::Setting(format!("[store] engine: {error}")))?;
                Ok(Self::Postgres { url, migrate })
            }
            other => Err(ConfigError::Setting(format!(
                "store '{other}' is not known; use memory, file or a URL such as postgres://user@host/name"
            ))),
        }
    }

    /// Opens the store. The store of the engine `file` is in the data folder.
    ///
    /// # Errors
    /// See [`Store::open`] and [`Store::postgres`].
    pub async fn open(&self, data: &Path) -> Result<Store, StoreError> {
        match self {
            Self::Memory => Ok(Store::memory()),
            Self::File => Store::open(&data.join("store")),
            Self::Postgres { url, migrate: true } => Store::postgres(url, DatabaseLimits::default()).await,
            Self::Postgres { url, migrate: false } => {
                Store::migrated_postgres(url, DatabaseLimits::default()).await
            }
        }
    }
}
