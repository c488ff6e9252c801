//! The software bill of materials of the server: all crates that are linked into it, with versions, licences
//! and digests, in the JSON form of CycloneDX 1.6.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use xtask::workspace::{cargo, root};

/// Writes `trefoil-VERSION.cdx.json`.
pub(super) fn write(dist: &Path, version: &str) -> Result<()> {
    let mut tree = cargo();
    tree.args(["tree", "--package", "trefoil-server", "--edges", "normal", "--locked", "--prefix", "none"]);
    let crates = output(tree.args(["--format", "{p}"]))?;
    let linked: BTreeSet<(&str, &str)> = crates.lines().filter_map(name_and_version).collect();
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let lock: toml::Table = fs::read_to_string(root().join("Cargo.lock"))?.parse()?;
    let components: Vec<Value> = linked
        .into_iter()
        .filter(|(name, _)| *name != "trefoil-server")
        .map(|(name, version)| component(name, version, &metadata, &lock))
        .collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": {
            "type": "application", "bom-ref": "trefoil", "name": "trefoil", "version": version,
            "licenses": [{ "expression": env!("CARGO_PKG_LICENSE") }],
        }},
        "components": components,
    });
    Ok(fs::write(dist.join(format!("trefoil-{version}.cdx.json")), format!("{document:#}\n"))?)
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("cargo cannot be started")?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Reads a line of `cargo tree`, such as `url v2.5.4` or `trefoil-fhir v0.1.0 (/path)`.
fn name_and_version(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    Some((words.next()?, words.next()?.strip_prefix('v')?))
}

fn component(name: &str, version: &str, metadata: &Value, lock: &toml::Table) -> Value {
    let is_it = |known_name: Option<&str>, known_version: Option<&str>| {
        known_name == Some(name) && known_version == Some(version)
    };
    let package = metadata["packages"]
        .as_array()
        .and_then(|all| all.iter().find(|one| is_it(one["name"].as_str(), one["version"].as_str())));
    let locked = lock["package"].as_array().and_then(|all| {
        all.iter().find(|one| {
            let text = |member: &str| one.get(member).and_then(toml::Value::as_str);
            is_it(text("name"), text("version"))
        })
    });
    let mut component = json!({
        "type": "library", "bom-ref": format!("{name}@{version}"), "name": name, "version": version,
    });
    if let Some(licence) = package.and_then(|package| package["license"].as_str()) {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    // Our own crates come from no registry, so that they have neither an address nor a checksum there.
    let checksum = locked.and_then(|locked| locked.get("checksum")).and_then(toml::Value::as_str);
    if let Some(checksum) = checksum {
        component["purl"] = format!("pkg:cargo/{name}@{version}").into();
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_tree_are_read() {
        assert_eq!(name_and_version("url v2.5.4"), Some(("url", "2.5.4")));
        assert_eq!(name_and_version("trefoil-fhir v0.1.0 (/src) (*)"), Some(("trefoil-fhir", "0.1.0")));
        assert_eq!(name_and_version(""), None);
    }
}
