//! Calls of the terminology crate: converts the request of a row to the call of an operation.

use std::path::PathBuf;

use fhir::{Json as _, OperationOutcome};
use http::{Method, header};
use serde_json::Value;
use terminology::{OperationLevel, ReceivedParameters, Terminology, TerminologyChange, TerminologyOperation};
use trefoil_conformance::spec::endpoints;
use trefoil_conformance::wire::exchange::SentRequest;

/// Folder of the releases that the precondition `releases` imports.
const RELEASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/releases");
/// Fixed time of all expansions.
const NOW: &str = "2026-01-01T00:00:00Z";

/// A terminology with the content that the server of a precondition has.
pub struct TerminologyService(Terminology);

impl TerminologyService {
    /// Returns the terminology of the demo project.
    pub fn demo() -> Self {
        let terminology = Terminology::default();
        let project = trefoil_fixtures::project();
        terminology.apply(project.code_systems.iter().chain(&project.value_sets).map(|resource| {
            TerminologyChange::Put {
                kind: fhir::resource_type(&resource.kind).expect("the project has resource types of R4"),
                id: resource.id.clone(),
                bytes: resource.json.into(),
            }
        }));
        Self(terminology)
    }

    /// Returns the terminology of the demo project and of the imported releases.
    pub fn releases() -> Self {
        let service = Self::demo();
        let folder = std::fs::read_dir(RELEASES).expect("fixtures/releases can be read");
        let mut paths: Vec<PathBuf> =
            folder.map(|entry| entry.expect("fixtures/releases can be read").path()).collect();
        paths.sort();
        let import = |release: terminology_import::Release| {
            let id = release.path().display().to_string();
            let imported = release.import(&mut |_| {}).expect("the releases are valid");
            TerminologyChange::Index { id, index: imported.index }
        };
        service.0.apply(terminology_import::group_releases(paths).into_iter().map(import));
        service
    }

    /// Runs the operation of a request. Returns the result as JSON, or the OperationOutcome of the error.
    ///
    /// # Errors
    /// A message if the destination is not a terminology operation.
    pub fn answer(&self, request: &SentRequest) -> Result<Result<Vec<u8>, Vec<u8>>, String> {
        let urls = Value::Object(endpoints::of_trefoil(""));
        let base = endpoints::resolve("fhir/", "", &urls).map_err(|error| error.to_string())?;
        let path = request.url.path();
        let operation = path.strip_prefix(&base).and_then(TerminologyOperation::at_path);
        let (operation, id) = operation.ok_or_else(|| format!("{path} is not a terminology operation"))?;
        let level = id.map_or(OperationLevel::Type, OperationLevel::Instance);
        let query = request.url.query().unwrap_or_default();
        let received = match request.method {
            Method::POST => ReceivedParameters::Body { body: &request.body, query },
            Method::GET => ReceivedParameters::Query(query),
            _ => return Err(format!("{} {path} is not a terminology operation", request.method)),
        };
        let parameters = match received.parse(operation) {
            Ok(parameters) => parameters,
            Err(fault) => {
                return Ok(Err(OperationOutcome::error(fault.code(), fault.text("the body")).to_json()));
            }
        };
        let language = request.headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        let input = parameters.input().accept_language(language);
        let result = self.0.run(operation, level, input, NOW).map(|response| response.to_json());
        Ok(result.map_err(|error| error.outcome().to_json()))
    }
}
