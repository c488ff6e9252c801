//! GET {fhir_base}/metadata: the CapabilityStatement or, with `mode=terminology`, the TerminologyCapabilities.

use ::terminology::expand_parameter_names;
use bytes::Bytes;
use fhir::{IssueCode, Parameters, search_parameters};
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::check_accept;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};
use crate::node::app::App;

/// Documentation of the export operations (Bulk Data Access 2.0.0, server capability documentation).
const EXPORT: &str = "By GET, or by POST of Parameters. `_type`, `_since`, `_until`, `_elements` (root elements), \
    `_typeFilter` (the search parameters of R4 but composite and special ones; modifiers :not, :missing, :exact, :contains and \
    :[type]), `includeAssociatedData`, and by POST below the system `patient`. Patient and Group exports hold the Patient \
    compartment without Patient.link and Group.member. `includeAssociatedData=_supporting` adds the Device, Location, \
    Medication, Organization, Practitioner and PractitionerRole resources that exported ones refer to, whenever they were \
    changed. `_since` is strict, and nothing else that was changed before it comes along. Types without a scope are left \
    out; naming one is refused. Attachments stay as they were stored.";

/// Version of HL7's terminology tests that this server passes. HL7's validator accepts servers from 1.6.0 on, and sends
/// `$batch-validate-code` from 1.7.8 on.
const TEST_VERSION: &str = "1.9.0";

/// Date of the two statements.
const DATE: &str = "2026-11-23";

/// Responds to `$versions` (FHIR R4, CapabilityStatement) with the one FHIR version of this server. No token is required.
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
    let statement = context.app.capabilities.get_or_init(|| capability_statement(&context.app)).clone();
    let response = reply::body(StatusCode::OK, reply::FHIR_JSON, statement);
    Ok(reply::with(response, header::CACHE_CONTROL, "public, max-age=300"))
}

/// Returns the search parameters of a type, without the canonical URLs of their R4 definitions, which would be the
/// largest part of the statement.
fn search_parameters(kind: &str) -> Vec<Value> {
    search_parameters::of_type(kind).map(|(name, kind)| json!({ "name": name, "type": kind })).collect()
}

/// Returns the address of `$batch-validate-code` of a type. HL7's guide names the operation but publishes no definition.
fn batch_definition(app: &App, kind: &str) -> String {
    format!("{}/{kind}/$batch-validate-code", app.fhir_base)
}

/// Builds the CapabilityStatement, which does not change while the server runs.
fn capability_statement(app: &App) -> Bytes {
    let base = &app.base_url;
    let operation = |name: &str, definition: &str| json!({ "name": name, "definition": definition });
    let export = |name: &str| {
        let definition = format!("http://hl7.org/fhir/uv/bulkdata/OperationDefinition/{name}");
        json!([{ "name": "export", "definition": definition, "documentation": EXPORT }])
    };
    let interactions: Vec<Value> =
        ["read", "vread", "update", "delete", "history-instance", "create", "search-type"]
            .iter()
            .map(|code| json!({ "code": code }))
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
            });
            // FHIR does not allow empty lists, and some types have no parameters of their own.
            if let known @ [_, ..] = &*search_parameters(kind) {
                resource["searchParam"] = known.into();
            }
            match *kind {
                "Group" => resource["operation"] = export("group-export"),
                "Patient" => resource["operation"] = export("patient-export"),
                "ValueSet" => {
                    let defined = |name| format!("http://hl7.org/fhir/OperationDefinition/ValueSet-{name}");
                    let batch = batch_definition(app, kind);
                    resource["operation"] = json!([
                        operation("expand", &defined("expand")),
                        operation("validate-code", &defined("validate-code")),
                        operation("batch-validate-code", &batch)
                    ]);
                }
                "CodeSystem" => {
                    let defined = |name| format!("http://hl7.org/fhir/OperationDefinition/CodeSystem-{name}");
                    let of_r4 = ["lookup", "validate-code", "subsumes"];
                    let operations = of_r4.map(|name| operation(name, &defined(name))).into_iter();
                    let batch = operation("batch-validate-code", &batch_definition(app, kind));
                    resource["operation"] = operations.chain([batch]).collect();
                }
                _ => {}
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
    let mut operations = export("export");
    if let Some(operations) = operations.as_array_mut() {
        let versions = "http://hl7.org/fhir/OperationDefinition/CapabilityStatement-versions";
        operations.push(operation("versions", versions));
    }
    let statement = json!({
        "resourceType": "CapabilityStatement",
        "extension": features.map(feature),
        "url": format!("{}/metadata", app.fhir_base),
        "version": env!("CARGO_PKG_VERSION"),
        "name": "Trefoil",
        "title": "Trefoil: identity, terminology and bulk export",
        "status": "active",
        "date": DATE,
        "kind": "instance",
        "software": { "name": "Trefoil", "version": env!("CARGO_PKG_VERSION"), "releaseDate": DATE },
        "implementation": { "description": "Trefoil: identity, terminology and bulk export", "url": app.fhir_base },
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
            "interaction": [{ "code": "transaction" }, { "code": "batch" }],
            "resource": resources,
            "searchParam": search_parameters("Resource"),
            "operation": operations,
        }],
    });
    statement.to_string().into()
}

/// Responds with the TerminologyCapabilities: the code systems and versions as they are stored. No index is built for
/// it.
async fn terminology_capabilities(context: &RequestContext) -> Result<Response, Problem> {
    context.app.terminology_sync.apply_changes().await?;
    let version = |(at, code): (usize, Option<String>)| {
        let mut version = json!({ "isDefault": at == 0 });
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
        "url": format!("{}/metadata?mode=terminology", context.app.fhir_base),
        "version": env!("CARGO_PKG_VERSION"),
        "name": "TrefoilTerminology",
        "title": "Trefoil: terminology",
        "status": "active",
        "date": DATE,
        "kind": "instance",
        "software": { "name": "Trefoil", "version": env!("CARGO_PKG_VERSION") },
        "implementation": { "description": "Trefoil: terminology", "url": context.app.fhir_base },
        "codeSystem": systems.collect::<Vec<Value>>(),
        "expansion": {
            "hierarchical": true,
            "paging": true,
            "incomplete": true,
            "parameter": parameters,
            "textFilter": "Every word of the filter must begin a word of the code, the display or a designation; case does not matter.",
        },
        "validateCode": { "translations": false },
    });
    // The statement changes with the stored code systems.
    Ok(reply::no_store(reply::fhir_json(StatusCode::OK, &statement)))
}
