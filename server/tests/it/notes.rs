//! Journeys of clinical notes: raw content in and out, who may read it, and exports whose attachments lead to
//! it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use crate::support::{Server, manifest_at};

const NOTE: &str = "text/plain; charset=utf-8";

/// A client with all scopes, and its token.
pub struct Writer {
    client: reqwest::Client,
    fhir: String,
    token: String,
}

impl Writer {
    /// Registers the client `id` with these scopes.
    pub async fn register(server: &Server, id: &str, scope: &str, flags: &[&str]) -> Self {
        let add = ["client", "add", id, "--auth-method", "client_secret_basic", "--scope", scope];
        let added = server.trefoil(&[&add[..], flags].concat());
        let error = String::from_utf8_lossy(&added.stderr).into_owned();
        assert!(added.status.success(), "{error}");
        let added = String::from_utf8(added.stdout).unwrap();
        let secret = added.split("client_secret ").nth(1).unwrap().split_whitespace().next().unwrap();
        let client = server.client();
        let request = client.post(format!("{}/oauth2/token", server.base())).basic_auth(id, Some(secret));
        let response = request.form(&[("grant_type", "client_credentials")]).send().await.unwrap();
        let response: Value = response.json().await.unwrap();
        let token = response["access_token"].as_str().unwrap().to_owned();
        Self { client, fhir: server.fhir(), token }
    }

    /// The access token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A request below the base URL, or to an absolute URL.
    pub fn request(&self, method: reqwest::Method, path: &str) -> RequestBuilder {
        let url = if path.contains("://") { path.to_owned() } else { format!("{}/{path}", self.fhir) };
        self.client.request(method, url).bearer_auth(&self.token)
    }

    pub async fn get(&self, path: &str, accept: &str) -> Response {
        self.request(reqwest::Method::GET, path).header("accept", accept).send().await.unwrap()
    }

    pub async fn put(&self, resource: &Value) -> Response {
        let path =
            format!("{}/{}", resource["resourceType"].as_str().unwrap(), resource["id"].as_str().unwrap());
        let put = self.request(reqwest::Method::PUT, &path).header("content-type", "application/fhir+json");
        put.body(resource.to_string()).send().await.unwrap()
    }

