//! The state of one case, and the states that all cases of a run share.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::environment::TestEnvironment;
use crate::environment::applications::IssuedCode;
use crate::environment::cookies::CookieJar;
use crate::environment::server::OwnServer;
use crate::environment::target::TestTarget;
use crate::wire::random::random_text;
use crate::wire::variables::Variables;

/// State of one case.
pub struct CaseContext {
    /// Variables of the case.
    pub vars: Variables,
    /// Cookies of the simulated browser.
    pub cookies: CookieJar,
    /// A separate server, if the precondition needs one.
    pub own: Option<Arc<(OwnServer, TestTarget)>>,
    pub(super) guard: Option<OwnedMutexGuard<()>>,
}

impl CaseContext {
    /// Creates the initial state of a case.
    pub fn new(world: &TestEnvironment) -> Self {
        Self { vars: world.target.vars(), cookies: CookieJar::new(), own: None, guard: None }
    }

    /// Returns the server that the case tests.
    pub fn target<'a>(&'a self, world: &'a TestEnvironment) -> &'a TestTarget {
        self.own.as_ref().map_or(&world.target, |own| &own.1)
    }

    /// Sets `$cookies` to the cookies of the browser, as the text of a header.
    pub fn set_cookies(&mut self, target: &TestTarget) {
        let url = url::Url::parse(&target.addresses.base_url).ok();
        let header = url.and_then(|url| self.cookies.header(&url));
        let cookies = header.as_ref().and_then(|header| header.to_str().ok()).unwrap_or_default();
        self.vars.set("cookies", cookies);
    }

    /// Sets the variables for the tokens that a response of the token endpoint contains.
    pub(super) fn set_tokens(&mut self, tokens: &Value) {
        for (name, member) in
            [("token", "access_token"), ("id_token", "id_token"), ("refresh_token", "refresh_token")]
        {
            if let Some(value) = tokens[member].as_str() {
                self.vars.set(name, value);
            }
        }
    }

    pub(super) fn set_code(&mut self, code: IssuedCode) {
        self.vars.set("code", code.code);
        self.vars.set("redirect_uri", code.redirect_uri);
        // The verifier is also set without a challenge, because a case may send one nevertheless.
        self.vars.set("verifier", code.verifier.unwrap_or_else(random_text));
    }
}

/// States that are set up once for a run.
#[derive(Default)]
pub struct SharedStates {
    pub(super) session: OnceCell<CookieJar>,
    pub(super) token: OnceCell<Value>,
    pub(super) openid: OnceCell<Value>,
    pub(super) notes: OnceCell<Value>,
    pub(super) implicit: OnceCell<Value>,
    pub(super) export: OnceCell<Value>,
    pub(super) admin: OnceCell<String>,
    pub(super) writing: OnceCell<String>,
    pub(super) system: Mutex<Option<(Instant, String)>>,
    /// A server with imported releases. It is separate, because some rows require their code systems to be unknown.
    pub(super) releases: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server whose pages have a name, a logo and colours of their own.
    pub(super) branded_pages: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server that implements version 3.0.0 of the Bulk Data guide and exports members of nested Groups.
    pub(super) guide_3: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// A server that returns signed URLs for its export files.
    pub(super) signed_addresses: OnceCell<Arc<(OwnServer, TestTarget)>>,
    /// Lock that is held while a case ends all sessions of the last user.
    pub(super) lone: Arc<Mutex<()>>,
}
