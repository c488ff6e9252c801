//! Configuration texts in tests: what they load, and why they are refused.

use super::{Config, ConfigError, ServeFlags};

/// Loads a configuration file with this text.
pub(super) fn load(text: &str) -> Result<Config, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trefoil.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(&ServeFlags { config: Some(path), ..ServeFlags::default() })
}

/// Checks that a configuration file with this text is refused for a reason that contains `says`.
#[track_caller]
pub(super) fn check_refused(text: &str, says: &str) {
    let error = load(text).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}
