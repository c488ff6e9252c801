//! The state of one case, and the states that all cases of a run share.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::OwnedMutexGuard;

use crate::environment::TestEnvironment;
use crate::environment::applications::IssuedCode;
use crate::environment::cookies::CookieJar;
use crate::environment::server::OwnServer;
use crate::environment::target::TestTarget;
use crate::wire::exchange::SentRequest;
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
    /// Requests that delete the exports that the case has started.
    pub deletions: Vec<SentRequest>,
    pub(super) guard: Option<OwnedMutexGuard<()>>,
}

impl CaseContext {
    /// Creates the initial state of a case.
    pub fn new(environment: &TestEnvironment) -> Self {
        Self {
            vars: environment.target.vars(),
            cookies: CookieJar::new(),
            own: None,
            deletions: Vec::new(),
            guard: None,
        }
    }

    /// The state for another case with the same preconditions. It deletes no exports and holds no lock.
    pub fn for_another_case(&self) -> Self {
        let (vars, cookies, own) = (self.vars.clone(), self.cookies.clone(), self.own.clone());
        Self { vars, cookies, own, deletions: Vec::new(), guard: None }
    }

    /// The server that the case tests.
    pub fn target<'a>(&'a self, environment: &'a TestEnvironment) -> &'a TestTarget {
        self.own.as_ref().map_or(&environment.target, |own| &own.1)
    }

    /// Returns whether the suite has started the server that the case tests. It has no other clients.
    pub fn is_own_server(&self, environment: &TestEnvironment) -> bool {
        environment.local.is_some() || self.own.is_some()
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
