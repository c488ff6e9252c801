//! Which cases run on a target, and why the others do not.

use url::{Host, Url};

use super::features;
use super::missing_members::missing_members;
use crate::environment::preconditions::has_demo_project;
use crate::environment::{OWN_SERVER, TestEnvironment};
use crate::spec::Specification;
use crate::spec::case::Case;
use crate::spec::preconditions;
use crate::spec::requirement::Level;
use crate::spec::uses::{Feature, Use};

/// The selected cases, and the actions that they may do.
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
    /// The selected cases.
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

    /// The reason why a case does not run on a target; `None` if it runs, as far as this is known without a
    /// request.
    pub fn skip_reason(
        &self,
        spec: &Specification,
        case: &Case,
        environment: &TestEnvironment,
    ) -> Option<String> {
        self.other_skip_reason(spec, case, environment).or_else(|| {
            let missing = match &environment.local {
                Some(_) => return None,
                None => missing_members(case, &environment.target),
            };
            let missing: Vec<_> = missing.into_iter().collect();
            (!missing.is_empty()).then(|| format!("the profile has no {}", missing.join(", ")))
        })
    }

    /// The reason why a case does not run on a target, other than a member that its profile lacks.
    pub fn other_skip_reason(
        &self,
        spec: &Specification,
        case: &Case,
        environment: &TestEnvironment,
    ) -> Option<String> {
        let target = &environment.target;
        if spec.level_of(case) > self.level {
            return Some(format!("its level is {}", spec.level_of(case).keyword()));
        }
        // A local server is started for the run, so that it may be changed and has everything.
        if environment.local.is_some() {
            return None;
        }
        if !self.write && case.uses.contains(&Use::Feature(Feature::Writes)) {
            return Some("changes data of the server (--write runs it)".to_owned());
        }
        if case
            .given
            .iter()
            .any(|precondition| preconditions::named(precondition).is_some_and(|row| row.own_server))
        {
            return Some(OWN_SERVER.to_owned());
        }
        if case.over_tls && is_plain_loopback(&target.addresses.base_url) {
            return Some(
                "is about TLS, and the server is addressed by plain HTTP on this machine".to_owned(),
            );
        }
        let uses_demo = case.given.iter().any(|precondition| precondition == "demo-terminology")
            && !has_demo_project(target);
        if uses_demo && !self.write {
            return Some(
                "needs code systems of the suite (--write creates them, and deletes them at the end)"
                    .to_owned(),
            );
        }
        if target.treatment.house_rules {
            return None;
        }
        if spec.has_house_rule(case) || case.steps.iter().all(|step| step.only_house) {
            return Some("is about a rule of Trefoil, not of a standard (--house runs it)".to_owned());
        }
        let unplayed =
            spec.requirements_of(case).find(|requirement| !features::plays(target, requirement.actor));
        if let Some(requirement) = unplayed {
            return Some(format!("the server does not act as {}", requirement.actor.name()));
        }
        let of_preconditions = case
            .given
            .iter()
            .filter_map(|precondition| preconditions::named(precondition))
            .flat_map(|row| &row.uses);
        case.uses.iter().chain(of_preconditions).find_map(|used| features::lacking(used, target))
    }
}

/// Returns whether an address is plain HTTP on this machine, where no TLS is needed.
fn is_plain_loopback(base_url: &str) -> bool {
    let is_loopback = |url: &Url| match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    Url::parse(base_url).is_ok_and(|url| url.scheme() == "http" && is_loopback(&url))
}

#[cfg(test)]
mod tests {
    use super::is_plain_loopback;

    #[test]
    fn plain_http_needs_no_tls_on_this_machine_only() {
        for (base_url, plain) in [
            ("http://localhost:8080", true),
            ("http://127.0.0.1:8080/base", true),
            ("http://[::1]:8080", true),
            ("https://localhost:8443", false),
            ("http://health.example", false),
            ("http://10.0.0.5", false),
        ] {
            assert_eq!(is_plain_loopback(base_url), plain, "{base_url}");
        }
    }
}
