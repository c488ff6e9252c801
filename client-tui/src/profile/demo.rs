//! The profile of a demo server, from the two files that `trefoil serve --demo --data DIR` writes:
//! `endpoint.json` and `demo.json`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Profile;
use super::error::ProfileError;
use super::read_file::{base_address, read_certificates, read_file};
use super::server_profile::{BackendProfile, ClientCredential, FormDefaults};
use crate::args::USER_SCOPE;
use crate::key;

/// Addresses of a server, which every server writes to its data folder.
#[derive(Deserialize)]
pub(crate) struct EndpointFile {
    pub(crate) base_url: String,
    pub(crate) fhir_base: String,
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Deserialize)]
struct DemoFile {
    user: DemoUser,
    native: DemoClient,
    backend: Vec<DemoBackend>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    members: Vec<Member>,
    #[serde(default)]
    subsumptions: Vec<Subsumption>,
}

#[derive(Deserialize)]
struct DemoUser {
    username: String,
}

#[derive(Deserialize)]
struct DemoClient {
    client_id: String,
}

#[derive(Deserialize)]
struct DemoBackend {
    client_id: String,
    alg: String,
    jwk: Value,
}

#[derive(Deserialize)]
struct Member {
    value_set: String,
    system: String,
    code: String,
    member: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subsumption {
    system: String,
    code_a: String,
    code_b: String,
    outcome: String,
}

/// Reads the profile of a demo server. `backend` selects its backend client.
pub(super) fn read(dir: &Path, backend: Option<&str>) -> Result<Profile, ProfileError> {
    let endpoint: EndpointFile = read_json(&dir.join("endpoint.json"))?;
    let path = dir.join("demo.json");
    let demo: DemoFile = read_json(&path)?;
    let client = match backend {
        Some(name) => demo.backend.iter().find(|client| client.client_id == name),
        None => demo.backend.first(),
    };
    let client = client.ok_or_else(|| ProfileError::UnknownBackend {
        client_id: backend.unwrap_or_default().to_owned(),
        known: demo.backend.iter().map(|c| c.client_id.as_str()).collect::<Vec<_>>().join(", "),
    })?;
    let key = key::from_jwk(&client.jwk, Some(&client.alg), None)
        .map_err(|error| ProfileError::Key { from: client.client_id.clone(), error })?;
    Ok(Profile {
        fhir_base: base_address(&endpoint.fhir_base)?,
        ca: endpoint.ca.as_deref().map(read_certificates).transpose()?,
        client_id: Some(demo.native.client_id.clone()),
        scope: format!("{USER_SCOPE} offline_access"),
        backend: Some(BackendProfile {
            client_id: client.client_id.clone(),
            credential: ClientCredential::Key(key),
        }),
        examples: demo.examples(&path),
        ..Profile::at(&endpoint.base_url)?
    })
}

/// Reads the password of the demo user.
pub(super) fn password(path: &Path) -> Result<String, ProfileError> {
    #[derive(Deserialize)]
    struct File {
        user: User,
    }
    #[derive(Deserialize)]
    struct User {
        password: String,
    }
    read_json::<File>(path).map(|file| file.user.password)
}

impl DemoFile {
    fn examples(&self, path: &Path) -> FormDefaults {
        let mut examples = FormDefaults {
            group: self.groups.first().cloned().unwrap_or_default(),
            username: self.user.username.clone(),
            password_file: path.display().to_string(),
            ..FormDefaults::default()
        };
        if let Some(fact) = self.members.iter().find(|fact| fact.member) {
            examples.value_set.clone_from(&fact.value_set);
            examples.system.clone_from(&fact.system);
            examples.code.clone_from(&fact.code);
        }
        if let Some(fact) = self.subsumptions.iter().find(|fact| fact.outcome == "subsumes") {
            examples.hierarchy.clone_from(&fact.system);
            examples.code_a.clone_from(&fact.code_a);
            examples.code_b.clone_from(&fact.code_b);
        }
        examples
    }
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ProfileError> {
    serde_json::from_slice(&read_file(path)?)
        .map_err(|error| ProfileError::Demo { path: path.to_owned(), error })
}
