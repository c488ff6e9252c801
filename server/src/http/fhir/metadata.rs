//! GET {fhir_base}/metadata: the CapabilityStatement, true to the routes.

use http::{StatusCode, header};
use serde_json::{Value, json};

use super::check_accept;
use crate::http::extract::Call;
use crate::http::reply::{self, Response};

/// Answers with the CapabilityStatement; no token is needed.
pub async fn get(call: Call) -> Response {
    if let Err(response) = check_accept(&call, &[]) {
        return response;
    }
    let base = &call.app.base_url;
    let operation = |name: &str, definition: &str| json!({ "name": name, "definition": definition });
    let interactions: Vec<Value> =
        ["read", "vread", "create", "update", "delete"].iter().map(|code| json!({ "code": code })).collect();
    let resources: Vec<Value> = fhir::RESOURCE_TYPES
        .iter()
        .map(|kind| {
            let mut resource = json!({
                "type": kind,
                "interaction": interactions,
                "versioning": "versioned-update",
                "readHistory": true,
                "updateCreate": true,
            });
            match *kind {
                "Group" => {
                    let export = "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/group-export";
                    resource["operation"] = json!([operation("export", export)]);
                }
                "ValueSet" => {
                    let definition = "http://hl7.org/fhir/OperationDefinition/ValueSet-validate-code";
                    resource["operation"] = json!([operation("validate-code", definition)]);
                }
                "CodeSystem" => {
                    let definition = "http://hl7.org/fhir/OperationDefinition/CodeSystem-subsumes";
                    resource["operation"] = json!([operation("subsumes", definition)]);
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
    let statement = json!({
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": "2026-11-21",
        "kind": "instance",
        "software": { "name": "Trefoil", "version": env!("CARGO_PKG_VERSION") },
        "implementation": { "description": "Trefoil: identity, terminology and bulk export", "url": call.app.fhir_base },
        "fhirVersion": "4.0.1",
        "format": ["application/fhir+json", "json"],
        "instantiates": ["http://hl7.org/fhir/uv/bulkdata/CapabilityStatement/bulk-data"],
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
            "operation": [operation("export", "http://hl7.org/fhir/uv/bulkdata/OperationDefinition/export")],
        }],
    });
    let response = reply::fhir_json(StatusCode::OK, &statement);
    reply::with(response, header::CACHE_CONTROL, "public, max-age=300")
}
