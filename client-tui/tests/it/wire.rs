//! Tests of the client against mock servers that are slow, return invalid answers or are down.

use std::time::Duration;

use serde_json::json;
use trefoil_tui::api::{
    ApiError, Bearer, ExportLevel, ExportStatus, KickOff, RawRequest, SubsumesQuery, ValidateCode,
    ValidationIssue,
};
use wiremock::matchers::{body_json, body_string_contains, header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::api;

fn given() -> Bearer {
    Bearer::Given("tok".to_owned())
}

async fn answer(server: &MockServer, at: &str, response: ResponseTemplate) {
    Mock::given(path(at)).respond_with(response).mount(server).await;
}

#[tokio::test]
async fn validate_code_posts_parameters() {
    let server = MockServer::start().await;
    let question = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "url", "valueUri": "u" }, { "name": "system", "valueUri": "s" }, { "name": "code", "valueCode": "c" },
    ]});
    let response = json!({ "resourceType": "Parameters", "parameter": [
        { "name": "result", "valueBoolean": true }, { "name": "display", "valueString": "C" },
        { "name": "system", "valueUri": "s" },
        { "name": "issues", "resource": { "resourceType": "OperationOutcome", "issue": [{
            "severity": "warning", "code": "business-rule", "expression": ["Coding.display"],
            "details": { "coding": [{ "code": "display-comment" }], "text": "C is preferred" },
        }]}},
    ]});
    let issue = ValidationIssue {
        severity: "warning".to_owned(),
        code: "business-rule".to_owned(),
        detail: Some("display-comment".to_owned()),
        text: "C is preferred".to_owned(),
        expression: vec!["Coding.display".to_owned()],
    };
    assert_eq!(issue.sentence(), "warning at Coding.display: C is preferred (display-comment)");
    Mock::given(method("POST"))
        .and(path("/fhir/R4/ValueSet/$validate-code"))
        .and(header("authorization", "Bearer tok"))
        .and(header("content-type", "application/fhir+json"))
        .and(body_json(question))
        .respond_with(ResponseTemplate::new(200).set_body_json(response))
        .expect(1)
        .mount(&server)
        .await;
    let query = ValidateCode { url: "u".into(), system: "s".into(), code: "c".into(), ..Default::default() };
    let validation = api(&server.uri()).validate_code(&query, &given()).await.unwrap();
    assert_eq!(
        (validation.result, validation.display.as_deref(), validation.message),
        (true, Some("C"), None)
    );
    assert_eq!((validation.system.as_deref(), validation.issues), (Some("s"), vec![issue]));
}

#[tokio::test]
async fn ids_are_encoded_as_one_segment_of_the_path() {
    let server = MockServer::start().await;
    let outcome = json!({ "parameter": [{ "name": "outcome", "valueCode": "equivalent" }] });
    answer(
        &server,
        "/fhir/R4/CodeSystem/a%2F..%2Fb/$subsumes",
        ResponseTemplate::new(200).set_body_json(outcome),
    )
    .await;
    let subsumption =
        SubsumesQuery { id: "a/../b".into(), code_a: "x".into(), code_b: "x".into(), ..Default::default() };
    assert_eq!(api(&server.uri()).subsumes(&subsumption, &given()).await.unwrap().outcome, "equivalent");
    let query = SubsumesQuery { id: "..".into(), ..Default::default() };
    assert!(matches!(api(&server.uri()).subsumes(&query, &given()).await, Err(ApiError::Request(_))));
}

