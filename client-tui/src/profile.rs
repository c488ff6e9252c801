//! The profile of all screens and subcommands: server and credentials.
//!
//! It is read once at the start from the flags and, with `--demo DIR`, from the two files that `trefoil serve --demo
//! --data DIR` writes: `endpoint.json` and `demo.json`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::args::ProfileArgs;
use crate::key::{self, KeyError, SigningKey};

/// A server and the credentials of the clients that are registered there.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Base address without a trailing slash, which is also the issuer.
    pub base_url: String,
    /// Base address of FHIR R4 without a trailing slash.
    pub fhir_base: String,
    /// The only certificates to trust; `None` to trust those of the system.
    pub ca: Option<TrustedCertificates>,
    /// client_id for signing in users.
    pub client_id: Option<String>,
    /// Credentials of a backend service, which signs in without a user.
    pub backend: Option<BackendProfile>,
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

/// Failure to read a profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither `--demo` nor `--base-url` is set.
    #[error(
        "a server is required: use --demo DIR (the --data folder of 'trefoil serve --demo') or --base-url URL"
    )]
    NoServer,
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

#[derive(Deserialize)]
struct EndpointFile {
    base_url: String,
    fhir_base: String,
    ca: Option<PathBuf>,
}

#[derive(Deserialize)]
struct DemoFile {
    user: DemoUser,
    native: DemoClient,
    backend: Vec<DemoBackend>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    members: Vec<Member>,
    #[serde(default)]
    subsumptions: Vec<Subsumption>,
}

#[derive(Deserialize)]
struct DemoUser {
    username: String,
}

#[derive(Deserialize)]
struct DemoClient {
    client_id: String,
}

#[derive(Deserialize)]
struct DemoBackend {
    client_id: String,
    alg: String,
    jwk: Value,
}

#[derive(Deserialize)]
struct Member {
    value_set: String,
    system: String,
    code: String,
    member: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subsumption {
    system: String,
    code_a: String,
    code_b: String,
    outcome: String,
}

impl Profile {
    /// Builds the profile from the options and the files that they name.
    ///
    /// # Errors
    /// Returns the reason why there is no valid profile, and the remedy.
    pub fn read(args: &ProfileArgs) -> Result<Self, ProfileError> {
        let mut profile = match (&args.demo, &args.base_url) {
            (Some(dir), _) => Self::demo(dir, args.backend_client.as_deref())?,
            (None, Some(base_url)) => Self::at(base_url)?,
            (None, None) => return Err(ProfileError::NoServer),
        };
        profile.options = args.options();
        profile.open_browser = !args.no_browser;
        if let Some(fhir_base) = &args.fhir_base {
            profile.fhir_base = base_address(fhir_base)?;
        }
        if let Some(ca) = &args.ca {
            profile.ca = Some(read_certificates(ca)?);
        }
        if let Some(client_id) = &args.client_id {
            profile.client_id = Some(client_id.clone());
        }
        match (&args.backend_client, &args.backend_key) {
            (Some(client_id), Some(path)) => {
                let text = String::from_utf8_lossy(&read_file(path)?).into_owned();
                let key = key::read(&text, args.backend_alg.as_deref(), args.backend_kid.as_deref())
                    .map_err(|error| ProfileError::Key { from: path.display().to_string(), error })?;
                profile.backend = Some(BackendProfile { client_id: client_id.clone(), key });
            }
            (None, None) => {}
            // With `--demo`, the key of a known client is read from the folder.
            (Some(_), None) if args.demo.is_some() => {}
            _ => return Err(ProfileError::HalfBackend),
        }
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
            base_url,
            fhir_base,
            ca: None,
            client_id: None,
            backend: None,
            open_browser: true,
            examples: FormDefaults::default(),
            options: Vec::new(),
        })
    }

    /// Reads the profile of the demo server from its data folder.
    fn demo(dir: &Path, backend: Option<&str>) -> Result<Self, ProfileError> {
        let endpoint: EndpointFile = read_json(&dir.join("endpoint.json"))?;
        let path = dir.join("demo.json");
        let demo: DemoFile = read_json(&path)?;
        let client = match backend {
            Some(wanted) => demo.backend.iter().find(|client| client.client_id == wanted),
            None => demo.backend.first(),
        };
        let client = client.ok_or_else(|| ProfileError::UnknownBackend {
            client_id: backend.unwrap_or_default().to_owned(),
            known: demo.backend.iter().map(|c| c.client_id.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        let key = key::from_jwk(&client.jwk, Some(&client.alg), None)
            .map_err(|error| ProfileError::Key { from: client.client_id.clone(), error })?;
        Ok(Self {
            base_url: base_address(&endpoint.base_url)?,
            fhir_base: base_address(&endpoint.fhir_base)?,
            ca: endpoint.ca.as_deref().map(read_certificates).transpose()?,
            client_id: Some(demo.native.client_id.clone()),
            backend: Some(BackendProfile { client_id: client.client_id.clone(), key }),
            open_browser: true,
            examples: demo.examples(&path),
            options: Vec::new(),
        })
    }
}

impl DemoFile {
    fn examples(&self, path: &Path) -> FormDefaults {
        let mut examples = FormDefaults {
            group: self.groups.first().cloned().unwrap_or_default(),
            username: self.user.username.clone(),
            password_file: path.display().to_string(),
            ..FormDefaults::default()
        };
        if let Some(fact) = self.members.iter().find(|fact| fact.member) {
            examples.value_set.clone_from(&fact.value_set);
            examples.system.clone_from(&fact.system);
            examples.code.clone_from(&fact.code);
        }
        if let Some(fact) = self.subsumptions.iter().find(|fact| fact.outcome == "subsumes") {
            examples.hierarchy.clone_from(&fact.system);
            examples.code_a.clone_from(&fact.code_a);
            examples.code_b.clone_from(&fact.code_b);
        }
        examples
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

fn read_file(path: &Path) -> Result<Vec<u8>, ProfileError> {
    std::fs::read(path).map_err(|error| ProfileError::File { path: path.to_owned(), error })
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ProfileError> {
    serde_json::from_slice(&read_file(path)?)
        .map_err(|error| ProfileError::Demo { path: path.to_owned(), error })
}
