//! The addresses of a target: read from its metadata documents, completed by its profile.
//!
//! | document | source |
//! |---|---|
//! | `/.well-known/openid-configuration` | OpenID Connect Discovery 1.0, section 4 |
//! | `/.well-known/oauth-authorization-server` | RFC 8414, section 3 |
//! | `FHIR/.well-known/smart-configuration` | SMART App Launch 2.2, "Conformance" |
//! | `FHIR/metadata` | FHIR R4, "capabilities" |

use anyhow::{Context as _, Result, bail};
use http::header;
use serde_json::{Map, Value};
use url::Url;

use crate::profile::Profile;
use crate::spec::endpoints::{self, ENDPOINTS};

/// Paths below the base URL where the FHIR interface is looked for.
const FHIR_PATHS: [&str; 4] = ["", "/fhir/R4", "/fhir", "/r4"];

/// Addresses and documents that a target states about itself.
#[derive(Debug, Clone, Default)]
pub struct TargetAddresses {
    /// URL of the authorization server, without a trailing slash.
    pub base_url: String,
    /// Issuer, exactly as stated.
    pub issuer: String,
    /// Base URL of the FHIR interface, if there is one.
    pub fhir_base: Option<String>,
    /// URLs of the endpoints, by name.
    pub endpoints: Map<String, Value>,
    /// OpenID provider metadata, or the metadata of the authorization server.
    pub metadata: Option<Value>,
    /// Whether there is a document of RFC 8414, which servers may publish besides that of OpenID Connect.
    pub has_oauth_metadata: bool,
    /// SMART configuration.
    pub smart: Option<Value>,
    /// CapabilityStatement.
    pub capabilities: Option<Value>,
    /// Whether the CapabilityStatement was sent as `application/json`. One row reports this; the others
    /// accept it.
    pub has_plain_json: bool,
    /// Published key set; an empty object if there is none.
    pub keys: Value,
    /// Requests for documents, with the responses.
    attempts: Vec<String>,
}

/// Reads a JSON document. Returns it with its media type, or `None` if the server has no such document. Adds
/// the response to `attempts`.
///
/// # Errors
/// An error if the server cannot be reached.
async fn document(
    client: &reqwest::Client,
    url: &str,
    attempts: &mut Vec<String>,
) -> Result<Option<(Value, String)>> {
    let request = client.get(url).header(header::ACCEPT, "application/json, application/fhir+json;q=0.9");
    let no_answer = |error: reqwest::Error| anyhow::Error::new(error.without_url());
    let response = request.send().await.map_err(no_answer).with_context(|| {
        let before = attempts.iter().map(|attempt| format!("{attempt}; ")).collect::<String>();
        format!("{before}GET {url}")
    })?;
    if !response.status().is_success() {
        attempts.push(format!("GET {url}: {}", response.status()));
        return Ok(None);
    }
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next()).unwrap_or_default();
    let media_type = media_type.trim().to_ascii_lowercase();
    let bytes = response.bytes().await.map_err(no_answer).with_context(|| format!("GET {url}"))?;
    let document = serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object);
    let kind = if document.is_some() { "" } else { " without a JSON object" };
    attempts.push(format!("GET {url}: 200{kind}"));
    Ok(document.map(|document| (document, media_type)))
}