#[tokio::test]
async fn errors_contain_the_text_of_the_server() {
    #[track_caller]
    fn shows(error: &ApiError, text: &str) {
        assert!(error.to_string().contains(text), "{error}");
    }
    let server = MockServer::start().await;
    let at = "/fhir/R4/CodeSystem/$subsumes";
    let outcome = json!({ "resourceType": "OperationOutcome", "issue": [
        { "severity": "error", "code": "exception", "details": { "text": "the disk is full" } },
    ]});
    let ask = async |response: ResponseTemplate| {
        server.reset().await;
        answer(&server, at, response).await;
        api(&server.uri()).subsumes(&SubsumesQuery::default(), &given()).await.unwrap_err()
    };
    shows(&ask(ResponseTemplate::new(503).set_body_json(outcome)).await, "the disk is full");
    shows(&ask(ResponseTemplate::new(502).set_body_string("<html>")).await, "502 Bad Gateway");
    shows(&ask(ResponseTemplate::new(200).set_body_string("hello")).await, "unexpected response");
    shows(&ask(ResponseTemplate::new(200).set_body_json(json!({ "parameter": [] }))).await, "'outcome'");
    let elsewhere = ResponseTemplate::new(302).insert_header("location", "https://evil.example/");
    shows(&ask(elsewhere).await, "302 Found");
    // Finds a free port, which is closed again so that nothing listens on it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{free}");
    let error = api(&gone).subsumes(&SubsumesQuery::default(), &given()).await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_document_of_another_issuer_is_rejected() {
    let server = MockServer::start().await;
    let configuration = json!({
        "issuer": "https://evil.example",
        "authorization_endpoint": "https://evil.example/a",
        "token_endpoint": "https://evil.example/t",
        "userinfo_endpoint": "https://evil.example/u",
    });
    answer(
        &server,
        "/.well-known/openid-configuration",
        ResponseTemplate::new(200).set_body_json(configuration),
    )
    .await;
    let error = api(&server.uri()).begin_sign_in("http://localhost:1/callback", "openid").await.unwrap_err();
    assert!(error.to_string().contains("the issuer is 'https://evil.example'"), "{error}");
}

#[tokio::test]
async fn a_fresh_backend_token_is_requested_once() {
    let server = MockServer::start().await;
    let smart = json!({ "token_endpoint": format!("{}/oauth2/token", server.uri()) });
    answer(
        &server,
        "/fhir/R4/.well-known/smart-configuration",
        ResponseTemplate::new(200).set_body_json(smart),
    )
    .await;
    let token =
        json!({ "access_token": "t1", "token_type": "Bearer", "expires_in": 300, "scope": "system/*.read" });
    Mock::given(method("POST"))
        .and(path("/oauth2/token"))
        .and(body_string_contains("grant_type=client_credentials"))
        .and(body_string_contains("jwt-bearer"))
        .respond_with(ResponseTemplate::new(200).set_body_json(token))
        .expect(1)
        .mount(&server)
        .await;
    let api = api(&server.uri());
    assert_eq!(api.backend_token().await.unwrap(), "t1");
    assert_eq!(api.backend_token().await.unwrap(), "t1");
}

#[tokio::test]
async fn an_export_is_started_polled_and_deleted() {
    let server = MockServer::start().await;
    Mock::given(path("/fhir/R4/Group/g1/$export"))
        .and(query_param("_outputFormat", "ndjson"))
        .and(query_param("_type", "Patient"))
        .and(query_param("_since", "2024-01-01T00:00:00+01:00"))
        .and(header("prefer", "respond-async"))
        .respond_with(ResponseTemplate::new(202).insert_header("content-location", "../../bulk/j1"))
        .mount(&server)
        .await;
    let api = api(&server.uri());
    let kick_off = KickOff {
        level: ExportLevel::Group("g1".into()),
        types: "Patient".into(),
        since: "2024-01-01T00:00:00+01:00".into(),
        ..KickOff::default()
    };
    let status = api.kick_off(&kick_off, &given()).await.unwrap();
    assert_eq!(status, format!("{}/fhir/R4/bulk/j1", server.uri()));
    let poll = async |response| {
        server.reset().await;
        answer(&server, "/fhir/R4/bulk/j1", response).await;
        api.poll(&status, &given()).await
    };
    let running =
        ResponseTemplate::new(202).insert_header("x-progress", "5%").insert_header("retry-after", "9");
    let expected = ExportStatus::Running { progress: Some("5%".to_owned()), retry_after_s: 9 };
    assert_eq!(poll(running).await, Ok(expected));
    let busy = ResponseTemplate::new(429).insert_header("retry-after", "30");
    let error = poll(busy).await.unwrap_err();
    assert!(error.is_transient() && !error.is_final_export_status());
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    let error = poll(ResponseTemplate::new(500)).await.unwrap_err();
    assert!(!error.is_transient() && error.is_final_export_status());
    let transient = json!({ "resourceType": "OperationOutcome", "issue": [{ "code": "transient" }] });
    assert!(poll(ResponseTemplate::new(500).set_body_json(transient)).await.unwrap_err().is_transient());
    assert!(!poll(ResponseTemplate::new(401)).await.unwrap_err().is_final_export_status());
    server.reset().await;
    Mock::given(method("DELETE")).respond_with(ResponseTemplate::new(202)).expect(1).mount(&server).await;
    api.delete_export(&status, &given()).await.unwrap();
}

#[tokio::test]
async fn a_kick_off_without_202_is_an_error() {
    let server = MockServer::start().await;
    let api = api(&server.uri());
    answer(&server, "/fhir/R4/$export", ResponseTemplate::new(200)).await;
    let error = api.kick_off(&KickOff::default(), &given()).await.unwrap_err();
    assert!(matches!(error, ApiError::Refused { .. }), "{error}");
    server.reset().await;
    answer(&server, "/fhir/R4/$export", ResponseTemplate::new(202)).await;
    let error = api.kick_off(&KickOff::default(), &given()).await.unwrap_err();
    assert!(error.to_string().contains("Content-Location"), "{error}");
}

#[tokio::test]
async fn a_request_of_the_user_gets_a_token_only_for_its_own_server() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .and(path("/a"))
        .and(header("authorization", "Bearer tok"))
        .respond_with(ResponseTemplate::new(204))
        .expect(1)
        .mount(&server)
        .await;
    let api = api(&server.uri());
    let send = async |url: &str| {
        let text = format!("GET {url}\nauthorization: Bearer $TOKEN\n");
        api.send_raw(RawRequest::parse(&text).unwrap(), &given()).await
    };
    assert_eq!(send(&format!("{}/a", server.uri())).await.unwrap().status, 204);
    let other = MockServer::start().await;
    let error = send(&format!("{}/a", other.uri())).await.unwrap_err();
    assert!(error.to_string().contains("only sent to the server of the profile"), "{error}");
    assert!(other.received_requests().await.unwrap().is_empty());
}
