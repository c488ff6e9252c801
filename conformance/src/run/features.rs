//! Whether a server has the features that a case uses, as far as its metadata and its profile state them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::environment::probe::PUBLIC_REFUSED;
use crate::environment::target::TestTarget;
use crate::spec::endpoints::{self, DestinationError};
use crate::spec::requirement::BoundActor;
use crate::spec::uses::{Feature, Use};

/// The reason why a server does not have a feature; `None` if it has it, or if nothing states that it does
/// not.
pub(super) fn lacking(used: &Use, target: &TestTarget) -> Option<String> {
    let metadata = target.addresses.metadata.as_ref();
    match used {
        Use::Feature(feature) => lacking_feature(*feature, target).map(str::to_owned),
        Use::Without { parameter, value } => offers_anyway(parameter, value, metadata?),
        Use::WithoutGrant { client, grant } => may_use_grant(target, client, grant),
        Use::Offered { parameter, member, value } => not_offered(parameter, member, value, metadata?),
        Use::Endpoint(name) => {
            let urls = Value::Object(target.addresses.endpoints.clone());
            match endpoints::resolve(name, &target.addresses.base_url, &urls) {
                Err(error @ DestinationError::Lacking(_)) => Some(error.to_string()),
                _ => None,
            }
        }
        Use::Type(kind) => {
            let (_, resources) = stated_resources(target)?;
            let is_stated =
                resources.is_empty() || resources.iter().any(|resource| resource["type"] == *kind);
            (!is_stated).then(|| format!("the CapabilityStatement does not state {kind}"))
        }
        // Servers write the export in several ways.
        Use::Operation("export") => None,
        Use::Operation(name) => {
            let (rest, resources) = stated_resources(target)?;
            let mut stated =
                rest.iter().chain(resources).flat_map(|owner| list(owner, "operation")).peekable();
            let is_stated = stated.peek().is_none() || stated.any(|operation| is_named(operation, name));
            (!is_stated).then(|| format!("the CapabilityStatement does not state ${name}"))
        }
    }
}

fn lacking_feature(feature: Feature, target: &TestTarget) -> Option<&str> {
    let addresses = &target.addresses;
    let announces =
        |member: &str| addresses.metadata.as_ref().is_some_and(|metadata| !metadata[member].is_null());
    let states = |member: &str| target.profile.get(member).is_some_and(|stated| *stated == true);
    let (has, reason) = match feature {
        Feature::AccessControl => {
            (!states("anonymous"), "expects a token to be needed, and the server needs none (anonymous)")
        }
        Feature::Dpop => {
            (announces("dpop_signing_alg_values_supported"), "the server does not announce DPoP")
        }
        Feature::NoChallenge => (
            !target.requires_pkce(),
            "sends no code challenge, which the server may require (pkce = false in the profile runs it)",
        ),
        Feature::NoRequestObjects => (
            addresses
                .metadata
                .as_ref()
                .is_none_or(|metadata| metadata["request_parameter_supported"] != true),
            "the target offers request objects",
        ),
        Feature::OauthMetadata => {
            (addresses.has_oauth_metadata, "the server has no oauth-authorization-server document")
        }
        Feature::OwnPages => (target.treatment.house_rules, "asks a page that only Trefoil has"),
        Feature::Pkce => {
            (announces("code_challenge_methods_supported"), "the server does not announce PKCE (RFC 8414 2)")
        }
        Feature::PublicClient => return target.profile.get(PUBLIC_REFUSED).and_then(Value::as_str),
        Feature::PushedRequests => (
            addresses.endpoint("par").is_some(),
            "the server does not announce pushed authorization requests",
        ),
        Feature::Smart => (addresses.smart.is_some(), "the server has no smart-configuration"),
        Feature::TxResource => {
            (states("tx_resources"), "sends tx-resource, which the profile does not allow (tx_resources)")
        }
        // An option of the run permits changes, not the server.
        Feature::Writes => return None,
    };
    (!has).then_some(reason)
}

/// The reason why a refusal cannot be tested: the server offers the value.
fn offers_anyway(parameter: &str, value: &str, metadata: &Value) -> Option<String> {
    let is_offered =
        list(metadata, &format!("{parameter}s_supported")).iter().any(|offered| offered == value);
    is_offered.then(|| format!("the target offers {parameter}={value}"))
}

