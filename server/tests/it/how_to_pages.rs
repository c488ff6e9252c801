//! The other pages with commands, each as one session.

use std::path::Path;

use test_database::TestDatabase;
use test_object_store::{ACCESS_KEY_ID, BUCKET, REGION, SECRET_ACCESS_KEY, TestObjectStore};

use crate::page_session::{Page, PageSession, has_commands};
use crate::support::{TREFOIL, have};

/// The page whose commands only the trials of the package run.
const INSTALLATION: &str = "server/docs/installation.md";

#[test]
fn every_page_with_commands_is_followed() {
    let followed = [include_str!("how_to_pages.rs"), include_str!("tutorials.rs")].concat();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders =
        [".", "client-tui", "conformance", "conformance/docs", "server/docs", "server/docs/interface"];
    let mut pages = 0;
    for folder in folders {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = Path::new(folder).join(&name).display().to_string();
            let path = path.trim_start_matches("./");
            if name.ends_with(".md") && has_commands(path) && path != INSTALLATION {
                assert!(followed.contains(&format!("\"{path}\"")), "no test runs the commands of {path}");
                pages += 1;
            }
        }
    }
    assert!(pages > 15, "{pages} pages");
}

fn follow(page: &Page) {
    let programs = ["bash", "curl", "jq"];
    if programs.iter().all(|program| have(program, page.path)) {
        PageSession::begin(page).end();
    }
}

/// Returns whether a program of the workspace was built. Otherwise prints that the page is left out.
fn is_built(program: &str, page: &str) -> bool {
    let is_built = Path::new(TREFOIL).with_file_name(program).exists();
    if !is_built {
        println!("left out: {page}: {program} was not built");
    }
    is_built
}

/// Starts a server, which the programs of the page trust.
const SERVE: &str = "trefoil serve
    export CURL_CA_BUNDLE=$PWD/trefoil-data/tls/ca.pem SSL_CERT_FILE=$PWD/trefoil-data/tls/ca.pem";
/// The same with the demo project.
const SERVE_DEMO: &str = "trefoil serve --demo
    export CURL_CA_BUNDLE=$PWD/trefoil-data/tls/ca.pem SSL_CERT_FILE=$PWD/trefoil-data/tls/ca.pem";

/// The host of the pages, and the address that stands for it.
fn our_host() -> (&'static str, String) {
    ("https://id.example", "https://localhost:8443".to_owned())
}

#[test]
fn the_page_of_the_project() {
    if !is_built("trefoil-tui", "README.md") {
        return;
    }
    follow(&Page {
        path: "README.md",
        before: &[(2, "stop\ntrefoil serve --demo --data target/demo")],
        instead: vec![("target/quick/trefoil-tui", "trefoil-tui".to_owned())],
        ..Page::default()
    });
}

#[test]
fn administration() {
    follow(&Page {
        path: "server/docs/administration.md",
        before: &[(1, SERVE)],
        instead: vec![our_host()],
        ..Page::default()
    });
}

#[test]
fn bulk_export() {
    follow(&Page {
        path: "server/docs/bulk-export.md",
        before: &[
            (0, SERVE_DEMO),
            (0, "FHIR=https://localhost:8443/fhir/R4; GROUP=grp-walking"),
            (0, "TOKEN=$(trefoil-tui token --demo trefoil-data)"),
        ],
        instead: vec![("ward-3", "grp-walking".to_owned())],
        ..Page::default()
    });
}

#[test]
fn backup() {
    let path = "server/docs/backup.md";
    let Some(database) = TestDatabase::shared() else { return };
    let bucket = TestObjectStore::start().unwrap();
    let variables = format!(
        "export AWS_ENDPOINT_URL={} AWS_REGION={REGION} AWS_ACCESS_KEY_ID={ACCESS_KEY_ID} \
         AWS_SECRET_ACCESS_KEY={SECRET_ACCESS_KEY} AWS_ALLOW_HTTP=true FIRST={} SECOND={}",
        bucket.endpoint(),
        database.create().unwrap(),
        database.create().unwrap()
    );
    follow(&Page {
        path,
        before: &[
            (0, "%ENVIRONMENT%\necho 'a long password' | trefoil user add ada --name 'Ada Example'"),
            (2, "DATABASE=$FIRST AT=$(date -u +%FT%T.%3NZ)\ntrefoil backup --to ./backups"),
            (3, "DATABASE=$SECOND"),
            (5, "stop"),
        ],
        instead: vec![
            ("%ENVIRONMENT%", variables),
            ("/var/backups/trefoil", "./backups".to_owned()),
            ("s3://bucket/", format!("s3://{BUCKET}/")),
            ("postgres://trefoil@db.example/trefoil", "$DATABASE".to_owned()),
            ("2026-11-27T08:30:00Z", "$AT".to_owned()),
        ],
        ..Page::default()
    });
}

#[test]
fn erasure() {
    follow(&Page {
        path: "server/docs/erasure.md",
        before: &[(
            0,
            r#"echo '{"resourceType":"Patient","id":"p1"}' > p1.ndjson
               trefoil import p1.ndjson"#,
        )],
        ..Page::default()
    });
}

