//! The profile of all screens and subcommands: server and credentials.
//!
//! It is read at the start, and when the user changes it: from the flags, from the profile file of the user,
//! or, with `--demo DIR`, from the two files that `trefoil serve --demo --data DIR` writes.

pub mod choice;
pub(crate) mod demo;
mod error;
pub mod file;
mod read_file;
mod server_profile;

use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub use self::error::ProfileError;
use self::file::{ProfileFile, ProfileSettings};
use self::read_file::{base_address, read_certificates, read_key, read_text};
pub use self::server_profile::{
    BackendProfile, ClientCredential, FormDefaults, Profile, TrustedCertificates,
};
use crate::args::{BACKEND_SCOPE, ProfileArgs, USER_SCOPE};
use crate::sign_in_method::SignInMethod;
use crate::state_file::state_folder;

impl Profile {
    /// Builds the profile from the options of the command line, the profile file, and the files that they
    /// name.
    ///
    /// # Errors
    /// The reason why there is no valid profile, and the remedy.
    pub fn read(args: &ProfileArgs) -> Result<Self, ProfileError> {
        Self::read_from(args, ProfileFile::of_user)
    }

    /// Builds the profile with another profile file, which is read only if the options need it.
    fn read_from(
        args: &ProfileArgs,
        file: impl FnOnce() -> Result<ProfileFile, ProfileError>,
    ) -> Result<Self, ProfileError> {
        let options = ProfileSettings::from(args);
        let mut profile = match &args.demo {
            Some(dir) => demo::read(dir, args.backend_client.as_deref())?,
            None => {
                let (name, stored) = match (&args.profile, &args.base_url) {
                    (None, Some(_)) => (None, ProfileSettings::default()),
                    (name, _) => {
                        let file = file()?;
                        let name = name.as_deref().map_or_else(|| file.default_name(), Ok)?;
                        (Some(name.to_owned()), file.profile(name)?)
                    }
                };
                let settings = options.clone().or(stored);
                let base_url = settings.base_url.as_deref().ok_or(ProfileError::NoServer)?;
                Self { name, ..Self::at(base_url)? }.with(&settings)?
            }
        };
        if args.demo.is_some() {
            // The key of a known client is read from the folder.
            profile = profile.with(&ProfileSettings { base_url: None, ..options })?;
        }
        profile.options = args.options();
        profile.sign_in_method = SignInMethod::of_environment();
        profile.open_browser = !args.no_browser;
        profile.read_only = args.read_only;
        profile.file_hosts.clone_from(&args.file_hosts);
        Ok(profile)
    }

    /// A profile of a server at this address, without clients.
    ///
    /// # Errors
    /// [`ProfileError::BaseUrl`] if the address is invalid.
    pub fn at(base_url: &str) -> Result<Self, ProfileError> {
        let base_url = base_address(base_url)?;
        let fhir_base = format!("{base_url}/fhir/R4");
        Ok(Self {
            name: None,
            base_url,
            fhir_base,
            ca: None,
            client_id: None,
            client_credential: None,
            scope: USER_SCOPE.to_owned(),
            redirect_host: "localhost".to_owned(),
            redirect_path: "/callback".to_owned(),
            token_file: None,
            shared_token_file: None,
            backend: None,
            backend_scope: BACKEND_SCOPE.to_owned(),
            sign_in_method: SignInMethod::Browser,
            read_only: false,
            file_hosts: Vec::new(),
            open_browser: true,
            examples: FormDefaults::default(),
            options: Vec::new(),
        })
    }

    fn with(mut self, settings: &ProfileSettings) -> Result<Self, ProfileError> {
        if let Some(fhir_base) = &settings.fhir_base {
            self.fhir_base = base_address(fhir_base)?;
        }
        if let Some(ca) = &settings.ca {
            self.ca = Some(read_certificates(ca)?);
        }
        if let Some(client_id) = &settings.client_id {
            self.client_id = Some(client_id.clone());
        }
        if let Some(path) = &settings.client_secret_file {
            self.client_credential = Some(ClientCredential::Secret(read_text(path)?.trim().to_owned()));
        }
        if let Some(path) = &settings.client_key {
            self.client_credential = Some(ClientCredential::Key(read_key(path, None, None)?));
        }
        if let Some(scope) = &settings.scope {
            self.scope.clone_from(scope);
        }
        if let Some(host) = &settings.redirect_host {
            self.redirect_host.clone_from(host);
        }
        if let Some(path) = &settings.redirect_path {
            self.redirect_path.clone_from(path);
        }
        if let Some(scope) = &settings.backend_scope {
            self.backend_scope.clone_from(scope);
        }
        let credential = match (&settings.backend_key, &settings.backend_secret_file) {
            (Some(path), _) => {
                let (alg, kid) = (settings.backend_alg.as_deref(), settings.backend_kid.as_deref());
                Some(ClientCredential::Key(read_key(path, alg, kid)?))
            }
            (None, Some(path)) => Some(ClientCredential::Secret(read_text(path)?.trim().to_owned())),
            (None, None) => None,
        };
        match (&settings.backend_client, credential) {
            (Some(client_id), Some(credential)) => {
                self.backend = Some(BackendProfile { client_id: client_id.clone(), credential });
            }
            (None, None) => {}
            // The demo server knows the key of its clients.
            (Some(client_id), None)
                if self.backend.as_ref().is_some_and(|backend| backend.client_id == *client_id) => {}
            _ => return Err(ProfileError::HalfBackend),
        }
        Ok(self)
    }

    /// The profile with a file that keeps the tokens of the user between runs: one for each profile, server
    /// and client, in `$XDG_STATE_HOME/trefoil-tui/tokens` or the folder that the operating system uses
    /// instead.
    #[must_use]
    pub fn with_token_file(mut self) -> Self {
        let Ok(folder) = state_folder().map(|folder| folder.join("tokens")) else { return self };
        let server = format!("{} {}", self.base_url, self.client_id.as_deref().unwrap_or_default());
        // Two people may have a profile each for one server, so that the name is a part of the key.
        let key = format!("{} {server}", self.name.as_deref().unwrap_or_default());
        let file = |key: &str| folder.join(format!("{}.json", utf8_percent_encode(key, NON_ALPHANUMERIC)));
        self.token_file = Some(file(&key));
        self.shared_token_file = Some(file(&server));
        self
    }

    /// The profile with the certificates of a file.
    ///
    /// # Errors
    /// [`ProfileError::File`] if the file cannot be read.
    pub fn with_certificates(mut self, path: Option<&Path>) -> Result<Self, ProfileError> {
        self.ca = path.map(read_certificates).transpose()?;
        Ok(self)
    }

    /// Reads the password of the demo user from the file of the demo server.
    ///
    /// # Errors
    /// [`ProfileError`] if the file cannot be read.
    pub fn demo_password(&self) -> Result<String, ProfileError> {
        demo::password(Path::new(&self.examples.password_file))
    }

    /// Returns whether the profile has neither a client for users nor a backend client.
    pub fn is_anonymous(&self) -> bool {
        self.client_id.is_none() && self.backend.is_none()
    }
}