    async fn put_raw(&self, id: &str, media_type: &str, content: Vec<u8>) -> Response {
        let put = self.request(reqwest::Method::PUT, &format!("Binary/{id}"));
        put.header("content-type", media_type).body(content).send().await.unwrap()
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn raw_content_is_written_and_read() {
    let server = Server::demo();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    let content: Vec<u8> = (0..3_000_001_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();

    let created = writer.put_raw("scan", "image/png", content.clone()).await;
    assert_eq!((created.status().as_u16(), header(&created, "etag")), (201, "W/\"1\""));
    assert!(header(&created, "location").ends_with("/Binary/scan/_history/1"));
    assert_eq!(created.bytes().await.unwrap(), "");

    for accept in
        ["*/*", "image/*", "image/png", "text/html,image/*;q=0.8", "application/fhir+json;q=0.1, */*"]
    {
        let read = writer.get("Binary/scan", accept).await;
        assert_eq!((read.status().as_u16(), header(&read, "content-type")), (200, "image/png"), "{accept}");
        assert_eq!(header(&read, "content-length"), "3000001");
        assert_eq!(header(&read, "content-security-policy").split(';').next(), Some("sandbox"));
        assert_eq!(header(&read, "content-disposition"), "");
        assert!(read.bytes().await.unwrap() == content, "{accept}");
    }
    for accept in ["application/fhir+json", "application/json", "application/fhir+json, */*"] {
        let read = writer.get("Binary/scan", accept).await;
        assert_eq!(header(&read, "content-type"), "application/fhir+json;charset=utf-8", "{accept}");
        let resource: Value = read.json().await.unwrap();
        assert_eq!(resource["contentType"], "image/png");
        assert!(STANDARD.decode(resource["data"].as_str().unwrap()).unwrap() == content);
    }
    assert_eq!(writer.get("Binary/scan", "text/plain").await.status(), 406);
    assert_eq!(
        writer.get("Binary/scan?_format=json", "*/*").await.json::<Value>().await.unwrap()["id"],
        "scan"
    );

    // A download that broke continues, unless the content has changed.
    let rest = |etag: &str| {
        let get = writer.request(reqwest::Method::GET, "Binary/scan").header("range", "bytes=2999990-");
        get.header("if-range", etag)
    };
    let part = rest("\"1\"").send().await.unwrap();
    assert_eq!(
        (part.status().as_u16(), header(&part, "content-range")),
        (206, "bytes 2999990-3000000/3000001")
    );
    assert_eq!(part.bytes().await.unwrap(), content[2_999_990..]);
    let conditional = writer.request(reqwest::Method::GET, "Binary/scan").header("if-none-match", "\"1\"");
    assert_eq!(conditional.send().await.unwrap().status(), 304);
    let head = writer.request(reqwest::Method::HEAD, "Binary/scan").send().await.unwrap();
    assert_eq!((head.status().as_u16(), header(&head, "content-length")), (200, "3000001"));
    assert_eq!(writer.put_raw("scan", "image/png", b"new".to_vec()).await.status(), 200);
    let whole = rest("\"1\"").send().await.unwrap();
    assert_eq!((whole.status().as_u16(), whole.bytes().await.unwrap()), (200, "new".into()));
    let earlier = writer.get("Binary/scan/_history/1", "*/*").await;
    assert_eq!(header(&earlier, "content-length"), "3000001");
    let beyond = writer.request(reqwest::Method::GET, "Binary/scan").header("range", "bytes=3-");
    let beyond = beyond.send().await.unwrap();
    assert_eq!((beyond.status().as_u16(), header(&beyond, "content-range")), (416, "bytes */3"));

    for (media_type, status) in [
        ("multipart/form-data; boundary=x", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/fhir+xml", 415),
        ("note", 415),
        ("application/octet-stream", 201),
    ] {
        let response = writer.put_raw(&format!("b{}", media_type.len()), media_type, b"x".to_vec()).await;
        assert_eq!(response.status(), status, "{media_type}");
    }
    let too_large = writer.put_raw("large", "image/png", vec![0; 13 << 20]).await;
    assert_eq!(too_large.status(), 413);
    let broken = json!({ "resourceType": "Binary", "id": "broken", "contentType": "a/b", "data": "%" });
    assert_eq!(writer.put(&broken).await.status(), 201);
    let response = writer.get("Binary/broken", "*/*").await;
    assert_eq!(response.status(), 406);
    assert!(response.text().await.unwrap().contains("not valid base64"));
    assert_eq!(writer.get("Binary/broken", "application/fhir+json").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_security_context_decides_who_reads_a_note() {
    let server = Server::demo();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    let group = server.demo_json()["groups"][0].as_str().unwrap().to_owned();
    let members: Value = writer.get(&format!("Group/{group}"), "*/*").await.json().await.unwrap();
    let member = members["member"][0]["entity"]["reference"].as_str().unwrap();
    let outsider = json!({ "resourceType": "Patient", "id": "outsider" });
    assert_eq!(writer.put(&outsider).await.status(), 201);
    for (id, subject) in [("in", member), ("out", "Patient/outsider")] {
        let document = json!({
            "resourceType": "DocumentReference", "id": id, "status": "current",
            "subject": { "reference": subject }, "content": [{ "attachment": { "url": format!("Binary/{id}") } }],
        });
        assert_eq!(writer.put(&document).await.status(), 201);
        for (name, context) in
            [(id.to_owned(), format!("DocumentReference/{id}")), (format!("{id}-p"), subject.to_owned())]
        {
            let put = writer.request(reqwest::Method::PUT, &format!("Binary/{name}"));
            let put = put.header("content-type", NOTE).header("x-security-context", &context);
            assert_eq!(put.body("a note").send().await.unwrap().status(), 201);
        }
    }
    let foreign = writer.request(reqwest::Method::POST, "Binary").header("content-type", NOTE);
    let foreign = foreign.header("x-security-context", "https://elsewhere.example/Patient/1").body("x");
    assert_eq!(foreign.send().await.unwrap().status(), 400);

    let in_group = ["--group", &group[..]];
    let cases: [(&str, &str, &[&str], [u16; 4]); 4] = [
        ("everything", "system/*.rs", &[], [200; 4]),
        ("limited", "system/*.rs", &in_group, [200, 200, 404, 404]),
        ("documents", "system/Binary.rs system/DocumentReference.rs", &[], [200, 404, 200, 404]),
        ("binaries", "system/Binary.rs", &[], [404; 4]),
    ];
    for (id, scope, flags, expected) in cases {
        let reader = Writer::register(&server, id, scope, flags).await;
        let mut ids = Vec::new();
        for note in ["in", "in-p", "out", "out-p"] {
            let status = reader.get(&format!("Binary/{note}"), "text/plain").await.status();
            for other in [format!("Binary/{note}/_history/1"), format!("Binary/{note}/_history")] {
                let accept = if other.ends_with('1') { "text/plain" } else { "*/*" };
                assert_eq!(reader.get(&other, accept).await.status(), status, "{id} {other}");
            }
            let search: Value = reader.get(&format!("Binary?_id={note}"), "*/*").await.json().await.unwrap();
            assert_eq!(search["entry"].is_array(), status == 200, "{id} {note}: {search}");
            ids.push(status.as_u16());
        }
        assert_eq!(ids, expected, "{id}");
        let all: Value = reader.get("Binary", "*/*").await.json().await.unwrap();
        let count = all["entry"].as_array().map_or(0, Vec::len);
        assert_eq!(count, expected.iter().filter(|status| **status == 200).count(), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_attachments_lead_to_their_content() {
    let mut server = Server::in_fresh_folder().with_settings("[bulk]\nguide = \"3.0.0\"\n");
    server.start();
    let writer = Writer::register(&server, "writer", "system/*.cruds", &[]).await;
    assert_eq!(writer.put_raw("note", NOTE, b"Hello, note".to_vec()).await.status(), 201);
    let document = json!({
        "resourceType": "DocumentReference", "id": "doc", "status": "current",
        "subject": { "reference": "Patient/pat-01" },
        "content": [{ "attachment": { "contentType": NOTE, "url": "Binary/note" } }],
    });
    assert_eq!(writer.put(&document).await.status(), 201);
    for query in
        ["_type=DocumentReference,Patient", "_type=DocumentReference,Patient&allowPartialManifests=true"]
    {
        let kick_off = writer.request(reqwest::Method::GET, &format!("Patient/$export?{query}"));
        let kick_off = kick_off.header("prefer", "respond-async").header("accept", "application/fhir+json");
        let kick_off = kick_off.send().await.unwrap();
        let (code, status) = (kick_off.status(), header(&kick_off, "content-location").to_owned());
        assert_eq!(code, 202, "{query}: {}", kick_off.text().await.unwrap());
        let manifest = manifest_at(&writer.client, &writer.token, &status).await;
        let mut urls = Vec::new();
        for file in manifest["output"].as_array().unwrap() {
            let lines = writer.get(file["url"].as_str().unwrap(), "*/*").await.text().await.unwrap();
            for line in lines.lines().filter(|line| line.contains("attachment")) {
                let line: Value = serde_json::from_str(line).unwrap();
                urls.push(line["content"][0]["attachment"]["url"].as_str().unwrap().to_owned());
            }
        }
        assert_eq!(urls, [format!("{}/Binary/note", server.fhir())], "{query}");
        assert_eq!(writer.get(&urls[0], "text/plain").await.text().await.unwrap(), "Hello, note");
    }
    // The operator's export keeps what is stored.
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().join("out");
    let exported =
        server.trefoil(&["export", "--out", folder.to_str().unwrap(), "--type", "DocumentReference"]);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let text = std::fs::read_to_string(folder.join("DocumentReference.ndjson")).unwrap();
    assert!(text.contains("\"url\":\"Binary/note\""), "{text}");
}

/// The path of the next page of a Bundle, relative to the base of the FHIR interface.
pub fn next_page(bundle: &Value) -> Option<String> {
    let next = bundle["link"].as_array()?.iter().find(|link| link["relation"] == "next")?;
    Some(next["url"].as_str()?.split_once("/fhir/R4/")?.1.to_owned())
}
