//! Profiles: what the suite must know about a server and cannot find out by itself, such as clients and users.
//!
//! A profile is TOML, or JSON like the `demo.json` of a Trefoil server. `conformance/docs/profiles.md` describes the members. Rows
//! that need a member that a profile lacks are skipped. A text `env:NAME` is the value of an environment variable, so
//! that a profile needs no secrets.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value};

/// Members that configure the suite: name and meaning.
pub const SETTINGS: [(&str, &str); 9] = [
    ("base_url", "URL of the authorization server: its issuer"),
    ("fhir_base", "base URL of the FHIR interface"),
    ("ca", "PEM file with certificates to trust in addition to those of the system"),
    ("anonymous", "true if the FHIR interface answers without a token"),
    ("pkce", "false if the server does not know code challenges (RFC 7636)"),
    ("tx_resources", "true if terminology operations accept the parameter `tx-resource`"),
    ("endpoints", "URLs of endpoints that the metadata does not state, by name"),
    (
        "sign_in",
        "names of the fields on the sign-in page: `username`, `password`; the button for consent: `approve`",
    ),
    ("tokens", "access tokens that are used instead of requested ones: `user`, `system`"),
];

/// Members that rows use: name and meaning.
pub const MEMBERS: [(&str, &str); 22] = [
    ("user", "the user who signs in, by default the first of `users`: `username`, `password`, `claims`"),
    ("users", "users: `username`, `password`, `claims`"),
    ("public", "public client: `client_id`, `redirect_uris`, `scopes`, `custom_scopes`"),
    ("confidential", "client with a secret: also `client_secret`"),
    ("native", "public client with a loopback redirect URI, which requires PKCE"),
    ("third_party", "client whose users must consent"),
    ("implicit", "client that may use the implicit flow"),
    ("device", "client that may use the device flow"),
    ("smart", "SMART app"),
    ("bound", "client whose tokens must be bound by DPoP"),
    ("pushed", "client that must push its authorization requests"),
    ("retrying", "client that may repeat a used refresh token"),
    ("resource_server", "client that may introspect tokens"),
    ("no_token_client", "client that may not use the implicit flow"),
    ("no_code_client", "client that may not use the code flow"),
    ("backend", "clients of SMART Backend Services: `client_id`, `scopes`, `alg`, and `jwk` or `jwk_file`"),
    ("groups", "ids of Groups that can be exported"),
    ("code_systems", "code systems: `id`, `url`"),
    ("value_sets", "value sets: `id`, `url`"),
    (
        "members",
        "codes and whether a value set contains them: `value_set`, `system`, `code`, `member`, `display`",
    ),
    ("subsumptions", "pairs of codes: `system`, `codeA`, `codeB`, `outcome`"),
    ("declared", "clients that a Trefoil server reads from its configuration"),
];

/// Profiles of well-known servers, by name.
pub const READY: &[(&str, &str)] = &[
    ("trefoil", include_str!("../profiles/trefoil.toml")),
    ("oidc-provider", include_str!("../profiles/oidc-provider.toml")),
    ("bulk-data-server", include_str!("../profiles/bulk-data-server.toml")),
    ("medplum", include_str!("../profiles/medplum.toml")),
    ("hapi", include_str!("../profiles/hapi.toml")),
    ("tx-fhir-org", include_str!("../profiles/tx-fhir-org.toml")),
    ("ontoserver", include_str!("../profiles/ontoserver.toml")),
    ("snowstorm", include_str!("../profiles/snowstorm.toml")),
    ("keycloak", include_str!("../profiles/keycloak.toml")),
    ("hydra", include_str!("../profiles/hydra.toml")),
    ("inferno", include_str!("../profiles/inferno.toml")),
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
    /// Returns an error if there is no such profile, if it is not valid, or if a file or an environment variable that
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
            let members =
                serde_json::from_str(&text).with_context(|| format!("{name} is not a JSON object"))?;
            return Self::of(members, folder);
        }
        Self::from_toml(&text, folder).with_context(|| name.to_owned())
    }

    /// Reads the text of a profile. Paths in it are relative to `folder`.
    ///
    /// # Errors
    /// Returns an error if the text is not TOML, names an unknown member, or refers to something that does not exist.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Self> {
        let members: Map<String, Value> = toml::from_str(text)?;
        let is_known = |name: &String| SETTINGS.iter().chain(&MEMBERS).any(|(known, _)| known == name);
        if let Some(unknown) = members.keys().find(|name| !is_known(name)) {
            bail!(
                "'{unknown}' is not a member of a profile; `trefoil-conformance init` writes one with all members"
            );
        }
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

    /// Returns the text of a member.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.members.get(name).and_then(Value::as_str)
    }

    /// Returns a member that is true or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.members.get(name).and_then(Value::as_bool)
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
        check("fhirbase = \"x\"", "'fhirbase' is not a member of a profile");
        check("ca = \"ca.pem\"", "failed to read /nowhere/ca.pem");
        check(
            "[public]\nclient_id = \"env:NO_SUCH_VARIABLE_AT_ALL\"",
            "environment variable NO_SUCH_VARIABLE_AT_ALL",
        );
    }
}
