//! Benchmarks of terminology, with a code system of the size of SNOMED CT and with a smaller one.

use std::io::Write as _;
use std::process::{Command, Stdio};

use trefoil_fixtures::polyhierarchy::{Polyhierarchy, URL};
use trefoil_fixtures::value_sets::{SetShape, ValueSets};

use crate::{Bench, REQUESTS, Work};

/// Number of concepts of the code systems.
const SIZES: [u32; 2] = [50_000, 350_000];
/// Number of value sets of each shape.
const SETS: u32 = 2_000;

pub(crate) fn work() -> Vec<Work> {
    let [small, large] = SIZES;
    let subsumes = |concepts: u32, goal| Work {
        name: format!("$subsumes, GET, {concepts} concepts"),
        ..Work::of_texts("terminology", goal, REQUESTS, move |bench, count| bench.subsumes(concepts, count))
    };
    let validate = |concepts: u32, shape: SetShape, goal| Work {
        name: format!("$validate-code, {concepts}: {}", shape.name()),
        ..Work::of_texts("terminology", goal, REQUESTS, move |bench, count| {
            bench.validate_code(concepts, shape, count)
        })
    };
    let mut work = vec![subsumes(large, "1.8 x"), subsumes(small, "the same")];
    work.extend(SetShape::ALL.map(|shape| validate(large, shape, "2.5 x")));
    work.push(validate(small, SetShape::IsA, "the same"));
    work
}

impl Bench {
    /// Requests with pairs of codes, about half of which are in a subsumption relation. No pair is repeated,
    /// so a cache of results would not help.
    fn subsumes(&self, concepts: u32, count: usize) -> Vec<String> {
        let shape = Polyhierarchy::new(1, concepts);
        let mut random = fastrand::Rng::with_seed(3);
        (0..count)
            .map(|_| {
                let below = random.u32(1..concepts);
                let above = match random.bool() {
                    true => shape.parents(shape.parents(below)[0]).first().copied().unwrap_or(0),
                    false => random.u32(0..concepts),
                };
                let (a, b) = (Polyhierarchy::code(above), Polyhierarchy::code(below));
                self.get(&format!(
                    "/fhir/R4/CodeSystem/$subsumes?system={URL}&version={concepts}&codeA={a}&codeB={b}"
                ))
            })
            .collect()
    }

    /// Requests with codes by POST, about half of which are members of the value set.
    fn validate_code(&self, concepts: u32, shape: SetShape, count: usize) -> Vec<String> {
        let hierarchy = Polyhierarchy::new(1, concepts);
        let sets = ValueSets::new(&hierarchy, Some(concepts.to_string()));
        let mut random = fastrand::Rng::with_seed(4);
        (0..count)
            .map(|at| {
                let number = random.u32(0..SETS);
                let code = sets.code(shape, number, at.is_multiple_of(2), &mut random);
                let body = serde_json::json!({ "resourceType": "Parameters", "parameter": [
                    { "name": "url", "valueUri": sets.url(shape, number) },
                    { "name": "coding", "valueCoding": { "system": URL, "code": code } },
                ]});
                self.post("/fhir/R4/ValueSet/$validate-code", &body)
            })
            .collect()
    }
}

/// Imports both code systems and their value sets.
pub(crate) fn import(data: &std::path::Path) {
    for concepts in SIZES {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let file = |name: &str| {
            std::io::BufWriter::new(
                std::fs::File::create(folder.path().join(name)).expect("the file can be created"),
            )
        };
        let hierarchy = Polyhierarchy::new(1, concepts);
        hierarchy
            .write_json(&format!("big-{concepts}"), &mut file("system.json"))
            .expect("the file can be written");
        let mut file = file("sets.ndjson");
        let sets = ValueSets::new(&hierarchy, Some(concepts.to_string()));
        for (shape, number) in SetShape::ALL.into_iter().flat_map(|shape| (0..SETS).map(move |n| (shape, n)))
        {
            writeln!(file, "{}", sets.resource(shape, number)).expect("the file can be written");
        }
        drop(file);
        let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
        let imported =
            import.args(["import", "--data"]).arg(data).arg(folder.path()).stdout(Stdio::null()).status();
        assert!(imported.expect("the import can be started").success(), "the import failed");
    }
}
