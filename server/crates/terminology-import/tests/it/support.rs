//! Releases of `fixtures/releases`, and short forms of the answers about them.

use std::path::{Path, PathBuf};

use fhir::{Parameters, Value};
use terminology::{
    OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation, TxError,
};
use trefoil_terminology_import::import_release;

/// Returns the path of a release in `fixtures/releases`.
pub fn release_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/releases").join(name)
}

/// Imports some releases, and returns a terminology that contains them.
pub fn import_all(names: &[&str]) -> Terminology {
    let terminology = Terminology::default();
    for (number, name) in names.iter().enumerate() {
        let imported =
            import_release(&release_path(name), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
        terminology
            .apply([TerminologyChange::Index { id: format!("release-{number}"), index: imported.index }]);
    }
    terminology
}

/// Time of an expansion.
const NOW: &str = "2026-01-01T00:00:00Z";

/// Runs an operation whose answer is a Parameters resource.
pub fn run(
    terminology: &Terminology,
    operation: TerminologyOperation,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
) -> Result<Parameters, TxError> {
    let response = terminology.run(operation, level, input, NOW)?;
    Ok(response.into_parameters().expect("the operation returns Parameters"))
}

/// Runs `ValueSet/$expand`.
pub fn run_expand(
    terminology: &Terminology,
    level: OperationLevel<'_>,
    input: OperationInput<'_>,
) -> Result<serde_json::Value, TxError> {
    let response = terminology.run(TerminologyOperation::Expand, level, input, NOW)?;
    Ok(serde_json::from_slice(&response.to_json()).expect("the operation returns JSON"))
}

/// The answer of `$lookup` in short: each parameter as `name=value`, and each property as `code=value`.
pub fn lookup(terminology: &Terminology, system: &str, code: &str) -> String {
    let query = Parameters::from_query(&format!("system={system}&code={code}"));
    let input = OperationInput::from_query(&query);
    let response = run(terminology, TerminologyOperation::Lookup, OperationLevel::Type, input).unwrap();
    let response = serde_json::to_value(response).unwrap();
    let value = |parameter: &serde_json::Value| {
        let members = parameter.as_object().unwrap().iter();
        let text = members.filter(|(name, _)| name.starts_with("value")).map(|(_, value)| match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        text.collect::<String>()
    };
    let short = |parameter: &serde_json::Value| match parameter["part"].as_array() {
        Some(parts) => parts.iter().map(value).collect::<Vec<_>>().join("="),
        None => format!("{}={}", parameter["name"].as_str().unwrap(), value(parameter)),
    };
    response["parameter"].as_array().unwrap().iter().map(short).collect::<Vec<_>>().join("; ")
}

/// The outcome of `$subsumes`.
pub fn subsumes(terminology: &Terminology, system: &str, a: &str, b: &str) -> String {
    let query = Parameters::from_query(&format!("system={system}&codeA={a}&codeB={b}"));
    let input = OperationInput::from_query(&query);
    let response = run(terminology, TerminologyOperation::Subsumes, OperationLevel::Type, input).unwrap();
    serde_json::to_value(response).unwrap()["parameter"][0]["valueCode"].as_str().unwrap().to_owned()
}

/// Returns the answer of `$validate-code` by GET for a code of a system, with `more` parameters.
pub fn validate_code(terminology: &Terminology, set: &str, system: &str, code: &str, more: &str) -> String {
    let set = set.replace('%', "%25").replace('&', "%26").replace('+', "%2B").replace('#', "%23");
    let query = format!("url={set}&system={system}&code={code}{more}");
    let query = Parameters::from_query(&query);
    short(run(
        terminology,
        TerminologyOperation::ValidateCode,
        OperationLevel::Type,
        OperationInput::from_query(&query),
    ))
}

/// Returns the answer of `CodeSystem/$validate-code` by GET.
pub fn validate_in_system(terminology: &Terminology, system: &str, code: &str) -> String {
    let query = Parameters::from_query(&format!("url={system}&code={code}"));
    short(run(
        terminology,
        TerminologyOperation::ValidateCodeInSystem,
        OperationLevel::Type,
        OperationInput::from_query(&query),
    ))
}

/// Returns an answer as short text: `result [display] [message]`, the outcome of `$subsumes`, or the error.
pub fn short(answer: Result<Parameters, TxError>) -> String {
    let response = match answer {
        Ok(response) => response,
        Err(error) => return format!("{error:?}: {error}"),
    };
    let part = |name| response.text(name).map(|text| format!(" [{text}]")).unwrap_or_default();
    match response.get("result").and_then(|parameter| parameter.value.as_ref()) {
        Some(Value::Boolean(result)) => format!("{result}{}{}", part("display"), part("message")),
        _ => response.text("outcome").unwrap_or("no answer").to_owned(),
    }
}
