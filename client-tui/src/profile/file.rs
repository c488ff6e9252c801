//! The profile file of the user, `trefoil-tui/profiles.toml` in the configuration folder: servers and
//! credentials by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use serde::{Deserialize, Serialize};

use super::error::ProfileError;
use crate::args::ProfileArgs;
use crate::private_files::{create_private_folder, replace_private_file};

/// Settings of a profile. Secrets and keys are in files of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSettings {
    /// Base address of the server, which is also its issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Base address of FHIR R4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fhir_base: Option<String>,
    /// PEM file of the only certificates to trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// File with the secret of that client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// File with the private key of that client: JWK, JWK Set or PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    /// Host of the redirect URI: `localhost` or `127.0.0.1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_host: Option<String>,
    /// Path of the redirect URI, with its slash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_path: Option<String>,
    /// Scopes of a sign-in, separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// client_id for requests without a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_client: Option<String>,
    /// File with the private key of the backend client: JWK, JWK Set or PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_key: Option<PathBuf>,
    /// File with the secret of the backend client, if it has no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_secret_file: Option<PathBuf>,
    /// Algorithm of that key, if the file does not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_alg: Option<String>,
    /// Key id of that key, if the file does not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_kid: Option<String>,
    /// Scopes of tokens of the backend client, separated by spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_scope: Option<String>,
}

impl From<&ProfileArgs> for ProfileSettings {
    fn from(args: &ProfileArgs) -> Self {
        Self {
            base_url: args.base_url.clone(),
            fhir_base: args.fhir_base.clone(),
            ca: args.ca.clone(),
            client_id: args.client_id.clone(),
            client_secret_file: args.client_secret_file.clone(),
            client_key: args.client_key.clone(),
            redirect_host: args.redirect_host.clone(),
            redirect_path: args.redirect_path.clone(),
            scope: None,
            backend_client: args.backend_client.clone(),
            backend_key: args.backend_key.clone(),
            backend_secret_file: args.backend_secret_file.clone(),
            backend_alg: args.backend_alg.clone(),
            backend_kid: args.backend_kid.clone(),
            backend_scope: None,
        }
    }
}

