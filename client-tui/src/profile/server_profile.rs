//! A server and how the client uses it.

use std::path::PathBuf;

use crate::key::SigningKey;
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
    pub client_id: Option<String>,
    /// Authentication of the client that signs in users; `None` for a public client.
    pub client_credential: Option<ClientCredential>,
    /// Scopes of a sign-in, separated by spaces.
    pub scope: String,
    /// Host of the redirect URI: `localhost` or `127.0.0.1`.
    pub redirect_host: String,
    /// Path of the redirect URI, with its slash.
    pub redirect_path: String,
    /// File that keeps the tokens of the user; `None` to keep them in memory only.
    pub token_file: Option<PathBuf>,
    /// File in which earlier versions kept the tokens for all profiles of this server. It is not read.
    pub shared_token_file: Option<PathBuf>,
    /// Credentials of a backend service, which signs in without a user.
    pub backend: Option<BackendProfile>,
    /// Scopes of tokens of the backend service, separated by spaces.
    pub backend_scope: String,
    /// Kind of sign-in that is used without a choice of the user.
    pub sign_in_method: SignInMethod,
    /// Whether actions that change something on the server are disabled.
    pub read_only: bool,
    /// Hosts, besides the server, to which the tokens of exports may be sent.
    pub file_hosts: Vec<String>,
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
    pub pem: Vec<u8>,
}

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
    pub client_id: String,
    pub credential: ClientCredential,
}

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
    pub code_a: String,
    pub code_b: String,
    pub group: String,
    pub username: String,
    /// File with the password of the demo user. This program does not read the password.
    pub password_file: String,
}
