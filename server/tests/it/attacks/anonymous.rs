//! Attacks without authentication: forms with very many parameters, and requests that create a pending
//! record.

use std::time::Instant;

use serde_json::{Value, json};

use super::{report, size};
use crate::support::Server;

#[tokio::test]
async fn a_form_with_very_many_parameters_is_rejected() {
    let server = Server::demo();
    let form: String = (0..17_505).map(|n| format!("{n:x}&")).take_while(|_| true).collect();
    let form = &form[..form.len().min(64 * 1024)];
    let client = server.client();
    for endpoint in ["token", "par", "revoke", "introspect", "device_authorization"] {
        let started = Instant::now();
        for _ in 0..size(2, 50) {
            let request = client.post(format!("{}/oauth2/{endpoint}", server.base()));
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let response = request.body(form.to_owned()).send().await.unwrap();
            assert_eq!(response.status(), 400, "{endpoint}");
            let response: Value = response.json().await.unwrap();
            assert_eq!(response["error"], "invalid_request");
            assert_eq!(response["error_description"], "the request has more than 100 parameters");
        }
        report(
            &format!("form with 64 KiB of names at {endpoint}"),
            format!("{:?} for {}", started.elapsed(), size(2, 50)),
        );
    }
}

#[tokio::test]
async fn one_address_cannot_fill_the_store_with_pending_requests() {
    let mut server = Server::in_fresh_folder().with_settings("[limits]\npending_per_address = 5\n");
    server.start();
    let (client, demo) = (server.client(), server.demo_json());
    let device = demo["device"]["client_id"].as_str().or(demo["public"]["client_id"].as_str()).unwrap();
    let mut statuses = Vec::new();
    for _ in 0..7 {
        let form = [("client_id", device), ("scope", "openid")];
        let request = client.post(format!("{}/oauth2/device_authorization", server.base())).form(&form);
        let response = request.send().await.unwrap();
        if response.status() == 429 {
            let wait: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((1..=600).contains(&wait));
        }
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);
}

#[tokio::test]
async fn resources_under_a_cache_id_belong_to_one_address() {
    let mut server = Server::open_terminology().over_plain_http();
    server.start();
    let value_set = json!({
        "resourceType": "ValueSet", "url": "https://app.example/colours", "status": "active",
        "compose": { "include": [{ "system": "https://app.example/colour", "concept": [{ "code": "red" }] }] },
    });
    let ask = async |from: [u8; 4], form: Option<&Value>| {
        let mut parameter = vec![
            json!({ "name": "url", "valueUri": "https://app.example/colours" }),
            json!({ "name": "system", "valueUri": "https://app.example/colour" }),
            json!({ "name": "code", "valueCode": "red" }),
            json!({ "name": "cache-id", "valueId": "one-name" }),
        ];
        parameter.extend(form.map(|resource| json!({ "name": "tx-resource", "resource": resource })));
        let client = reqwest::Client::builder().local_address(Some(from.into())).no_proxy().build().unwrap();
        let body = json!({ "resourceType": "Parameters", "parameter": parameter }).to_string();
        let url = format!("http://{}/fhir/R4/ValueSet/$validate-code", server.address());
        let request = client.post(url).header("content-type", "application/fhir+json").body(body);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(ask([127, 0, 3, 1], Some(&value_set)).await, 200);
    assert_eq!(ask([127, 0, 3, 1], None).await, 200, "the resource is stored under the cache-id");
    assert_eq!(ask([127, 0, 3, 2], None).await, 400, "another address has no resource under this cache-id");
}
