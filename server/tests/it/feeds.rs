//! Imports from a syndication feed: from a file and from a server with a password.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;

use sha2::{Digest as _, Sha256};
use wiremock::matchers::{header, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::Server;

const INTERNATIONAL: &str = "http://snomed.info/sct/900000000000207008/version/20250101";
const EXTENSION: &str = "http://snomed.info/sct/70011000888101/version/20250401";

/// The files below a folder of `fixtures/releases`, as an archive.
fn archive(name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/releases").join(name);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut waiting = vec![root.clone()];
    while let Some(folder) = waiting.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let inside = Path::new(name).join(path.strip_prefix(&root).unwrap());
            zip.start_file(inside.to_str().unwrap(), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(&fs::read(&path).unwrap()).unwrap();
        }
    }
    zip.finish().unwrap().into_inner()
}

struct Offered {
    category: &'static str,
    item: &'static str,
    version: &'static str,
    file: &'static str,
    content: Vec<u8>,
    needs: &'static str,
}

/// The content of the feed: the International release, an extension of it, and two versions of a value set.
fn offered() -> Vec<Offered> {
    let release = |version: &'static str, file, folder, needs| Offered {
        category: "SCT_RF2_SNAPSHOT",
        item: version.rsplit_once("/version/").unwrap().0,
        version,
        file,
        content: archive(folder),
        needs,
    };
    let set = |version, file| {
        Offered {
        category: "FHIR_ValueSet",
        item: "https://garden.example/ValueSet/beds",
        version,
        file,
        content: format!(
            r#"{{"resourceType":"ValueSet","id":"beds","url":"https://garden.example/ValueSet/beds","version":"{version}","status":"active"}}"#
        )
        .into_bytes(),
        needs: "",
    }
    };
    vec![
        release(EXTENSION, "extension.zip", "SnomedCT_GardenExtensionRF2_20250401T120000Z", INTERNATIONAL),
        release(INTERNATIONAL, "international.zip", "SnomedCT_GardenInternationalRF2_20250101T120000Z", ""),
        set("1.9.0", "beds-1.9.0.json"),
        set("1.10.0", "beds-1.10.0.json"),
    ]
}

fn feed(offered: &[Offered]) -> String {
    let entry = |one: &Offered| {
        let (hash, length) = (format!("{:x}", Sha256::digest(&one.content)), one.content.len());
        let Offered { category, item, version, file, needs, .. } = one;
        format!(
            r#"<entry><title>{file}</title><category term="{category}"/>
            <link rel="alternate" href="{file}" length="{length}" ncts:sha256Hash="{hash}"/>
            <ncts:contentItemIdentifier>{item}</ncts:contentItemIdentifier>
            <ncts:contentItemVersion>{version}</ncts:contentItemVersion>
            <sct:packageDependency><sct:editionDependency>{needs}</sct:editionDependency></sct:packageDependency></entry>"#
        )
    };
    format!(
        r#"<feed xmlns="http://www.w3.org/2005/Atom" xmlns:ncts="urn:ncts" xmlns:sct="urn:sct">{}</feed>"#,
        offered.iter().map(entry).collect::<String>()
    )
}

/// Writes the feed and its files into a folder. Returns the path of the feed.
fn written(folder: &Path) -> PathBuf {
    let offered = offered();
    for one in &offered {
        fs::write(folder.join(one.file), &one.content).unwrap();
    }
    let file = folder.join("feed.xml");
    fs::write(&file, feed(&offered)).unwrap();
    file
}

