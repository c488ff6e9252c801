//! GET {fhir_base}/metadata: the CapabilityStatement or, with `mode=terminology`, the
//! TerminologyCapabilities.

use ::terminology::TerminologyOperation;
use ::terminology::parameters::expand_parameter_names;
use bytes::Bytes;
use fhir::{IssueCode, Parameters, search_parameters};
use http::{Method, StatusCode, header};
use resources::filter::modifier;
use serde_json::{Value, json};

use super::check_accept;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::http::routes;
use crate::node::app::App;

/// Documentation of the export operations (Bulk Data Access 2.0.0, server capability documentation).
fn export_documentation() -> String {
    let names: Vec<_> = modifier::NAMES.iter().map(|name| format!(":{name}")).collect();
    format!(
        "By GET, or by POST of Parameters. `_type`, `_since`, `_until`, `_elements` (root elements), `_typeFilter` (the \
         search parameters of R4 but composite and special ones; modifiers {} and :[type]), `includeAssociatedData`, and by \
         POST below the system `patient`. Patient and Group exports hold the Patient compartment without Patient.link and \
         Group.member, and with Device.patient, Task.for, Contract.subject and GuidanceResponse.subject. \
         `includeAssociatedData=_supporting` adds the Location, Medication, Organization, Practitioner and PractitionerRole \
         resources that exported ones refer to, and Devices without a patient, whenever they were changed. `_since` is \
         strict, and nothing else that was changed before it comes along. Types without a scope are left out; naming one is \
         refused. Attachments stay as they were stored.",
        names.join(", ")
    )
}

const CHANGELOG: &str = include_str!("../../../../CHANGELOG.md");

/// Version of HL7's terminology tests that this server passes. HL7's validator accepts servers from 1.6.0 on,
/// and sends `$batch-validate-code` from 1.7.8 on.
const TEST_VERSION: &str = "1.9.0";

/// The interactions of resources with their routes (FHIR R4, RESTful API).
const INTERACTIONS: [(&str, Method, &str); 8] = [
    ("read", Method::GET, "{kind}/{id}"),
    ("vread", Method::GET, "{kind}/{id}/_history/{version}"),
    ("update", Method::PUT, "{kind}/{id}"),
    ("delete", Method::DELETE, "{kind}/{id}"),
    ("history-instance", Method::GET, "{kind}/{id}/_history"),
    ("history-type", Method::GET, "{kind}/_history"),
    ("create", Method::POST, "{kind}"),
    ("search-type", Method::GET, "{kind}"),
];

/// The methods and paths of the FHIR routes, relative to the base.
fn fhir_routes() -> impl Iterator<Item = (&'static Method, &'static str)> {
    routes::of_fhir().filter_map(|route| Some((&route.method, route.path.strip_prefix("fhir/R4/")?)))
}

