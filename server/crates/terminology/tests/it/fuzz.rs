//! Readers of what comes from outside, fed with what nobody would write: good inputs, changed at random. None may
//! panic; that none hangs or fills the memory is what the bounds in the readers are for, and a run that does is seen
//! by whoever waits for it.
//!
//! Each target makes 100,000 runs with a fixed seed; `TREFOIL_FUZZ_RUNS` says another number, and then the seed is a
//! new one that is told when a run fails.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use fhir::Parameters;
use trefoil_terminology::{Change, Input, Level, Terminology, load};

use crate::support::garden;

/// Pieces that mean something to one of the readers.
const WORDS: &[&str] = &[
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\\u0000",
    "\\ud800",
    "null",
    "1e999",
    "-1",
    "true",
    "valueCode",
    "valueCoding",
    "\t",
    "\n",
    "\r\n",
    "|",
    "\u{feff}",
    "116680003",
    "138875005",
    "900000000000011006",
    "99999999999999999999",
    "#",
    "<<",
    ">!",
    "^",
    "(",
    ")",
    "AND",
    "OR",
    "MINUS",
    "[0..*]",
    "R",
    "=",
    "!=",
    "#5",
    "*",
    ".",
    "/*",
    "*/",
    "{{",
    "(?:",
    "a{1000}",
    "(a*)*",
    "\\p{L}",
    "[^",
    "$",
    "é",
    "\u{10ffff}",
    "url: x",
    "code",
    "parent",
];

/// A text, changed in one to four places.
fn changed(random: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut text = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.u8(1..=4) {
        let at = random.usize(..=text.len());
        let end = text.len().min(at + random.usize(..16));
        match random.u8(..6) {
            0 => drop(text.drain(at..end)),
            1 if at < text.len() => text[at] ^= 1 << random.u8(..8),
            2 => {
                let again = text[at..end].to_vec();
                text.splice(at..at, again);
            }
            3 => {
                let other = &seeds[random.usize(..seeds.len())];
                let from = random.usize(..=other.len());
                text.truncate(at);
                text.extend_from_slice(&other[from..]);
            }
            _ => drop(text.splice(at..at, WORDS[random.usize(..WORDS.len())].bytes())),
        }
    }
    text
}

fn fuzz(seeds: &[&str], mut target: impl FnMut(&[u8])) {
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let asked = std::env::var("TREFOIL_FUZZ_RUNS").ok().and_then(|runs| runs.parse::<u64>().ok());
    let seed = if asked.is_some() { fastrand::u64(..) } else { 7 };
    let mut random = Rng::with_seed(seed);
    for run in 0..asked.unwrap_or(100_000) {
        let text = changed(&mut random, &seeds);
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(&text)));
        assert!(tried.is_ok(), "run {run} of seed {seed} with {:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn parameters() {
    let garden = garden();
    let seeds = [
        r#"{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://garden.example/trees"},{"name":"code","valueCode":"apple"},{"name":"system","valueUri":"http://garden.example/plants"},{"name":"display","valueString":"Apple tree"}]}"#,
        r#"{"resourceType":"Parameters","parameter":[{"name":"valueSet","resource":{"resourceType":"ValueSet","url":"urn:x","compose":{"include":[{"system":"http://garden.example/plants","filter":[{"property":"code","op":"regex","value":"a.*"}]}]}}},{"name":"coding","valueCoding":{"system":"http://garden.example/plants","code":"apple"}}]}"#,
        r#"{"resourceType":"Parameters","parameter":[{"name":"tx-resource","resource":{"resourceType":"CodeSystem","url":"urn:y","content":"complete","concept":[{"code":"a","concept":[{"code":"b"}],"property":[{"code":"parent","valueCode":"b"}]}]}},{"name":"url","valueUri":"http://garden.example/everything"},{"name":"codeableConcept","valueCodeableConcept":{"coding":[{"system":"urn:y","code":"b"}]}},{"name":"displayLanguage","valueCode":"de, en; q=0.5"}]}"#,
        r#"{"resourceType":"Parameters","parameter":[{"name":"system","valueUri":"http://garden.example/plants"},{"name":"codeA","valueCode":"plant"},{"name":"codeB","valueCode":"apple"}]}"#,
    ];
    fuzz(&seeds, |text| {
        let Ok(parameters) = Parameters::from_json(text) else { return };
        drop(garden.validate_code(Level::Type, Input::from_body(&parameters)));
        drop(garden.subsumes(Level::Type, Input::from_body(&parameters)));
    });
}

