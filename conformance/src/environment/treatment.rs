//! How the suite treats a server: which rules apply to it, and how much is asked of it at once.

use crate::spec::case::Step;
use crate::spec::permits::Permit;

/// How the suite treats a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Treatment {
    /// Whether the rules of Trefoil apply. Then nothing that standards leave open is permitted.
    pub house_rules: bool,
    /// Whether requests get the additions that any server may require of a client (see
    /// [`crate::wire::adapt`]).
    pub adapts_requests: bool,
    /// Whether the server has other clients and limits: cases do not share sessions, those that start exports
    /// take turns, and a case that fails while the server answers with 5xx runs again alone.
    pub is_shared: bool,
    /// Number of cases that run at once, if the profile does not state it.
    pub cases_at_once: usize,
}

impl Treatment {
    pub(super) const TREFOIL: Self =
        Self { house_rules: true, adapts_requests: false, is_shared: false, cases_at_once: 8 };
    pub(super) const OTHER: Self =
        Self { house_rules: false, adapts_requests: true, is_shared: true, cases_at_once: 4 };

    /// The choices that a server has in its response to a step.
    pub fn permits(self, step: &Step) -> &[Permit] {
        if self.house_rules { &[] } else { &step.permits }
    }
}