/// The names of the operations of a resource type, or those of the system, as the routes have them.
fn operation_names(kind: Option<&str>) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for (_, path) in fhir_routes() {
        let (target, name) =
            path.rsplit_once('/').map_or((None, path), |(target, name)| (Some(target), name));
        let target = target.map(|target| target.split('/').next().unwrap_or(target));
        let Some(name) = name.strip_prefix('$').filter(|_| target == kind) else { continue };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// An entry of `CapabilityStatement.rest.operation` or `.resource.operation`.
fn operation(app: &App, kind: Option<&str>, name: &str) -> Value {
    let export = |definition: &str| {
        let definition = format!("http://hl7.org/fhir/uv/bulkdata/OperationDefinition/{definition}");
        json!({ "name": name, "definition": definition, "documentation": export_documentation() })
    };
    match (kind, name) {
        (None, "export") => export("export"),
        (Some("Patient"), "export") => export("patient-export"),
        (Some("Group"), "export") => export("group-export"),
        (None, "closure") => {
            json!({ "name": name, "definition": "http://hl7.org/fhir/OperationDefinition/ConceptMap-closure" })
        }
        (None, name) => {
            let definition = format!("http://hl7.org/fhir/OperationDefinition/CapabilityStatement-{name}");
            json!({ "name": name, "definition": definition })
        }
        (Some(kind), name) => {
            let path = format!("{kind}/${name}");
            let definition =
                TerminologyOperation::at_path(&path).and_then(|(found, _)| found.row().definition);
            // HL7's guide names `$batch-validate-code` but publishes no definition.
            let definition =
                definition.map_or_else(|| format!("{}/{kind}/${name}", app.address.fhir_base), str::to_owned);
            json!({ "name": name, "definition": definition })
        }
    }
}

fn operations(app: &App, kind: Option<&str>) -> Vec<Value> {
    operation_names(kind).into_iter().map(|name| operation(app, kind, name)).collect()
}

/// Responds to `$versions` (FHIR R4, CapabilityStatement) with the one FHIR version of this server. No token
/// is required.
pub async fn read_versions(context: &RequestContext) -> Result<Response, Problem> {
    check_accept(context, &[])?;
    let mut versions = Parameters::new();
    versions.push_code("version", "4.0");
    versions.push_code("default", "4.0");
    Ok(reply::fhir_json(StatusCode::OK, &versions))
}

/// Responds with the CapabilityStatement or the TerminologyCapabilities. No token is required.
pub async fn read_metadata(context: &RequestContext) -> Result<Response, Problem> {
    check_accept(context, &[])?;
    match context.params().get("mode") {
        // Only a part of the capabilities is normative in R4, so there is no smaller statement.
        None | Some("full" | "normative") => {}
        Some("terminology") => return terminology_capabilities(context).await,
        Some(_) => {
            let text = "mode must be full, normative or terminology";
            return Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text));
        }
    }
    let statement = context
        .app
        .capabilities
        .get_or_init(|| capability_statement(&context.app, &fhir::instant::format(context.now)));
    let response = reply::body(StatusCode::OK, reply::FHIR_JSON, statement.clone());
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=300"))
}

/// The search parameters of a type, without the canonical URLs of their R4 definitions, which would be the
/// largest part of the statement.
fn search_parameters(kind: &str) -> Vec<Value> {
    search_parameters::of_type(kind).map(|(name, kind)| json!({ "name": name, "type": kind })).collect()
}

/// The day on which a version was released, as the changelog states it. For a version between two releases,
/// that of the one before: HL7's validator expects a day.
fn release_date(version: &str) -> &'static str {
    let heading = format!("## [{version}] - ");
    let of_version = CHANGELOG.lines().find_map(|line| line.strip_prefix(&heading));
    let mut days =
        CHANGELOG.lines().filter_map(|line| Some(line.strip_prefix("## [")?.split_once("] - ")?.1));
    of_version.or_else(|| days.next()).unwrap_or_default()
}