#[test]
fn identity() {
    follow(&Page {
        path: "server/docs/identity.md",
        before: &[
            (0, SERVE_DEMO),
            (
                0,
                "trefoil client add chart --redirect-uri https://app.example/cb --scope 'launch patient/*.rs'
                 trefoil client add portal --auth-method client_secret_basic --scope trefoil/launch --json > portal
                 SECRET=$(jq -r '.client_secret // empty' portal)
                 curl -sf -u portal:$SECRET -d grant_type=client_credentials https://id.example/oauth2/token > t
                 TOKEN=$(jq -r .access_token t)",
            ),
        ],
        instead: vec![our_host()],
        ..Page::default()
    });
}

#[test]
fn languages() {
    follow(&Page { path: "server/docs/languages.md", before: &[(0, SERVE)], ..Page::default() });
}

#[test]
fn operations() {
    let path = "server/docs/operations.md";
    let Some(database) = TestDatabase::shared() else { return };
    if !have("psql", path) {
        return;
    }
    follow(&Page {
        path,
        before: &[(0, "export PGHOST=127.0.0.1 PGPORT=%PORT% PGUSER=trefoil")],
        instead: vec![
            ("%PORT%", database.port().to_string()),
            // The user of the test server has this name.
            ("ROLE trefoil", "ROLE nodes".to_owned()),
            ("OWNER trefoil", "OWNER nodes".to_owned()),
            (
                "trefoil@db.example/trefoil",
                format!("nodes@127.0.0.1:{}/trefoil?sslmode=disable", database.port()),
            ),
        ],
        ..Page::default()
    });
}

#[test]
fn questions() {
    if !is_built("trefoil-tui", "server/docs/questions.md") {
        return;
    }
    follow(&Page {
        path: "server/docs/questions.md",
        before: &[
            (0, SERVE_DEMO),
            (
                0,
                "trefoil client keygen --out .
                 trefoil client add me --auth-method private_key_jwt --grant-type client_credentials \
                 --scope 'system/*.rs' --jwks jwks.json",
            ),
        ],
        instead: vec![("https://other.example", "https://localhost:8443".to_owned())],
        ..Page::default()
    });
}

#[test]
fn resources() {
    follow(&Page {
        path: "server/docs/resources.md",
        before: &[(
            0,
            r#"echo '{"resourceType":"Patient","id":"p1"}' > p1.ndjson
               trefoil import --data ./a p1.ndjson"#,
        )],
        ..Page::default()
    });
}

#[test]
fn terminology() {
    let releases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/releases");
    let release = |name: &str| releases.join(name).display().to_string();
    follow(&Page {
        path: "server/docs/terminology.md",
        instead: vec![
            (
                "SnomedCT_InternationalRF2_PRODUCTION_20250101T120000Z.zip",
                release("SnomedCT_GardenInternationalRF2_20250101T120000Z"),
            ),
            ("Loinc_2.80/", release("Loinc_0.1")),
            ("herbs.csv", release("plants.csv")),
        ],
        ..Page::default()
    });
}

#[test]
fn the_terminal_client() {
    let path = "client-tui/README.md";
    if !is_built("trefoil-tui", path) || !have("script", path) {
        return;
    }
    follow(&Page {
        path,
        before: &[
            (0, SERVE_DEMO),
            (
                0,
                r#"screens() { echo q | script -qec "$*" /dev/null > screen-$#; }
                   trefoil client add my-app --redirect-uri http://localhost/callback --scope openid"#,
            ),
        ],
        instead: vec![
            our_host(),
            ("trefoil-tui         ", "screens trefoil-tui".to_owned()),
            ("trefoil-tui --demo ./data", "screens trefoil-tui --demo ./trefoil-data".to_owned()),
        ],
        ..Page::default()
    });
}

#[test]
fn the_suite() {
    let path = "conformance/README.md";
    if !is_built("trefoil-conformance", path) {
        return;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/tests/tx");
    follow(&Page {
        path,
        before: &[
            (0, SERVE_DEMO),
            (
                3,
                "stop
                 printf '[terminology]\\nanonymous = true\\n' > trefoil.toml
                 trefoil serve --config trefoil.toml",
            ),
        ],
        instead: vec![
            our_host(),
            ("--profile id.toml     #", "--profile id.toml rfc8414 #".to_owned()),
            ("fhir-tx-ecosystem-ig/tests", tests.display().to_string()),
            ("http://127.0.0.1:8080/fhir/R4", "https://localhost:8443/fhir/R4".to_owned()),
        ],
        ..Page::default()
    });
}

#[test]
fn reports_of_the_suite() {
    let path = "conformance/docs/reports.md";
    if !is_built("trefoil-conformance", path) {
        return;
    }
    follow(&Page {
        path,
        before: &[(0, SERVE_DEMO), (0, "trefoil-conformance init https://id.example > id.toml")],
        instead: vec![our_host(), ("--profile id.toml", "--profile id.toml rfc8414".to_owned())],
        ..Page::default()
    });
}
