//! A journey with SMART's Bulk Data client (<https://github.com/smart-on-fhir/bulk-data-client>). It is not
//! published as a package, so the test needs a checkout with its dependencies installed (`npm install`),
//! which the variable `TREFOIL_BULK_DATA_CLIENT` names. The client registers a key, exports a Group and
//! downloads it. The files are compared with what the server's search returns, and the client's log with the
//! manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::support::{Server, have};

type Resources = BTreeMap<String, BTreeMap<String, Value>>;

/// Returns the folder of the client. If there is none, prints that the test is left out.
fn checkout() -> Option<PathBuf> {
    let folder = std::env::var_os("TREFOIL_BULK_DATA_CLIENT").map(PathBuf::from);
    if folder.is_none() {
        println!("left out: bulk-data-client: TREFOIL_BULK_DATA_CLIENT does not name a checkout");
    }
    folder.filter(|_| have("node", "bulk-data-client"))
}

/// Generates a key pair. Returns the public and the private JWK.
fn generate_jwks() -> (Value, Value) {
    let key = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
    let point = key.public_key().as_ref();
    let [x, y] = [&point[1..49], &point[49..]].map(|part| URL_SAFE_NO_PAD.encode(part));
    let public = json!({ "kty": "EC", "crv": "P-384", "alg": "ES384", "kid": "journey", "x": x, "y": y });
    let mut private = public.clone();
    let secret: aws_lc_rs::encoding::EcPrivateKeyBin<'_> =
        aws_lc_rs::encoding::AsBigEndian::as_be_bytes(&key.private_key()).unwrap();
    private["d"] = URL_SAFE_NO_PAD.encode(secret.as_ref()).into();
    (public, private)
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rounds numbers as the client does, which parses the resources: `6.0` becomes `6`.
fn round_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => *value = number.as_f64().into(),
        Value::Array(items) => items.iter_mut().for_each(round_numbers),
        Value::Object(members) => members.values_mut().for_each(round_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn insert(resources: &mut Resources, mut resource: Value) {
    round_numbers(&mut resource);
    let [kind, id] = ["resourceType", "id"].map(|name| resource[name].as_str().unwrap().to_owned());
    let previous = resources.entry(kind).or_default().insert(id, resource);
    assert_eq!(previous, None, "a resource was exported twice");
}

/// Returns what a Group export contains: the members, the resources of each type that can be searched by
/// `patient`, and the Provenance of these.
async fn members_and_their_resources(server: &Server, group: &str) -> Resources {
    let client = server.client();
    let token = server.backend_token("system/*.rs").await;
    let get = async |path: &str| -> Value {
        let response =
            client.get(format!("{}/{path}", server.fhir())).bearer_auth(&token).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    };
    let search = async |query: &str| -> Vec<Value> {
        let mut bundle = get(&format!("{query}&_count=1000")).await;
        let entries = bundle["entry"].as_array_mut().map(std::mem::take).unwrap_or_default();
        assert_eq!(bundle["total"], entries.len(), "all matches of {query} are on one page");
        entries.into_iter().map(|mut entry| entry["resource"].take()).collect()
    };
    let members = get(&format!("Group/{group}")).await;
    let members = members["member"].as_array().unwrap().iter();
    let ids = members.map(|member| member["entity"]["reference"].as_str().unwrap().replace("Patient/", ""));
    let ids = ids.collect::<Vec<_>>().join(",");

    let mut expected = Resources::new();
    for resource in search(&format!("Patient?_id={ids}")).await {
        insert(&mut expected, resource);
    }
    let metadata = get("metadata").await;
    for described in metadata["rest"][0]["resource"].as_array().unwrap() {
        let by_patient =
            described["searchParam"].as_array().into_iter().flatten().any(|p| p["name"] == "patient");
        let kind = described["type"].as_str().unwrap();
        if by_patient && kind != "Provenance" {
            for resource in search(&format!("{kind}?patient={ids}")).await {
                insert(&mut expected, resource);
            }
        }
    }
    let references =
        expected.iter().flat_map(|(kind, found)| found.keys().map(move |id| format!("{kind}/{id}")));
    let references: BTreeSet<String> = references.collect();
    for provenance in search("Provenance?").await {
        let mut targets = provenance["target"].as_array().unwrap().iter();
        if targets.any(|target| references.contains(target["reference"].as_str().unwrap())) {
            insert(&mut expected, provenance);
        }
    }
    expected
}

/// Compares the client's log with the manifest and the downloaded files.
fn check_log(log: &[Value], manifest: &Value, exported: &Resources) {
    let details = |event: &str| -> Vec<&Value> {
        log.iter().filter(|line| line["eventId"] == event).map(|line| &line["eventDetail"]).collect()
    };
    let output = manifest["output"].as_array().unwrap();
    assert_eq!(details("status_error").len() + details("download_error").len(), 0, "{log:?}");
    assert_eq!(details("kickoff")[0]["softwareName"], "Trefoil");
    assert_eq!(details("status_complete")[0]["transactionTime"], manifest["transactionTime"]);
    let downloads: BTreeMap<_, _> = details("download_complete")
        .iter()
        .map(|file| (file["fileUrl"].as_str().unwrap(), file["resourceCount"].as_u64().unwrap()))
        .collect();
    let files: BTreeMap<_, _> =
        output.iter().map(|file| (file["url"].as_str().unwrap(), file["count"].as_u64().unwrap())).collect();
    assert_eq!(downloads, files);
    let complete = details("export_complete")[0];
    assert_eq!(complete["files"], output.len());
    assert_eq!(complete["resources"], exported.values().map(BTreeMap::len).sum::<usize>());
}

#[tokio::test(flavor = "multi_thread")]
async fn smart_bulk_data_client_exports_a_group() {
    let Some(checkout) = checkout() else { return };
    let server = Server::demo();
    let folder = tempfile::tempdir().unwrap();
    let [jwks, config, log, output] =
        ["jwks.json", "config.json", "log.ndjson", "output"].map(|name| folder.path().join(name));
    std::fs::create_dir(&output).unwrap();
    let (public, private) = generate_jwks();
    std::fs::write(&jwks, json!({ "keys": [public] }).to_string()).unwrap();
    let add = ["client", "add", "bulk", "--auth-method", "private_key_jwt", "--scope", "system/*.read"];
    let added = server.trefoil(&[&add[..], &["--jwks", jwks.to_str().unwrap()]].concat());
    assert!(added.status.success(), "{added:?}");
    let group = server.demo_json()["groups"][0].as_str().unwrap().to_owned();
    let settings = json!({
        "fhirUrl": server.fhir(),
        "tokenUrl": format!("{}/oauth2/token", server.base()),
        "clientId": "bulk",
        "privateKey": private,
        "group": group,
        "destination": output,
        "saveManifest": true,
        "log": { "enabled": true, "file": log },
    });
    std::fs::write(&config, settings.to_string()).unwrap();

    let run = Command::new("node")
        .arg(checkout)
        .args(["--reporter", "text", "--config"])
        .arg(&config)
        .env("NODE_EXTRA_CA_CERTS", server.ca())
        .env("SHOW_ERRORS", "y")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}{}",
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr)
    );

    let mut exported = Resources::new();
    for file in std::fs::read_dir(&output).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "ndjson") {
            lines(&file).into_iter().for_each(|resource| insert(&mut exported, resource));
        }
    }
    let expected = members_and_their_resources(&server, &group).await;
    let counts = |resources: &Resources| -> Vec<(String, usize)> {
        resources.iter().map(|(kind, found)| (kind.clone(), found.len())).collect()
    };
    assert_eq!(counts(&exported), counts(&expected));
    assert_eq!(exported, expected);
    let manifest = std::fs::read(output.join("manifest.json")).unwrap();
    check_log(&lines(&log), &serde_json::from_slice(&manifest).unwrap(), &exported);
}
