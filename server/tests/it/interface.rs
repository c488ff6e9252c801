//! The tables of operations, parameters, claims and members, compared with what a running server accepts and
//! announces.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use terminology::{OperationMethods, TerminologyOperation, parameters};

use crate::support::Server;

const SYSTEM: &str = "http://hl7.org/fhir/administrative-gender";

/// Returns the parameters of a request that succeeds.
fn valid_request(operation: TerminologyOperation) -> Vec<Value> {
    // Beside the request, so that all parameters that select a value set are read.
    let resource_parameter = json!({ "name": "tx-resource", "resource": {
        "resourceType": "ValueSet",
        "url": "urn:genders",
        "status": "active",
        "compose": { "include": [{ "system": SYSTEM }] },
    }});
    let set = json!({ "name": "url", "valueUri": "urn:genders" });
    let uri = |name: &str| json!({ "name": name, "valueUri": SYSTEM });
    let code = |name: &str| json!({ "name": name, "valueCode": "female" });
    let item = |parameter: Vec<Value>| json!({ "name": "validation", "resource": { "resourceType": "Parameters", "parameter": parameter } });
    match operation {
        TerminologyOperation::ValidateCode => vec![resource_parameter, set, uri("system"), code("code")],
        TerminologyOperation::BatchValidateCode => {
            vec![resource_parameter, item(vec![set, uri("system"), code("code")])]
        }
        TerminologyOperation::Expand => vec![resource_parameter, set],
        TerminologyOperation::ValidateCodeInSystem => vec![uri("url"), code("code")],
        TerminologyOperation::BatchValidateCodeInSystem => vec![item(vec![uri("url"), code("code")])],
        TerminologyOperation::Lookup => vec![uri("system"), code("code")],
        TerminologyOperation::Subsumes => vec![uri("system"), code("codeA"), code("codeB")],
        TerminologyOperation::Translate => {
            let map = json!({ "resourceType": "ConceptMap", "url": "urn:map", "status": "active" });
            let map = json!({ "name": "tx-resource", "resource": map });
            vec![map, json!({ "name": "url", "valueUri": "urn:map" }), uri("system"), code("code")]
        }
    }
}

/// Sends a request, and returns the status and the answer.
async fn send(server: &Server, operation: TerminologyOperation, parameter: &[Value]) -> (u16, Value) {
    let row = operation.row();
    let url = format!("{}/{}/${}", server.fhir(), row.resource_type, row.name);
    let body = json!({ "resourceType": "Parameters", "parameter": parameter }).to_string();
    let request = server.client().post(url).header("Content-Type", "application/fhir+json").body(body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// A period is not the type of any parameter, so it is rejected wherever the value is read.
#[tokio::test]
async fn the_accepted_parameters_are_those_of_the_table() {
    let mut server = Server::open_terminology();
    server.start();
    let period = |name: &str| json!({ "name": name, "valuePeriod": { "start": "2026" } });
    for &operation in TerminologyOperation::ALL {
        let valid = valid_request(operation);
        let made_up = [valid.clone(), vec![period("made-up")]].concat();
        let (status, answer) = send(&server, operation, &made_up).await;
        assert_eq!(status, 200, "{operation:?} with a made-up parameter: {answer}");
        let names: BTreeSet<_> = parameters::ALL.iter().map(|row| row.name).collect();
        for name in names {
            let (status, answer) =
                send(&server, operation, &[valid.clone(), vec![period(name)]].concat()).await;
            let is_accepted = parameters::of_operation(operation).any(|row| row.name == name);
            // Its presence is the information. Its value is not read.
            if !is_accepted || name == parameters::UUID.row().name {
                assert_eq!(status, 200, "{operation:?} does not have {name}: {answer}");
                continue;
            }
            let text = answer["issue"][0]["details"]["text"].as_str().unwrap_or_default();
            assert_eq!(status, 400, "{operation:?} with {name}: {answer}");
            assert!(text.contains(&format!("'{name}'")), "{operation:?} with {name}: {text}");
        }
    }
}

#[tokio::test]
async fn metadata_announces_the_operations_and_parameters_of_the_tables() {
    let mut server = Server::open_terminology();
    server.start();
    let get = |path: String| {
        let request = server.client().get(path);
        async move { request.send().await.unwrap().json::<Value>().await.unwrap() }
    };
    let statement = get(format!("{}/metadata", server.fhir())).await;
    let mut announced = BTreeSet::new();
    for resource in statement["rest"][0]["resource"].as_array().unwrap() {
        for operation in resource["operation"].as_array().into_iter().flatten() {
            announced.insert((resource["type"].as_str().unwrap(), operation["name"].as_str().unwrap()));
        }
    }
    let mut expected = BTreeSet::from([("Group", "export"), ("Patient", "export")]);
    expected.extend(TerminologyOperation::ALL.iter().map(|one| (one.row().resource_type, one.row().name)));
    assert_eq!(announced, expected);

    let capabilities = get(format!("{}/metadata?mode=terminology", server.fhir())).await;
    let parameter = capabilities["expansion"]["parameter"].as_array().unwrap();
    let announced: Vec<_> = parameter.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(announced, parameters::expand_parameter_names());

    let discovery = get(format!("{}/.well-known/openid-configuration", server.base())).await;
    let claims = discovery["claims_supported"].as_array().unwrap();
    for row in identity::model::members::CLAIMS {
        assert!(claims.contains(&json!(row.name)), "{} is not in claims_supported", row.name);
        let scopes = discovery["scopes_supported"].as_array().unwrap();
        assert!(scopes.contains(&json!(row.scope.unwrap())), "{:?} is not in scopes_supported", row.scope);
    }
}

#[tokio::test]
async fn operations_by_get_need_no_body() {
    let mut server = Server::open_terminology();
    server.start();
    for operation in TerminologyOperation::ALL {
        let row = operation.row();
        let url = format!("{}/{}/${}", server.fhir(), row.resource_type, row.name);
        let status = server.client().get(url).send().await.unwrap().status().as_u16();
        let expected = if row.methods == OperationMethods::GetAndPost { 400 } else { 405 };
        assert_eq!(status, expected, "{operation:?}");
    }
}
