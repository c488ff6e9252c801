//! The files of the Debian package: the unit of the service and its settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{TREFOIL, have, installed, python_packages};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd").join(file)
}

/// systemd accepts the unit, and rates its exposure at 2.0 of 10 or less.
#[test]
fn the_unit_is_valid_and_confined() {
    if !have("systemd-analyze", "the unit of the service") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(deploy("trefoil.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/trefoil serve --config /etc/trefoil/trefoil.toml\n"));
    let here = folder.path().join("trefoil.service");
    std::fs::write(&here, unit.replace("/usr/bin/trefoil", TREFOIL)).unwrap();
    for check in
        [&["verify", "--man=no"][..], &["security", "--offline=true", "--threshold=20", "--no-pager"]]
    {
        let output = Command::new("systemd-analyze").args(check).arg(&here).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{check:?}: {text}");
    }
}

#[test]
fn the_settings_of_the_package_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, data) = (deploy("trefoil.toml"), folder.path().to_str().unwrap());
    let status = ["status", "--config", settings.to_str().unwrap(), "--data", data];
    let output = Command::new(TREFOIL).args(status).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("contains no store"), "{text}");
}

/// The indented text after a line of a YAML file.
fn block(yaml: &str, after: &str) -> String {
    let lines = yaml.lines().skip_while(|line| line.trim() != after).skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.trim_start_matches("    "))).collect()
}

#[test]
fn the_settings_of_the_kubernetes_manifest_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kubernetes/trefoil.yaml");
    let text = block(&std::fs::read_to_string(manifest).unwrap(), "trefoil.toml: |");
    assert!(text.contains("postgres://trefoil@database.example/trefoil"), "{text}");
    // The database and its password are not on this machine.
    let text: String = text
        .lines()
        .filter(|line| !line.starts_with("engine") && !line.starts_with("password_file"))
        .map(|line| format!("{line}\n"))
        .collect();
    let text = text.replace("/run/secrets/trefoil", folder.path().to_str().unwrap());
    for key in ["key-encryption-key", "backup-key"] {
        std::fs::write(folder.path().join(key), "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n").unwrap();
    }
    let settings = folder.path().join("trefoil.toml");
    std::fs::write(&settings, text).unwrap();
    let data = folder.path().join("data");
    let mut status = Command::new(TREFOIL);
    status.arg("status").arg("--config").arg(&settings).arg("--data").arg(&data);
    let output = status.env("AWS_ACCESS_KEY_ID", "k").env("AWS_SECRET_ACCESS_KEY", "s").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("contains no store"), "{text}");
}

/// Kubernetes' own schemas, which reject unknown members, accept all documents of the manifest; the compose
/// file is YAML and has no privileges.
#[test]
fn the_manifests_follow_their_schemas() {
    const CHECK: &str = r#"
import re, sys, yaml, kubernetes_validate
documents = list(yaml.safe_load_all(open(sys.argv[1])))
for document in documents:
    kubernetes_validate.validate(document, "1.34", strict=True)
kinds = [document["kind"] for document in documents]
assert kinds == ["ConfigMap", "StatefulSet", "Service", "Service", "PodDisruptionBudget", "NetworkPolicy"], kinds
pod = documents[1]["spec"]["template"]["spec"]
assert not any("emptyDir" in volume for volume in pod["volumes"]), pod["volumes"]
# The ports of the policy are those of the container, and each file that the settings name is in the secret.
ports = {port["name"] for port in pod["containers"][0]["ports"]}
rules = documents[5]["spec"]["ingress"]
assert {port["port"] for rule in rules for port in rule["ports"]} == ports, rules
files = {item["path"] for volume in pod["volumes"] for item in volume.get("secret", {}).get("items", [])}
named = set(re.findall("/run/secrets/trefoil/([a-z-]+)", documents[0]["data"]["trefoil.toml"]))
assert named == files, (named, files)
service = yaml.safe_load(open(sys.argv[2]))["services"]["trefoil"]
assert service["read_only"] and service["cap_drop"] == ["ALL"], service
print(service["image"])
"#;
    let packages = python_packages();
    let validator = packages.join("kubernetes_validate");
    if !have("python3", "the manifests") || !installed("kubernetes-validate", &validator) {
        return;
    }
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", packages).args(["-c", CHECK]);
    python.arg(deploy.join("kubernetes/trefoil.yaml")).arg(deploy.join("compose/compose.yaml"));
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let changelog = include_str!("../../../CHANGELOG.md");
    let released =
        changelog.lines().find_map(|line| line.strip_prefix("## [")?.split_once("] - ")).unwrap().0;
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("trefoil:{released}"));
}