impl TargetAddresses {
    /// Reads the documents of a server.
    ///
    /// # Errors
    /// An error if the server cannot be reached, or if neither the server nor the profile states any address.
    pub async fn discover(client: &reqwest::Client, url: &str, profile: &Profile) -> Result<Self> {
        let url = url.trim_end_matches('/');
        let base_url = profile.text("base_url").unwrap_or(url).trim_end_matches('/');
        let mut addresses = Self { base_url: base_url.to_owned(), ..Self::default() };
        let discovery_url = format!("{base_url}/.well-known/openid-configuration");
        addresses.metadata =
            document(client, &discovery_url, &mut addresses.attempts).await?.map(|(metadata, _)| metadata);
        let oauth_metadata =
            document(client, oauth_metadata_url(base_url)?.as_str(), &mut addresses.attempts).await?;
        addresses.has_oauth_metadata = oauth_metadata.is_some();
        addresses.metadata = addresses.metadata.or(oauth_metadata.map(|(metadata, _)| metadata));
        match profile.text("fhir_base") {
            Some(fhir_base) => addresses.read_fhir(client, fhir_base.trim_end_matches('/')).await?,
            None => {
                for path in FHIR_PATHS {
                    addresses.read_fhir(client, &format!("{url}{path}")).await?;
                    if addresses.capabilities.is_some() {
                        break;
                    }
                }
                // The last path that was tried is not the base of a server without FHIR.
                if addresses.capabilities.is_none() {
                    addresses.fhir_base = None;
                }
            }
        }
        addresses.issuer = addresses.stated("issuer").unwrap_or(base_url).to_owned();
        for endpoint in ENDPOINTS.iter().filter(|endpoint| !endpoint.member.is_empty()) {
            if let Some(url) = addresses.stated(endpoint.member).map(str::to_owned) {
                addresses.endpoints.insert(endpoint.name.to_owned(), url.into());
            }
        }
        if addresses.metadata.is_some() {
            addresses.endpoints.insert("discovery".to_owned(), discovery_url.into());
        }
        if let Some(fhir_base) = &addresses.fhir_base {
            addresses.endpoints.insert("fhir".to_owned(), fhir_base.as_str().into());
        }
        // The profile comes last, because it corrects what the server states.
        if let Some(Value::Object(more)) = profile.members.get("endpoints") {
            addresses.endpoints.extend(more.clone());
        }
        if addresses.endpoints.is_empty() {
            bail!(
                "there is no openid-configuration, oauth-authorization-server, smart-configuration or FHIR metadata \
                 below this URL; state 'base_url', 'fhir_base' or 'endpoints' in a profile. {}",
                addresses.attempts.join("; ")
            );
        }
        addresses.read_keys(client).await?;
        Ok(addresses)
    }

    /// The addresses of a Trefoil server, whose interface states them.
    ///
    /// # Errors
    /// An error if the server cannot be reached or publishes no keys.
    pub async fn of_trefoil(client: &reqwest::Client, base_url: &str) -> Result<Self> {
        let mut addresses = Self {
            base_url: base_url.to_owned(),
            issuer: base_url.to_owned(),
            fhir_base: Some(format!("{base_url}/fhir/R4")),
            endpoints: endpoints::of_trefoil(base_url),
            ..Self::default()
        };
        addresses.read_keys(client).await?;
        Ok(addresses)
    }

    async fn read_keys(&mut self, client: &reqwest::Client) -> Result<()> {
        self.keys = match self.endpoints.get("jwks").and_then(Value::as_str) {
            Some(url) => {
                document(client, url, &mut self.attempts).await?.map(|(keys, _)| keys).unwrap_or_default()
            }
            None => Value::Null,
        };
        Ok(())
    }

    async fn read_fhir(&mut self, client: &reqwest::Client, fhir_base: &str) -> Result<()> {
        self.fhir_base = Some(fhir_base.to_owned());
        let capabilities = document(client, &format!("{fhir_base}/metadata"), &mut self.attempts).await?;
        let capabilities = capabilities.filter(|(found, _)| found["resourceType"] == "CapabilityStatement");
        self.has_plain_json =
            capabilities.as_ref().is_some_and(|(_, media_type)| media_type == "application/json");
        self.capabilities = capabilities.map(|(statement, _)| statement);
        let smart_url = format!("{fhir_base}/.well-known/smart-configuration");
        let smart = document(client, &smart_url, &mut self.attempts).await?;
        self.smart = smart.map(|(smart, _)| smart);
        Ok(())
    }

    /// A member of the metadata that is a text.
    fn stated(&self, member: &str) -> Option<&str> {
        let documents = [&self.metadata, &self.smart].into_iter().flatten();
        documents.filter_map(|document| document[member].as_str()).next()
    }

    /// The URL of an endpoint, if the target states it.
    pub fn endpoint(&self, name: &str) -> Option<&str> {
        self.endpoints.get(name).and_then(Value::as_str)
    }
}

/// The URL of the metadata of an issuer: the well-known path precedes the path of the issuer (RFC 8414, 3.1).
fn oauth_metadata_url(issuer: &str) -> Result<Url> {
    let mut url = Url::parse(issuer).with_context(|| format!("'{issuer}' is not a URL"))?;
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("/.well-known/oauth-authorization-server{path}"));
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_path_precedes_the_path_of_the_issuer() {
        let metadata_url = |issuer| oauth_metadata_url(issuer).unwrap().to_string();
        assert_eq!(
            metadata_url("https://a.example"),
            "https://a.example/.well-known/oauth-authorization-server"
        );
        assert_eq!(
            metadata_url("https://a.example/x/"),
            "https://a.example/.well-known/oauth-authorization-server/x"
        );
    }
}
