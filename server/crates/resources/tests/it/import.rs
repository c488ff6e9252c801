//! Tests of the import of valid and invalid files of every format.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use store::{ScanOptions, Seq, Store, Versions};
use tempfile::TempDir;
use trefoil_resources::{ImportCount, ImportOptions, ImportProgress, ResourceRules, Resources, Validation};

use crate::import;

fn basic(id: &str) -> String {
    format!(r#"{{"resourceType":"Basic","id":"{id}"}}"#)
}

fn gz(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in entries {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Returns all stored resources as `Type/id`, sorted.
async fn stored(resources: &Resources) -> Vec<String> {
    let mut files = Vec::new();
    for kind in resources.store().kinds(Seq::LATEST).await.unwrap() {
        let page = resources.store().scan_kind(&kind, ScanOptions::at(Seq::LATEST)).await.unwrap();
        files.extend(page.versions.into_iter().map(|version| version.key.to_string()));
    }
    files
}

/// Imports one file with this name and content, whose path is passed to the import.
#[track_caller]
fn check(name: &str, content: impl AsRef<[u8]>, expected: &[&str], bad: &[&str]) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (found, report) = runtime.block_on(async {
        let resources = Resources::new(Store::memory());
        let (report, _) = import(&resources, vec![path], ImportOptions::default()).await;
        (stored(&resources).await, report)
    });
    let messages: Vec<_> = report.bad.iter().map(|bad| told(bad, dir.path())).collect();
    assert_eq!((found.as_slice(), messages.as_slice()), (&own(expected)[..], &own(bad)[..]), "{name}");
    assert_eq!(report.bad_total, bad.len() as u64, "{name}");
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn told(bad: &trefoil_resources::ImportFault, dir: &Path) -> String {
    let file = bad.file.strip_prefix(&format!("{}/", dir.display())).unwrap_or(&bad.file).to_owned();
    let line = bad.line.map(|line| format!(" line {line}")).unwrap_or_default();
    format!("{file}{line}: {}", bad.reason)
}

#[test]
fn ndjson_is_imported_line_by_line() {
    let text = format!(
        "\u{feff}{}\r\n\r\n{}\n{{\"resourceType\":\n{}\n[]\n{}",
        basic("a"),
        basic("b"),
        basic("c c"),
        basic("d")
    );
    let bad = [
        " line 4: not JSON at line 4, column 17: the text ends early",
        " line 5: 'c c' is not an id: 1 to 64 letters, digits, '-' and '.', but not '.' or '..'",
        " line 6: a resource must be a JSON object, but this is an array",
    ];
    for (name, content) in [
        ("x.ndjson", text.clone().into_bytes()),
        ("x.ndjson.gz", gz(text.as_bytes())),
        // The content determines the format, regardless of the name.
        ("x.ndjson", gz(text.as_bytes())),
        ("x.json", text.clone().into_bytes()),
        ("x", gz(text.as_bytes())),
    ] {
        let bad: Vec<_> = bad.iter().map(|bad| format!("{name}{bad}")).collect();
        let bad: Vec<_> = bad.iter().map(String::as_str).collect();
        check(name, content, &["Basic/a", "Basic/b", "Basic/d"], &bad);
    }
}

#[test]
fn a_file_with_one_resource_is_imported() {
    check("x.json", basic("a"), &["Basic/a"], &[]);
    check("x.json", gz(basic("a").as_bytes()), &["Basic/a"], &[]);
    check(
        "x.json",
        "\u{feff}\n\n{\n \"resourceType\" : \"Basic\",\n \"id\": \"a\"\n}\n\n",
        &["Basic/a"],
        &[],
    );
    check("x.json", r#"{"resourceType":"Basic"}"#, &["Basic/new-1"], &[]);
    let bad = "x.json: not JSON at line 4, column 1: expected a member name in quotes";
    check("x.json", "\n{\n \"resourceType\":\"Basic\",\n}", &[], &[bad]);
    check("x.json", r#"{"name":"x"}"#, &[], &["x.json: 'resourceType' is missing or not a string"]);
    check("x.json", "", &[], &["x.json: it is empty"]);
    check("x.ndjson", "", &[], &[]);
    check("x.ndjson", "hello", &[], &["x.ndjson line 1: not JSON at line 1, column 1: expected '{'"]);
    check("x.xml", "<Basic/>", &[], &["x.xml: it is XML; Trefoil reads resources as JSON"]);
    let zip = "x.zip: it is a ZIP archive that is not a release of a code system; unpack it first";
    check("x.zip", "PK\u{3}\u{4}…", &[], &[zip]);
    check("x.txt", "hello", &[], &["x.txt: neither JSON nor a package"]);
    check("x.info", "[FHIR]\nversion=4.0.1", &[], &["x.info: neither JSON nor a package"]);
}

#[test]
fn a_transaction_is_imported_completely_or_not_at_all_and_other_bundles_by_entry() {
    let bundle = |kind: &str, entries: &str| {
        format!("{{\"resourceType\":\"Bundle\",\n\"type\":\"{kind}\",\n\"entry\":[{entries}]}}")
    };
    let entry = |id: &str| format!("{{\"resource\":{}}}", basic(id));
    for kind in ["batch", "collection", "searchset", "transaction"] {
        let entries = format!("{},{}", entry("a"), entry("b"));
        check("x.json", bundle(kind, &entries), &["Basic/a", "Basic/b"], &[]);
    }
    let unreadable = r#"{"resource":{"resourceType":"Observation","id":"o","status":"final","code":{"text":"x"},"valueTime":"08:00:00+02:00"}}"#;
    for (bad, expected) in [
        (
            entry("b b"),
            "x.json: Bundle.entry[1]: 'b b' is not an id: 1 to 64 letters, digits, '-' and '.', but not '.' or '..'",
        ),
        (
            unreadable.to_owned(),
            "x.json: Bundle.entry[1].resource.value: '08:00:00+02:00' is not a time of day such as 08:00:00",
        ),
        (
            r#"{"resource":{"resourceType":"Pony"}}"#.to_owned(),
            "x.json: Bundle.entry[1]: 'Pony' is not a resource type of FHIR R4",
        ),
    ] {
        let entries = format!("{},{bad},{}", entry("a"), entry("c"));
        for kind in ["batch", "collection", "searchset"] {
            check("x.json", bundle(kind, &entries), &["Basic/a", "Basic/c"], &[expected]);
        }
        check("x.json", bundle("transaction", &entries), &[], &[expected]);
    }
    check(
        "x.json",
        bundle("collection", "{\"resource\":{}}"),
        &[],
        &["x.json: Bundle.entry[0]: 'resourceType' is missing or not a string"],
    );
    // The id of an entry comes from the resource, the `fullUrl`, or the generator.
    let entries = r#"{"fullUrl":"https://a.example/Basic/of-url","resource":{"resourceType":"Basic"}},{"fullUrl":"urn:uuid:1","resource":{"resourceType":"Basic"}}"#;
    check("x.json", bundle("collection", entries), &["Basic/new-1", "Basic/of-url"], &[]);
    // A Bundle of type document is stored as one resource.
    let document = bundle("document", &entry("a")).replacen('{', "{\"id\":\"d\",", 1);
    check("x.json", document, &["Bundle/d"], &[]);
}

#[tokio::test]
async fn references_between_entries_of_a_bundle_are_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("bundle.json");
    let text = r##"{"resourceType":"Bundle","type":"transaction","entry":[
        {"fullUrl":"urn:uuid:2","resource":{"resourceType":"Observation","subject":{"reference":"urn:uuid:1"},"focus":[{"reference":"#c"}],"note":[{"text":"see urn:uuid:1"}],"text":{"div":"<a href=\"urn:uuid:1\">é</a>"}}},
        {"fullUrl":"urn:uuid:1","resource":{"resourceType":"Patient","id":"p"}}]}"##;
    fs::write(&path, text).unwrap();
    let resources = Resources::new(Store::memory());
    import(&resources, vec![path], ImportOptions::default()).await;
    let scan = ScanOptions::at(Seq::LATEST);
    let page = resources.store().scan_compartment("Patient/p", "Observation", scan).await.unwrap();
    let text = std::str::from_utf8(page.versions[0].body.as_ref().unwrap()).unwrap();
    assert!(
        text.ends_with(
            r##""subject":{"reference":"Patient/p"},"focus":[{"reference":"#c"}],"note":[{"text":"see urn:uuid:1"}],"text":{"div":"<a href=\"Patient/p\">é</a>"}}"##
        ),
        "{text}"
    );
}

#[test]
fn a_package_provides_its_resources() {
    let entries = [
        ("package/package.json", r#"{"name":"x","version":"1"}"#),
        ("package/.index.json", "{}"),
        ("package/Basic-a.json", &*basic("a")),
        ("package/Basic-broken.json", "{"),
        ("package/other/Basic-b.json", &*basic("b")),
        ("package/example/Basic-e.json", &*basic("e")),
        ("package/Basic-c.json", &*basic("c")),
    ];
    let bad = |name: &str| {
        format!(
            "{name}:package/Basic-broken.json: not JSON at line 1, column 2: expected a member name in quotes"
        )
    };
    check("x.tgz", gz(&tar(&entries)), &["Basic/a", "Basic/b", "Basic/c"], &[&bad("x.tgz")]);
    check("x.tar.gz", gz(&tar(&entries)), &["Basic/a", "Basic/b", "Basic/c"], &[&bad("x.tar.gz")]);
    check("x.tar", tar(&entries), &["Basic/a", "Basic/b", "Basic/c"], &[&bad("x.tar")]);
}

#[test]
fn an_archive_provides_ndjson_and_resources() {
    let lines = format!("{}\n{}\n", basic("a"), basic("b"));
    let entries = [("data/Basic.ndjson", &*lines), ("c.json", &*basic("c")), ("read.me", "x")];
    check("x.tar.gz", gz(&tar(&entries)), &["Basic/a", "Basic/b", "Basic/c"], &[]);
    let nothing = "x.tar: the archive contains no .json or .ndjson file";
    check("x.tar", tar(&[("read.me", "x")]), &[], &[nothing]);
}

#[test]
fn other_forms_of_json_are_imported() {
    let (a, b) = (basic("a"), basic("b"));
    let both = ["Basic/a", "Basic/b"];
    check("x.json", format!("[{a},\n {b}]"), &both, &[]);
    check(
        "x.json",
        format!(" [\n{a},{{\"resourceType\":\"Pony\"}},{b}]"),
        &both,
        &["x.json line 2: 'Pony' is not a resource type of FHIR R4"],
    );
    check("x.json", "[]", &[], &["x.json: the array is empty"]);
    check(
        "x.json",
        "[1",
        &[],
        &["x.json: not JSON at line 1, column 2: the array of resources is not valid JSON"],
    );
    let pretty = |id: &str| format!("{{\n \"resourceType\":\"Basic\",\n \"id\":\"{id}\"\n}}\n");
    check("x.json", pretty("a") + &pretty("b"), &both, &[]);
    let broken = format!("{}{}{{\n\"x\"\n", pretty("a"), pretty("b"));
    check("x.json", broken, &both, &["x.json line 9: not JSON at line 10, column 4: expected ':'"]);
    let utf_16 =
        |text: &str, units: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(units).collect::<Vec<u8>>();
    for text in [format!("\u{feff}{a}\n{b}\n"), format!("[{a},{b}]")] {
        check("x.json", utf_16(&text, u16::to_le_bytes), &both, &[]);
        check("x.ndjson", utf_16(&format!("{a}\n{b}"), u16::to_be_bytes), &both, &[]);
    }
    let odd = [utf_16(&a, u16::to_le_bytes), vec![0]].concat();
    check("x.json", odd, &[], &["x.json: the text looks like UTF-16, but is not valid"]);
    let parameters = r#"{"resourceType":"Parameters","parameter":[]}"#;
    check(
        "x.ndjson",
        parameters,
        &[],
        &[
            "x.ndjson line 1: Parameters are the input and output of operations, and are not stored; leave them out",
        ],
    );
}

#[test]
fn gzip_may_have_several_members_and_zeros_after_them() {
    let (a, b) = (gz(format!("{}\n", basic("a")).as_bytes()), gz(basic("b").as_bytes()));
    let both = ["Basic/a", "Basic/b"];
    check("x.ndjson.gz", [&a[..], &b].concat(), &both, &[]);
    check("x.ndjson.gz", [&a[..], &[0; 700], &b, &[0; 9000]].concat(), &both, &[]);
    let other = "x.ndjson.gz: after the end of the compressed data, the file has other bytes than zeros";
    let many: String = (0..1_000).map(|_| basic("a") + "\n").collect();
    check("x.ndjson.gz", [&gz(many.as_bytes())[..], b"x"].concat(), &["Basic/a"], &[other]);
}

fn request(method: &str, url: &str, resource: Option<&str>) -> String {
    let resource = resource.map(|resource| format!("\"resource\":{resource},")).unwrap_or_default();
    format!("{{{resource}\"request\":{{\"method\":\"{method}\",\"url\":\"{url}\"}}}}")
}

#[test]
fn the_requests_of_a_bundle_are_applied() {
    let bundle = |kind: &str, entries: &[String]| {
        format!("{{\"resourceType\":\"Bundle\",\"type\":\"{kind}\",\"entry\":[{}]}}", entries.join(","))
    };
    let (a, b) = (basic("a"), basic("b"));
    let line = |text: &str| format!("{a}\n{text}\n");
    let unnamed = r#"{"resourceType":"Basic"}"#;
    let writes = [
        request("DELETE", "Basic/a", None),
        request("POST", "Basic", Some(&b)),
        request("PUT", "Basic/c", Some(unnamed)),
    ];
    for kind in ["transaction", "batch"] {
        check("x.ndjson", line(&bundle(kind, &writes)), &["Basic/b", "Basic/c"], &[]);
    }
    let odd = [writes[0].clone(), request("GET", "Basic/a", None)];
    let text = "x.ndjson line 2: Bundle.entry[1]: an import applies only DELETE, POST and PUT; send the Bundle to the server";
    check("x.ndjson", line(&bundle("transaction", &odd)), &["Basic/a"], &[text]);
    check("x.ndjson", line(&bundle("batch", &odd)), &[], &[text]);
    let other_id = [request("PUT", "Basic/c", Some(&b))];
    let message = "x.ndjson line 2: Bundle.entry[0]: 'id' is 'b', but the URL has 'c'";
    check("x.ndjson", line(&bundle("transaction", &other_id)), &["Basic/a"], &[message]);
    // Requests that depend on the store.
    let patient = r#"{"resourceType":"Patient","id":"p","identifier":[{"value":"1"}]}"#;
    let other = patient.replace("\"p\"", "\"q\"");
    let create = |resource: &str| {
        format!(
            "{{\"resource\":{resource},\"request\":{{\"method\":\"POST\",\"url\":\"Patient\",\"ifNoneExist\":\"identifier=1\"}}}}"
        )
    };
    for kind in ["transaction", "batch"] {
        let twice = format!("{}\n{}", bundle(kind, &[create(patient)]), bundle(kind, &[create(&other)]));
        check("x.ndjson", twice, &["Patient/p"], &[]);
        let delete = [create(patient), request("DELETE", "Basic?_id=a", None)];
        check("x.ndjson", line(&bundle(kind, &delete)), &["Patient/p"], &[]);
    }
    let version = r#"{"request":{"method":"DELETE","url":"Basic/a","ifMatch":"W/\"7\""}}"#.to_owned();
    let failed = line(&bundle("transaction", &[version]));
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("x.ndjson"), failed).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let resources = Resources::new(Store::memory());
    let paths = vec![dir.path().join("x.ndjson")];
    let (report, _) = runtime.block_on(import(&resources, paths.clone(), ImportOptions::default()));
    assert_eq!((report.bad_total, report.bad[0].line), (1, Some(2)), "{report:?}");
    // With `keep_bundles`, every Bundle is a resource.
    let options = ImportOptions { keep_bundles: true, ..ImportOptions::default() };
    let (report, _) = runtime.block_on(import(&resources, paths, options));
    assert_eq!((report.bad_total, report.resources["Bundle"].created), (0, 1));
}

#[test]
fn a_manifest_says_what_the_files_of_an_export_are() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let transaction = r#"{"resourceType":"Bundle","id":"t","type":"transaction","entry":[{"request":{"method":"DELETE","url":"Basic/b"}}]}"#;
    write("Basic.ndjson", &format!("{}\n{}\n", basic("a"), basic("b")));
    write("Bundle.ndjson", transaction);
    write("error.ndjson", r#"{"resourceType":"OperationOutcome","issue":[]}"#);
    write("deleted.ndjson", &transaction.replace("Basic/b", "Basic/a").replace("\"id\":\"t\",", ""));
    // The records of clients about their downloads.
    write("job.json", "{\"phase\":\"complete\"}");
    write("log.ndjson", "{\"eventId\":\"kickoff\"}\n");
    let files_of = |name: &str| serde_json::json!([{ "type": "x", "url": format!("https://there.example/1/{name}?signature=x") }]);
    let mut output = files_of("Basic.ndjson").as_array().unwrap().clone();
    output.extend(files_of("Bundle.ndjson").as_array().unwrap().clone());
    let manifest = serde_json::json!({
        "transactionTime": "2026-01-01T00:00:00Z", "request": "x", "requiresAccessToken": false,
        "output": output, "error": files_of("error.ndjson"), "deleted": files_of("deleted.ndjson"),
    });
    write("manifest.json", &manifest.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let resources = Resources::new(Store::memory());
    let (report, _) =
        runtime.block_on(import(&resources, vec![dir.path().to_owned()], ImportOptions::default()));
    assert_eq!(runtime.block_on(stored(&resources)), ["Basic/b", "Bundle/t"]);
    assert_eq!((report.bad_total, report.resources["Basic"].deleted, report.skipped_total), (0, 1, 3));
    // Files that were compressed later have the same roles, and a file that was not copied is reported.
    let compressed = dir.path().join("Bundle.ndjson.gz");
    fs::write(compressed, gz(transaction.as_bytes())).unwrap();
    fs::remove_file(dir.path().join("Bundle.ndjson")).unwrap();
    fs::remove_file(dir.path().join("deleted.ndjson")).unwrap();
    write(
        "manifest.json",
        &manifest.to_string().replace("https://there.example/1/", "").replace("?signature=x", ""),
    );
    let resources = Resources::new(Store::memory());
    let (report, _) =
        runtime.block_on(import(&resources, vec![dir.path().to_owned()], ImportOptions::default()));
    assert_eq!(runtime.block_on(stored(&resources)), ["Basic/a", "Basic/b", "Bundle/t"]);
    let reported: Vec<_> = report.bad.iter().map(|bad| told(bad, dir.path())).collect();
    let missing = "manifest.json: it lists deleted.ndjson, which is not in the folder; copy the whole export";
    assert_eq!(reported, [missing]);
}

#[tokio::test]
async fn conditional_references_are_resolved() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
    let observation = |id: &str, value: &str| {
        format!(
            "{{\"resourceType\":\"Observation\",\"id\":\"{id}\",\"performer\":[{{\"reference\":\"Practitioner?identifier=urn:n|{value}\"}},{{\"reference\":\"#x?\"}}]}}\n"
        )
    };
    write("Observation.ndjson", observation("a", "1") + &observation("b", "2") + &observation("c", "3"));
    let practitioner = |id: &str, value: &str| {
        format!(
            "{{\"resourceType\":\"Practitioner\",\"id\":\"{id}\",\"identifier\":[{{\"system\":\"urn:n\",\"value\":\"{value}\"}}]}}\n"
        )
    };
    write("Practitioner.ndjson", practitioner("p", "1") + &practitioner("q", "3") + &practitioner("r", "3"));
    // In a folder, practitioners are read first, so that observations are written once.
    let files = ["Observation.ndjson", "Practitioner.ndjson"].map(|name| dir.path().join(name));
    for (paths, version) in [(vec![dir.path().to_owned()], 1), (files.to_vec(), 2)] {
        resolve_thrice(paths, version).await;
    }
}

async fn resolve_thrice(paths: Vec<PathBuf>, version: u64) {
    let resources = Resources::new(Store::memory());
    for round in 0..3 {
        let (report, _) = import(&resources, paths.clone(), ImportOptions::default()).await;
        let unresolved = &report.unresolved;
        assert_eq!((report.bad_total, unresolved.total, unresolved.not_looked_at), (0, 2, 0), "{round}");
        assert_eq!(
            unresolved.named,
            [
                ("Practitioner?identifier=urn:n|2".to_owned(), "it has no match".to_owned()),
                ("Practitioner?identifier=urn:n|3".to_owned(), "it has several matches".to_owned()),
            ]
        );
        let resource = resources.read("Observation", "a").await.unwrap();
        assert_eq!(resource.version, version, "the resolved reference is not replaced again");
        let text = String::from_utf8(resource.bytes.to_vec()).unwrap();
        assert!(text.contains(r#"{"reference":"Practitioner/p"}"#), "{text}");
        let same = if round == 0 { 0 } else { 3 };
        assert_eq!(report.resources["Observation"].same, same, "{round}");
    }
}

#[tokio::test]
async fn a_stopped_import_reports_what_is_stored() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("Basic.ndjson");
    let lines: String = (0..20_000).map(|number| basic(&format!("{number:05}")) + "\n").collect();
    fs::write(&path, lines).unwrap();
    let resources = Resources::new(Store::memory());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut stop = Some(stop);
    let progress = |event| {
        if matches!(event, ImportProgress::Lines { lines: 3_000.., .. }) {
            drop(stop.take());
        }
    };
    let stopped = async { drop(stopped.await) };
    let options = ImportOptions::default();
    let report =
        resources.import(vec![path], options, crate::new_ids(), progress, crate::now, stopped).await.unwrap();
    let count = report.resources["Basic"].created;
    assert!(report.is_stopped && (3_000..20_000).contains(&count), "{report:?}");
    let mut matches = 0;
    let mut after = None;
    loop {
        let scan = ScanOptions::at(Seq::LATEST).after(after.as_deref());
        let page = resources.store().scan_kind("Basic", scan).await.unwrap();
        matches += page.versions.len() as u64;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(matches, count);
}

#[test]
fn lines_before_a_fault_are_imported() {
    let lines: String = (0..5_000).map(|number| basic(&format!("{number:04}")) + "\n").collect();
    let mut cut = gz(lines.as_bytes());
    cut.truncate(cut.len() / 2);
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("x.ndjson.gz"), cut).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let resources = Resources::new(Store::memory());
        let (report, _) = import(&resources, vec![dir.path().into()], ImportOptions::default()).await;
        assert!((1..5_000).contains(&report.total()), "{}", report.total());
        assert_eq!((report.bad_total, report.bad[0].line), (1, None));
    });
}

#[tokio::test]
async fn progress_is_reported_for_written_lines() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.ndjson");
    let lines: String = (0..25).map(|number| basic(&number.to_string()) + "\n").collect();
    fs::write(&path, lines).unwrap();
    let resources = Resources::new(Store::open(&dir.path().join("store")).unwrap());
    let options = ImportOptions { lines: 10, ..ImportOptions::default() };
    let mut versions = Vec::new();
    let progress = |progress| {
        if let ImportProgress::Lines { lines, .. } = progress {
            versions.push((lines, resources.store().heard_seq().0));
        }
    };
    resources
        .import(vec![path], options, crate::new_ids(), progress, crate::now, std::future::pending())
        .await
        .unwrap();
    let lines: Vec<_> = versions.iter().map(|(lines, _)| *lines).collect();
    assert_eq!(lines, [10, 20, 25]);
    assert!(versions.iter().all(|(lines, written)| written >= lines), "{versions:?}");
}

