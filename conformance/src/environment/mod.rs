//! The environment of a run: the server under test and the simulated parties around it.
//!
//! | module | contents |
//! |---|---|
//! | [`target`] | the server: its profile, and the HTTP client |
//! | [`addresses`] | what the server states about itself in its metadata |
//! | [`probe`] | what only requests show about the server |
//! | [`pauses`] | pauses between requests that wait for the server |
//! | [`leftovers`] | what the run has created on the server, and how it is deleted |
//! | [`cookies`] | cookies of a simulated browser |
//! | [`secrets`] | secrets that were sent and must not be in a log |
//! | `masking` | masks secrets in reports |
//! | [`server`] | starts our own server as a separate process |
//! | [`providers`] | identity providers, correct and faulty |
//! | [`key_hosts`] | hosts of clients' keys, correct and faulty |
//! | [`credentials`] | user name and password |
//! | [`browser`] | signs in a user |
//! | `scripted_page` | sends what the script of a page sends |
//! | [`page_request`] | loads a page |
//! | [`applications`] | client applications: codes, tokens, assertions, exports |
//! | [`passkeys`] | passkeys of users |
//! | [`preconditions`] | the initial states of cases |
//! | [`treatment`] | which rules apply to the server, and how much is asked of it at once
//! | `crypto` | the crypto library of TLS |
//! | `error` | the error of a setup |

pub mod addresses;
pub mod applications;
pub mod browser;
pub mod cookies;
pub mod credentials;
mod crypto;
mod error;
pub mod key_hosts;
pub mod leftovers;
mod masking;
pub mod page_request;
pub mod passkeys;
pub mod pauses;
pub mod preconditions;
pub mod probe;
pub mod providers;
mod scripted_page;
pub mod secrets;
pub mod server;
pub mod target;
pub mod treatment;

use std::sync::OnceLock;
use std::time::Duration;

use key_hosts::KeyHosts;
use preconditions::SharedStates;
use providers::FakeProviders;
use server::OwnServer;
use target::TestTarget;

pub use self::crypto::install_crypto;
pub use self::error::SetupError;

/// The environment of a run.
pub struct TestEnvironment {
    /// The server under test.
    pub target: TestTarget,
    /// Parts that exist only if the suite started the server.
    pub local: Option<OwnServerSetup>,
    pub(crate) shared: SharedStates,
    lost: OnceLock<String>,
}

/// Why a case is skipped on a server that the suite did not start.
pub const OWN_SERVER: &str = "needs a server that the suite starts itself";

/// Usual value of [`TestTarget::max_wait`].
pub const MAX_WAIT: Duration = Duration::from_secs(300);

/// A server that the suite started, and the servers that were started with it.
pub struct OwnServerSetup {
    /// The server itself.
    pub server: OwnServer,
    /// Identity providers of the server.
    pub providers: FakeProviders,
    /// Servers that publish the clients' key sets.
    pub key_hosts: KeyHosts,
}

impl TestEnvironment {
    /// Starts a server with an empty store, the demo project, the providers and the key hosts.
    ///
    /// # Errors
    /// An error if the server cannot be found or does not start.
    pub async fn start() -> anyhow::Result<Self> {
        install_crypto();
        let providers = FakeProviders::start().await?;
        let key_hosts = KeyHosts::start().await?;
        let server = OwnServer::start(&format!("{}{}", key_hosts.config(), providers.config())).await?;
        let mut target = server.target().await?;
        target.profile.insert("declared".to_owned(), key_hosts.profile());
        let local = OwnServerSetup { server, providers, key_hosts };
        Ok(Self { target, local: Some(local), shared: SharedStates::default(), lost: OnceLock::new() })
    }

    /// The environment of a running server.
    pub fn of(mut target: TestTarget) -> Self {
        target.max_wait = Some(MAX_WAIT);
        Self { target, local: None, shared: SharedStates::default(), lost: OnceLock::new() }
    }

    /// Returns why the target was given up; `None` while it answers.
    pub fn lost(&self) -> Option<String> {
        self.lost.get().cloned()
    }

    /// Finds out whether the target was lost, after a request to it failed. Returns the reason if it was.
    pub async fn find_lost(&self, error: &SetupError) -> Option<String> {
        if !matches!(error, SetupError::NoAnswer(_)) {
            return self.lost();
        }
        let Err(alive) = self.target.check_alive().await else { return self.lost() };
        let reason = format!("the target does not answer any more: {error}; then {alive}");
        let reason = self.target.secrets.mask(&reason);
        Some(self.lost.get_or_init(|| reason).clone())
    }

    /// The parts that exist only if the suite started the server.
    ///
    /// # Errors
    /// [`SetupError::Lacking`] for any other target.
    pub fn local(&self) -> Result<&OwnServerSetup, SetupError> {
        self.local.as_ref().ok_or_else(|| SetupError::Lacking(OWN_SERVER.to_owned()))
    }
}
