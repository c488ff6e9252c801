//! The commands that the screens copy run in a shell, with the real programs, and send the same requests.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use http::HeaderMap;
use serde_json::{Value, json};
use trefoil_tui::api::{Api, Bearer, HttpProgram, RecordedExchange, ValidateCode};
use trefoil_tui::clock::ClientClock;
use trefoil_tui::profile::Profile;
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

/// A request as the server received it: method, address, body, and whether the token was sent.
type SeenRequest = (String, String, String, bool);

async fn seen(server: &MockServer) -> Vec<SeenRequest> {
    let requests = server.received_requests().await.unwrap();
    requests
        .iter()
        .map(|request| {
            let has_token = request.headers.get("authorization").is_some_and(|value| value == "Bearer tok");
            let body = String::from_utf8_lossy(&request.body).into_owned();
            (request.method.to_string(), request.url.to_string(), body, has_token)
        })
        .collect()
}

/// Runs a line in a shell, in which `TOKEN` is the token and `http` is HTTPie.
async fn run(line: String, folder: &Path) -> Option<String> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python");
    let script = "#!/bin/sh\nexec python3 -m httpie \"$@\"\n";
    let program = folder.join("http");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("TOKEN", "tok").env("PATH", path).env("PYTHONPATH", modules);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("No module named httpie") || errors.contains("not found") {
        return None;
    }
    assert!(output.status.success(), "{line}\n{errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn copied_requests_are_sent_by_curl_and_httpie() {
    trefoil_tui::install_crypto();
    let server = MockServer::start().await;
    let response =
        json!({ "resourceType": "Parameters", "parameter": [{ "name": "result", "valueBoolean": true }] });
    Mock::given(matchers::any())
        .respond_with(ResponseTemplate::new(200).set_body_json(response))
        .mount(&server)
        .await;
    let exchanges = Arc::new(Mutex::new(Vec::<RecordedExchange>::new()));
    let log = exchanges.clone();
    let watch = move |exchange: RecordedExchange| {
        if exchange.outcome.is_some() {
            log.lock().unwrap().push(exchange);
        }
    };
    let api = Api::new(Profile::at(&server.uri()).unwrap(), ClientClock::SYSTEM, Box::new(watch)).unwrap();
    let question = ValidateCode {
        url: "https://vs.example/it's".to_owned(),
        system: "https://cs.example".to_owned(),
        code: "a b".to_owned(),
        ..ValidateCode::default()
    };
    api.validate_code(&question, &Bearer::Given("tok".to_owned())).await.unwrap();
    api.fetch(&format!("{}/metadata?a=b%20c&d", server.uri()), HeaderMap::new()).await.unwrap();
    let original = seen(&server).await;
    assert_eq!(original.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for program in [HttpProgram::Curl, HttpProgram::Httpie] {
        for (index, original) in original.iter().enumerate() {
            let line = exchanges.lock().unwrap()[index].command(program, None);
            let before = seen(&server).await.len();
            let Some(output) = run(line.clone(), folder.path()).await else {
                println!("left out: {program:?}: the program is not here; .ci/run installs it");
                continue;
            };
            assert!(output.contains("valueBoolean"), "{line}\n{output}");
            let mut repeated = seen(&server).await.split_off(before);
            let (method, url, body, has_token) = repeated.pop().unwrap();
            let as_json = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
            assert_eq!((&method, &url, has_token), (&original.0, &original.1, original.3), "{line}");
            // The recorded body is formatted.
            assert_eq!(as_json(&body), as_json(&original.2), "{line}");
        }
    }
}
