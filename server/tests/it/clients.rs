//! Real clients of other languages: Python signs in and asks terminology, Node exports.

use std::process::Command;

use crate::support::{Server, have};

#[track_caller]
fn check(program: &str, script: &str, server: &Server) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(script);
    let output = Command::new(program)
        .arg(path)
        .arg(server.data())
        .env("NODE_EXTRA_CA_CERTS", server.ca())
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("all good"), "{text}");
}

#[test]
fn python_signs_in_and_asks_terminology() {
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
