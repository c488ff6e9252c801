//! Journeys of `trefoil import`, on the folder of a stopped server and through a running one.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Server, TREFOIL};

/// Number of resources, more than an import reads before its first line of progress.
const MANY: usize = 200_000;

fn lines(path: &Path) {
    let mut text = String::new();
    for number in 0..MANY {
        writeln!(text, r#"{{"resourceType":"Basic","id":"{number:06}","language":"en"}}"#).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// Presses Ctrl-C after the first progress of an import. Returns the exit code, and the number of resources
/// that the import says it has stored.
fn interrupted(data: &Path, file: &Path) -> (Option<i32>, usize) {
    let mut child = Command::new(TREFOIL)
        .args(["import", "--data"])
        .args([data, file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut progress = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    progress.read_line(&mut line).unwrap();
    assert!(line.contains("lines"), "{line}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    progress.read_to_string(&mut rest).unwrap();
    let mut table = String::new();
    child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    let code = child.wait().unwrap().code();
    assert!(rest.contains("stopped: all resources in the table are stored; import again"), "{rest}");
    let total = table.lines().find(|line| line.starts_with("total")).unwrap();
    (code, total.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// The number of stored resources, according to an export.
fn exported(server: &Server, out: &Path) -> usize {
    let output = server.trefoil(&["export", "--type", "Basic", "--out", out.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(out.join("Basic.ndjson")).unwrap().lines().count()
}

#[test]
fn an_interrupted_import_says_what_is_stored_and_continues() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("Basic.ndjson");
    lines(&file);
    for is_running in [false, true] {
        let mut server = Server::in_fresh_folder();
        if is_running {
            server.start();
        }
        let (code, stored) = interrupted(server.data(), &file);
        assert_eq!(code, Some(130));
        assert!((1_000..MANY).contains(&stored), "{stored}");
        let out = files.path().join(is_running.to_string());
        assert_eq!(exported(&server, &out), stored);
        let again = server.trefoil(&["import", file.to_str().unwrap()]);
        let table = String::from_utf8_lossy(&again.stdout).into_owned();
        let expected = format!("{} new, {stored} unchanged", MANY - stored);
        assert!(again.status.success() && table.contains(&expected), "{table}");
    }
}

#[test]
fn inputs_that_are_not_imported_are_named() {
    let server = Server::in_fresh_folder();
    let files = tempfile::tempdir().unwrap();
    let at = |name: &str| files.path().join(name);
    std::fs::create_dir(at("folder")).unwrap();
    std::fs::write(at("folder/README.txt"), "hello").unwrap();
    let basic = r#"{"resourceType":"Basic","id":"a","subject":{"reference":"Patient?identifier=1"}}"#;
    std::fs::write(at("folder/basic.json"), format!("[{basic}]")).unwrap();
    let output = server.trefoil(&["import", at("folder").to_str().unwrap()]);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{error}");
    assert!(out.contains("folder/README.txt: neither JSON nor a package"), "{out}");
    assert!(
        error.contains(
            "references to resources that were not found: 1\n  Patient?identifier=1: it has no match"
        ),
        "{error}"
    );
    std::fs::write(at("get.ndjson"), format!("{basic}\n{{\"resourceType\":\"Bundle\",\"type\":\"batch\",\"entry\":[{{\"request\":{{\"method\":\"GET\",\"url\":\"Basic/a\"}}}}]}}")).unwrap();
    let output = server.trefoil(&["import", at("get.ndjson").to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(
        error.contains("get.ndjson:2: Bundle.entry[0]: an import applies only DELETE, POST and PUT"),
        "{error}"
    );
    let output = server.trefoil(&["import", "--keep-bundles", at("get.ndjson").to_str().unwrap()]);
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("Bundle"),
        "{output:?}"
    );
}

/// Writes a file with a Patient of this time and text, as a bulk export of another system has it.
fn exported_patient(folder: &Path, time: &str, text: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let patient = serde_json::json!({
        "resourceType": "Patient", "id": "p", "meta": { "lastUpdated": time }, "name": [{ "text": text }],
    });
    std::fs::write(folder.join("Patient.ndjson"), format!("{patient}\n")).unwrap();
}

/// Adds the deletion of the Patient to an export.
fn exported_deletion(folder: &Path, time: &str) {
    let deleted = serde_json::json!({
        "resourceType": "Bundle", "type": "transaction",
        "entry": [{ "request": { "method": "DELETE", "url": "Patient/p" } }],
    });
    let manifest = serde_json::json!({
        "transactionTime": time, "output": [], "deleted": [{ "type": "Bundle", "url": "deleted.ndjson" }],
    });
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("deleted.ndjson"), format!("{deleted}\n")).unwrap();
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
}

/// Monday's export is imported on Friday, after Tuesday's: Tuesday's resource stays, and also the deletion of
/// Wednesday, and also in a copy and in a restored backup.
#[test]
fn an_older_export_does_not_replace_a_newer_one() {
    let files = tempfile::tempdir().unwrap();
    let at = |name: &str| files.path().join(name);
    exported_patient(&at("monday"), "2026-11-23T08:00:00Z", "Monday");
    exported_patient(&at("tuesday"), "2026-11-24T08:00:00.000+01:00", "Tuesday");
    exported_deletion(&at("wednesday"), "2026-11-25T08:00:00Z");
    let mut server = Server::in_fresh_folder();
    let text = |server: &Server| {
        let out = tempfile::tempdir().unwrap();
        let folder = out.path().join("all");
        assert!(server.trefoil(&["export", "--out", folder.to_str().unwrap()]).status.success());
        let patients = std::fs::read_to_string(folder.join("Patient.ndjson")).unwrap_or_default();
        patients.lines().find(|line| line.contains(r#""id":"p""#)).map(str::to_owned)
    };
    let import = |server: &Server, arguments: &[&str], expected: &str| {
        let output = server.trefoil(&[&["import"], arguments].concat());
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = table.lines().find(|line| line.starts_with("Patient ")).unwrap().to_owned();
        assert!(output.status.success() && line.ends_with(expected), "{table}");
        table
    };
    let (monday, tuesday, wednesday) = (at("monday"), at("tuesday"), at("wednesday"));
    let folders = [&monday, &tuesday, &wednesday].map(|folder| folder.to_str().unwrap().to_owned());
    let [monday, tuesday, wednesday] = folders.each_ref().map(String::as_str);
    import(&server, &[monday], "1 new");
    import(&server, &[tuesday], "1 changed");
    let table = import(&server, &[monday], "1 older than the stored version");
    let message =
        "kept: 1, because a newer version was imported before (by meta.lastUpdated); --overwrite replaces it";
    assert!(table.contains(message), "{table}");
    assert!(text(&server).unwrap().contains("Tuesday"));

    // A backup that is restored, and a copy, know the time too.
    let backups = files.path().join("backups").to_str().unwrap().to_owned();
    assert!(server.trefoil(&["backup", "--to", &backups]).status.success());
    let mut restored = Server::in_fresh_folder();
    assert!(restored.trefoil(&["restore", "--from", &backups]).status.success());
    let mut copy = Server::in_fresh_folder();
    let to = format!("file:{}", copy.data().to_str().unwrap());
    let copied = server.trefoil(&["copy", "--keep-source", "--to", &to]);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    [&mut server, &mut restored, &mut copy].into_iter().for_each(Server::start);
    for server in [&server, &restored, &copy] {
        import(server, &[monday], "1 older than the stored version");
        import(server, &[tuesday], "1 unchanged");
        import(server, &[wednesday], "1 deleted");
        import(server, &[tuesday, monday], "2 older than the stored version");
        assert!(text(server).is_none());
        import(server, &["--overwrite", monday], "1 new");
        assert!(text(server).unwrap().contains("Monday"));
    }
}