impl ProfileSettings {
    /// The settings with paths that are valid in every folder.
    #[must_use]
    pub fn with_absolute_paths(mut self) -> Self {
        let paths = [
            &mut self.ca,
            &mut self.client_secret_file,
            &mut self.client_key,
            &mut self.backend_key,
            &mut self.backend_secret_file,
        ];
        for path in paths.into_iter().flatten() {
            // A path that cannot be resolved stays as it is, and is reported when it is read.
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        self
    }

    /// These settings, and those of `other` where these have none.
    #[must_use]
    pub fn or(self, mut other: Self) -> Self {
        // A client has one credential: a secret replaces a key, and a key a secret.
        if self.client_secret_file.is_some() || self.client_key.is_some() {
            (other.client_secret_file, other.client_key) = (None, None);
        }
        if self.backend_secret_file.is_some() || self.backend_key.is_some() {
            (other.backend_secret_file, other.backend_key) = (None, None);
        }
        Self {
            base_url: self.base_url.or(other.base_url),
            fhir_base: self.fhir_base.or(other.fhir_base),
            ca: self.ca.or(other.ca),
            client_id: self.client_id.or(other.client_id),
            client_secret_file: self.client_secret_file.or(other.client_secret_file),
            client_key: self.client_key.or(other.client_key),
            redirect_host: self.redirect_host.or(other.redirect_host),
            redirect_path: self.redirect_path.or(other.redirect_path),
            scope: self.scope.or(other.scope),
            backend_client: self.backend_client.or(other.backend_client),
            backend_key: self.backend_key.or(other.backend_key),
            backend_secret_file: self.backend_secret_file.or(other.backend_secret_file),
            backend_alg: self.backend_alg.or(other.backend_alg),
            backend_kid: self.backend_kid.or(other.backend_kid),
            backend_scope: self.backend_scope.or(other.backend_scope),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ProfileFile {
    path: PathBuf,
    content: ProfileFileContent,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ProfileFileContent {
    /// Name of the profile that is used without `--profile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    #[serde(default)]
    profiles: BTreeMap<String, ProfileSettings>,
}

impl ProfileFile {
    /// Reads the file of this user: `$XDG_CONFIG_HOME/trefoil-tui/profiles.toml`, or in the folder that the
    /// operating system uses instead. A missing file has no profiles.
    ///
    /// # Errors
    /// [`ProfileError`] if the file is invalid.
    pub fn of_user() -> Result<Self, ProfileError> {
        let base = etcetera::choose_base_strategy().map_err(|error| ProfileError::ProfileFile {
            path: "profiles.toml".into(),
            reason: error.to_string(),
        })?;
        Self::read(&base.config_dir().join("trefoil-tui/profiles.toml"))
    }

    /// Reads a file. A missing file has no profiles.
    ///
    /// # Errors
    /// [`ProfileError`] if the file is invalid.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let content = match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error| ProfileError::ProfileFile {
                path: path.to_owned(),
                reason: error.to_string(),
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => ProfileFileContent::default(),
            Err(error) => return Err(ProfileError::File { path: path.to_owned(), error }),
        };
        Ok(Self { path: path.to_owned(), content })
    }

    /// The folder of the file, in which keys can be stored, too.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    pub fn names(&self) -> Vec<&str> {
        self.content.profiles.keys().map(String::as_str).collect()
    }

    pub fn profiles(&self) -> impl Iterator<Item = (&str, &ProfileSettings)> {
        self.content.profiles.iter().map(|(name, settings)| (name.as_str(), settings))
    }

    /// A profile.
    ///
    /// # Errors
    /// [`ProfileError::UnknownProfile`].
    pub fn profile(&self, name: &str) -> Result<ProfileSettings, ProfileError> {
        self.content.profiles.get(name).cloned().ok_or_else(|| {
            let names = self.names().join(", ");
            ProfileError::UnknownProfile {
                name: name.to_owned(),
                path: self.path.clone(),
                known: if names.is_empty() { "no profiles".to_owned() } else { names },
            }
        })
    }

    /// The name of the default profile, or of the only one.
    ///
    /// # Errors
    /// [`ProfileError::NoServer`] if there is none.
    pub fn default_name(&self) -> Result<&str, ProfileError> {
        match (&self.content.default, &self.names()[..]) {
            (Some(name), _) => Ok(name),
            (None, [name]) => Ok(name),
            _ => Err(ProfileError::NoServer),
        }
    }

    /// Adds or replaces a profile and writes the file. The first profile becomes the default.
    ///
    /// # Errors
    /// [`ProfileError::Write`].
    pub fn store(&mut self, name: &str, settings: ProfileSettings) -> Result<(), ProfileError> {
        self.content.profiles.insert(name.to_owned(), settings);
        self.content.default.get_or_insert_with(|| name.to_owned());
        let text = toml::to_string_pretty(&self.content).expect("all keys are strings");
        create_private_folder(self.folder())
            .and_then(|()| replace_private_file(&self.path, text.as_bytes()))
            .map_err(|error| ProfileError::Write { path: self.path.clone(), error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(base_url: &str) -> ProfileSettings {
        ProfileSettings { base_url: Some(base_url.to_owned()), ..ProfileSettings::default() }
    }

    #[test]
    fn the_first_profile_is_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/profiles.toml");
        let mut file = ProfileFile::read(&path).unwrap();
        assert!(matches!(file.default_name(), Err(ProfileError::NoServer)));
        file.store("one", settings("https://one.example")).unwrap();
        file.store("two", settings("https://two.example")).unwrap();
        let file = ProfileFile::read(&path).unwrap();
        assert_eq!(file.default_name().unwrap(), "one");
        assert_eq!(file.profile("one").unwrap(), settings("https://one.example"));
        assert_eq!(file.profile("two").unwrap(), settings("https://two.example"));
        assert!(file.profile("three").unwrap_err().to_string().contains("one, two"));
    }

    #[test]
    fn a_misspelled_setting_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        std::fs::write(&path, "[profiles.a]\nbase_uri = \"x\"\n").unwrap();
        let error = ProfileFile::read(&path).unwrap_err().to_string();
        assert!(error.contains("base_uri") && error.contains("base_url"), "{error}");
    }

    #[test]
    fn given_settings_precede_stored_ones() {
        let options = ProfileSettings { client_id: Some("a".to_owned()), ..ProfileSettings::default() };
        let profile = ProfileSettings { client_id: Some("b".to_owned()), ..settings("https://one.example") };
        let settings = options.or(profile);
        assert_eq!(
            (settings.client_id.as_deref(), settings.base_url.as_deref()),
            (Some("a"), Some("https://one.example"))
        );
    }
}
