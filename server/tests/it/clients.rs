//! Tests with real clients in other languages. With only their standard libraries, Python signs in and validates codes,
//! and Node exports. With libraries that apps use (`tests/it/clients/package.json`, `requirements.txt`; `.ci/run`
//! installs them), openid-client and Authlib run all flows that they support, and smart-fetch exports.

use std::process::Command;

use crate::support::{Server, have, installed, python_packages};

#[track_caller]
fn check(program: &str, script: &str, server: &Server) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(script);
    let output = Command::new(program)
        .arg(path)
        .arg(server.data())
        .env("NODE_EXTRA_CA_CERTS", server.ca())
        .env("PYTHONPATH", python_packages())
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("all good"), "{text}");
}

#[test]
fn openid_client_completes_all_flows_that_it_supports() {
    let modules = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/node_modules");
    if have("node", "openid-client") && installed("openid-client", &modules.join("openid-client")) {
        check("node", "openid_client.mjs", &Server::demo());
    }
}

#[test]
fn authlib_completes_the_code_flow_and_client_credentials() {
    if have("python3", "Authlib") && installed("Authlib", &python_packages().join("authlib")) {
        check("python3", "authlib_flow.py", &Server::demo());
    }
}

#[test]
fn smart_fetch_exports_a_group_and_everything() {
    if have("python3", "smart-fetch") && installed("smart-fetch", &python_packages().join("smart_fetch")) {
        check("python3", "smart_fetch.py", &Server::demo());
    }
}

#[test]
fn python_signs_in_and_validates_codes() {
    if have("python3", "the Python client") {
        check("python3", "sign_in.py", &Server::demo());
    }
}

#[test]
fn node_exports_a_group() {
    if have("node", "the Node client") {
        check("node", "export.mjs", &Server::demo());
    }
}
