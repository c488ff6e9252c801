//! The states that all cases of a run share.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

use crate::environment::cookies::CookieJar;
use crate::environment::server::OwnServer;
use crate::environment::target::TestTarget;

/// States that are set up once for a run.
#[derive(Default)]
pub struct SharedStates {
    pub(super) session: OnceCell<CookieJar>,
    /// Set once the terminology of the demo project was created on the target.
    pub(super) terminology: OnceCell<()>,
    pub(super) token: OnceCell<Value>,
    pub(super) openid: OnceCell<Value>,
    pub(super) notes: OnceCell<Value>,
    pub(super) implicit: OnceCell<Value>,
    pub(super) export: OnceCell<Value>,
    pub(super) admin: OnceCell<String>,
    pub(super) writing: OnceCell<String>,
    pub(super) system: Mutex<Option<(Instant, String)>>,
    /// A server with imported releases. It is separate, because some rows require their code systems to be
    /// unknown.
    pub(super) releases: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server whose pages have a name, a logo and colours of their own.
    pub(super) branded_pages: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server that implements version 3.0.0 of the Bulk Data guide and exports members of nested Groups.
    pub(super) guide_3: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server that returns signed URLs for its export files.
    pub(super) signed_addresses: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// Lock that is held while a case starts exports on a server that is not ours, which may limit how many
    /// run at once.
    pub exports: Mutex<()>,
    /// Lock that is held while a case ends all sessions of the last user.
    pub(super) lone: Arc<Mutex<()>>,
}
