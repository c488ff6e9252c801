//! Builds the HTTP request from the request of a row and the variables of its case.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::Value;
use url::Url;

use super::exchange::SentRequest;
use super::variables::{UnknownVariable, Variables};
use super::{adapt, dpop_proof};
use crate::spec::endpoints::{self, DestinationError};
use crate::spec::request::{Body, Request};
use crate::spec::resources;

/// Reasons why a request cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The row refers to a variable that is not set, because the profile or the target lacks it.
    #[error(transparent)]
    Variable(#[from] UnknownVariable),
    /// The target does not have the endpoint, or the row names an unknown one.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// A value cannot be sent.
    #[error("{0}")]
    Value(String),
}

impl From<String> for BuildError {
    fn from(message: String) -> Self {
        Self::Value(message)
    }
}

/// Builds the HTTP request.
///
/// # Errors
/// [`BuildError`] if the row refers to an unknown variable or endpoint, or if a value cannot be sent.
pub fn build_request(request: &Request, variables: &Variables) -> Result<SentRequest, BuildError> {
    let fill = |text: &str| variables.fill(text);
    let urls = variables.get("endpoints").unwrap_or(&Value::Null);
    let address = endpoints::resolve(&fill(&request.to)?, variables.text("base_url")?, urls)?;
    let mut url = Url::parse(&address).map_err(|error| format!("'{address}' is not an address: {error}"))?;
    if !request.query.is_empty() {
        let mut pairs = url.query_pairs_mut();
        for (name, value) in &request.query {
            pairs.append_pair(name, &fill(value)?);
        }
    }
    adapt::add_to_query(request, variables, &mut url);
    let mut headers = HeaderMap::new();
    for (name, values) in &request.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("'{name}' is not the name of a header"))?;
        for value in values.as_slice() {
            headers.append(name.clone(), header_value(&fill(value)?)?);
        }
    }
    // An empty token stands for a server that answers without one.
    let token = request.bearer.as_deref().map(fill).transpose()?.filter(|token| !token.is_empty());
    if let Some(token) = token {
        headers.insert(header::AUTHORIZATION, header_value(&format!("Bearer {token}"))?);
    }
    if let Some(proof) = &request.dpop {
        for (name, value) in dpop_proof::proof_headers(proof, &request.method, &url, variables)? {
            headers.append(name, header_value(&value)?);
        }
    }
    adapt::add_headers(variables, &url, &mut headers);
    let (body, media_type) = build_body(request, variables)?;
    let media_type = match &request.content_type {
        Some(media_type) => Some(media_type.as_str()).filter(|text| !text.is_empty()),
        None => media_type,
    };
    if let Some(media_type) = media_type {
        headers.insert(header::CONTENT_TYPE, header_value(media_type)?);
    }
    Ok(SentRequest { method: request.method.clone(), url, headers, body })
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| format!("'{text}' is not valid in a header"))
}

/// The body, and the media type to use if the row states none.
fn build_body(request: &Request, variables: &Variables) -> Result<(Bytes, Option<&'static str>), BuildError> {
    match &request.body {
        Body::Empty => Ok((Bytes::new(), None)),
        Body::Form(form) => {
            let mut text = form_urlencoded::Serializer::new(String::new());
            for (name, value) in form {
                text.append_pair(name, &variables.fill(value)?);
            }
            for (name, value) in adapt::added_form_fields(request, variables) {
                text.append_pair(name, &value);
            }
            Ok((text.finish().into(), Some("application/x-www-form-urlencoded")))
        }
        Body::Json(json) => {
            let json = variables.fill_json(json)?;
            Ok((json.to_string().into(), Some("application/fhir+json")))
        }
        Body::Resource(name) => {
            let json = variables.fill_json(resources::named(name)?)?;
            Ok((json.to_string().into(), Some("application/fhir+json")))
        }
        Body::Text(text) => Ok((variables.fill(text)?.into(), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_built() {
        let mut variables = Variables::default();
        variables.set("base_url", "https://a.example");
        variables.set("token", "t1");
        let request = r#"post = "/x?a=1"
            query = { b = "2 3" }
            bearer = "$token"
            form = { c = "ä" }"#;
        let sent_request = build_request(&toml::from_str(request).unwrap(), &variables).unwrap();
        assert_eq!(sent_request.url.as_str(), "https://a.example/x?a=1&b=2+3");
        assert_eq!(sent_request.headers["authorization"], "Bearer t1");
        assert_eq!(sent_request.headers["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(sent_request.body, "c=%C3%A4");
        let unknown = build_request(&toml::from_str(r#"get = "$nothing""#).unwrap(), &variables).unwrap_err();
        assert_eq!(unknown.to_string(), "unknown variable '$nothing'");
    }
}