#[tokio::test]
async fn progress_is_reported_in_bytes_on_disk() {
    let dir = TempDir::new().unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    let long: String = (0..1_500_000).map(|_| random.alphanumeric()).collect();
    let long = basic("long").replace('}', &format!(r#","x":"{long}"}}"#));
    fs::write(dir.path().join("a.json"), &long).unwrap();
    fs::write(dir.path().join("b.ndjson.gz"), gz(long.as_bytes())).unwrap();
    fs::write(dir.path().join("c.bin"), vec![0; 3 << 20]).unwrap();
    let sizes = ["a.json", "b.ndjson.gz", "c.bin"].map(|name| size(&dir.path().join(name)));
    let resources = Resources::new(Store::memory());
    let (_, told) = import(&resources, vec![dir.path().into()], ImportOptions::default()).await;
    let mut bytes = Vec::new();
    for progress in &told {
        if let ImportProgress::Bytes { file, bytes: now, of } = progress {
            assert_eq!(*of, sizes.iter().sum::<u64>());
            bytes.push((file.rsplit('/').next().unwrap(), *now));
        }
    }
    assert!(bytes.is_sorted_by_key(|(_, bytes)| *bytes), "{bytes:?}");
    // Each file that is read has an event in its middle and one at its end.
    let names: Vec<_> = bytes.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["a.json", "a.json", "b.ndjson.gz", "b.ndjson.gz", "c.bin"]);
    let ends = [bytes[1].1, bytes[3].1, bytes[4].1];
    assert_eq!(ends, [sizes[0], sizes[0] + sizes[1], sizes.iter().sum()]);
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[tokio::test]
async fn a_repeated_import_writes_only_changed_resources() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.ndjson");
    let resources = Resources::new(Store::memory());
    let with_meta = |id: &str, version: u8| {
        format!(r#"{{"resourceType":"Basic","id":"{id}","meta":{{"versionId":"{version}","source":"s"}}}}"#)
    };
    let count = |created, replaced, same| ImportCount { created, replaced, same, ..ImportCount::default() };
    for (lines, expected) in [
        ([with_meta("a", 1), basic("b")], count(2, 0, 0)),
        ([with_meta("a", 1), basic("b")], count(0, 0, 2)),
        ([with_meta("a", 9), basic("c")], count(1, 0, 1)),
        ([with_meta("b", 1), basic("c")], count(0, 1, 1)),
    ] {
        fs::write(&path, lines.join("\n")).unwrap();
        let (report, _) = import(&resources, vec![path.clone()], ImportOptions::default()).await;
        assert_eq!(report.resources["Basic"], expected, "{lines:?}");
    }
    // Resources in the form that the store returns can be imported again.
    let page = resources.store().scan_kind("Basic", ScanOptions::at(Seq::LATEST)).await.unwrap();
    let bodies: Vec<_> = page.versions.iter().map(|version| version.body.clone().unwrap()).collect();
    fs::write(&path, bodies.join(&b'\n')).unwrap();
    let (report, _) = import(&resources, vec![path], ImportOptions::default()).await;
    assert_eq!(report.resources["Basic"], count(0, 0, 3));
}

#[tokio::test]
async fn a_folder_is_read_in_order_and_other_files_are_skipped() {
    let dir = TempDir::new().unwrap();
    let within = |name: &str| dir.path().join(name);
    fs::create_dir(within("b")).unwrap();
    fs::write(within("b/1.json"), basic("a")).unwrap();
    fs::write(within("c.json"), basic("a").replace('}', r#","x":2}"#)).unwrap();
    fs::write(within("a.ndjson"), basic("z")).unwrap();
    fs::write(within("README.md"), "# About").unwrap();
    fs::write(within("settings.json"), "{}").unwrap();
    fs::write(within(".hidden.json"), basic("hidden")).unwrap();
    let resources = Resources::new(Store::memory());
    let missing = within("missing");
    let (report, told) =
        import(&resources, vec![dir.path().into(), missing.clone()], ImportOptions::default()).await;
    assert_eq!(stored(&resources).await, ["Basic/a", "Basic/z"]);
    assert_eq!(
        report.resources["Basic"],
        ImportCount { created: 2, replaced: 1, ..ImportCount::default() },
        "c.json is imported last"
    );
    assert_eq!((report.files, report.skipped_total, report.bad_total), (5, 2, 1));
    assert_eq!(PathBuf::from(&report.bad[0].file), missing);
    let files = told.iter().filter(|progress| matches!(progress, ImportProgress::Done { .. }));
    assert_eq!(files.count(), 5);
}

#[tokio::test]
async fn sizes_are_bounded() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("x.ndjson");
    let long = basic("long").replace('}', &format!(r#","x":"{}"}}"#, "x".repeat(200)));
    fs::write(&path, [basic("a"), long, basic("b")].join("\n")).unwrap();
    let resources = Resources::new(Store::memory());
    let rules = ResourceRules { bytes: 100, ..ResourceRules::default() };
    let (report, _) =
        import(&resources, vec![path], ImportOptions { rules, ..ImportOptions::default() }).await;
    assert_eq!(stored(&resources).await, ["Basic/a", "Basic/b"]);
    assert_eq!(
        (report.bad[0].line, &*report.bad[0].reason),
        (Some(2), "the resource has more than 100 bytes")
    );
}

#[tokio::test]
async fn numbers_that_most_readers_round_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.ndjson");
    let line =
        |id: &str, value: &str| format!("{{\"resourceType\":\"Basic\",\"id\":\"{id}\",\"x\":{value}}}\n");
    let lines = [line("a", "1.50"), line("b", "0.12345678901234567890"), line("c", "1e999")];
    std::fs::write(&path, lines.concat()).unwrap();
    let resources = Resources::new(Store::memory());
    let (report, _) = import(&resources, vec![path], ImportOptions::default()).await;
    assert_eq!((report.total(), report.bad_total, report.imprecise_total), (3, 0, 2));
    assert_eq!(report.first_imprecise.as_deref(), Some("Basic/b"));
}

#[tokio::test]
async fn resources_with_defects_are_counted_by_file() {
    let dir = tempfile::tempdir().unwrap();
    let [lines, bundle, regular] = ["a.ndjson", "b.json", "c.ndjson"].map(|name| dir.path().join(name));
    let patient = |id: &str, rest: &str| format!("{{\"resourceType\":\"Patient\",\"id\":\"{id}\"{rest}}}\n");
    let texts = [
        patient("a", ""),
        patient("b", ",\"nickname\":\"B\""),
        patient("c", ",\"birthDate\":\"1980-02-30\""),
        patient("d", ",\"name\":[]"),
    ];
    std::fs::write(&lines, texts.concat()).unwrap();
    // A conditional entry depends on the store, so that its Bundle is not read as a list of writes.
    let entries = [("e", "\"ifNoneExist\":\"identifier=x\","), ("f", "")].map(|(id, condition)| {
        let resource = patient(id, ",\"gender\":null");
        format!(
            "{{\"request\":{{{condition}\"method\":\"POST\",\"url\":\"Patient\"}},\"resource\":{resource}}}"
        )
    });
    let text =
        format!("{{\"resourceType\":\"Bundle\",\"type\":\"transaction\",\"entry\":[{}]}}", entries.join(","));
    std::fs::write(&bundle, text).unwrap();
    std::fs::write(&regular, patient("g", "")).unwrap();
    let resources = Resources::new(Store::memory());
    let paths = vec![lines.clone(), bundle.clone(), regular];
    let (report, _) = import(&resources, paths.clone(), ImportOptions::default()).await;
    assert_eq!((report.total(), report.bad_total, report.irregular_total), (6, 1, 4));
    let expected = [
        (&lines, 2, "line 2, Patient/b: Patient: FHIR R4 has no element 'nickname' here"),
        (&bundle, 2, "Patient/e: Patient.gender: the value is null; leave the element out"),
    ];
    let irregular =
        report.irregular.iter().map(|(file, irregular)| (&**file, irregular.total, &*irregular.first));
    let expected = expected.map(|(path, total, first)| (path.to_str().unwrap(), total, first));
    assert_eq!(irregular.collect::<Vec<_>>(), expected);
    // Nothing is counted twice, and nothing is counted if nothing is validated.
    let rules = ResourceRules { validation: Validation::Off, ..ResourceRules::default() };
    let options = ImportOptions { rules, ..ImportOptions::default() };
    let (report, _) = import(&Resources::new(Store::memory()), paths, options).await;
    assert_eq!((report.total(), report.bad_total, report.irregular_total), (7, 0, 0));
}
