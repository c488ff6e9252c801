//! Tests of code systems from releases and large resources: imported into a stopped and a running server,
//! queried over HTTP, and kept over restarts. The releases are those of `fixtures/releases`.

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
struct Asked {
    client: reqwest::Client,
    fhir: String,
}

impl Asked {
    fn of(server: &Server) -> Self {
        Self { client: server.client(), fhir: server.fhir() }
    }

    async fn get(&self, operation: &str, query: &[(&str, &str)]) -> (u16, Value) {
        let request = self.client.get(format!("{}/{operation}", self.fhir)).query(query);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
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
        let listed = answer["expansion"]["contains"].as_array().unwrap().iter();
        let mut codes: Vec<_> = listed.map(|one| one["code"].as_str().unwrap().to_owned()).collect();
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
fn parameter<'a>(answer: &'a Value, name: &str) -> Option<&'a Value> {
    let all = answer["parameter"].as_array()?;
    let found = all.iter().find(|parameter| parameter["name"] == name)?.as_object()?;
    found.iter().find(|(member, _)| member.starts_with("value")).map(|(_, value)| value)
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_imported_before_the_start_are_served() {
    let mut server = Server::open_terminology();
    let printed = imported(&import(&server, &releases()));
    for format in ["SNOMED CT RF2", "LOINC", "RxNorm RRF", "ICD-10-CM", "ClaML", "CSV"] {
        assert!(printed.contains(format), "{format}: {printed}");
    }
    server.start();
    let asked = Asked::of(&server);
    asked.knows_the_garden().await;

    let (status, answer) = asked.get("CodeSystem/$lookup", &[("system", SCT), ("code", LILY)]).await;
    assert_eq!((status, parameter(&answer, "display")), (200, Some(&json!("Water lily"))), "{answer}");
    let loinc = "http://loinc.org";
    assert!(asked.is_in("http://loinc.org/vs/LL9001-1", loinc, "LA90001-2").await);
    assert!(!asked.is_in("http://loinc.org/vs/LL9001-1", loinc, "90001-1").await);
    assert_eq!(asked.expanded("http://loinc.org/vs/LL9001-1").await, ["LA90001-2", "LA90002-0"]);
    assert_eq!(asked.subsumes("http://garden.example/herbs", "herb", "lemon-thyme").await, "subsumes");
    assert!(asked.is_in("http://garden.example/all-herbs", "http://garden.example/herbs", "mint").await);
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
    let asked = Asked::of(&server);
    let query = [("system", SCT), ("codeA", FLOWER), ("codeB", LILY)];
    assert_eq!(asked.get("CodeSystem/$subsumes", &query).await.0, 404);

    let printed = imported(&import(&server, &releases().join(INTERNATIONAL)));
    assert!(printed.contains("snomed.info-sct-900000000000207008-version-20250101"), "{printed}");
    asked.knows_the_garden().await;

    // Two editions are stored. Each is used when a request names its version.
    imported(&import(&server, &releases().join(EDITION)));
    let international = format!("{SCT}/900000000000207008/version/20250101");
    let edition = format!("{SCT}/700999108/version/20250301");
    for (version, knows_moss) in [(&international, false), (&edition, true)] {
        assert_eq!(asked.is_in(&format!("{version}?fhir_vs"), SCT, MOSS).await, knows_moss, "{version}");
        assert!(asked.is_in(&format!("{version}?fhir_vs"), SCT, LILY).await, "{version}");
        let query = [("system", SCT), ("version", version), ("code", MOSS)];
        let status = if knows_moss { 200 } else { 404 };
        assert_eq!(asked.get("CodeSystem/$lookup", &query).await.0, status, "{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_is_imported_with_its_base_in_one_command() {
    const DUCKWEED: &str = "70021000888107";
    let mut server = Server::open_terminology();
    let [base, extension] = [releases().join(INTERNATIONAL), releases().join(EXTENSION)];
    imported(&import(&server, &base));
    server.start();
    let asked = Asked::of(&server);

    // Without its base, the extension is rejected, even if the base was imported before.
    let output = import(&server, &extension);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    for part in [EXTENSION, "module 900000000000012004 of 20250101", "in the same command", "nothing of this"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let query = [("system", SCT), ("code", DUCKWEED)];
    assert_eq!(asked.get("CodeSystem/$lookup", &query).await.0, 404);

    let printed = imported(&import_all(&server, &[&extension, &base]));
    assert!(printed.contains("snomed.info-sct-70011000888101-version-20250401"), "{printed}");
    let edition = format!("{SCT}/70011000888101/version/20250401");
    let query = [("system", SCT), ("version", edition.as_str()), ("code", LILY)];
    let (status, answer) = asked.get("CodeSystem/$lookup", &query).await;
    assert_eq!((status, parameter(&answer, "display")), (200, Some(&json!("Pond lily"))), "{answer}");
    assert!(asked.is_in(&format!("{edition}?fhir_vs=ecl/< 700111004"), SCT, DUCKWEED).await);
    assert!(!asked.is_in(&format!("{edition}?fhir_vs=ecl/< {PLANT}"), SCT, FERN).await);
    // The International Edition is unchanged.
    let international = format!("{SCT}/900000000000207008");
    let query = [("system", SCT), ("version", international.as_str()), ("code", LILY)];
    let (status, answer) = asked.get("CodeSystem/$lookup", &query).await;
    assert_eq!((status, parameter(&answer, "display")), (200, Some(&json!("Water lily"))), "{answer}");
    assert!(asked.is_in(&format!("{international}?fhir_vs=ecl/< {PLANT}"), SCT, FERN).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_national_edition_is_the_default_while_its_base_is_current() {
    const DUCKWEED: &str = "70021000888107";
    let flowers = format!("{SCT}?fhir_vs=ecl/<< {FLOWER}");
    let preference = format!("[terminology] preferred_versions = [\"{SCT}|{SCT}/70011000888101\"]");
    let mut server = Server::open_terminology();
    let [base, extension] = [releases().join(INTERNATIONAL), releases().join(EXTENSION)];
    // The stopped server names the default too.
    let printed = imported(&import_all(&server, &[&extension, &base]));
    let national = format!("{SCT}/70011000888101/version/20250401 answers requests without a version");
    assert!(printed.contains(&national), "{printed}");
    assert!(imported(&server.trefoil(&["status"])).contains(&national));
    server.start();
    let asked = Asked::of(&server);
    let display = async |code: &str| {
        let (status, answer) = asked.get("CodeSystem/$lookup", &[("system", SCT), ("code", code)]).await;
        (status, parameter(&answer, "display").cloned(), answer)
    };
    assert_eq!(display(LILY).await.1, Some(json!("Pond lily")));
    assert_eq!(display(DUCKWEED).await.0, 200);
    assert_eq!(asked.subsumes(SCT, "700111004", DUCKWEED).await, "subsumes");
    assert!(!asked.expanded(&flowers).await.contains(&IRIS.to_owned()));
    let (_, described) = asked.get("CodeSystem/snomed.info-sct-70011000888101-version-20250401", &[]).await;
    let artifact = &described["extension"][0]["valueRelatedArtifact"]["resource"];
    assert_eq!(*artifact, format!("{SCT}|{SCT}/900000000000207008/version/20250101"), "{described}");

    // A newer International Edition takes over, and the answers name the edition that has a code.
    let newer = tempfile::tempdir().unwrap();
    let newer = copy_of_international(newer.path());
    rename_date(&newer, "20250101", "20250701");
    let printed = imported(&import(&server, &newer));
    let line = format!(
        "{SCT}/900000000000207008/version/20250701 answers requests without a version; another choice: {preference}"
    );
    assert!(printed.contains(&line), "{printed}");
    assert!(imported(&server.trefoil(&["status"])).contains(&line));
    assert_eq!(display(LILY).await.1, Some(json!("Water lily")));
    let (status, _, answer) = display(DUCKWEED).await;
    assert_eq!(status, 404);
    let subsumes = [("system", SCT), ("codeA", PLANT), ("codeB", DUCKWEED)];
    let validate = [("url", SCT), ("code", DUCKWEED)];
    for answer in [
        answer,
        asked.get("CodeSystem/$subsumes", &subsumes).await.1,
        asked.get("CodeSystem/$validate-code", &validate).await.1,
    ] {
        let text = answer.to_string().replace('\\', "");
        for part in ["it is in http://snomed.info/sct/70011000888101/version/20250401", &preference] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    // The setting that the answers name, until it is removed.
    let settings = preference.replace("[terminology] ", "");
    let set = |text: &str| fs::write(server.data().join("trefoil.toml"), text).unwrap();
    let before = fs::read_to_string(server.data().join("trefoil.toml")).unwrap();
    set(&format!("{before}{settings}\n"));
    imported(&server.trefoil(&["reload"]));
    assert_eq!(display(LILY).await.1, Some(json!("Pond lily")));
    set(&before);
    imported(&server.trefoil(&["reload"]));
    assert_eq!(display(LILY).await.1, Some(json!("Water lily")));
    imported(&server.trefoil(&[
        "release",
        "remove",
        "snomed.info-sct-900000000000207008-version-20250701",
        "--force",
    ]));
    assert_eq!(display(LILY).await.1, Some(json!("Pond lily")));
}

/// Changes the date of a release, in the names of its files and in their rows.
fn rename_date(folder: &Path, from: &str, to: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rename_date(&path, from, to);
        } else {
            let text = fs::read_to_string(&path).unwrap().replace(from, to);
            let name = path.file_name().unwrap().to_str().unwrap().replace(from, to);
            fs::remove_file(&path).unwrap();
            fs::write(path.with_file_name(name), text).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_release_changes_nothing() {
    let mut server = Server::open_terminology();
    imported(&import(&server, &releases().join(INTERNATIONAL)));
    let folder = tempfile::tempdir().unwrap();
    let broken = copy_of_international(folder.path());
    let file = broken.join(RELATIONSHIPS);
    // The modified release removes the lily from the flowers, and its fifth line is truncated.
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<&str> =
        text.lines().filter(|line| !line.contains("\t700112006\t700110003\t")).collect();
    assert_eq!(lines.len() + 1, text.lines().count());
    lines[4] = "1031020\t20250101";
    fs::write(&file, lines.join("\r\n") + "\r\n").unwrap();

    let check = |output: &Output| {
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("sct2_Relationship_Snapshot_INT_20250101.txt:5:"), "{printed}");
        assert!(printed.contains("nothing of this release was changed"), "{printed}");
    };
    check(&import(&server, &broken));
    server.start();
    Asked::of(&server).knows_the_garden().await;
    check(&import(&server, &broken));
    Asked::of(&server).knows_the_garden().await;

    // After the line is repaired, the release replaces the first one.
    lines.remove(4);
    fs::write(&file, lines.join("\r\n") + "\r\n").unwrap();
    imported(&import(&server, &broken));
    assert_eq!(Asked::of(&server).subsumes(SCT, FLOWER, LILY).await, "not-subsumed");
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_survive_restarts_and_a_damaged_index_affects_only_its_release() {
    let mut server = Server::open_terminology();
    server.start();
    imported(&import(&server, &releases()));
    // A crash right after the acknowledgement must not lose the release.
    server.kill();
    server.start();
    Asked::of(&server).knows_the_garden().await;
    assert_eq!(server.stop(), Some(0));

    let folder = server.data().join("terminology/releases");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let is_whole = |file: &PathBuf| file.extension().is_some_and(|end| end == "index" || end == "source");
    assert!(files.iter().all(is_whole), "{files:?}");
    let damaged = folder.join("loinc.org-0.1.index");
    let mut bytes = fs::read(&damaged).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x20;
    fs::write(&damaged, bytes).unwrap();
    server.start();
    assert!(server.log().contains("loinc.org-0.1.index"), "{}", server.log());
    let asked = Asked::of(&server);
    asked.knows_the_garden().await;
    let loinc = [("system", "http://loinc.org"), ("code", "90001-1")];
    // The resource that describes the release is stored, so that the code system is known and lacks its
    // concepts.
    let (status, answer) = asked.get("CodeSystem/$lookup", &loinc).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("not-present"), "{answer}");
    imported(&import(&server, &releases().join("Loinc_0.1")));
    assert_eq!(asked.get("CodeSystem/$lookup", &loinc).await.0, 200);
}

/// Returns the names of the entries in the folder of releases.
fn kept(server: &Server) -> Vec<String> {
    let folder = server.data().join("terminology/releases");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut files: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_import_resumes_after_the_completed_releases() {
    let mut server = Server::open_terminology();
    let source = tempfile::tempdir().unwrap();
    let base = copy_of_international(source.path());
    // The file is so large that it is still being read when the line of the previous release is printed.
    let herbs = source.path().join("many.csv");
    let mut text = "# url: http://garden.example/many\ncode,display\n".to_owned();
    (0..400_000).for_each(|number| text.push_str(&format!("h{number},Herb {number}\n")));
    fs::write(&herbs, &text).unwrap();

    let mut killed = Command::new(TREFOIL)
        .args(["import", "--data"])
        .args([server.data(), &base, &herbs])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(killed.stdout.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap();
    assert!(first.starts_with("SNOMED CT RF2"), "{first}");
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success());
    let international = "snomed.info-sct-900000000000207008-version-20250101";
    let of_base = ["index", "source"].map(|end| format!("{international}.{end}"));
    assert_eq!(kept(&server), of_base);

    // Creates the file that a kill during the write of an index leaves. A running server must not remove it.
    let half = server.data().join("terminology/releases/garden.example-many-.part");
    fs::write(&half, "TREFOIL").unwrap();
    let both = [base.as_path(), &herbs];
    let printed = imported(&import_all(&server, &both));
    assert!(printed.contains("already there") && !printed.contains("SNOMED CT RF2"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("CSV ") && line.contains(" 400000 ")), "{printed}");
    let all = ["garden.example-many.index", "garden.example-many.source", &of_base[0], &of_base[1]];
    assert_eq!(kept(&server), all);
    fs::write(&half, "TREFOIL").unwrap();
    server.start();
    assert_eq!(kept(&server), all);
    let asked = Asked::of(&server);
    asked.knows_the_garden().await;
    let query = [("system", "http://garden.example/many"), ("code", "h399999")];
    assert_eq!(asked.get("CodeSystem/$lookup", &query).await.0, 200);

    // All releases are stored. A changed release and a release with a damaged index are imported again.
    let printed = imported(&import_all(&server, &both));
    assert_eq!(printed.matches("already there").count(), 2, "{printed}");
    fs::write(&herbs, text.replace("Herb 7\n", "Herb seven\n")).unwrap();
    let printed = imported(&import_all(&server, &both));
    assert_eq!(
        (printed.matches("already there").count(), printed.matches("CSV ").count()),
        (1, 1),
        "{printed}"
    );
    let query = [("system", "http://garden.example/many"), ("code", "h7")];
    let (_, answer) = asked.get("CodeSystem/$lookup", &query).await;
    assert_eq!(parameter(&answer, "display"), Some(&json!("Herb seven")), "{answer}");
    fs::write(server.data().join("terminology/releases").join(&of_base[0]), "damaged").unwrap();
    let printed = imported(&import_all(&server, &both));
    assert_eq!(
        (printed.matches("already there").count(), printed.matches("SNOMED CT RF2").count()),
        (1, 1),
        "{printed}"
    );
    assert_eq!(kept(&server), all);
}

#[test]
fn faults_of_imported_resources_are_reported() {
    let server = Server::open_terminology();
    let file = server.data().join("faulty.ndjson");
    let lines = [
        json!({ "resourceType": "CodeSystem", "id": "s", "url": "urn:s", "status": "active", "content": "complete",
            "caseSensitive": false, "concept": [{ "code": "a" }, { "code": "A" }, { "code": "a" },
            { "code": "b", "property": [{ "code": "parent", "valueCode": "none" }] }] }),
        json!({ "resourceType": "CodeSystem", "id": "f", "url": "urn:f", "status": "active", "content": "fragment",
            "concept": [{ "code": "b", "property": [{ "code": "parent", "valueCode": "none" }] }] }),
        json!({ "resourceType": "ConceptMap", "id": "m", "status": "active",
            "group": [{ "element": [{ "code": "a", "target": [{ "code": "b", "equivalence": "same" }] }] }] }),
    ];
    fs::write(&file, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let printed = imported(&import(&server, &file));
    for expected in [
        "CodeSystem/s: 'A' differs from another code by case only",
        "CodeSystem/s: the code 'a' occurs twice",
        "CodeSystem/s: 'b' names the parent 'none', which does not exist",
        "ConceptMap/m: ConceptMap.group[0].element[0].target[0]: equivalence is 'same'",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    assert!(!printed.contains("CodeSystem/f"), "{printed}");
}

#[test]
fn another_content_of_a_release_is_reported() {
    let server = Server::open_terminology();
    let file = server.data().join("herbs.csv");
    fs::write(&file, "# url: urn:h\n# version: 1\ncode,display\na,A\n").unwrap();
    assert!(!imported(&import(&server, &file)).contains("replaced"));
    assert!(!imported(&import(&server, &file)).contains("replaced"));
    fs::write(&file, "# url: urn:h\n# version: 1\ncode,display\na,A\nb,B\n").unwrap();
    let printed = imported(&import(&server, &file));
    assert!(printed.contains("had other content; it is replaced"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_listed_shown_and_removed() {
    let mut server = Server::open_terminology();
    let run = |server: &Server, arguments: &[&str]| {
        let output = server.trefoil(&[&["release"], arguments].concat());
        (
            output.status.code(),
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        )
    };
    let (code, text) = run(&server, &["list"]);
    assert!(code == Some(1) && text.contains("contains no store"), "{text}");
    imported(&import_all(&server, &[&releases().join(INTERNATIONAL), &releases().join("plants.csv")]));
    let id = "snomed.info-sct-900000000000207008-version-20250101";
    let (_, listed) = run(&server, &["list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.lines().any(|line| line.starts_with(&format!("{id}  24  2"))), "{listed}");
    let (_, shown) = run(&server, &["show", id]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["concepts"], 24);
    assert_eq!(shown["language_reference_sets"], json!(["900000000000508004", "900000000000509007"]));
    assert_eq!(shown["languages"], json!(["de", "en"]));
    assert_eq!(run(&server, &["show", "none"]).0, Some(1));

    // A value set that names the version, and one that does not.
    let set = |id: &str, version: Option<&str>| {
        json!({ "resourceType": "ValueSet", "id": id, "url": format!("urn:{id}"), "status": "active",
            "compose": { "include": [{ "system": SCT, "version": version }] } })
        .to_string()
        .replace("\"version\":null", "\"concept\":[{\"code\":\"1\"}]")
    };
    let file = server.data().join("sets.ndjson");
    let edition = format!("{SCT}/900000000000207008/version/20250101");
    fs::write(&file, [set("pinned", Some(&edition)), set("free", None)].join("\n")).unwrap();
    imported(&import(&server, &file));
    server.start();
    let asked = Asked::of(&server);
    asked.knows_the_garden().await;
    // The release is found as a CodeSystem without concepts, and answers under its id.
    let (_, found) = asked.get("CodeSystem", &[("url", SCT)]).await;
    let described = &found["entry"][0]["resource"];
    assert_eq!((found["total"].as_u64(), &described["content"]), (Some(1), &json!("not-present")), "{found}");
    assert_eq!((&described["id"], &described["count"]), (&json!(id), &json!(24)));
    assert!(described["description"].as_str().unwrap().contains("900000000000508004"));
    let (status, answer) =
        asked.get(&format!("CodeSystem/{id}/$subsumes"), &[("codeA", FLOWER), ("codeB", LILY)]).await;
    assert_eq!((status, parameter(&answer, "outcome")), (200, Some(&json!("subsumes"))), "{answer}");
    let versioned = [("system", SCT), ("version", &*edition), ("codeA", FLOWER), ("codeB", LILY)];
    assert_eq!(asked.get("CodeSystem/$subsumes", &versioned).await.0, 200);
    let (code, text) = run(&server, &["remove", id]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("stored value sets name the version of this release (1): ValueSet/pinned;"),
        "{text}"
    );
    asked.knows_the_garden().await;
    assert_eq!(run(&server, &["remove", id, "--force"]).0, Some(0));
    let query = [("system", SCT), ("codeA", FLOWER), ("codeB", LILY)];
    assert_eq!(asked.get("CodeSystem/$subsumes", &query).await.0, 404);
    assert_eq!(asked.get("CodeSystem", &[("url", SCT)]).await.1["total"], 0);
    // Without a running server, too.
    let (_, listed) = run(&server, &["list"]);
    let other = listed.split_whitespace().next().unwrap().to_owned();
    server.stop();
    assert_eq!(run(&server, &["remove", &other]).0, Some(0));
    assert_eq!(run(&server, &["list"]).1.trim(), "no release is imported");
}

/// A token of a new client for the administration API.
async fn administration_token(server: &Server) -> String {
    let flags =
        ["client", "add", "office", "--auth-method", "client_secret_post", "--scope", "trefoil/admin"];
    let added = String::from_utf8(server.trefoil(&flags).stdout).unwrap();
    let secret = added.split("client_secret ").nth(1).unwrap().split_whitespace().next().unwrap();
    let pairs = [("grant_type", "client_credentials"), ("client_id", "office"), ("client_secret", secret)];
    let asked = server.client().post(format!("{}/oauth2/token", server.base())).form(&pairs).send();
    let answer: Value = asked.await.unwrap().json().await.unwrap();
    answer["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_removed_over_http() {
    let mut server = Server::open_terminology();
    imported(&import(&server, &releases().join("plants.csv")));
    server.start();
    let (token, client) = (administration_token(&server).await, server.client());
    let url = |path: &str| format!("{}/admin/releases{path}", server.base());
    let get = async |path: &str| {
        let answer = client.get(url(path)).bearer_auth(&token).send().await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    let remove = async |path: &str| {
        let answer = client.delete(url(path)).bearer_auth(&token).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let listed = get("").await;
    let release = &listed["releases"][0];
    let (id, system) = (release["id"].as_str().unwrap(), release["url"].as_str().unwrap());
    let version = release["version"].as_str().unwrap();
    assert!(release["concepts"].as_u64().unwrap() > 3, "{listed}");
    let set = json!({ "resourceType": "ValueSet", "id": "pinned", "url": "urn:pinned", "status": "active",
        "compose": { "include": [{ "system": system, "version": version }] } });
    let file = server.data().join("set.json");
    fs::write(&file, set.to_string()).unwrap();
    imported(&import(&server, &file));
    assert_eq!(get(&format!("/{id}")).await["named_by"], json!(["ValueSet/pinned"]));
    let (status, text) = remove(&format!("/{id}")).await;
    assert_eq!(status, 409, "{text}");
    assert!(text.contains("in_use") && text.contains("ValueSet/pinned"), "{text}");
    assert_eq!(remove(&format!("/{id}?force=true")).await.0, 204);
    assert_eq!(remove(&format!("/{id}")).await.0, 404);
    assert_eq!(get("").await, json!({ "releases": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cyclic_hierarchy_is_reported() {
    let system = |name: &str| {
        let below = |code: &str, parent: &str| json!({ "code": code, "property": [{ "code": "parent", "valueCode": parent }] });
        json!({ "resourceType": "CodeSystem", "id": name, "url": format!("urn:{name}"), "status": "active", "content": "complete",
            "concept": [below("hen", "egg"), below("egg", "hen"), { "code": "nest" }] })
    };
    let mut server = Server::open_terminology();
    let file = server.data().join("circle.json");
    for (name, running) in [("before", false), ("during", true)] {
        if running {
            server.start();
        }
        fs::write(&file, system(name).to_string()).unwrap();
        let printed = imported(&import(&server, &file));
        assert!(
            printed.contains(&format!("CodeSystem/{name}: the hierarchy has a cycle: hen > egg > hen")),
            "{printed}"
        );
        // A resource that was already stored is not reported again.
        assert!(!imported(&import(&server, &file)).contains("cycle"));
    }
    let asked = Asked::of(&server);
    let query = [("system", "urn:during"), ("codeA", "hen"), ("codeB", "nest")];
    assert_eq!(asked.get("CodeSystem/$subsumes", &query).await.0, 422);
    // The log is written asynchronously.
    let told = || server.log().lines().any(|line| line.contains("has a cycle") && line.contains("during"));
    for _ in 0..10_000 {
        if told() {
            break;
        }
        asked.get("metadata", &[("mode", "terminology")]).await;
    }
    assert!(told(), "{}", server.log());
}

/// Returns the saved index of a resource once it exists: it is written asynchronously.
async fn saved(asked: &Asked, server: &Server, id: &str) -> PathBuf {
    let folder = server.data().join("terminology/resources");
    for _ in 0..10_000 {
        // A request gives the server time to write the index.
        asked.get("metadata", &[("mode", "terminology")]).await;
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let of_id = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("{id}@")) && name.ends_with(".index")
        };
        if let Some(found) = files.into_iter().find(of_id) {
            return found;
        }
    }
    panic!("no index of {id} was saved");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_resources_are_indexed_once() {
    // Both resources are larger than 1 MiB and are versions of one system.
    let (written, brought) = (Polyhierarchy::new(1, 4_000), Polyhierarchy::new(2, 4_200));
    let json = |system: &Polyhierarchy, id: &str| {
        let mut out = Vec::new();
        system.write_json(id, &mut out).unwrap();
        assert!(out.len() > 1 << 20);
        out
    };
    let mut server = Server::open_terminology();
    let client = ["client", "add", "writer", "--auth-method", "client_secret_basic"];
    let printed = imported(&server.trefoil(&[&client[..], &["--scope", "system/CodeSystem.cruds"]].concat()));
    let secret = printed.lines().find_map(|line| line.strip_prefix("client_secret ")).unwrap();
    server.start();
    let asked = Asked::of(&server);
    let form = [("grant_type", "client_credentials"), ("scope", "system/CodeSystem.cruds")];
    let request = asked.client.post(format!("{}/oauth2/token", server.base())).form(&form);
    let token: Value = request.basic_auth("writer", Some(secret)).send().await.unwrap().json().await.unwrap();
    let token = token["access_token"].as_str().unwrap_or_else(|| panic!("{token}"));

    let put = asked.client.put(format!("{}/CodeSystem/written", server.fhir())).bearer_auth(token);
    let put = put.header("content-type", "application/fhir+json").body(json(&written, "written"));
    assert_eq!(put.send().await.unwrap().status(), 201);
    check_links(&asked, &written).await;
    let file = server.data().join("brought.json");
    fs::write(&file, json(&brought, "brought")).unwrap();
    imported(&import(&server, &file));
    check_links(&asked, &brought).await;

    let of_written = saved(&asked, &server, "written").await;
    let of_brought = saved(&asked, &server, "brought").await;
    assert_eq!(server.stop(), Some(0));
    // The restart loads saved indexes: if its index is replaced by that of the other resource, a resource
    // answers like the other one.
    fs::remove_file(&of_brought).unwrap();
    fs::copy(&of_written, &of_brought).unwrap();
    server.start();
    let asked = Asked::of(&server);
    check_links(&asked, &written).await;
    let code = Polyhierarchy::code(4_100);
    let query = [("system", polyhierarchy::URL), ("code", &code)];
    let (status, answer) = asked.get("CodeSystem/$lookup", &query).await;
    assert_eq!(status, 404, "{answer}");
    assert_eq!(server.stop(), Some(0));
    // A missing or damaged index is built again.
    fs::write(&of_brought, "damaged").unwrap();
    fs::remove_file(&of_written).unwrap();
    server.start();
    let asked = Asked::of(&server);
    check_links(&asked, &brought).await;
    check_links(&asked, &written).await;
    saved(&asked, &server, "written").await;
}

/// Checks the parents of some concepts in a version of the system.
async fn check_links(asked: &Asked, system: &Polyhierarchy) {
    let version = system.len().to_string();
    for concept in (1..system.len()).step_by(500) {
        let (below, above) = (Polyhierarchy::code(concept), Polyhierarchy::code(system.parents(concept)[0]));
        let query =
            [("system", polyhierarchy::URL), ("version", &version), ("codeA", &above), ("codeB", &below)];
        let (status, answer) = asked.get("CodeSystem/$subsumes", &query).await;
        assert_eq!((status, parameter(&answer, "outcome")), (200, Some(&json!("subsumes"))), "{answer}");
    }
}
