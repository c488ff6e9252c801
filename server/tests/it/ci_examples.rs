//! The workflows for GitHub and GitLab in `server/examples/ci` and `conformance/examples`: their form is
//! compared with the schemas of both, and their commands are run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::clients::clients;
use crate::reader_shell::{RunningShell, reader_shell};
use crate::support::{Server, TREFOIL, have, installed, python_packages};

/// Workflows by maker, with the names of their schemas.
const WORKFLOWS: [(&str, &str); 2] =
    [("github.yml", "vendor.github-workflows"), ("gitlab.yml", "vendor.gitlab-ci")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn python(args: &[&str]) -> String {
    let output = Command::new("python3").args(args).env("PYTHONPATH", python_packages()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Compares the workflows of a folder with their schemas, and runs their commands in a folder.
fn check_workflows(examples: &str, folder: &Path, variables: &[(&str, &str)]) {
    for (file, schema) in WORKFLOWS {
        let path = root().join(examples).join(file);
        let path = path.to_str().unwrap();
        python(&["-m", "check_jsonschema", "--builtin-schema", schema, path]);
        let script = python(&[clients().join("ci_scripts.py").to_str().unwrap(), path]);
        let log = folder.join("log");
        let mut shell = reader_shell(&script, folder);
        shell.envs(variables.iter().copied()).stdout(File::create(&log).unwrap());
        shell.stderr(File::options().append(true).open(&log).unwrap());
        let status = RunningShell::start(shell).0.wait().unwrap();
        assert!(status.success(), "{examples}/{file}: {}", std::fs::read_to_string(&log).unwrap());
    }
}

fn can_check() -> bool {
    have("python3", "workflows")
        && have("jq", "workflows")
        && installed("check-jsonschema", &python_packages().join("check_jsonschema"))
}

#[test]
fn an_app_is_tested_by_the_workflows() {
    if can_check() {
        let folder = tempfile::tempdir().unwrap();
        check_workflows("server/examples/ci", folder.path(), &[]);
    }
}

#[test]
fn a_server_is_tested_by_the_workflows() {
    let suite = Path::new(TREFOIL).with_file_name("trefoil-conformance");
    if !can_check() || !installed("trefoil-conformance", &suite) {
        return;
    }
    let server = Server::demo();
    let folder = tempfile::tempdir().unwrap();
    let mut profile = server.demo_json();
    profile["ca"] = server.ca().to_str().unwrap().into();
    std::fs::write(folder.path().join("profile.json"), profile.to_string()).unwrap();
    std::fs::write(folder.path().join("known.toml"), "").unwrap();
    let summary = folder.path().join("summary.md");
    let variables = [("SERVER", server.base()), ("GITHUB_STEP_SUMMARY", summary.display().to_string())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    check_workflows("conformance/examples", folder.path(), &variables);
    assert!(std::fs::read_to_string(summary).unwrap().contains("passed"));
    for report in ["conformance.html", "conformance.xml"] {
        assert!(folder.path().join(report).exists(), "{report}");
    }
}
