//! The environment of a run: the server under test and the parties around it.
//!
//! | module | contents |
//! |---|---|
//! | [`target`] | the server: addresses, profile, the HTTP client |
//! | [`secrets`] | secrets that were sent and must not be in a log |
//! | [`server`] | starts our own server as a program |
//! | [`providers`] | identity providers, correct and faulty |
//! | [`key_hosts`] | hosts of clients' keys, correct and faulty |
//! | [`browser`] | signs a user in |
//! | [`applications`] | client applications: codes, tokens, assertions, exports |
//! | [`preconditions`] | the states that cases begin from |

pub mod applications;
pub mod browser;
pub mod key_hosts;
pub mod preconditions;
pub mod providers;
pub mod secrets;
pub mod server;
pub mod target;

use crate::wire::variables::UnknownVariable;
use key_hosts::KeyHosts;
use preconditions::SharedStates;
use providers::FakeProviders;
use server::OwnServer;
use target::TestTarget;

/// Reasons why a state was not reached or a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The target does not have what is needed; the case is left out.
    #[error("{0}")]
    Lacking(String),
    /// The target did something else than it should.
    #[error("{0}")]
    Failed(String),
    /// No whole answer came back.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The profile lacks a member that every profile has.
    #[error(transparent)]
    Variable(#[from] UnknownVariable),
}

/// The world of a run.
pub struct TestEnvironment {
    /// The server under test.
    pub target: TestTarget,
    /// Parts that exist only if the suite started the server.
    pub local: Option<OwnServerSetup>,
    pub(crate) shared: SharedStates,
}

/// Our own server and what was started with it.
pub struct OwnServerSetup {
    /// The program.
    pub server: OwnServer,
    /// Its identity providers.
    pub providers: FakeProviders,
    /// Hosts of clients' keys.
    pub key_hosts: KeyHosts,
}

impl TestEnvironment {
    /// Starts our own server with a fresh store, the demo project and the providers.
    ///
    /// # Errors
    /// The server could not be found or did not come up.
    pub async fn start() -> anyhow::Result<Self> {
        install_crypto();
        let providers = FakeProviders::start().await?;
        let key_hosts = KeyHosts::start().await?;
        let server = OwnServer::start(&format!("{}{}", key_hosts.config(), providers.config())).await?;
        let mut target = server.target().await?;
        target.profile.insert("declared".to_owned(), key_hosts.profile());
        let local = OwnServerSetup { server, providers, key_hosts };
        Ok(Self { target, local: Some(local), shared: SharedStates::default() })
    }

    /// Takes a server that is up.
    pub fn of(target: TestTarget) -> Self {
        Self { target, local: None, shared: SharedStates::default() }
    }

    /// Returns the parts that exist only if the suite started the server.
    ///
    /// # Errors
    /// Returns [`SetupError::Lacking`] for any other target.
    pub fn local(&self) -> Result<&OwnServerSetup, SetupError> {
        let reason = "needs a server that the suite starts itself";
        self.local.as_ref().ok_or_else(|| SetupError::Lacking(reason.to_owned()))
    }
}

/// One crypto library for every TLS connection of the process.
pub fn install_crypto() {
    // A second call finds it installed.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}
