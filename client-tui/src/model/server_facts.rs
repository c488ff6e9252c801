//! Facts about a server that its metadata states.

use std::path::PathBuf;

use jiff::tz::TimeZone;

use crate::display::DisplayOptions;
use crate::sign_in_method::SignInMethod;

/// Facts about the server and the client that are known at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Name of the profile; `None` for the options of the command line.
    pub profile: Option<String>,
    pub base_url: String,
    /// Base address of FHIR R4.
    pub fhir_base: String,
    /// File with the only certificates to trust, for curl commands.
    pub ca: Option<PathBuf>,
    pub client_id: Option<String>,
    pub backend_id: Option<String>,
    /// User who can sign in on a demo server, and the file with the password.
    pub demo_user: Option<(String, String)>,
    pub display: DisplayOptions,
    pub zone: TimeZone,
    /// Whether actions that change something on the server are disabled.
    pub read_only: bool,
    /// Kind of sign-in that Enter starts.
    pub sign_in_method: SignInMethod,
    /// Options of the command line that select this server and these credentials: names without `--`, and
    /// values.
    pub profile_options: Vec<(String, String)>,
}

impl ServerFacts {
    /// Returns whether the server is used without TLS.
    pub fn is_plain(&self) -> bool {
        self.base_url.starts_with("http://")
    }
}
