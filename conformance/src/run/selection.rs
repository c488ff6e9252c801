//! Which cases run on a target, and why the others do not.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Map, Value};
use url::{Host, Url};

use super::missing_members::missing_members;
use crate::environment::preconditions::has_demo_project;
use crate::environment::probe::PUBLIC_REFUSED;
use crate::environment::target::TestTarget;
use crate::environment::{OWN_SERVER, TestEnvironment};
use crate::spec::Specification;
use crate::spec::case::{Case, Step};
use crate::spec::endpoints::{self, DestinationError};
use crate::spec::preconditions;
use crate::spec::request::Body;
use crate::spec::requirement::{BoundActor, Level};
use crate::wire::variables::OPERATIONS;

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
    pub fn skip_reason(&self, spec: &Specification, case: &Case, world: &TestEnvironment) -> Option<String> {
        self.other_skip_reason(spec, case, world).or_else(|| {
            let missing = match &world.local {
                Some(_) => return None,
                None => missing_members(case, &world.target),
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
        world: &TestEnvironment,
    ) -> Option<String> {
        let target = &world.target;
        if spec.level_of(case) > self.level {
            return Some(format!("its level is {}", spec.level_of(case).keyword()));
        }
        // A local server is started for the run, so that it may be changed and has everything.
        if world.local.is_some() {
            return None;
        }
        if !self.write && case.steps.iter().any(writes) {
            return Some("changes data of the server (--write runs it)".to_owned());
        }
        if case.given.iter().any(|given| preconditions::named(given).is_some_and(|row| row.own_server)) {
            return Some(OWN_SERVER.to_owned());
        }
        if case.over_tls && is_plain_loopback(&target.addresses.base_url) {
            return Some(
                "is about TLS, and the server is addressed by plain HTTP on this machine".to_owned(),
            );
        }
        let uses_demo =
            case.given.iter().any(|given| given == "demo-terminology") && !has_demo_project(target);
        if uses_demo && !self.write {
            return Some(
                "needs code systems of the suite (--write creates them, and deletes them at the end)"
                    .to_owned(),
            );
        }
        if target.is_trefoil() {
            return None;
        }
        if spec.has_house_rule(case) || case.steps.iter().all(|step| step.only_house) {
            return Some("is about a rule of Trefoil, not of a standard (--house runs it)".to_owned());
        }
        if case.steps.iter().any(asks_own_page) {
            return Some("asks a page that only Trefoil has".to_owned());
        }
        let lacking = spec.requirements_of(case).find(|requirement| !offers(target, requirement.actor));
        if let Some(requirement) = lacking {
            return Some(format!("the server does not act as {}", requirement.actor.name()));
        }
        if case.steps.iter().any(wants_token) && is_anonymous(target) {
            return Some("expects a token to be needed, and the server needs none (anonymous)".to_owned());
        }
        let has_given = |name: &str| case.given.iter().any(|given| given == name);
        if has_given("narrow-token") && is_anonymous(target) {
            return Some("needs a token with few scopes, and the server needs none (anonymous)".to_owned());
        }
        if has_given("plain-code") && target.requires_pkce() {
            let reason =
                "sends no code challenge, which the server may require (pkce = false in the profile runs it)";
            return Some(reason.to_owned());
        }
        if case.steps.iter().any(asks_oauth_metadata) && !target.addresses.has_oauth_metadata {
            return Some("the server has no oauth-authorization-server document".to_owned());
        }
        let announces = |member: &str| {
            target.addresses.metadata.as_ref().is_some_and(|metadata| !metadata[member].is_null())
        };
        if case.row.contains("dpop") && !announces("dpop_signing_alg_values_supported") {
            return Some("the server does not announce DPoP".to_owned());
        }
        if case.row.contains("request_uri:") && target.addresses.endpoint("par").is_none() {
            return Some("the server does not announce pushed authorization requests".to_owned());
        }
        if let Some(refusal) = target.profile.get(PUBLIC_REFUSED).and_then(Value::as_str)
            && case.steps.iter().any(is_public)
        {
            return Some(refusal.to_owned());
        }
        let is_about_pkce = |id: &String| id.starts_with("rfc7636/");
        if case.covers.iter().any(is_about_pkce) && !announces("code_challenge_methods_supported") {
            return Some("the server does not announce PKCE (RFC 8414 2)".to_owned());
        }
        if case.steps.iter().any(asks_smart) && target.addresses.smart.is_none() {
            return Some("the server has no smart-configuration".to_owned());
        }
        if let Some(reason) =
            target.addresses.metadata.as_ref().and_then(|metadata| not_offered(case, metadata))
        {
            return Some(reason);
        }
        if let Some(reason) = case.steps.iter().find_map(|step| granted(&target.profile, step)) {
            return Some(reason);
        }
        let sends_resources = case.steps.iter().any(|step| step.request.sends_resources());
        let accepts = target.profile.get("tx_resources").is_some_and(|accepts| *accepts == true);
        if sends_resources && !accepts {
            return Some("sends tx-resource, which the profile does not allow (tx_resources)".to_owned());
        }
        let mut sent = case.steps.iter().filter(|step| !step.only_house);
        sent.find_map(|step| lacking_endpoint(target, step).or_else(|| not_stated(target, step)))
    }
}

/// The items of a member that is a list.
fn list<'v>(owner: &'v Value, name: &str) -> &'v [Value] {
    owner[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Returns why a step cannot be sent: the CapabilityStatement states neither the type nor the operation. A
/// statement without any type or operation is not complete.
fn not_stated(target: &TestTarget, step: &Step) -> Option<String> {
    // The statement of a large server has megabytes, and is searched for each step.
    let rest = list(target.addresses.capabilities.as_ref()?, "rest");
    let resources: Vec<&Value> = rest.iter().flat_map(|rest| list(rest, "resource")).collect();
    let path = step.request.to.strip_prefix("fhir/")?;
    let kind = path.split(['/', '?']).next().unwrap_or_default();
    let is_type = kind.starts_with(|first: char| first.is_ascii_uppercase());
    if is_type && !resources.is_empty() && !resources.iter().any(|resource| resource["type"] == kind) {
        return Some(format!("the CapabilityStatement does not state {kind}"));
    }
    let operation = operation_of(path)?;
    let stated: Vec<&Value> =
        rest.iter().chain(resources).flat_map(|owner| list(owner, "operation")).collect();
    let is_stated = |stated: &&Value| {
        stated["name"].as_str().is_some_and(|name| name.trim_start_matches('$').ends_with(operation))
    };
    let matters = operation != "export" && !stated.is_empty() && !stated.iter().any(is_stated);
    matters.then(|| format!("the CapabilityStatement does not state ${operation}"))
}

/// Returns why a step cannot show that a grant is refused to a client: the client may use it, or the profile
/// does not state what it may use.
fn granted(profile: &Map<String, Value>, step: &Step) -> Option<String> {
    let error = step.expect.json.as_ref()?["error"].as_str()?;
    let Body::Form(form) = &step.request.body else { return None };
    let client = form.get("client_id")?.strip_prefix('$')?.strip_suffix(".client_id")?;
    let grant = match step.request.to.as_str() {
        "device_authorization" => DEVICE_GRANT,
        _ => form.get("grant_type")?,
    };
    // With the grant, what is sent as a code or token is invalid_grant.
    if !error.contains("unauthorized_client") || error.contains("invalid_grant") {
        return None;
    }
    match profile.get(client)?["grant_types"].as_array() {
        Some(stated) if stated.iter().any(|stated| stated == grant) => {
            Some(format!("the client '{client}' may use {grant}"))
        }
        Some(_) => None,
        None => Some(format!("the profile does not state whether '{client}' may use {grant} (grant_types)")),
    }
}

/// Grant type of the device flow (RFC 8628 3.4).
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The operation at the end of a path. Other names with a dollar sign are variables, such as those of ids.
fn operation_of(path: &str) -> Option<&'static str> {
    let last = path.split('?').next()?.rsplit('/').next()?.strip_prefix('$')?;
    OPERATIONS.into_iter().find(|operation| *operation == last)
}

/// Returns why a step cannot be sent: the target does not state the endpoint.
fn lacking_endpoint(target: &TestTarget, step: &Step) -> Option<String> {
    let to = &step.request.to;
    let urls = Value::Object(target.addresses.endpoints.clone());
    match endpoints::resolve(to, &target.addresses.base_url, &urls) {
        Err(error @ DestinationError::Lacking(_)) => Some(error.to_string()),
        _ => None,
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

/// Pages of Trefoil that change accounts, clients and users.
const OWN_DATA: [&str; 4] = ["/account", "/admin", "/passkey", "/recovery"];

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

/// Number of repeated requests for new codes or tokens from which a case counts as one that changes data.
const MANY_RECORDS: usize = 50;

/// Returns whether a step changes data that the run has not created itself, or leaves many records.
fn writes(step: &Step) -> bool {
    let request = &step.request;
    let is_fhir = request.to.starts_with("fhir");
    let is_account = OWN_DATA.iter().any(|path| request.to.starts_with(path));
    if request.method == Method::POST && request.times >= MANY_RECORDS && !is_fhir {
        return true;
    }
    match request.method {
        Method::PUT | Method::PATCH => true,
        Method::DELETE => is_fhir || is_account,
        Method::POST => is_fhir && !request.to.contains('$') || is_account,
        _ => false,
    }
}

/// Returns whether a server plays the role of an actor, as far as its metadata and its profile state.
fn offers(target: &TestTarget, actor: BoundActor) -> bool {
    let addresses = &target.addresses;
    let rest = addresses.capabilities.as_ref().map(|statement| list(statement, "rest")).unwrap_or_default();
    let resources: Vec<&Value> = rest.iter().flat_map(|rest| list(rest, "resource")).collect();
    let names = |member: &str, name: &str| match member {
        "type" => resources.iter().any(|resource| resource["type"] == name),
        // Servers state the export of the whole server beside the types, and some write `group-export`.
        _ => rest.iter().chain(resources.iter().copied()).flat_map(|owner| list(owner, "operation")).any(
            |operation| {
                operation["name"]
                    .as_str()
                    .is_some_and(|stated| stated.trim_start_matches('$').ends_with(name))
            },
        ),
    };
    match actor {
        BoundActor::Server => true,
        BoundActor::AuthorizationServer => addresses.endpoint("token").is_some(),
        BoundActor::FhirServer => addresses.fhir_base.is_some(),
        BoundActor::BulkServer => target.profile.contains_key("groups") || names("operation", "export"),
        BoundActor::TerminologyServer => {
            target.profile.contains_key("tx_resources")
                || names("type", "ValueSet")
                || names("type", "CodeSystem")
        }
    }
}

fn is_anonymous(target: &TestTarget) -> bool {
    target.profile.get("anonymous").is_some_and(|anonymous| *anonymous == true)
}

/// Returns whether a step expects the FHIR interface to refuse a request without a valid token.
fn wants_token(step: &Step) -> bool {
    let is_fhir = step.request.to.starts_with("fhir") || step.request.to.starts_with('$');
    is_fhir && step.expect.status.as_ref().is_some_and(|status| status.matches(401) || status.matches(403))
}

fn asks_oauth_metadata(step: &Step) -> bool {
    step.request.to.contains("oauth-authorization-server")
}

/// Returns whether a step sends the public client to the token endpoint.
fn is_public(step: &Step) -> bool {
    let names_it = match &step.request.body {
        Body::Form(form) => form.get("client_id").is_some_and(|id| id == "$public.client_id"),
        Body::Text(text) => text.contains("client_id=$public.client_id"),
        Body::Empty | Body::Json(_) | Body::Resource(_) => false,
    };
    step.request.to == "token" && names_it
}

/// Returns whether a step asks for the metadata of SMART App Launch, or for its scopes.
fn asks_smart(step: &Step) -> bool {
    let is_smart =
        |scope: &str| ["launch", "patient/", "user/", "system/"].iter().any(|start| scope.starts_with(start));
    let scope = step.request.query.get("scope");
    let is_authorization = step.request.to == "authorize";
    step.request.to.contains("smart-configuration")
        || is_authorization && scope.is_some_and(|scope| scope.split(' ').any(is_smart))
}

/// Parameters of requests, and the member of the metadata that lists the values that a server offers (RFC
/// 8414 2, OpenID Connect Discovery 1.0, section 3).
const OFFERS: [(&str, &str, &str); 5] = [
    ("authorize", "response_type", "response_types_supported"),
    ("authorize", "response_mode", "response_modes_supported"),
    ("authorize", "scope", "scopes_supported"),
    ("authorize", "acr_values", "acr_values_supported"),
    ("token", "grant_type", "grant_types_supported"),
];

/// The reason why a case cannot succeed on a server that states what it offers: a request of the case that is
/// to succeed uses something else.
fn not_offered(case: &Case, metadata: &Value) -> Option<String> {
    case.steps.iter().find_map(|step| {
        let request = &step.request;
        let error = step.expect.location.as_ref().and_then(|location| location.params.get("error"));
        if error.is_some_and(|error| error == "request_not_supported")
            && metadata["request_parameter_supported"] == true
        {
            return Some("the target offers request objects".to_owned());
        }
        let is_about_unknown_type = error.is_some_and(|error| {
            error.trim_start_matches("$permits:").starts_with("unsupported_response_type")
        });
        if let Some(kind) = request.query.get("response_type").filter(|_| is_about_unknown_type)
            && list(metadata, "response_types_supported").iter().any(|offered| offered == kind)
        {
            return Some(format!("the target offers response_type={kind}"));
        }
        let is_error =
            step.expect.location.as_ref().is_some_and(|location| location.params.contains_key("error"))
                || step.expect.status.as_ref().is_some_and(|status| status.matches(400));
        OFFERS.iter().filter(|(endpoint, ..)| *endpoint == request.to).find_map(|(_, parameter, member)| {
            let form = match &request.body {
                Body::Form(form) => form.get(*parameter),
                _ => None,
            };
            let value = request.query.get(*parameter).or(form)?;
            let offered: Vec<&str> = match metadata[*member].as_array() {
                Some(stated) => stated.iter().filter_map(Value::as_str).collect(),
                // The default of both specifications.
                None if *member == "response_modes_supported" => vec!["query", "fragment"],
                None => return None,
            };
            // Every OpenID provider has the scope openid, which it need not list.
            let is_offered = |value: &str| {
                offered.contains(&value) || value.is_empty() || value.starts_with('$') || value == "openid"
            };
            // The order of the words of a response type does not matter (OAuth 2.0 Multiple Response Types,
            // 3).
            fn sorted(value: &str) -> BTreeSet<&str> {
                value.split(' ').collect()
            }
            let fits = match *parameter {
                "scope" => value.split(' ').filter(|word| STANDARD_SCOPES.contains(word)).all(is_offered),
                "response_type" => offered.iter().any(|one| sorted(one) == sorted(value)),
                _ => is_offered(value),
            };
            // A refusal can be tested, except with a response type of a standard: where its error goes
            // depends on it.
            let is_invented =
                !value.split(' ').all(|word| ["code", "token", "id_token", "none"].contains(&word));
            let matters = !is_error || *parameter == "response_type" && !is_invented;
            (!fits && matters).then(|| format!("the target does not offer {parameter}={value}"))
        })
    })
}

/// Scopes with a meaning that standards define.
const STANDARD_SCOPES: [&str; 6] = ["openid", "profile", "email", "address", "phone", "offline_access"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{is_plain_loopback, not_offered, operation_of};
    use crate::spec::Specification;

    #[test]
    fn a_server_need_not_list_openid_and_the_default_response_modes() {
        let spec = Specification::load().unwrap();
        let offered = |id: &str| {
            let case = spec.cases.iter().find(|case| case.id == id).unwrap();
            not_offered(case, &json!({ "scopes_supported": ["profile"] }))
        };
        assert_eq!(offered("oidf/oidcc/server/code"), None);
        let reason = "the target does not offer response_mode=form_post".to_owned();
        assert_eq!(offered("design/authorize/form-post/error"), Some(reason));
    }

    #[test]
    fn a_refused_grant_is_tested_with_a_client_that_lacks_it() {
        let spec = Specification::load().unwrap();
        let reason = |grants: &[&str]| {
            let case = spec.cases.iter().find(|case| case.id == "rfc8628/3.1/client/not-registered-for-it");
            let profile = json!({ "public": { "client_id": "a", "grant_types": grants } });
            let profile = profile.as_object().unwrap().clone();
            case.unwrap().steps.iter().find_map(|step| super::granted(&profile, step))
        };
        assert_eq!(reason(&["authorization_code"]), None);
        let device = super::DEVICE_GRANT;
        assert_eq!(reason(&[device]), Some(format!("the client 'public' may use {device}")));
    }

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

    #[test]
    fn the_operation_is_the_end_of_a_path() {
        for (path, operation) in [
            ("Group/$groups.0/$export", Some("export")),
            ("CodeSystem/$code_systems.0.id/$validate-code?code=a", Some("validate-code")),
            ("$versions", Some("versions")),
            ("Group/$id", None),
            ("Group/$id/_history", None),
            ("Patient?name=$expand", None),
        ] {
            assert_eq!(operation_of(path), operation, "{path}");
        }
    }
}
