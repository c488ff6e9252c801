//! A small terminology of a garden, and helpers for requests.

use fhir::{Parameters, Value};
use trefoil_terminology::{
    OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation, TxError,
};

/// Canonical URL of a code system of plants, in which one concept has two parents.
pub const PLANTS: &str = "http://garden.example/plants";

const RESOURCES: &[&str] = &[
    r#"{"resourceType":"CodeSystem","id":"plants","url":"http://garden.example/plants","version":"1.0.0",
        "status":"active","content":"complete","caseSensitive":true,"language":"en","valueSet":"http://garden.example/all-plants",
        "property":[{"code":"height","type":"integer"}],
        "concept":[
          {"code":"plant","display":"Plant","property":[{"code":"notSelectable","valueBoolean":true}],"concept":[
            {"code":"tree","display":"Tree","property":[{"code":"height","valueInteger":20}],"concept":[
              {"code":"apple","display":"Apple tree","designation":[{"language":"de","value":"Apfelbaum"}]},
              {"code":"elm","display":"Elm","property":[{"code":"status","valueCode":"retired"}]}]},
            {"code":"crop","display":"Crop"}]},
          {"code":"stone","display":"Stone"},
          {"code":"pear","display":"Pear tree","property":[{"code":"parent","valueCode":"tree"},{"code":"parent","valueCode":"crop"}]}]}"#,
    r#"{"resourceType":"CodeSystem","id":"plants-0","url":"http://garden.example/plants","version":"0.9.0",
        "status":"active","content":"complete","concept":[{"code":"fern","display":"Fern"},{"code":"tree","display":"Old tree"}]}"#,
    r#"{"resourceType":"CodeSystem","id":"plants-9","url":"http://garden.example/plants","version":"9.0.0",
        "status":"active","content":"fragment","concept":[{"code":"rose"}]}"#,
    r#"{"resourceType":"CodeSystem","id":"tools","url":"http://garden.example/tools","version":"1","status":"active",
        "content":"complete","caseSensitive":false,"concept":[{"code":"Spade","display":"Spade"},{"code":"rake","display":"Rake"}]}"#,
    r#"{"resourceType":"CodeSystem","id":"weeds","url":"http://garden.example/weeds","status":"active","content":"fragment",
        "concept":[{"code":"nettle","display":"Nettle"}]}"#,
    r#"{"resourceType":"ValueSet","id":"trees","url":"http://garden.example/trees","version":"2","status":"active",
        "compose":{"include":[{"system":"http://garden.example/plants","filter":[{"property":"concept","op":"is-a","value":"tree"}]}]}}"#,
    r#"{"resourceType":"ValueSet","id":"listed","url":"http://garden.example/listed","status":"active","compose":{"include":[
        {"system":"http://garden.example/plants","concept":[{"code":"apple"},{"code":"crop","display":"Harvest"},{"code":"weed"}]},
        {"system":"http://garden.example/pots","concept":[{"code":"clay","display":"Clay pot"}]}]}}"#,
    r#"{"resourceType":"ValueSet","id":"everything","url":"http://garden.example/everything","status":"active","compose":{"include":[
        {"system":"http://garden.example/plants"},{"system":"http://garden.example/tools"}],
        "exclude":[{"system":"http://garden.example/plants","concept":[{"code":"stone"}]}]}}"#,
    r#"{"resourceType":"ValueSet","id":"in-use","url":"http://garden.example/in-use","status":"active","compose":{"inactive":false,
        "include":[{"valueSet":["http://garden.example/trees|2"]}]}}"#,
    r#"{"resourceType":"ValueSet","id":"old","url":"http://garden.example/old","status":"active","compose":{"include":[
        {"system":"http://garden.example/plants","version":"0.x.x"}]}}"#,
    r#"{"resourceType":"ValueSet","id":"any-version","url":"http://garden.example/any-version","status":"active","compose":{"include":[
        {"system":"http://garden.example/plants","version":"*"}]}}"#,
    r#"{"resourceType":"ValueSet","id":"no-version","url":"http://garden.example/no-version","status":"active","compose":{"include":[
        {"system":"http://garden.example/plants","version":"7"}]}}"#,
    r#"{"resourceType":"ValueSet","id":"pots","url":"http://garden.example/pots-set","status":"active","compose":{"include":[
        {"system":"http://garden.example/pots"}]}}"#,
    r#"{"resourceType":"ValueSet","id":"weed-set","url":"http://garden.example/weed-set","status":"active","compose":{"include":[
        {"system":"http://garden.example/weeds"}]}}"#,
    r#"{"resourceType":"ValueSet","id":"circle-1","url":"http://garden.example/circle-1","status":"active","compose":{"include":[
        {"system":"http://garden.example/plants"},{"valueSet":["http://garden.example/circle-2"]}]}}"#,
    r#"{"resourceType":"ValueSet","id":"circle-2","url":"http://garden.example/circle-2","status":"active","compose":{"include":[
        {"valueSet":["http://garden.example/circle-1"]}]}}"#,
];

