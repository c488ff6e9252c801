//! A Bulk Data server that behaves like SMART's bulk-data-server 2.1.1: it answers without a token, accepts a
//! kick-off only with the `Accept` and `Prefer` headers of the guide, allows few requests in a short time,
//! and sends errors as `application/json` with `diagnostics` instead of `details`.

use jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const EXPORT_TIME: Duration = Duration::from_millis(1500);
const PATIENTS: usize = 4;
/// Types that the server exports.
const TYPES: [&str; 2] = ["Patient", "Observation"];

struct Job {
    request: String,
    started: Instant,
    types: Vec<String>,
}

#[derive(Default)]
struct Jobs {
    by_id: HashMap<String, Job>,
    /// Number of exports ever started, so that the id of a deleted one is not used again.
    started: usize,
}

#[derive(Default)]
struct BulkServer(Mutex<Jobs>);

/// Starts the server, and returns it with its FHIR base URL.
pub async fn start() -> (MockServer, String) {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(BulkServer::default()).mount(&server).await;
    let base = format!("{}/fhir", server.uri());
    (server, base)
}

fn outcome(status: u16, message: &str) -> ResponseTemplate {
    let issue = json!({ "severity": "error", "code": "processing", "diagnostics": message });
    ResponseTemplate::new(status)
        .set_body_json(json!({ "resourceType": "OperationOutcome", "issue": [issue] }))
}

fn line(resource_type: &str, index: usize) -> Value {
    match resource_type {
        "Patient" => {
            json!({ "resourceType": "Patient", "id": format!("p{index}"), "birthDate": "1970-01-01" })
        }
        _ => json!({
            "resourceType": "Observation", "id": format!("o{index}"), "status": "final",
            "code": { "text": "height" }, "subject": { "reference": format!("Patient/p{index}") },
        }),
    }
}

impl BulkServer {
    fn kick_off(&self, request: &Request, base: &str) -> ResponseTemplate {
        let header =
            |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if header("accept") != "application/fhir+json" {
            return outcome(400, "The Accept header must be application/fhir+json for all export requests");
        }
        if !header("prefer").split([',', ';']).any(|part| part.trim() == "respond-async") {
            return outcome(400, "The Prefer header must be respond-async for all export requests");
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if request.method == "POST" && body["resourceType"] != "Parameters" {
            return outcome(400, "The POST body should be a Parameters resource");
        }
        let query: HashMap<_, _> = request.url.query_pairs().into_owned().collect();
        if query.contains_key("patient") {
            return outcome(400, "The \"patient\" parameter is only available in POST requests");
        }
        let format = query.get("_outputFormat").map_or("ndjson", String::as_str);
        if !["application/fhir+ndjson", "application/ndjson", "ndjson"].contains(&format) {
            return outcome(400, &format!("The \"{format}\" _outputFormat is not supported"));
        }
        let types = query.get("_type").map_or_else(|| TYPES.join(","), String::clone);
        let types: Vec<String> = types.split(',').map(str::to_owned).collect();
        if let Some(unknown) = types.iter().find(|name| !TYPES.contains(&name.as_str())) {
            return outcome(
                400,
                &format!("The requested resource type \"{unknown}\" is not available on this server"),
            );
        }
        let asked_url =
            format!("{base}{}", &request.url[url::Position::BeforePath..].replacen("/fhir", "", 1));
        let mut jobs = self.0.lock().unwrap();
        jobs.started += 1;
        let id = format!("{:032x}", jobs.started);
        jobs.by_id.insert(id.clone(), Job { request: asked_url, started: Instant::now(), types });
        outcome(202, "Your request has been accepted")
            .insert_header("content-location", format!("{base}/bulkstatus/{id}"))
    }

    fn status(&self, id: &str, base: &str) -> ResponseTemplate {
        let jobs = self.0.lock().unwrap();
        let Some(job) = jobs.by_id.get(id) else { return outcome(404, "The export was not found") };
        if job.started.elapsed() < EXPORT_TIME {
            return ResponseTemplate::new(202)
                .insert_header("x-progress", "50% complete, Please wait...")
                .insert_header("retry-after", "1");
        }
        let file = |name: &String| json!({ "type": name, "count": PATIENTS, "url": format!("{base}/bulkfiles/{id}.{name}.ndjson") });
        let manifest = json!({
            "transactionTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string(), "request": job.request, "requiresAccessToken": false,
            "output": job.types.iter().map(file).collect::<Vec<_>>(), "deleted": [], "error": [],
        });
        ResponseTemplate::new(200)
            .insert_header("expires", "Mon, 23 Nov 2099 00:00:00 GMT")
            .set_body_json(manifest)
    }
}

impl Respond for BulkServer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let host = request.headers.get("host").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let base = format!("http://{host}/fhir");
        let path = request.url.path().strip_prefix("/fhir/").unwrap_or_default();
        let segments: Vec<&str> = path.split('/').collect();
        match (request.method.as_str(), &segments[..]) {
            ("GET", ["metadata"]) => ResponseTemplate::new(200).set_body_json(json!({
                "resourceType": "CapabilityStatement", "status": "active", "kind": "instance",
                "date": "2026-11-01", "fhirVersion": "4.0.1", "format": ["json"], "rest": [{ "mode": "server" }],
            })),
            ("GET" | "POST", ["$export"] | ["Patient", "$export"] | ["Group", "g1", "$export"]) => {
                self.kick_off(request, &base)
            }
            ("GET" | "POST", ["Group", _, "$export"]) => outcome(404, "Unknown group"),
            ("GET", ["Patient"]) => ResponseTemplate::new(200).set_body_json(json!({
                "resourceType": "Bundle", "type": "searchset", "total": PATIENTS,
            })),
            ("GET", ["bulkstatus", id]) => self.status(id, &base),
            ("DELETE", ["bulkstatus", id]) => match self.0.lock().unwrap().by_id.remove(*id) {
                Some(_) => outcome(202, "The procedure was canceled"),
                None => outcome(
                    404,
                    "Unknown procedure. Perhaps it is already completed and thus, it cannot be canceled",
                ),
            },
            ("GET", ["bulkfiles", name]) => {
                let (id, rest) = name.split_once('.').unwrap_or_default();
                if !self.0.lock().unwrap().by_id.contains_key(id) {
                    return outcome(404, "The exported resources have been deleted");
                }
                let kind = rest.trim_end_matches(".ndjson");
                let lines: String = (0..PATIENTS).map(|index| format!("{}\n", line(kind, index))).collect();
                ResponseTemplate::new(200).set_body_raw(lines, "application/fhir+ndjson")
            }
            _ => outcome(404, "Not found"),
        }
    }
}
