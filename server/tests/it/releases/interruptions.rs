//! Imports that fail or are interrupted, and indexes that are damaged.

use super::*;

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
    TerminologyClient::of(&server).knows_the_garden().await;
    check(&import(&server, &broken));
    TerminologyClient::of(&server).knows_the_garden().await;

    // After the line is repaired, the release replaces the first one.
    lines.remove(4);
    fs::write(&file, lines.join("\r\n") + "\r\n").unwrap();
    imported(&import(&server, &broken));
    assert_eq!(TerminologyClient::of(&server).subsumes(SCT, FLOWER, LILY).await, "not-subsumed");
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_survive_restarts_and_a_damaged_index_affects_only_its_release() {
    let mut server = Server::open_terminology();
    server.start();
    imported(&import(&server, &releases()));
    // A crash right after the acknowledgement must not lose the release.
    server.kill();
    server.start();
    TerminologyClient::of(&server).knows_the_garden().await;
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
    let terminology = TerminologyClient::of(&server);
    terminology.knows_the_garden().await;
    let loinc = [("system", "http://loinc.org"), ("code", "90001-1")];
    // The resource that describes the release is stored, so that the code system is known and lacks its
    // concepts.
    let (status, answer) = terminology.get("CodeSystem/$lookup", &loinc).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("not-present"), "{answer}");
    imported(&import(&server, &releases().join("Loinc_0.1")));
    assert_eq!(terminology.get("CodeSystem/$lookup", &loinc).await.0, 200);
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
    let terminology = TerminologyClient::of(&server);
    terminology.knows_the_garden().await;
    let query = [("system", "http://garden.example/many"), ("code", "h399999")];
    assert_eq!(terminology.get("CodeSystem/$lookup", &query).await.0, 200);

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
    let (_, answer) = terminology.get("CodeSystem/$lookup", &query).await;
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
