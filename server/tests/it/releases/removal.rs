//! Releases that are listed, shown and removed.

use super::*;

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
    let release: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(release["concepts"], 24);
    assert_eq!(release["language_reference_sets"], json!(["900000000000508004", "900000000000509007"]));
    assert_eq!(release["languages"], json!(["de", "en"]));
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
    let terminology = TerminologyClient::of(&server);
    terminology.knows_the_garden().await;
    // The release is found as a CodeSystem without concepts, and answers under its id.
    let (_, found) = terminology.get("CodeSystem", &[("url", SCT)]).await;
    let described = &found["entry"][0]["resource"];
    assert_eq!((found["total"].as_u64(), &described["content"]), (Some(1), &json!("not-present")), "{found}");
    assert_eq!((&described["id"], &described["count"]), (&json!(id), &json!(24)));
    assert!(described["description"].as_str().unwrap().contains("900000000000508004"));
    let (status, answer) =
        terminology.get(&format!("CodeSystem/{id}/$subsumes"), &[("codeA", FLOWER), ("codeB", LILY)]).await;
    assert_eq!((status, parameter(&answer, "outcome")), (200, Some(&json!("subsumes"))), "{answer}");
    let versioned = [("system", SCT), ("version", &*edition), ("codeA", FLOWER), ("codeB", LILY)];
    assert_eq!(terminology.get("CodeSystem/$subsumes", &versioned).await.0, 200);
    let (code, text) = run(&server, &["remove", id]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("stored value sets name the version of this release (1): ValueSet/pinned;"),
        "{text}"
    );
    terminology.knows_the_garden().await;
    assert_eq!(run(&server, &["remove", id, "--force"]).0, Some(0));
    let query = [("system", SCT), ("codeA", FLOWER), ("codeB", LILY)];
    assert_eq!(terminology.get("CodeSystem/$subsumes", &query).await.0, 404);
    assert_eq!(terminology.get("CodeSystem", &[("url", SCT)]).await.1["total"], 0);
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
    let token_request = server.client().post(format!("{}/oauth2/token", server.base())).form(&pairs).send();
    let response: Value = token_request.await.unwrap().json().await.unwrap();
    response["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_removed_over_http() {
    let mut server = Server::open_terminology();
    imported(&import(&server, &releases().join("plants.csv")));
    server.start();
    let (token, client) = (administration_token(&server).await, server.client());
    let url = |path: &str| format!("{}/admin/releases{path}", server.base());
    let get = async |path: &str| {
        let response = client.get(url(path)).bearer_auth(&token).send().await.unwrap();
        response.json::<Value>().await.unwrap()
    };
    let remove = async |path: &str| {
        let response = client.delete(url(path)).bearer_auth(&token).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let page = get("").await;
    let release = &page["releases"][0];
    let (id, system) = (release["id"].as_str().unwrap(), release["url"].as_str().unwrap());
    let version = release["version"].as_str().unwrap();
    assert!(release["concepts"].as_u64().unwrap() > 3, "{page}");
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
