//! Profiles: what the suite must know about a server and cannot find out by itself, such as clients and
//! users.
//!
//! A profile is TOML, or JSON like the `demo.json` of a Trefoil server. `conformance/docs/profiles.md`
//! describes the members. Rows that need a member that a profile lacks are skipped. A text `env:NAME` is the
//! value of an environment variable, so that a profile needs no secrets.
//!
//! | module | contents |
//! |---|---|
//! | [`members`] | the members of a profile |
//! | `check` | finds misspelled members and values of a wrong type |

mod check;
pub mod members;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

/// Profiles of well-known servers, by name.
pub const READY: &[(&str, &str)] = &[
    ("trefoil", include_str!("../../profiles/trefoil.toml")),
    ("oidc-provider", include_str!("../../profiles/oidc-provider.toml")),
    ("bulk-data-server", include_str!("../../profiles/bulk-data-server.toml")),
    ("medplum", include_str!("../../profiles/medplum.toml")),
    ("hapi", include_str!("../../profiles/hapi.toml")),
    ("tx-fhir-org", include_str!("../../profiles/tx-fhir-org.toml")),
    ("ontoserver", include_str!("../../profiles/ontoserver.toml")),
    ("helios", include_str!("../../profiles/helios.toml")),
    ("snowstorm", include_str!("../../profiles/snowstorm.toml")),
    ("keycloak", include_str!("../../profiles/keycloak.toml")),
    ("hydra", include_str!("../../profiles/hydra.toml")),
    ("inferno", include_str!("../../profiles/inferno.toml")),
];

/// A profile.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// All members.
    pub members: Map<String, Value>,
    /// PEM texts of certificates to trust.
    pub ca_pem: Option<Vec<u8>>,
}

impl Profile {
    /// Reads a profile: a file, or the name of one of [`READY`].
    ///
    /// # Errors
    /// An error if there is no such profile, if it is not valid, or if a file or an environment variable that
    /// it names does not exist.
    pub fn read(name: &str) -> Result<Self> {
        if let Some((_, text)) = READY.iter().find(|(ready, _)| *ready == name) {
            return Self::from_toml(text, Path::new("."));
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).with_context(|| {
            let names: Vec<_> = READY.iter().map(|(name, _)| *name).collect();
            format!("failed to read {name}, which is not one of the ready profiles {}", names.join(", "))
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        if path.extension().is_some_and(|extension| extension == "json") {
            let mut members =
                serde_json::from_str(&text).with_context(|| format!("{name} is not a JSON object"))?;
            add_endpoint(&mut members, folder);
            return Self::of(members, folder);
        }
        Self::from_toml(&text, folder).with_context(|| name.to_owned())
    }

    /// Reads the text of a profile. Paths in it are relative to `folder`.
    ///
    /// # Errors
    /// An error if the text is not TOML, has an unknown member or a value of a wrong type, or refers to
    /// something that does not exist.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Self> {
        let members: Map<String, Value> = toml::from_str(text)?;
        check::check_members(text)?;
        Self::of(members, folder)
    }

    /// Completes the members: reads files and environment variables.
    fn of(mut members: Map<String, Value>, folder: &Path) -> Result<Self> {
        members.values_mut().try_for_each(|value| complete(value, folder))?;
        if let (false, Some(first)) =
            (members.contains_key("user"), members.get("users").and_then(|users| users.get(0)))
        {
            members.insert("user".to_owned(), first.clone());
        }
        let ca: Option<PathBuf> = members.get("ca").and_then(Value::as_str).map(|path| folder.join(path));
        let read = |path: PathBuf| {
            std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))
        };
        Ok(Self { members, ca_pem: ca.map(read).transpose()? })
    }

    /// The text of a member.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.members.get(name).and_then(Value::as_str)
    }

    /// A member that is true or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.members.get(name).and_then(Value::as_bool)
    }
}

/// Adds the addresses and the CA that a running Trefoil server writes beside `demo.json`.
fn add_endpoint(members: &mut Map<String, Value>, folder: &Path) {
    let text = std::fs::read(folder.join("endpoint.json")).ok();
    let endpoint = text.and_then(|text| serde_json::from_slice::<Map<String, Value>>(&text).ok());
    for name in ["base_url", "fhir_base", "ca"] {
        let value =
            endpoint.as_ref().and_then(|endpoint| endpoint.get(name)).filter(|value| value.is_string());
        if let (Some(value), false) = (value, members.contains_key(name)) {
            members.insert(name.to_owned(), value.clone());
        }
    }
}

/// Replaces `env:NAME` by the value of the variable, and `jwk_file` by the key in the file.
fn complete(value: &mut Value, folder: &Path) -> Result<()> {
    match value {
        Value::String(text) => {
            if let Some(name) = text.strip_prefix("env:") {
                *text = std::env::var(name).with_context(|| format!("environment variable {name}"))?;
            }
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| complete(item, folder))?,
        Value::Object(members) => {
            if let Some(file) = members.get("jwk_file").and_then(Value::as_str) {
                let path = folder.join(file);
                let text =
                    std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
                let key = serde_json::from_slice(&text)
                    .with_context(|| format!("{} is not a JWK", path.display()))?;
                members.insert("jwk".to_owned(), key);
            }
            members.values_mut().try_for_each(|value| complete(value, folder))?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key.json"), r#"{ "kty": "EC" }"#).unwrap();
        let text = "fhir_base = \"https://fhir.example\"\nanonymous = true\n\
            [[users]]\nusername = \"env:CARGO_PKG_NAME\"\n[[backend]]\njwk_file = \"key.json\"\n";
        let profile = Profile::from_toml(text, folder.path()).unwrap();
        assert_eq!(profile.text("fhir_base"), Some("https://fhir.example"));
        assert_eq!(profile.flag("anonymous"), Some(true));
        assert_eq!(profile.members["user"]["username"], env!("CARGO_PKG_NAME"));
        assert_eq!(profile.members["backend"][0]["jwk"]["kty"], "EC");
    }

    #[test]
    fn faults_of_a_profile_are_named() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            let error = format!("{:#}", Profile::from_toml(text, Path::new("/nowhere")).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        check(
            "fhirbase = \"x\"",
            "line 1: 'fhirbase' is not a member of a profile; did you mean 'fhir_base'?",
        );
        check("ca = \"ca.pem\"", "failed to read /nowhere/ca.pem");
        check(
            "[public]\nclient_id = \"env:NO_SUCH_VARIABLE_AT_ALL\"",
            "environment variable NO_SUCH_VARIABLE_AT_ALL",
        );
    }
}
