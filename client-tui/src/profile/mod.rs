//! The profile of all screens and subcommands: server and credentials.
//!
//! It is read at the start, and when the user changes it: from the flags, from the profile file of the user, or, with `--demo DIR`, from the two
//! files that `trefoil serve --demo --data DIR` writes.

pub mod choice;
pub(crate) mod demo;
pub mod file;
pub mod error;

use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use self::error::ProfileError;
use self::file::{ProfileFile, ProfileSettings};
use crate::args::{BACKEND_SCOPE, ProfileArgs, USER_SCOPE};
use crate::key::{self, KeyError, SigningKey};
use crate::sign_in_method::SignInMethod;

/// A server and the credentials of the clients that are registered there.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Name in the profile file; `None` for the options of the command line.
    pub name: Option<String>,
    /// Base address without a trailing slash, which is also the issuer.
    pub base_url: String,
    /// Base address of FHIR R4 without a trailing slash.
    pub fhir_base: String,
    /// The only certificates to trust; `None` to trust those of the system.
    pub ca: Option<TrustedCertificates>,
    /// client_id for signing in users.
    pub client_id: Option<String>,
    /// Authentication of the client that signs in users; `None` for a public client.
    pub client_credential: Option<ClientCredential>,
    /// Scopes of a sign-in, separated by spaces.
    pub scope: String,
    /// Host of the redirect URI: `localhost` or `127.0.0.1`.
    pub redirect_host: String,
    /// File that keeps the tokens of the user; `None` to keep them in memory only.
    pub token_file: Option<PathBuf>,
    /// Credentials of a backend service, which signs in without a user.
    pub backend: Option<BackendProfile>,
    /// Scopes of tokens of the backend service, separated by spaces.
    pub backend_scope: String,
    /// Kind of sign-in that is used without a choice of the user.
    pub sign_in_method: SignInMethod,
    /// Whether actions that change something on the server are disabled.
    pub read_only: bool,
    /// Whether a browser may be opened; otherwise the address is only shown.
    pub open_browser: bool,
    /// Initial values of the forms that are valid on this server.
    pub examples: FormDefaults,
    /// Options of the command line that select this profile: names without `--`, and values.
    pub options: Vec<(String, String)>,
}

/// Certificates to trust instead of those of the system.
#[derive(Clone, Debug)]
pub struct TrustedCertificates {
    pub path: PathBuf,
    /// Content of the file.
    pub pem: Vec<u8>,
}

/// Authentication of a confidential client.
#[derive(Clone)]
pub enum ClientCredential {
    /// `client_secret_basic`.
    Secret(String),
    /// `private_key_jwt`.
    Key(SigningKey),
}

impl std::fmt::Debug for ClientCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Secret(_) => f.write_str("Secret"),
            Self::Key(key) => key.fmt(f),
        }
    }
}

/// A client of SMART Backend Services.
#[derive(Clone, Debug)]
pub struct BackendProfile {
    /// client_id as registered.
    pub client_id: String,
    /// Key that signs the client assertions.
    pub key: SigningKey,
}

/// Initial values of the forms.
#[derive(Clone, Debug, Default)]
pub struct FormDefaults {
    /// Canonical URL of a value set that contains `code`.
    pub value_set: String,
    /// Code system of `code`.
    pub system: String,
    /// A code in the value set.
    pub code: String,
    /// Code system of the two codes below.
    pub hierarchy: String,
    /// The more general code.
    pub code_a: String,
    /// The more specific code.
    pub code_b: String,
    /// Id of a Group.
    pub group: String,
    pub username: String,
    /// File with the password of the demo user. This program does not read the password.
    pub password_file: String,
}

impl Profile {
    /// Builds the profile from the options of the command line, the profile file, and the files that they name.
    ///
    /// # Errors
    /// Returns the reason why there is no valid profile, and the remedy.
    pub fn read(args: &ProfileArgs) -> Result<Self, ProfileError> {
        Self::read_from(args, ProfileFile::of_user)
    }

