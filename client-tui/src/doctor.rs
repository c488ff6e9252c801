//! Checks of a server from the point of view of a client: addresses, keys, clock, browsers, capabilities.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::Value;

use crate::api::{Answer, Api, ApiError};
use crate::clock::{clock_differs, clock_sentence};

/// Origin of the imaginary browser application.
const ORIGIN: &str = "https://app.example";

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub status: FindingStatus,
    pub detail: String,
}

/// Status of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingStatus {
    Ok,
    /// Works, or does not matter for some clients.
    Warning,
    Failed,
}

pub async fn examine(api: &Api) -> Vec<Finding> {
    let mut findings = Vec::new();
    let base_url = api.profile().base_url.clone();
    let fhir_base = api.profile().fhir_base.clone();
    let discovery = get(api, &format!("{base_url}/.well-known/openid-configuration"), false).await;
    findings.push(transport(&base_url, &discovery));
    if discovery.is_err() {
        return findings;
    }
    findings.push(clock_skew(&discovery));
    let document = discovery_document(api).await;
    let has_discovery = document.status == FindingStatus::Ok;
    findings.push(document);
    findings.push(key_set(api, has_discovery).await);
    let smart = get(api, &format!("{fhir_base}/.well-known/smart-configuration"), true).await;
    findings.push(smart_configuration(&smart));
    findings.push(browsers(&smart));
    let metadata = get(api, &format!("{fhir_base}/metadata"), true).await;
    findings.push(capabilities(&metadata));
    findings.push(operations(&metadata));
    findings
}

/// Sends a GET, as a browser application does if `browser` is set.
async fn get(api: &Api, url: &str, browser: bool) -> Result<Answer, ApiError> {
    let mut headers = HeaderMap::new();
    if browser {
        headers.insert(HeaderName::from_static("origin"), HeaderValue::from_static(ORIGIN));
    }
    headers.insert(
        HeaderName::from_static("accept"),
        HeaderValue::from_static("application/fhir+json, application/json"),
    );
    api.fetch(url, headers).await
}

fn finding(subject: &'static str, status: FindingStatus, detail: impl Into<String>) -> Finding {
    Finding { subject, status, detail: detail.into() }
}

fn transport(base_url: &str, response: &Result<Answer, ApiError>) -> Finding {
    const SUBJECT: &str = "connection";
    match response {
        Err(error) => finding(SUBJECT, FindingStatus::Failed, error.to_string()),
        Ok(_) if base_url.starts_with("http://") => {
            finding(SUBJECT, FindingStatus::Warning, "without TLS: tokens are sent only to this machine")
        }
        Ok(_) => finding(SUBJECT, FindingStatus::Ok, "TLS, and the certificate is trusted"),
    }
}

fn clock_skew(response: &Result<Answer, ApiError>) -> Finding {
    const SUBJECT: &str = "clock";
    let Some(skew_s) = response.as_ref().ok().and_then(Answer::clock_skew_s) else {
        return finding(SUBJECT, FindingStatus::Warning, "the server sends no Date header");
    };
    if clock_differs(skew_s) {
        let detail = format!("{}; tokens and client assertions may be rejected", clock_sentence(skew_s));
        return finding(SUBJECT, FindingStatus::Failed, detail);
    }
    finding(SUBJECT, FindingStatus::Ok, clock_sentence(skew_s))
}

async fn discovery_document(api: &Api) -> Finding {
    const SUBJECT: &str = "openid-configuration";
    match api.openid().await {
        // A server without OpenID Connect has no document.
        Err(error) if error.is_not_found() => {
            finding(SUBJECT, FindingStatus::Warning, format!("no sign-in with OpenID Connect: {error}"))
        }
        Err(error) => finding(SUBJECT, FindingStatus::Failed, error.to_string()),
        Ok(openid) => {
            let optional = [
                ("device sign-in", openid.device_authorization_endpoint.is_some()),
                ("revocation", openid.revocation_endpoint.is_some()),
                ("introspection", openid.introspection_endpoint.is_some()),
                ("registration", openid.registration_endpoint.is_some()),
                ("sign-out in the browser", openid.end_session_endpoint.is_some()),
            ];
            let offers: Vec<_> =
                optional.iter().filter(|(_, offered)| *offered).map(|(name, _)| *name).collect();
            finding(
                SUBJECT,
                FindingStatus::Ok,
                format!("issuer {}; offers {}", openid.issuer, offers.join(", ")),
            )
        }
    }
}

