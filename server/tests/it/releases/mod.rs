//! Tests of code systems from releases and large resources: imported into a stopped and a running server,
//! queried over HTTP, and kept over restarts. The releases are those of `fixtures/releases`.

mod editions;
mod interruptions;
mod large_resources;
mod removal;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use trefoil_fixtures::polyhierarchy::{self, Polyhierarchy};

use crate::support::{Server, TREFOIL};

const SCT: &str = "http://snomed.info/sct";
const INTERNATIONAL: &str = "SnomedCT_GardenInternationalRF2_20250101T120000Z";
const EDITION: &str = "SnomedCT_GardenEditionRF2_20250301T120000Z";
const EXTENSION: &str = "SnomedCT_GardenExtensionRF2_20250401T120000Z";
const RELATIONSHIPS: &str = "Snapshot/Terminology/sct2_Relationship_Snapshot_INT_20250101.txt";

const PLANT: &str = "700101006";
const FLOWER: &str = "700110003";
const LILY: &str = "700112006";
const IRIS: &str = "700113001";
const FERN: &str = "700114007";
/// Code of a concept that only the edition contains.
const MOSS: &str = "70099910002105";

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/releases")
}

/// Copies the International release, so that a test can modify it.
fn copy_of_international(into: &Path) -> PathBuf {
    let to = into.join(INTERNATIONAL);
    copy(&releases().join(INTERNATIONAL), &to);
    to
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Runs `trefoil import` with one path.
fn import(server: &Server, path: &Path) -> Output {
    import_all(server, &[path])
}

/// Runs `trefoil import` with several paths.
fn import_all(server: &Server, paths: &[&Path]) -> Output {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    server.trefoil(&std::iter::once("import").chain(paths).collect::<Vec<_>>())
}

#[track_caller]
fn imported(output: &Output) -> String {
    let printed =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    printed
}

/// A running server with a client for terminology requests.
struct TerminologyClient {
    client: reqwest::Client,
    fhir: String,
}

impl TerminologyClient {
    fn of(server: &Server) -> Self {
        Self { client: server.client(), fhir: server.fhir() }
    }

    async fn get(&self, operation: &str, query: &[(&str, &str)]) -> (u16, Value) {
        let request = self.client.get(format!("{}/{operation}", self.fhir)).query(query);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// Returns `true` if a code of a system is in a value set.
    async fn is_in(&self, set: &str, system: &str, code: &str) -> bool {
        let query = [("url", set), ("system", system), ("code", code)];
        let (status, answer) = self.get("ValueSet/$validate-code", &query).await;
        assert_eq!(status, 200, "{set} {code}: {answer}");
        parameter(&answer, "result").and_then(Value::as_bool).unwrap()
    }

    /// Returns the outcome of `$subsumes`.
    async fn subsumes(&self, system: &str, a: &str, b: &str) -> String {
        let query = [("system", system), ("codeA", a), ("codeB", b)];
        let (status, answer) = self.get("CodeSystem/$subsumes", &query).await;
        assert_eq!(status, 200, "{a} {b}: {answer}");
        parameter(&answer, "outcome").and_then(Value::as_str).unwrap().to_owned()
    }

    /// Returns the codes of an expansion, sorted.
    async fn expanded(&self, set: &str) -> Vec<String> {
        let (status, answer) = self.get("ValueSet/$expand", &[("url", set), ("excludeNested", "true")]).await;
        assert_eq!(status, 200, "{set}: {answer}");
        let concepts = answer["expansion"]["contains"].as_array().unwrap().iter();
        let mut codes: Vec<_> = concepts.map(|one| one["code"].as_str().unwrap().to_owned()).collect();
        codes.sort();
        codes
    }

    /// Checks responses from the content of the International release.
    async fn knows_the_garden(&self) {
        let flowers = format!("{SCT}?fhir_vs=ecl/<< {FLOWER}");
        assert!(self.is_in(&flowers, SCT, LILY).await);
        assert!(!self.is_in(&flowers, SCT, FERN).await);
        assert_eq!(self.subsumes(SCT, PLANT, LILY).await, "subsumes");
        let isa = format!("{SCT}?fhir_vs=isa/{FLOWER}");
        assert_eq!(self.expanded(&isa).await, [FLOWER, LILY, IRIS]);
    }
}

/// Returns the value of a parameter of a response.
fn parameter<'a>(response: &'a Value, name: &str) -> Option<&'a Value> {
    let all = response["parameter"].as_array()?;
    let parameter_found = all.iter().find(|parameter| parameter["name"] == name)?.as_object()?;
    parameter_found.iter().find(|(member, _)| member.starts_with("value")).map(|(_, value)| value)
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_imported_before_the_start_are_served() {
    let mut server = Server::open_terminology();
    let printed = imported(&import(&server, &releases()));
    for format in ["SNOMED CT RF2", "LOINC", "RxNorm RRF", "ICD-10-CM", "ClaML", "CSV"] {
        assert!(printed.contains(format), "{format}: {printed}");
    }
    server.start();
    let terminology = TerminologyClient::of(&server);
    terminology.knows_the_garden().await;

    let (status, answer) = terminology.get("CodeSystem/$lookup", &[("system", SCT), ("code", LILY)]).await;
    assert_eq!((status, parameter(&answer, "display")), (200, Some(&json!("Water lily"))), "{answer}");
    let loinc = "http://loinc.org";
    assert!(terminology.is_in("http://loinc.org/vs/LL9001-1", loinc, "LA90001-2").await);
    assert!(!terminology.is_in("http://loinc.org/vs/LL9001-1", loinc, "90001-1").await);
    assert_eq!(terminology.expanded("http://loinc.org/vs/LL9001-1").await, ["LA90001-2", "LA90002-0"]);
    assert_eq!(terminology.subsumes("http://garden.example/herbs", "herb", "lemon-thyme").await, "subsumes");
    assert!(
        terminology.is_in("http://garden.example/all-herbs", "http://garden.example/herbs", "mint").await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_to_a_pipe_has_one_line_per_release() {
    let mut server = Server::open_terminology();
    let folder = tempfile::tempdir().unwrap();
    let herbs = folder.path().join("many.csv");
    let mut text = "# url: http://garden.example/many\ncode,display\n".to_owned();
    (0..150_000).for_each(|number| text.push_str(&format!("h{number},Herb {number}\n")));
    fs::write(&herbs, text).unwrap();
    let check = |server: &Server, begin: &str| {
        let printed = imported(&import(server, &herbs));
        assert!(printed.starts_with(begin) && printed.lines().count() == 1, "{printed}");
    };
    check(&server, "CSV ");
    server.start();
    check(&server, "already there ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_recognized_in_any_folder() {
    let server = Server::open_terminology();
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    for (part, file) in [("codes", "icd10cm_order_2025.txt"), ("tables", "icd10cm_tabular_2025.xml")] {
        fs::create_dir_all(first.join(part)).unwrap();
        fs::copy(releases().join("icd10cm-garden").join(file), first.join(part).join(file)).unwrap();
    }
    copy(&releases().join(INTERNATIONAL), &first.join("sct"));
    // The release contains seven codes, a chapter and two sections.
    let printed = imported(&import(&server, &first));
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("ICD-10-CM ") && line.contains(" 10 ")), "{printed}");
    fs::rename(&first, &second).unwrap();
    let printed = imported(&import(&server, &second));
    assert_eq!((printed.lines().count(), printed.matches("already there").count()), (2, 2), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_imported_into_a_running_server_is_served_at_once() {
    let mut server = Server::open_terminology();
    server.start();
    let terminology = TerminologyClient::of(&server);
    let query = [("system", SCT), ("codeA", FLOWER), ("codeB", LILY)];
    assert_eq!(terminology.get("CodeSystem/$subsumes", &query).await.0, 404);

    let printed = imported(&import(&server, &releases().join(INTERNATIONAL)));
    assert!(printed.contains("snomed.info-sct-900000000000207008-version-20250101"), "{printed}");
    terminology.knows_the_garden().await;

    // Two editions are stored. Each is used when a request names its version.
    imported(&import(&server, &releases().join(EDITION)));
    let international = format!("{SCT}/900000000000207008/version/20250101");
    let edition = format!("{SCT}/700999108/version/20250301");
    for (version, knows_moss) in [(&international, false), (&edition, true)] {
        assert_eq!(
            terminology.is_in(&format!("{version}?fhir_vs"), SCT, MOSS).await,
            knows_moss,
            "{version}"
        );
        assert!(terminology.is_in(&format!("{version}?fhir_vs"), SCT, LILY).await, "{version}");
        let query = [("system", SCT), ("version", version), ("code", MOSS)];
        let status = if knows_moss { 200 } else { 404 };
        assert_eq!(terminology.get("CodeSystem/$lookup", &query).await.0, status, "{version}");
    }
}