/// Builds the CapabilityStatement, which does not change while the server runs.
fn capability_statement(app: &App, date: &str) -> Bytes {
    let base = &app.address.base_url;
    let is_served = |method: &Method, path: &str| {
        fhir_routes().any(|(served_method, served_path)| served_method == method && served_path == path)
    };
    let interactions: Vec<Value> = INTERACTIONS
        .iter()
        .filter(|(_, method, path)| is_served(method, path))
        .map(|(code, ..)| json!({ "code": code }))
        .collect();
    let resources: Vec<Value> = fhir::RESOURCE_TYPES
        .iter()
        // A Subscription is refused, because it would never be notified of anything.
        .filter(|kind| **kind != "Subscription")
        .map(|kind| {
            let mut resource = json!({
                "type": kind,
                "interaction": interactions,
                "versioning": "versioned-update",
                "readHistory": true,
                "updateCreate": true,
                "conditionalCreate": true,
                "conditionalRead": "not-match",
                "conditionalUpdate": true,
                "conditionalDelete": "single",
                "searchInclude": ["*"],
                "searchRevInclude": ["*"],
            });
            // The parameters of all types are listed at each type, too: bulk clients look there for
            // `_lastUpdated` before they ask for an increment.
            let of_all_types = search_parameters("Resource");
            resource["searchParam"] = search_parameters(kind).into_iter().chain(of_all_types).collect();
            if let operations @ [_, ..] = &*operations(app, Some(kind)) {
                resource["operation"] = operations.into();
            }
            resource
        })
        .collect();
    let oauth_uris = json!({
        "url": "http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris",
        "extension": [
            { "url": "token", "valueUri": format!("{base}/oauth2/token") },
            { "url": "authorize", "valueUri": format!("{base}/oauth2/authorize") },
            { "url": "revoke", "valueUri": format!("{base}/oauth2/revoke") },
        ],
    });
    // HL7's validator refuses servers without these two features.
    let features = [
        ("tx-tests/FeatureDefinition/test-version", json!({ "url": "value", "valueCode": TEST_VERSION })),
        (
            "tx-ecosystem/FeatureDefinition/CodeSystemAsParameter",
            json!({ "url": "value", "valueBoolean": true }),
        ),
    ];
    let feature = |(name, value)| {
        let definition = format!("http://hl7.org/fhir/uv/{name}");
        json!({
            "url": "http://hl7.org/fhir/uv/application-feature/StructureDefinition/feature",
            "extension": [{ "url": "definition", "valueCanonical": definition }, value],
        })
    };
    let version = env!("CARGO_PKG_VERSION");
    let software = json!({ "name": "Trefoil", "version": version, "releaseDate": release_date(version) });
    let statement = json!({
        "resourceType": "CapabilityStatement",
        "extension": features.map(feature),
        "url": format!("{}/metadata", app.address.fhir_base),
        "version": env!("CARGO_PKG_VERSION"),
        "name": "Trefoil",
        "title": "Trefoil: identity, terminology and bulk export",
        "status": "active",
        "date": date,
        "kind": "instance",
        "software": software,
        "implementation": { "description": "Trefoil: identity, terminology and bulk export", "url": app.address.fhir_base },
        "fhirVersion": "4.0.1",
        "format": ["application/fhir+json", "json"],
        "instantiates": [
            "http://hl7.org/fhir/uv/bulkdata/CapabilityStatement/bulk-data",
            "http://hl7.org/fhir/CapabilityStatement/terminology-server",
        ],
        "rest": [{
            "mode": "server",
            "security": {
                "cors": true,
                "service": [{ "coding": [{
                    "system": "http://terminology.hl7.org/CodeSystem/restful-security-service",
                    "code": "SMART-on-FHIR",
                }] }],
                "extension": [oauth_uris],
            },
            "interaction": [{ "code": "transaction" }, { "code": "batch" }, { "code": "history-system" }],
            "resource": resources,
            "searchParam": search_parameters("Resource"),
            "operation": operations(app, None),
        }],
    });
    statement.to_string().into()
}

/// Responds with the TerminologyCapabilities: the code systems and versions as they are stored. No index is
/// built for it.
async fn terminology_capabilities(context: &RequestContext) -> Result<Response, Problem> {
    context.app.terminology_sync.apply_changes().await?;
    let version = |(index, code): (usize, Option<String>)| {
        let mut version = json!({ "isDefault": index == 0 });
        if let Some(code) = code {
            version["code"] = code.into();
        }
        version
    };
    let systems = context.app.terminology.code_systems_by_url().into_iter().map(|(url, versions)| {
        let versions: Vec<Value> = versions.into_iter().enumerate().map(version).collect();
        json!({ "uri": url, "version": versions })
    });
    let parameter = |name: &str| json!({ "name": name });
    let parameters: Vec<Value> = expand_parameter_names().into_iter().map(parameter).collect();
    let statement = json!({
        "resourceType": "TerminologyCapabilities",
        "url": format!("{}/metadata?mode=terminology", context.app.address.fhir_base),
        "version": env!("CARGO_PKG_VERSION"),
        "name": "TrefoilTerminology",
        "title": "Trefoil: terminology",
        "status": "active",
        "date": fhir::instant::format(context.now),
        "kind": "instance",
        "software": { "name": "Trefoil", "version": env!("CARGO_PKG_VERSION") },
        "implementation": { "description": "Trefoil: terminology", "url": context.app.address.fhir_base },
        "codeSystem": systems.collect::<Vec<Value>>(),
        "expansion": {
            "hierarchical": true,
            "paging": true,
            "incomplete": true,
            "parameter": parameters,
            "textFilter": "Every word of the filter must begin a word of the code, the display or a designation; case, accents and widths do not matter.",
        },
        "validateCode": { "translations": false },
        "translation": { "needsMap": false },
    });
    // The statement changes with the stored code systems.
    Ok(reply::no_store(reply::fhir_json(StatusCode::OK, &statement)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_between_two_releases_has_the_day_of_the_one_before() {
        assert_eq!(release_date("0.1.0"), "2026-11-28");
        let newest = release_date("no such version");
        assert!(newest.parse::<jiff::civil::Date>().is_ok() && newest >= "2026-11-28", "{newest}");
    }
}
