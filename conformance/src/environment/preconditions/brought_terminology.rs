//! The terminology of the demo project, which a run creates on a server that lacks it and deletes at its end.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use trefoil_fixtures::DemoResource;
use url::Url;

use super::tokens::system_token;
use crate::environment::TestEnvironment;
use crate::environment::cookies::CookieJar;
use crate::environment::error::SetupError;
use crate::environment::target::TestTarget;
use crate::wire::exchange::{Answer, SentRequest};

/// A code system of the demo project. A server whose profile names it has all of them.
const KNOWN: &str = "https://trefoil.example/fhir/CodeSystem/care-aids";

/// Whether the profile says that the server has the demo project.
pub fn has_demo_project(target: &TestTarget) -> bool {
    Value::from(target.profile.clone()).to_string().contains(KNOWN)
}

/// Creates the code systems and value sets. A resource with the same canonical URL is used as it is.
///
/// # Errors
/// [`SetupError::Lacking`] if the server does not store them, or has other resources with their ids.
pub(super) async fn bring(environment: &TestEnvironment) -> Result<(), SetupError> {
    let target = &environment.target;
    let base = target.fhir_base()?.to_owned();
    let mut headers = HeaderMap::new();
    let media_type = HeaderValue::from_static("application/fhir+json");
    headers.insert(header::ACCEPT, media_type.clone());
    if target.profile.get("anonymous").is_none_or(|anonymous| *anonymous != true) {
        let bearer = HeaderValue::from_str(&format!("Bearer {}", system_token(environment).await?));
        headers.insert(header::AUTHORIZATION, bearer.map_err(|error| SetupError::Failed(error.to_string()))?);
    }
    let project = trefoil_fixtures::project();
    for DemoResource { kind, id, url: canonical, json: resource } in
        project.code_systems.iter().chain(&project.value_sets)
    {
        let address = format!("{base}/{kind}/{id}");
        let url = Url::parse(&address).map_err(|error| SetupError::Failed(format!("{address}: {error}")))?;
        let send = async |method: Method, body: String| -> Result<Answer, SetupError> {
            let mut headers = headers.clone();
            if !body.is_empty() {
                headers.insert(header::CONTENT_TYPE, media_type.clone());
            }
            let request = SentRequest { method, url: url.clone(), headers, body: body.into() };
            target.send(&request, &mut CookieJar::new()).await
        };
        let present = send(Method::GET, String::new()).await?;
        if present.status.is_success() {
            let resource: Value = serde_json::from_slice(&present.body).unwrap_or_default();
            if resource["url"].as_str() == canonical.as_deref() {
                continue;
            }
            return Err(SetupError::Lacking(format!("{address} is another resource, which is not replaced")));
        }
        let created = send(Method::PUT, (*resource).to_owned()).await?;
        if !matches!(created.status, StatusCode::CREATED | StatusCode::OK) {
            let status = created.status;
            return Err(SetupError::Lacking(format!(
                "the server does not store {kind} resources: PUT {address}: {status}"
            )));
        }
    }
    Ok(())
}