/// Returns the terminology of the garden.
pub fn garden() -> Terminology {
    let terminology = Terminology::default();
    terminology.apply(RESOURCES.iter().map(|json| put(json)));
    terminology
}

/// Returns a resource as a change.
pub fn put(json: &str) -> TerminologyChange {
    let find = |member: &str| {
        let start =
            json.find(&format!("\"{member}\":\"")).expect("the resource has this member") + member.len() + 4;
        &json[start..start + json[start..].find('"').expect("the string has a closing quotation mark")]
    };
    let kind = fhir::resource_type(find("resourceType")).expect("resourceType is a type of R4");
    TerminologyChange::Put { kind, id: find("id").to_owned(), bytes: json.as_bytes().to_vec().into() }
}

/// Returns a short form of an answer: `result display [message]`, the outcome of `$subsumes`, or
/// `error-kind: text`.
pub fn short(answer: Result<Parameters, TxError>) -> String {
    match answer {
        Ok(response) => {
            match (response.get("result").and_then(|p| p.value.clone()), response.text("outcome")) {
                (Some(Value::Boolean(result)), _) => {
                    let part =
                        |name| response.text(name).map(|text| format!(" [{text}]")).unwrap_or_default();
                    format!("{result}{}{}", part("display"), part("message"))
                }
                (_, outcome) => outcome.unwrap_or("no answer").to_owned(),
            }
        }
        Err(error) => format!("{}: {error}", kind(&error)),
    }
}

/// Returns the name of the variant and the code of the issue.
fn kind(error: &TxError) -> String {
    let variant = match error {
        TxError::Missing { .. } => "Missing",
        TxError::NothingToValidate { .. } => "NothingToValidate",
        TxError::Malformed { .. } => "Malformed",
        TxError::DisplayLanguage(_) => "DisplayLanguage",
        TxError::UnknownValueSet { .. } => "UnknownValueSet",
        TxError::UnknownInstance { .. } => "UnknownInstance",
        TxError::UnknownCodeSystem { .. } => "UnknownCodeSystem",
        TxError::UnknownConceptMap(_) => "UnknownConceptMap",
        TxError::NotOnDay { .. } => "NotOnDay",
        TxError::UnknownCode { .. } => "UnknownCode",
        TxError::UnknownConcept { .. } => "UnknownConcept",
        TxError::Unprocessable(_) => "Unprocessable",
    };
    let code = serde_json::to_value(error.outcome().issue[0].code).expect("a code is written as a string");
    format!("{variant}({})", code.as_str().expect("a code is written as a string"))
}

/// Time of an expansion.
pub const NOW: &str = "2026-01-01T00:00:00Z";

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

/// Runs `$validate-code` by GET.
pub fn validate(terminology: &Terminology, level: OperationLevel<'_>, query: &str) -> String {
    short(run(
        terminology,
        TerminologyOperation::ValidateCode,
        level,
        OperationInput::from_query(&Parameters::from_query(query)),
    ))
}

/// Runs `CodeSystem/$validate-code` by GET.
pub fn validate_in_system(terminology: &Terminology, level: OperationLevel<'_>, query: &str) -> String {
    short(run(
        terminology,
        TerminologyOperation::ValidateCodeInSystem,
        level,
        OperationInput::from_query(&Parameters::from_query(query)),
    ))
}

/// Runs `$subsumes` by GET.
pub fn subsumes(terminology: &Terminology, level: OperationLevel<'_>, query: &str) -> String {
    short(run(
        terminology,
        TerminologyOperation::Subsumes,
        level,
        OperationInput::from_query(&Parameters::from_query(query)),
    ))
}

/// Returns Parameters with these items.
pub fn body(parameters: &str) -> Parameters {
    let json = format!(r#"{{"resourceType":"Parameters","parameter":[{parameters}]}}"#);
    Parameters::from_json(json.as_bytes()).expect("the test supplies valid Parameters")
}
