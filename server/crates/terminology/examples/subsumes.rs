//! Loads a code system from a file and compares two of its codes.
//!
//! ```sh
//! cargo run -p trefoil-terminology --example subsumes                       # a small code system of this file
//! cargo run -p trefoil-terminology --example subsumes -- FILE SYSTEM A B    # a CodeSystem resource in JSON
//! ```

use std::error::Error;

use fhir::Parameters;
use trefoil_terminology::{
    OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation,
};

const COLOURS: &str = r#"{"resourceType":"CodeSystem","id":"colours","url":"urn:colours","status":"active",
    "content":"complete","concept":[{"code":"red","concept":[{"code":"crimson"}]},{"code":"blue"}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (json, system, a, b) = match arguments.as_slice() {
        [] => (COLOURS.as_bytes().to_vec(), "urn:colours", "red", "crimson"),
        [file, system, a, b] => (std::fs::read(file)?, system.as_str(), a.as_str(), b.as_str()),
        _ => return Err("give no arguments, or FILE SYSTEM CODE CODE".into()),
    };

    let terminology = Terminology::default();
    // A resource is compiled on first use, so a change costs little.
    terminology.apply([TerminologyChange::Put {
        kind: "CodeSystem",
        id: "example".into(),
        bytes: json.into(),
    }]);

    let mut parameters = Parameters::new();
    parameters.push_uri("system", system);
    parameters.push_code("codeA", a);
    parameters.push_code("codeB", b);
    let input = OperationInput::from_body(&parameters);
    let now = "2026-01-01T00:00:00Z";
    let response = terminology.run(TerminologyOperation::Subsumes, OperationLevel::Type, input, now)?;
    let outcome = response.into_parameters().ok_or("$subsumes returns Parameters")?;
    println!("{a} and {b}: {}", outcome.text("outcome").unwrap_or("no outcome"));

    for problem in terminology.problems() {
        println!("the CodeSystem cannot be used: {problem:?}");
    }
    Ok(())
}
