//! The command `report`, and the colours of the terminal.

use std::process::{Command, Output};

use serde_json::json;

/// Runs the program with `variables` in its environment.
fn program(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-conformance"));
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command.args(args).envs(variables.iter().copied()).output().unwrap()
}

/// Returns the JSON report of a run with one failure, as it is before the last line is written.
fn interrupted_report() -> String {
    let lines = [
        json!({
            "event": "start", "suite": "0.0.1", "target": "https://a.example", "started": "2026-02-03T04:05:06Z",
            "seed": null, "cases": 2, "sections": { "x/y": 2 },
            "requirements": [{
                "id": "x/y/z", "level": "MUST", "actor": "server", "standard": "https://b.example/#z", "gist": "It answers.",
            }],
        }),
        json!({
            "event": "case", "id": "x/y/z/one", "covers": ["x/y/z"], "level": "MUST", "verdict": "fail",
            "exchanges": [{ "request": "curl -i 'https://a.example'", "answer": "500 Internal Server Error" }],
            "differences": ["status: 500 instead of 200"], "took_ms": 3,
        }),
    ];
    lines.map(|line| format!("{line}\n")).concat()
}

#[test]
fn reports_are_written_from_a_json_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("run.jsonl"), interrupted_report()).unwrap();
    let run = path("run.jsonl");

    let (page, badge) = (format!("html={}", path("run.html")), format!("badge={}", path("run.svg")));
    let written = program(&["report", &run, "--report", &page, "--report", &badge], &[]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    let page = std::fs::read_to_string(path("run.html")).unwrap();
    assert!(page.contains("The run was interrupted after 1 of 2 cases.") && page.contains("x/y/z/one"));
    assert!(std::fs::read_to_string(path("run.svg")).unwrap().contains("1 failed"));

    // A folder that does not exist is noticed before a run, too.
    let nowhere = format!("html={}", path("none/run.html"));
    for args in [["report", &run, "--report", &nowhere], ["run", "http://localhost:1", "--report", &nowhere]]
    {
        let missing = program(&args, &[]);
        assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    }
    let other = program(&["report", &path("run.svg")], &[]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stderr).contains("line 1 is not part of a report"));
}

#[test]
fn colours_are_for_terminals_or_on_request() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), interrupted_report()).unwrap();
    let path = file.path().display().to_string();
    let shown = |args: &[&str], variables: &[(&str, &str)]| {
        let output = program(&[&["report", &path], args].concat(), variables);
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = shown(&[], &[]);
    assert!(plain.ends_with("\n0 passed, 1 failed, interrupted\n") && !plain.contains('\u{1b}'), "{plain}");
    let coloured = shown(&["--color", "always"], &[("NO_COLOR", "1")]);
    assert!(coloured.contains("\u{1b}[31m1 failed\u{1b}[0m"), "{coloured}");
    assert_eq!(shown(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]), plain);
    assert_eq!(shown(&["--color", "auto"], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), plain);
}
