//! What a case acts in: the server under test and all that stands around it.
//!
//! | module | what lives there |
//! |---|---|
//! | [`target`] | the server: addresses, profile, the HTTP client |
//! | [`secrets`] | what went over the wire and must not be in a log |
//! | [`server`] | starts our own server as a program |
//! | [`providers`] | identity providers, sound and broken |
//! | [`key_hosts`] | hosts of clients' keys, sound and broken |
//! | [`page`] | reads forms of pages |
//! | [`browser`] | signs a person in |
//! | [`client`] | the applications: codes, tokens, assertions, exports |
//! | [`jose`] | signs and checks JWTs |
//! | [`givens`] | the states that cases begin from |

pub mod browser;
pub mod client;
pub mod givens;
pub mod jose;
pub mod key_hosts;
pub mod page;
pub mod providers;
pub mod secrets;
pub mod server;
pub mod target;

use crate::run::vars::UnknownVariable;
use givens::Shared;
use key_hosts::KeyHosts;
use providers::Providers;
use server::Server;
use target::Target;

/// Why a state could not be reached or a request not be answered.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
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
pub struct World {
    /// The server under test.
    pub target: Target,
    /// What only our own server has.
    pub local: Option<Local>,
    pub(crate) shared: Shared,
}

/// Our own server and what was started with it.
pub struct Local {
    /// The program.
    pub server: Server,
    /// Its identity providers.
    pub providers: Providers,
    /// Hosts of clients' keys.
    pub key_hosts: KeyHosts,
}

impl World {
    /// Starts our own server with a fresh store, the demo project and the providers.
    ///
    /// # Errors
    /// The server could not be found or did not come up.
    pub async fn start() -> anyhow::Result<Self> {
        install_crypto();
        let providers = Providers::start().await?;
        let key_hosts = KeyHosts::start().await?;
        let server = Server::start(&format!("{}{}", key_hosts.config(), providers.config())).await?;
        let mut target = server.target().await?;
        target.profile.insert("declared".to_owned(), key_hosts.profile());
        let local = Local { server, providers, key_hosts };
        Ok(Self { target, local: Some(local), shared: Shared::default() })
    }

    /// Takes a server that is up.
    pub fn of(target: Target) -> Self {
        Self { target, local: None, shared: Shared::default() }
    }

    /// What only our own server has.
    ///
    /// # Errors
    /// [`Trouble::Lacking`] for any other target.
    pub fn local(&self) -> Result<&Local, Trouble> {
        let reason = "needs a server that the suite starts itself";
        self.local.as_ref().ok_or_else(|| Trouble::Lacking(reason.to_owned()))
    }
}

/// One crypto library for every TLS connection of the process.
pub fn install_crypto() {
    // A second call finds it installed.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}
