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
    let done = server.trefoil(&["export", "--type", "Basic", "--out", out.to_str().unwrap()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
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
    let done = server.trefoil(&["import", at("folder").to_str().unwrap()]);
    let (out, error) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{out}{error}");
    assert!(out.contains("folder/README.txt: neither JSON nor a package"), "{out}");
    assert!(
        error.contains(
            "references to resources that were not found: 1\n  Patient?identifier=1: it has no match"
        ),
        "{error}"
    );
    std::fs::write(at("get.ndjson"), format!("{basic}\n{{\"resourceType\":\"Bundle\",\"type\":\"batch\",\"entry\":[{{\"request\":{{\"method\":\"GET\",\"url\":\"Basic/a\"}}}}]}}")).unwrap();
    let done = server.trefoil(&["import", at("get.ndjson").to_str().unwrap()]);
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{error}");
    assert!(
        error.contains("get.ndjson:2: Bundle.entry[0]: an import applies only DELETE, POST and PUT"),
        "{error}"
    );
    let kept = server.trefoil(&["import", "--keep-bundles", at("get.ndjson").to_str().unwrap()]);
    assert!(kept.status.success() && String::from_utf8_lossy(&kept.stdout).contains("Bundle"), "{kept:?}");
}
