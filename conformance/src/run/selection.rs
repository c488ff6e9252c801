//! Which cases run on a target, and why the others do not.

use http::Method;

use crate::environment::target::TestTarget;
use crate::spec::Specification;
use crate::spec::case::{Case, Step};
use crate::spec::endpoints;
use crate::spec::requirement::Level;

/// Cases that were asked for, and actions that they may do.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Texts of which a case id, or a requirement that it covers, contains one; empty for all cases.
    pub only: Vec<String>,
    /// Texts of which neither the case id nor a requirement contains one.
    pub skip: Vec<String>,
    /// Lowest level of the requirements that are tested.
    pub level: Level,
    /// Whether cases may create, change and delete data on a server that is not ours.
    pub write: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self { only: Vec::new(), skip: Vec::new(), level: Level::May, write: true }
    }
}

impl Selection {
    /// Returns the cases that were asked for.
    pub fn cases<'a>(&'a self, spec: &'a Specification) -> Vec<&'a Case> {
        let names = |case: &'a Case| std::iter::once(&case.id).chain(&case.covers);
        let is_excluded = |case: &Case| {
            let mut names = std::iter::once(&case.id).chain(&case.covers);
            names.any(|name| self.skip.iter().any(|text| name.contains(text.as_str())))
        };
        let is_asked = |case: &'a Case| {
            self.only.is_empty()
                || names(case).any(|name| self.only.iter().any(|text| name.contains(text.as_str())))
        };
        spec.cases.iter().filter(|case| is_asked(case) && !is_excluded(case)).collect()
    }

    /// Returns the reason why a case does not run on a target; `None` if it runs.
    pub fn skip_reason(&self, spec: &Specification, case: &Case, target: &TestTarget) -> Option<String> {
        if spec.level_of(case) > self.level {
            return Some(format!("its level is {}", spec.level_of(case).keyword()));
        }
        if target.is_trefoil() {
            return None;
        }
        if spec.has_house_rule(case) {
            return Some("is about a rule of Trefoil, not of a standard (--house runs it)".to_owned());
        }
        if case.steps.iter().any(asks_own_page) {
            return Some("asks a page that only Trefoil has".to_owned());
        }
        if !self.write && case.steps.iter().any(writes) {
            return Some("changes data of the server (--write runs it)".to_owned());
        }
        let sends_resources = case.steps.iter().any(|step| step.request.sends_resources());
        let accepts = target.profile.get("tx_resources").is_some_and(|accepts| *accepts == true);
        if sends_resources && !accepts {
            return Some("sends tx-resource, which the profile does not allow (tx_resources)".to_owned());
        }
        None
    }
}

/// Returns whether a step asks for a page of Trefoil, or expects to be sent to one.
fn asks_own_page(step: &Step) -> bool {
    let to = step.request.to.as_str();
    let name = to.split(['/', '?']).next().unwrap_or_default();
    let redirect = step.expect.location.as_ref().map(|location| location.to.as_str());
    to.starts_with('/') && !to.starts_with("/.well-known/")
        || endpoints::is_of_trefoil(name)
        || redirect.is_some_and(|to| to.starts_with("$base_url"))
}

/// Returns whether a step changes data that the run has not created itself.
fn writes(step: &Step) -> bool {
    let request = &step.request;
    let is_fhir = request.to.starts_with("fhir");
    match request.method {
        Method::PUT | Method::PATCH => true,
        Method::DELETE => is_fhir,
        Method::POST => is_fhir && !request.to.contains('$'),
        _ => false,
    }
}
