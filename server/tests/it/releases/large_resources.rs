//! Large CodeSystem resources, whose indexes are saved.

use super::*;

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
    let terminology = TerminologyClient::of(&server);
    let query = [("system", "urn:during"), ("codeA", "hen"), ("codeB", "nest")];
    assert_eq!(terminology.get("CodeSystem/$subsumes", &query).await.0, 422);
    // The log is written asynchronously.
    let has_warning =
        || server.log().lines().any(|line| line.contains("has a cycle") && line.contains("during"));
    for _ in 0..10_000 {
        if has_warning() {
            break;
        }
        terminology.get("metadata", &[("mode", "terminology")]).await;
    }
    assert!(has_warning(), "{}", server.log());
}

/// Returns the saved index of a resource once it exists: it is written asynchronously.
async fn saved(terminology: &TerminologyClient, server: &Server, id: &str) -> PathBuf {
    let folder = server.data().join("terminology/resources");
    for _ in 0..10_000 {
        // A request gives the server time to write the index.
        terminology.get("metadata", &[("mode", "terminology")]).await;
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let of_id = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("{id}@")) && name.ends_with(".index")
        };
        if let Some(file) = files.into_iter().find(of_id) {
            return file;
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
    let terminology_client = TerminologyClient::of(&server);
    let form = [("grant_type", "client_credentials"), ("scope", "system/CodeSystem.cruds")];
    let request = terminology_client.client.post(format!("{}/oauth2/token", server.base())).form(&form);
    let token: Value = request.basic_auth("writer", Some(secret)).send().await.unwrap().json().await.unwrap();
    let token = token["access_token"].as_str().unwrap_or_else(|| panic!("{token}"));

    let put =
        terminology_client.client.put(format!("{}/CodeSystem/written", server.fhir())).bearer_auth(token);
    let put = put.header("content-type", "application/fhir+json").body(json(&written, "written"));
    assert_eq!(put.send().await.unwrap().status(), 201);
    check_links(&terminology_client, &written).await;
    let file = server.data().join("brought.json");
    fs::write(&file, json(&brought, "brought")).unwrap();
    imported(&import(&server, &file));
    check_links(&terminology_client, &brought).await;

    let of_written = saved(&terminology_client, &server, "written").await;
    let of_brought = saved(&terminology_client, &server, "brought").await;
    assert_eq!(server.stop(), Some(0));
    // The restart loads saved indexes: if its index is replaced by that of the other resource, a resource
    // answers like the other one.
    fs::remove_file(&of_brought).unwrap();
    fs::copy(&of_written, &of_brought).unwrap();
    server.start();
    let tx = TerminologyClient::of(&server);
    check_links(&tx, &written).await;
    let code = Polyhierarchy::code(4_100);
    let query = [("system", polyhierarchy::URL), ("code", &code)];
    let (status, answer) = tx.get("CodeSystem/$lookup", &query).await;
    assert_eq!(status, 404, "{answer}");
    assert_eq!(server.stop(), Some(0));
    // A missing or damaged index is built again.
    fs::write(&of_brought, "damaged").unwrap();
    fs::remove_file(&of_written).unwrap();
    server.start();
    let terminology = TerminologyClient::of(&server);
    check_links(&terminology, &brought).await;
    check_links(&terminology, &written).await;
    saved(&terminology, &server, "written").await;
}

/// Checks the parents of some concepts in a version of the system.
async fn check_links(terminology: &TerminologyClient, system: &Polyhierarchy) {
    let version = system.len().to_string();
    for concept in (1..system.len()).step_by(500) {
        let (below, above) = (Polyhierarchy::code(concept), Polyhierarchy::code(system.parents(concept)[0]));
        let query =
            [("system", polyhierarchy::URL), ("version", &version), ("codeA", &above), ("codeB", &below)];
        let (status, answer) = terminology.get("CodeSystem/$subsumes", &query).await;
        assert_eq!((status, parameter(&answer, "outcome")), (200, Some(&json!("subsumes"))), "{answer}");
    }
}