/// The reason why it cannot be tested that a client is refused a grant: it may use the grant, or the profile
/// does not state what it may use.
fn may_use_grant(target: &TestTarget, client: &str, grant: &str) -> Option<String> {
    match target.profile.get(client)?["grant_types"].as_array() {
        Some(stated) if stated.iter().any(|stated| stated == grant) => {
            Some(format!("the client '{client}' may use {grant}"))
        }
        Some(_) => None,
        None => Some(format!("the profile does not state whether '{client}' may use {grant} (grant_types)")),
    }
}

fn not_offered(parameter: &str, member: &str, value: &str, metadata: &Value) -> Option<String> {
    let offered: Vec<&str> = match metadata[member].as_array() {
        Some(stated) => stated.iter().filter_map(Value::as_str).collect(),
        // The default of both specifications.
        None if member == "response_modes_supported" => vec!["query", "fragment"],
        None => return None,
    };
    // The order of the words of a response type does not matter (OAuth 2.0 Multiple Response Types, 3).
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    let is_offered = match parameter {
        "response_type" => offered.iter().any(|one| words(one) == words(value)),
        _ => offered.contains(&value),
    };
    (!is_offered).then(|| format!("the target does not offer {parameter}={value}"))
}

/// Returns whether a server plays the role of an actor.
pub(super) fn plays(target: &TestTarget, actor: BoundActor) -> bool {
    let (rest, resources) = stated_resources(target).unwrap_or_default();
    let has_type = |name: &str| resources.iter().any(|resource| resource["type"] == name);
    // Servers state the export of the whole server beside the types, and some write `group-export`.
    let has_export = || {
        let owners = rest.iter().chain(resources.iter().copied());
        owners.flat_map(|owner| list(owner, "operation")).any(|operation| is_named(operation, "export"))
    };
    match actor {
        BoundActor::Server => true,
        BoundActor::AuthorizationServer => target.addresses.endpoint("token").is_some(),
        BoundActor::FhirServer => target.addresses.fhir_base.is_some(),
        BoundActor::BulkServer => target.profile.contains_key("groups") || has_export(),
        BoundActor::TerminologyServer => {
            target.profile.contains_key("tx_resources") || has_type("ValueSet") || has_type("CodeSystem")
        }
    }
}

/// The members `rest` of the CapabilityStatement, and their resources. A statement of a large server has
/// megabytes.
fn stated_resources(target: &TestTarget) -> Option<(&[Value], Vec<&Value>)> {
    let rest = list(target.addresses.capabilities.as_ref()?, "rest");
    Some((rest, rest.iter().flat_map(|rest| list(rest, "resource")).collect()))
}

fn is_named(operation: &Value, name: &str) -> bool {
    operation["name"].as_str().is_some_and(|stated| stated.trim_start_matches('$').ends_with(name))
}

/// The items of a member that is a list.
fn list<'v>(owner: &'v Value, name: &str) -> &'v [Value] {
    owner[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{not_offered, offers_anyway};
    use crate::spec::Specification;
    use crate::spec::uses::Use;

    #[test]
    fn a_server_need_not_list_openid_and_the_default_response_modes() {
        let spec = Specification::load().unwrap();
        let metadata = json!({ "scopes_supported": ["profile"] });
        let reason = |id: &str| {
            let case = spec.cases.iter().find(|case| case.id == id).unwrap();
            case.uses.iter().find_map(|used| match used {
                Use::Offered { parameter, member, value } => not_offered(parameter, member, value, &metadata),
                _ => None,
            })
        };
        assert_eq!(reason("oidf/oidcc/server/code"), None);
        let expected = "the target does not offer response_mode=form_post".to_owned();
        assert_eq!(reason("design/authorize/form-post/error"), Some(expected));
    }

    #[test]
    fn a_refusal_is_tested_if_the_value_is_not_offered() {
        let metadata = json!({ "response_types_supported": ["code token"] });
        assert_eq!(offers_anyway("response_type", "Code", &metadata), None);
        let reason = offers_anyway("response_type", "code token", &metadata);
        assert_eq!(reason.unwrap(), "the target offers response_type=code token");
    }
}
