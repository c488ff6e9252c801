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
    let output = program(&["report", &run, "--report", &page, "--report", &badge], &[]);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
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
    let run_with = |args: &[&str], variables: &[(&str, &str)]| {
        let output = program(&[&["report", &path], args].concat(), variables);
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = run_with(&[], &[]);
    assert!(plain.ends_with("\n0 passed, 1 failed, interrupted\n") && !plain.contains('\u{1b}'), "{plain}");
    let coloured = run_with(&["--color", "always"], &[("NO_COLOR", "1")]);
    assert!(coloured.contains("\u{1b}[31m1 failed\u{1b}[0m"), "{coloured}");
    assert_eq!(run_with(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]), plain);
    assert_eq!(run_with(&["--color", "auto"], &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]), plain);
}

/// A run that has tested nothing is no success, and a profile that cannot be read is wrong usage.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_test_is_no_success() {
    let server = wiremock::MockServer::start().await;
    let empty = wiremock::ResponseTemplate::new(200).set_body_json(json!({}));
    wiremock::Mock::given(wiremock::matchers::any()).respond_with(empty).mount(&server).await;
    let run = async |more: &'static [&'static str]| {
        let url = server.uri();
        let run =
            move || program(&[&["run", &url, "--only", "rfc6749", "--only", "bulkdata"], more].concat(), &[]);
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let nothing = run(&[]).await;
    let text = String::from_utf8_lossy(&nothing.stderr).into_owned();
    assert_eq!(nothing.status.code(), Some(3), "{text}");
    assert!(text.contains("error: nothing was tested: all cases were skipped, because\n"), "{text}");
    // The address of `laws` can be that of the profile, and `--ca` names a file that must exist.
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("server.toml");
    std::fs::write(&profile, format!("base_url = \"{}\"\n", server.uri())).unwrap();
    let laws = program(
        &["laws", "--profile", profile.to_str().unwrap(), "--only", "subsumes", "--budget", "1"],
        &[],
    );
    assert_ne!(laws.status.code(), Some(2), "{laws:?}");
    let no_ca = run(&["--ca", "no-such-file.pem"]).await;
    assert_eq!(no_ca.status.code(), Some(2), "{no_ca:?}");
    let misspelt = run(&["--profile", "no-such-profile.toml"]).await;
    assert_eq!(misspelt.status.code(), Some(2), "{misspelt:?}");
}

/// `demo.json` needs no further option: the address and the CA are in the file beside it.
#[test]
fn the_profile_of_a_demo_server_has_its_address_and_its_ca() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(place("demo.json"), r#"{"public":{"client_id":"web"}}"#).unwrap();
    std::fs::write(place("ca.pem"), "a certificate").unwrap();
    let endpoint = json!({ "base_url": "https://localhost:1", "ca": place("ca.pem"), "pid": 7 });
    std::fs::write(place("endpoint.json"), endpoint.to_string()).unwrap();
    let profile = trefoil_conformance::profile::Profile::read(place("demo.json").to_str().unwrap()).unwrap();
    assert_eq!(profile.text("base_url"), Some("https://localhost:1"));
    assert_eq!(profile.ca_pem.as_deref(), Some(&b"a certificate"[..]));
    assert!(profile.members.get("pid").is_none());
}