async fn key_set(api: &Api, has_discovery: bool) -> Finding {
    const SUBJECT: &str = "key set";
    match api.key_set().await {
        Err(error) if has_discovery => finding(SUBJECT, FindingStatus::Failed, error.to_string()),
        Err(error) => finding(SUBJECT, FindingStatus::Warning, error.to_string()),
        Ok(keys) if keys.keys.is_empty() => {
            finding(SUBJECT, FindingStatus::Failed, "the key set is empty: no token can be verified")
        }
        Ok(keys) => {
            let ids: Vec<_> = keys.keys.iter().filter_map(|key| key.common.key_id.as_deref()).collect();
            finding(SUBJECT, FindingStatus::Ok, format!("{} keys: {}", keys.keys.len(), ids.join(", ")))
        }
    }
}

fn smart_configuration(response: &Result<Answer, ApiError>) -> Finding {
    const SUBJECT: &str = "smart-configuration";
    let json = match json(response) {
        Ok(json) => json,
        Err(reason) => return finding(SUBJECT, FindingStatus::Warning, format!("no SMART launch: {reason}")),
    };
    let list = |name: &str| {
        let values = json[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    if json["token_endpoint"].as_str().is_none() {
        return finding(SUBJECT, FindingStatus::Failed, "token_endpoint is missing");
    }
    if !list("code_challenge_methods_supported").iter().any(|method| method == "S256") {
        return finding(SUBJECT, FindingStatus::Failed, "code_challenge_methods_supported lacks S256 (PKCE)");
    }
    finding(SUBJECT, FindingStatus::Ok, format!("capabilities {}", list("capabilities").join(", ")))
}

fn browsers(answer: &Result<Answer, ApiError>) -> Finding {
    const SUBJECT: &str = "browser apps (CORS)";
    match answer.as_ref().ok().and_then(|response| response.header("access-control-allow-origin")) {
        Some(origin) if origin == "*" || origin == ORIGIN => {
            finding(SUBJECT, FindingStatus::Ok, "scripts of any origin can read the configuration")
        }
        Some(origin) => finding(SUBJECT, FindingStatus::Warning, format!("only scripts of {origin}")),
        None => finding(
            SUBJECT,
            FindingStatus::Warning,
            "scripts of other origins cannot read the configuration (no Access-Control-Allow-Origin)",
        ),
    }
}

fn capabilities(response: &Result<Answer, ApiError>) -> Finding {
    const SUBJECT: &str = "metadata";
    let json = match json(response) {
        Ok(json) => json,
        Err(reason) => return finding(SUBJECT, FindingStatus::Failed, reason),
    };
    let version = json["fhirVersion"].as_str().unwrap_or("unknown");
    let software = json["software"]["name"].as_str().unwrap_or("unnamed software");
    let release = json["software"]["version"].as_str().unwrap_or_default();
    let status = if version.starts_with("4.0") { FindingStatus::Ok } else { FindingStatus::Warning };
    finding(SUBJECT, status, format!("FHIR {version}, {software} {release}"))
}

fn operations(response: &Result<Answer, ApiError>) -> Finding {
    const SUBJECT: &str = "operations";
    let Ok(json) = json(response) else {
        return finding(SUBJECT, FindingStatus::Warning, "unknown, because metadata is missing");
    };
    let text = json["rest"].to_string();
    let operations = ["validate-code", "subsumes", "lookup", "expand", "export"];
    let (offered, missing): (Vec<_>, Vec<_>) =
        operations.iter().partition(|name| text.contains(&format!("\"{name}\"")));
    let join = |names: &[&&str]| names.iter().map(|name| format!("${name}")).collect::<Vec<_>>().join(", ");
    match (offered.is_empty(), missing.is_empty()) {
        (_, true) => finding(SUBJECT, FindingStatus::Ok, join(&offered)),
        (true, _) => finding(SUBJECT, FindingStatus::Warning, "none of those that this client sends"),
        _ => finding(
            SUBJECT,
            FindingStatus::Warning,
            format!("{}; not listed: {}", join(&offered), join(&missing)),
        ),
    }
}

/// The JSON of a successful response, or the reason why there is none.
fn json(answer: &Result<Answer, ApiError>) -> Result<Value, String> {
    let response = answer.as_ref().map_err(ToString::to_string)?;
    if !response.status.is_success() {
        return Err(format!("status {}", response.status));
    }
    serde_json::from_slice(&response.body).map_err(|error| format!("the response is not JSON: {error}"))
}