fn import(server: &Server, args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = server.trefoil(&[&["import"], args].concat());
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[track_caller]
fn check(import_output: &(Option<i32>, String), code: i32, parts: &[&str]) {
    assert_eq!(import_output.0, Some(code), "{}", import_output.1);
    for part in parts {
        assert!(import_output.1.contains(part), "{part}: {}", import_output.1);
    }
}

#[test]
fn a_feed_is_listed_and_only_what_is_new_is_imported() {
    let (server, folder) = (Server::open_terminology(), tempfile::tempdir().unwrap());
    let file = written(folder.path());
    let feed = file.to_str().unwrap();
    let list = import(&server, &["--feed", feed]);
    check(
        &list,
        0,
        &[
            &format!("new     SCT_RF2_SNAPSHOT  {EXTENSION}  extension.zip"),
            "new     FHIR_ValueSet     https://garden.example/ValueSet/beds|1.10.0  beds-1.10.0.json",
            "--take URI",
        ],
    );
    assert!(!list.1.contains("1.9.0"), "{}", list.1);
    // The extension needs the International release, which is taken with it.
    let item = EXTENSION.rsplit_once("/version/").unwrap().0;
    let import_output = import(&server, &["--feed", feed, "--take", item]);
    check(
        &import_output,
        0,
        &["taking: extension.zip", "taking: international.zip", EXTENSION, INTERNATIONAL],
    );
    let again = import(&server, &["--feed", feed, "--take", item]);
    check(&again, 0, &["already there: extension.zip"]);
    assert!(!again.1.contains("taking"), "{}", again.1);
    // An older version of the value set is stored by its name, and `--updates` brings the newer one only.
    let older = "https://garden.example/ValueSet/beds|1.9.0";
    check(&import(&server, &["--feed", feed, "--take", older]), 0, &["ValueSet", "1 new"]);
    check(&import(&server, &["--feed", feed]), 0, &["update  FHIR_ValueSet", "stored  SCT_RF2_SNAPSHOT"]);
    let set = "https://garden.example/ValueSet/beds";
    let updated = import(&server, &["--feed", feed, "--updates", "--take", set]);
    check(&updated, 0, &["taking: beds-1.10.0.json", "1 changed", "from 1 file"]);
    assert!(!updated.1.contains(".zip"), "{}", updated.1);
    let current = import(&server, &["--feed", feed, "--updates"]);
    check(&current, 0, &[]);
    assert!(!current.1.contains("taking"), "{}", current.1);
    assert!(!server.data().join("feed-downloads").exists(), "downloads are removed");
}

#[test]
fn what_differs_from_the_feed_is_not_imported() {
    let (server, folder) = (Server::open_terminology(), tempfile::tempdir().unwrap());
    let file = written(folder.path());
    let feed = file.to_str().unwrap();
    let set = "https://garden.example/ValueSet/beds";
    let beds = folder.path().join("beds-1.10.0.json");
    let right = fs::read(&beds).unwrap();
    fs::write(&beds, [&right[..], b" "].concat()).unwrap();
    check(
        &import(&server, &["--feed", feed, "--take", set]),
        1,
        &["bytes instead of", "nothing was imported"],
    );
    fs::write(&beds, right.iter().map(|byte| if *byte == b'1' { b'2' } else { *byte }).collect::<Vec<_>>())
        .unwrap();
    check(&import(&server, &["--feed", feed, "--take", set]), 1, &["SHA-256", "nothing was imported"]);
    fs::remove_file(&beds).unwrap();
    check(&import(&server, &["--feed", feed, "--take", set]), 1, &["failed to read", "beds-1.10.0.json"]);
    check(&import(&server, &["--feed", feed, "--take", "urn:weeds"]), 1, &["no item 'urn:weeds'"]);
    // The feed lacks the package on which the extension is based.
    let only: Vec<_> = offered().into_iter().filter(|one| one.version != INTERNATIONAL).collect();
    fs::write(&file, self::feed(&only)).unwrap();
    check(&import(&server, &["--feed", feed, "--take", EXTENSION]), 1, &["depends on", INTERNATIONAL]);
    let plain = import(&server, &["--feed", "http://feed.example/feed.xml"]);
    check(&plain, 1, &["is not an https URL of another machine"]);
    // A password is for a server, and a feed in a file could name any.
    let secret = folder.path().join("password");
    fs::write(&secret, "roses").unwrap();
    let with_password = import(&server, &["--feed", feed, "--feed-password-file", secret.to_str().unwrap()]);
    check(&with_password, 1, &["--feed-password-file needs a feed with an https URL"]);
    // A feed from elsewhere does not lead to this machine.
    let own = self::feed(&only).replace("href=\"beds", "href=\"http://127.0.0.1:9/beds");
    fs::write(&file, own).unwrap();
    check(
        &import(&server, &["--feed", feed, "--take", set]),
        1,
        &["http://127.0.0.1:9/beds", "is not an https URL of another machine"],
    );
    assert!(!server.data().join("feed-downloads").exists(), "downloads are removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_of_a_server_is_read_with_a_password() {
    let publisher = MockServer::start().await;
    let basic = || header("authorization", "Basic Z2FyZGVuZXI6cm9zZXM=");
    let offered = offered();
    let files = offered.iter().map(|one| (format!("/{}", one.file), one.content.clone()));
    for (at, content) in files.chain([("/feed.xml".to_owned(), feed(&offered).into_bytes())]) {
        let import_output = ResponseTemplate::new(200).set_body_bytes(content);
        Mock::given(path(at)).and(basic()).respond_with(import_output).mount(&publisher).await;
    }
    Mock::given(wiremock::matchers::any()).respond_with(ResponseTemplate::new(401)).mount(&publisher).await;
    let mut server = Server::open_terminology();
    server.start();
    let feed = format!("{}/feed.xml", publisher.uri());
    let secret = server.data().join("feed-password");
    fs::write(&secret, "roses\n").unwrap();
    let refusal = import(&server, &["--feed", &feed]);
    check(&refusal, 1, &["with status 401", "--feed-user"]);
    let options =
        ["--feed", &feed, "--feed-user", "gardener", "--feed-password-file", secret.to_str().unwrap()];
    check(&import(&server, &options), 0, &["new     SCT_RF2_SNAPSHOT"]);
    let import_output = import(&server, &[&options[..], &["--take", INTERNATIONAL]].concat());
    check(&import_output, 0, &["taking: international.zip", INTERNATIONAL]);
    assert!(!import_output.1.contains("roses"), "{}", import_output.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_imports_the_releases_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let zip = folder.path().join("international.zip");
    fs::write(&zip, archive("SnomedCT_GardenInternationalRF2_20250101T120000Z")).unwrap();
    let publisher = Server::plain_demo();
    check(&import(&publisher, &[zip.to_str().unwrap()]), 0, &[INTERNATIONAL]);
    let token = publisher.backend_token("system/CodeSystem.rs").await;
    let secret = folder.path().join("token");
    fs::write(&secret, &token).unwrap();
    let feed = format!("{}/syndication.xml", publisher.fhir());
    let options = ["--feed", &feed, "--feed-password-file", secret.to_str().unwrap()];

    let reader = Server::open_terminology();
    check(&import(&reader, &["--feed", &feed]), 1, &["with status 401"]);
    check(&import(&reader, &options), 0, &[&format!("new     TREFOIL_INDEX     {INTERNATIONAL}")]);
    let item = INTERNATIONAL.rsplit_once("/version/").unwrap().0;
    let import_output = import(&reader, &[&options[..], &["--take", item]].concat());
    check(&import_output, 0, &["taking: ", "index ", INTERNATIONAL]);
    check(&import(&reader, &options), 0, &["stored  TREFOIL_INDEX"]);
    // Both servers have the same file.
    let index = "terminology/releases/snomed.info-sct-900000000000207008-version-20250101.index";
    let published = fs::read(publisher.data().join(index)).unwrap();
    assert_eq!(fs::read(reader.data().join(index)).unwrap(), published);

    // A range, and the file of a release that is removed while it is downloaded.
    let url = format!("{}/syndication/snomed.info-sct-900000000000207008-version-20250101", publisher.fhir());
    let get = || publisher.client().get(&url).bearer_auth(&token);
    let part = get().header("range", "bytes=1-6").send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), published[1..7]);
    let download = get().send().await.unwrap();
    let removed = publisher.trefoil(&["release", "remove", "--force", url.rsplit_once('/').unwrap().1]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert_eq!(download.bytes().await.unwrap(), published);
    assert_eq!(get().send().await.unwrap().status(), 404);
    let text = publisher.client().get(&feed).bearer_auth(&token).send().await.unwrap().text().await.unwrap();
    assert!(!text.contains("<entry>"), "{text}");

    // An index that was damaged on its way is not imported.
    let damaged = folder.path().join("damaged.index");
    let mut bytes = published;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let refusal = import(&reader, &[damaged.to_str().unwrap()]);
    check(&refusal, 1, &["damaged.index", "nothing of this release was changed"]);
}