/// The files of a small release, by their names.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../fixtures/releases/SnomedCT_GardenInternationalRF2_20250101T120000Z/Snapshot");
    ["Terminology", "Refset/Language", "Refset/Content"]
        .into_iter()
        .flat_map(|part| fs::read_dir(folder.join(part)).expect("the fixture is there"))
        .map(|entry| {
            let path = entry.expect("a file").path();
            // A few lines: what is wrong in one is found whatever stands in the others.
            let text: String =
                fs::read_to_string(&path).expect("text").split_inclusive('\n').take(6).collect();
            (path.file_name().expect("a name").to_string_lossy().into_owned(), text)
        })
        .collect()
}

#[test]
fn rf2() {
    let files = files();
    let seeds: Vec<&str> = files.iter().map(|(_, text)| text.as_str()).collect();
    let mut turn = 0;
    fuzz(&seeds, |text| {
        turn += 1;
        let mut release: Vec<(String, Vec<u8>)> =
            files.iter().map(|(name, text)| (name.clone(), text.as_bytes().to_vec())).collect();
        let which = turn % release.len();
        release[which].1 = text.to_vec();
        drop(load::load_files(release));
    });
}

#[test]
fn csv() {
    let seeds = [
        "# url: http://garden.example/herbs\n# version: 3\ncode,display,parent\nherb,Herb,\nmint,\"Mint, wild\",herb\n",
        "\u{feff}# url: urn:x\n# caseSensitive: false\ncode,designation:de,inactive\na,eins,true\nb,zwei,\n",
    ];
    fuzz(&seeds, |text| drop(load::load_files(vec![("plants.csv".to_owned(), text.to_vec())])));
}

#[test]
fn constraints_and_expressions() {
    let release = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../fixtures/releases/SnomedCT_GardenInternationalRF2_20250101T120000Z");
    let terminology = Terminology::default();
    let index = load::load(&release, &mut |_| {}).expect("the fixture is whole").index;
    terminology.apply([Change::Index { id: "garden".to_owned(), index }]);
    let seeds = [
        "<< 700110003 |Flower| AND (^ 700010003 OR >! 700112006)",
        "<< 700101006 : { 700002005 = << 700102004, [0..1] 700003000 != 700106001 }, 700004006 >= #0.2",
        "(< 700110003 MINUS * : R 700002005 = 700111004) . 700002005",
        "7001[0-9]{5}",
        "(a|b)*c+\\d{2,5}[^x-z]?",
    ];
    fuzz(&seeds, |text| {
        let text = String::from_utf8_lossy(text);
        for (property, op) in [("constraint", "="), ("code", "regex")] {
            let set = serde_json::json!({ "resourceType": "Parameters", "parameter": [
                { "name": "valueSet", "resource": { "resourceType": "ValueSet", "url": "urn:x", "compose": {
                    "include": [{ "system": "http://snomed.info/sct",
                        "filter": [{ "property": property, "op": op, "value": text }] }] } } },
                { "name": "coding", "valueCoding": { "system": "http://snomed.info/sct", "code": "700112006" } } ] });
            let parameters = Parameters::from_json(set.to_string().as_bytes()).expect("Parameters");
            drop(terminology.validate_code(Level::Type, Input::from_body(&parameters)));
        }
    });
}
