//! Builds the HTTP request from the request of a row and the variables of its case.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use url::Url;

use super::dpop_proof;
use super::exchange::SentRequest;
use super::variables::{UnknownVariable, Variables};
use crate::spec::request::{Body, Request};
use crate::spec::{endpoints, resources};

/// Builds the HTTP request.
///
/// # Errors
/// Returns a message if the row refers to an unknown variable or endpoint, or if a value cannot be sent.
pub fn build_request(request: &Request, variables: &Variables) -> Result<SentRequest, String> {
    let fill = |text: &str| variables.fill(text).map_err(|error| error.to_string());
    let base_url = variables.text("base_url").map_err(|error| error.to_string())?;
    let address = endpoints::resolve(&fill(&request.to)?, base_url)?;
    let mut url = Url::parse(&address).map_err(|error| format!("'{address}' is not an address: {error}"))?;
    if !request.query.is_empty() {
        let mut pairs = url.query_pairs_mut();
        for (name, value) in &request.query {
            pairs.append_pair(name, &fill(value)?);
        }
    }
    let mut headers = HeaderMap::new();
    for (name, values) in &request.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("'{name}' is not the name of a header"))?;
        for value in values.as_slice() {
            headers.append(name.clone(), header_value(&fill(value)?)?);
        }
    }
    if let Some(token) = &request.bearer {
        headers.insert(header::AUTHORIZATION, header_value(&format!("Bearer {}", fill(token)?))?);
    }
    if let Some(proof) = &request.dpop {
        for (name, value) in dpop_proof::proof_headers(proof, &request.method, &url, variables)? {
            headers.append(name, header_value(&value)?);
        }
    }
    let (body, media_type) = build_body(&request.body, variables)?;
    let media_type = match &request.content_type {
        Some(named) => Some(named.as_str()).filter(|named| !named.is_empty()),
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

/// Returns the body, and the media type to use if the row states none.
fn build_body(body: &Body, variables: &Variables) -> Result<(Bytes, Option<&'static str>), String> {
    let unknown = |error: UnknownVariable| error.to_string();
    match body {
        Body::Empty => Ok((Bytes::new(), None)),
        Body::Form(form) => {
            let mut text = form_urlencoded::Serializer::new(String::new());
            for (name, value) in form {
                text.append_pair(name, &variables.fill(value).map_err(unknown)?);
            }
            Ok((text.finish().into(), Some("application/x-www-form-urlencoded")))
        }
        Body::Json(json) => {
            let json = variables.fill_json(json).map_err(unknown)?;
            Ok((json.to_string().into(), Some("application/fhir+json")))
        }
        Body::Resource(name) => {
            let json = variables.fill_json(resources::named(name)?).map_err(unknown)?;
            Ok((json.to_string().into(), Some("application/fhir+json")))
        }
        Body::Text(text) => Ok((variables.fill(text).map_err(unknown)?.into(), None)),
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
        let sent = build_request(&toml::from_str(request).unwrap(), &variables).unwrap();
        assert_eq!(sent.url.as_str(), "https://a.example/x?a=1&b=2+3");
        assert_eq!(sent.headers["authorization"], "Bearer t1");
        assert_eq!(sent.headers["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(sent.body, "c=%C3%A4");
        let unknown = build_request(&toml::from_str(r#"get = "$nothing""#).unwrap(), &variables).unwrap_err();
        assert_eq!(unknown, "unknown variable '$nothing'");
    }
}
