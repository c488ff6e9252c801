//! The server under test of HL7's suite, and the operations that the suite calls.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::{HeaderMap, Method, StatusCode, header};
use serde_json::{Value, json};

use super::outcome::SuiteOptions;
use super::suite;

/// Maximum time until a response is complete.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Media type of all requests and responses.
const FHIR_JSON: &str = "application/fhir+json";

/// An operation of the suite and its path.
#[derive(Debug, Clone, Copy)]
pub(super) struct SuiteOperation {
    /// Name of the operation in the suite.
    pub name: &'static str,
    /// Path relative to the base URL, with the query.
    pub path: &'static str,
    /// Resource type and name of the operation in the CapabilityStatement; `None` for operations that every
    /// server has.
    pub declared: Option<(&'static str, &'static str)>,
}

pub(super) const OPERATIONS: [SuiteOperation; 11] = {
    const fn operation(
        name: &'static str,
        path: &'static str,
        kind: &'static str,
        code: &'static str,
    ) -> SuiteOperation {
        SuiteOperation { name, path, declared: Some((kind, code)) }
    }
    const fn reading(name: &'static str, path: &'static str) -> SuiteOperation {
        SuiteOperation { name, path, declared: None }
    }
    [
        operation("expand", "ValueSet/$expand", "ValueSet", "expand"),
        operation("validate-code", "ValueSet/$validate-code", "ValueSet", "validate-code"),
        operation("cs-validate-code", "CodeSystem/$validate-code", "CodeSystem", "validate-code"),
        operation("lookup", "CodeSystem/$lookup", "CodeSystem", "lookup"),
        operation("subsumes", "CodeSystem/$subsumes", "CodeSystem", "subsumes"),
        operation("translate", "ConceptMap/$translate", "ConceptMap", "translate"),
        operation("batch-validate", "ValueSet/$batch-validate-code", "ValueSet", "batch-validate-code"),
        operation("related", "ValueSet/$related", "ValueSet", "related"),
        operation("compare", "ValueSet/$related", "ValueSet", "related"),
        reading("metadata", "metadata"),
        reading("term-caps", "metadata?mode=terminology"),
    ]
};

pub(super) struct Server {
    base: String,
    client: reqwest::Client,
    token: Option<String>,
    pub software: String,
    pub version: String,
    pub fhir_version: String,
    /// Operations in the CapabilityStatement by resource type, with `*` for the whole server.
    declared: BTreeMap<String, BTreeSet<String>>,
}

impl Server {
    pub async fn connect(options: &SuiteOptions) -> Result<Self> {
        crate::environment::install_crypto();
        let mut builder = reqwest::Client::builder()
            // A redirect would hide that another server answers.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .tls_danger_accept_invalid_certs(options.insecure)
            .no_proxy();
        if let Some(pem) = &options.ca_pem {
            let certificate =
                reqwest::Certificate::from_pem(pem).context("the CA is not a PEM certificate")?;
            builder = builder.tls_certs_merge([certificate]);
        }
        let mut server = Self {
            base: options.target.trim_end_matches('/').to_owned(),
            client: builder.build()?,
            token: options.token.clone(),
            software: String::new(),
            version: String::new(),
            fhir_version: String::new(),
            declared: BTreeMap::new(),
        };
        let (_, statement) = server.send("metadata", None, HeaderMap::new()).await?;
        let statement = statement.unwrap_or_default();
        let text = |path: &str| statement.pointer(path).and_then(Value::as_str).map(str::to_owned);
        server.software = text("/software/name").unwrap_or_else(|| "?".to_owned());
        server.version = text("/software/version").unwrap_or_default();
        server.fhir_version = text("/fhirVersion").unwrap_or_else(|| "4.0.1".to_owned());
        let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
        for rest in list(&statement, "rest") {
            let mut declare = |kind: &str, operations: Vec<Value>| {
                let names = operations.iter().filter_map(|operation| operation["name"].as_str());
                let names = names.map(|name| name.trim_start_matches('$').to_owned());
                server.declared.entry(kind.to_owned()).or_default().extend(names);
            };
            declare("*", list(&rest, "operation"));
            for resource in list(&rest, "resource") {
                declare(resource["type"].as_str().unwrap_or_default(), list(&resource, "operation"));
            }
        }
        Ok(server)
    }

    /// Returns whether the server has this operation. If the CapabilityStatement does not list it, a request
    /// is sent.
    pub async fn offers(&self, operation: &SuiteOperation) -> bool {
        let Some((kind, name)) = operation.declared else { return true };
        let declares = |kind: &str| self.declared.get(kind).is_some_and(|names| names.contains(name));
        if declares(kind) || declares("*") {
            return true;
        }
        let empty = json!({ "resourceType": "Parameters" });
        let Ok((status, body)) = self.send(operation.path, Some(&empty), HeaderMap::new()).await else {
            return false;
        };
        match status.as_u16() {
            405 | 501 => false,
            404 => {
                let issues = body.as_ref().and_then(|body| body["issue"].as_array()).into_iter().flatten();
                let says = |issue: &Value| issue["code"] != "not-supported" && issue["code"] != "not-found";
                issues.into_iter().any(says)
            }
            _ => true,
        }
    }

    pub async fn send(
        &self,
        path: &str,
        body: Option<&Value>,
        headers: HeaderMap,
    ) -> Result<(StatusCode, Option<Value>)> {
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = self.client.request(method, format!("{}/{path}", self.base));
        request = request.header(header::ACCEPT, FHIR_JSON).headers(headers);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, FHIR_JSON).body(serde_json::to_vec(body)?);
        }
        let response = request.send().await?;
        let status = response.status();
        let bytes = response.bytes().await?;
        Ok((status, suite::parse(&bytes).ok()))
    }
}