    /// Builds the profile with another profile file, which is read only if the options need it.
    fn read_from(
        args: &ProfileArgs,
        file: impl FnOnce() -> Result<ProfileFile, ProfileError>,
    ) -> Result<Self, ProfileError> {
        let given = ProfileSettings::from(args);
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
                let settings = given.clone().or(stored);
                let base_url = settings.base_url.as_deref().ok_or(ProfileError::NoServer)?;
                Self { name, ..Self::at(base_url)? }.with(&settings)?
            }
        };
        if args.demo.is_some() {
            // The key of a known client is read from the folder.
            profile = profile.with(&ProfileSettings { base_url: None, ..given })?;
        }
        profile.options = args.options();
        profile.sign_in_method = SignInMethod::of_environment();
        profile.open_browser = !args.no_browser;
        profile.read_only = args.read_only;
        Ok(profile)
    }

    /// Returns a profile of a server at this address, without clients.
    ///
    /// # Errors
    /// Returns [`ProfileError::BaseUrl`] if the address is invalid.
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
            token_file: None,
            backend: None,
            backend_scope: BACKEND_SCOPE.to_owned(),
            sign_in_method: SignInMethod::Browser,
            read_only: false,
            open_browser: true,
            examples: FormDefaults::default(),
            options: Vec::new(),
        })
    }

    /// Applies settings.
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
        if let Some(scope) = &settings.backend_scope {
            self.backend_scope.clone_from(scope);
        }
        match (&settings.backend_client, &settings.backend_key) {
            (Some(client_id), Some(path)) => {
                let key = read_key(path, settings.backend_alg.as_deref(), settings.backend_kid.as_deref())?;
                self.backend = Some(BackendProfile { client_id: client_id.clone(), key });
            }
            (None, None) => {}
            // The demo server knows the key of its clients.
            (Some(client_id), None)
                if self.backend.as_ref().is_some_and(|backend| backend.client_id == *client_id) => {}
            _ => return Err(ProfileError::HalfBackend),
        }
        Ok(self)
    }

    /// Returns the profile with a file that keeps the tokens of the user between runs: one for each server and client, in
    /// `$XDG_STATE_HOME/trefoil-tui/tokens` or the folder that the operating system uses instead.
    #[must_use]
    pub fn with_token_file(mut self) -> Self {
        let Ok(base) = etcetera::choose_base_strategy() else { return self };
        let folder = base.state_dir().unwrap_or_else(|| base.data_dir()).join("trefoil-tui/tokens");
        let key = format!("{} {}", self.base_url, self.client_id.as_deref().unwrap_or_default());
        let name = utf8_percent_encode(&key, NON_ALPHANUMERIC).to_string();
        self.token_file = Some(folder.join(format!("{name}.json")));
        self
    }

    /// Returns the profile with the certificates of a file.
    ///
    /// # Errors
    /// Returns [`ProfileError::File`] if the file cannot be read.
    pub fn with_certificates(mut self, path: Option<&Path>) -> Result<Self, ProfileError> {
        self.ca = path.map(read_certificates).transpose()?;
        Ok(self)
    }

    /// Reads the password of the demo user from the file of the demo server.
    ///
    /// # Errors
    /// Returns [`ProfileError`] if the file cannot be read.
    pub fn demo_password(&self) -> Result<String, ProfileError> {
        demo::password(Path::new(&self.examples.password_file))
    }

    /// Returns whether the profile has neither a client for users nor a backend client.
    pub fn is_anonymous(&self) -> bool {
        self.client_id.is_none() && self.backend.is_none()
    }
}

/// Checks a base URL and removes the trailing slash.
fn base_address(text: &str) -> Result<String, ProfileError> {
    let wrong = |reason: &str| ProfileError::BaseUrl { text: text.to_owned(), reason: reason.to_owned() };
    let url = url::Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(wrong("it must begin with https://"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it must have neither query nor fragment"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn read_certificates(path: &Path) -> Result<TrustedCertificates, ProfileError> {
    Ok(TrustedCertificates { path: path.to_owned(), pem: read_file(path)? })
}

fn read_text(path: &Path) -> Result<String, ProfileError> {
    read_file(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn read_key(path: &Path, alg: Option<&str>, kid: Option<&str>) -> Result<SigningKey, ProfileError> {
    key::read(&read_text(path)?, alg, kid)
        .map_err(|error| ProfileError::Key { from: path.display().to_string(), error })
}

fn read_file(path: &Path) -> Result<Vec<u8>, ProfileError> {
    std::fs::read(path).map_err(|error| ProfileError::File { path: path.to_owned(), error })
}
