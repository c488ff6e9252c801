//! The terminology operations of FHIR R4: `$validate-code`, `$subsumes`, `$lookup` and `$expand`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Api, ApiError, Bearer};
use crate::exact_json;

/// Parameters of `ValueSet/$validate-code`. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidateCode {
    /// Canonical URL of the value set. Without it and without an id, the code is validated in its code
    /// system.
    pub url: String,
    /// Id of the value set, for a request at instance level.
    pub id: String,
    pub system: String,
    pub code: String,
    /// Display to validate together with the code.
    pub display: String,
}

impl ValidateCode {
    /// Returns whether the question names no value set, but only a code system.
    pub fn is_about_system(&self) -> bool {
        self.url.is_empty() && self.id.is_empty()
    }
}

/// Response to [`ValidateCode`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ValidationAnswer {
    /// Whether the code is a member of the value set, or a code of the code system.
    pub result: bool,
    pub display: Option<String>,
    /// Reason for a negative result, or a warning.
    pub message: Option<String>,
    pub code: Option<String>,
    pub system: Option<String>,
    /// Version of the code system that was used.
    pub version: Option<String>,
    pub issues: Vec<ValidationIssue>,
}

/// An issue of the OperationOutcome in a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ValidationIssue {
    /// `error`, `warning` or `information`.
    pub severity: String,
    /// Type of the issue, from the issue-type code system.
    pub code: String,
    /// Detail code, such as `not-in-vs`, if the server sent one.
    pub detail: Option<String>,
    pub text: String,
    /// Elements of the request that the issue is about.
    pub expression: Vec<String>,
}

impl ValidationIssue {
    fn read(issue: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let details = &issue["details"];
        let expression = [&issue["expression"], &issue["location"]].into_iter().find_map(Value::as_array);
        Self {
            severity: text(&issue["severity"]).unwrap_or_default(),
            code: text(&issue["code"]).unwrap_or_default(),
            detail: text(&details["coding"][0]["code"]),
            text: text(&details["text"]).or_else(|| text(&issue["diagnostics"])).unwrap_or_default(),
            expression: expression.into_iter().flatten().filter_map(text).collect(),
        }
    }

    /// Returns severity, elements and text as one sentence.
    pub fn sentence(&self) -> String {
        let location = if self.expression.is_empty() {
            String::new()
        } else {
            format!(" at {}", self.expression.join(", "))
        };
        let detail = self.detail.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        format!("{}{location}: {}{detail}", self.severity, self.text)
    }
}

/// Parameters of `CodeSystem/$subsumes`. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsumesQuery {
    /// Canonical URL of the code system.
    pub system: String,
    /// Id of the code system, for a request at instance level.
    pub id: String,
    pub version: String,
    pub code_a: String,
    pub code_b: String,
}

/// Response to [`SubsumesQuery`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SubsumesAnswer {
    /// `equivalent`, `subsumes`, `subsumed-by` or `not-subsumed`.
    pub outcome: String,
}

impl SubsumesAnswer {
    /// A sentence that describes the relation of the two codes.
    pub fn sentence(&self, code_a: &str, code_b: &str) -> String {
        match self.outcome.as_str() {
            "equivalent" => format!("{code_a} and {code_b} are equivalent"),
            "subsumes" => format!("{code_a} is the more general code; {code_b} is its descendant"),
            "subsumed-by" => format!("{code_a} is the more specific code; {code_b} is its ancestor"),
            "not-subsumed" => format!("neither {code_a} nor {code_b} subsumes the other"),
            other => format!("unknown outcome: {other}"),
        }
    }
}

/// Parameters of `CodeSystem/$lookup`. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookupQuery {
    /// Canonical URL of the code system.
    pub system: String,
    pub version: String,
    pub code: String,
    /// Properties to return; empty for the default of the server.
    pub properties: Vec<String>,
}

/// Response to [`LookupQuery`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LookupAnswer {
    pub name: Option<String>,
    /// Version of the code system that was used.
    pub version: Option<String>,
    pub display: Option<String>,
    pub definition: Option<String>,
    pub designations: Vec<Designation>,
    pub properties: Vec<ConceptProperty>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Designation {
    pub language: Option<String>,
    /// Display or code of the use.
    pub r#use: Option<String>,
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConceptProperty {
    pub code: String,
    pub value: String,
    /// Display of a value that is a code.
    pub description: Option<String>,
}

/// Number of codes in one page of an expansion.
pub const EXPANSION_PAGE: u64 = 100;

/// Parameters of `ValueSet/$expand`. Empty values are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpandQuery {
    /// Canonical URL of the value set.
    pub url: String,
    /// Text that the displays must contain.
    pub filter: String,
    pub offset: String,
}

/// Response to [`ExpandQuery`]: one page of at most [`EXPANSION_PAGE`] codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Expansion {
    /// Number of codes in all pages.
    pub total: Option<u64>,
    pub codes: Vec<ExpandedCode>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExpandedCode {
    pub system: Option<String>,
    pub code: String,
    pub display: Option<String>,
    pub inactive: bool,
}

impl Api {
    /// Sends `$validate-code` by POST.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn validate_code(
        &self,
        query: &ValidateCode,
        bearer: &Bearer,
    ) -> Result<ValidationAnswer, ApiError> {
        let (kind, system) =
            if query.is_about_system() { ("CodeSystem", "url") } else { ("ValueSet", "system") };
        let typed = [
            ("url", "valueUri", &query.url),
            (system, "valueUri", &query.system),
            ("code", "valueCode", &query.code),
            ("display", "valueString", &query.display),
        ];
        let parameter = |(name, kind, value): (&str, &str, &String)| json!({ "name": name, kind: value });
        let parameters: Vec<Value> =
            typed.into_iter().filter(|(_, _, value)| !value.is_empty()).map(parameter).collect();
        let url = self.operation(kind, &query.id, "$validate-code")?;
        let body = json!({ "resourceType": "Parameters", "parameter": parameters }).to_string();
        let request = self.http().post(&url).header("content-type", "application/fhir+json").body(body);
        let response = self.ask(request, &url, bearer).await?;
        let result = value(&response, "result").and_then(Value::as_bool);
        let text = |name| value(&response, name).and_then(Value::as_str).map(str::to_owned);
        match result {
            Some(result) => {
                let issues = resource(&response, "issues").and_then(|outcome| outcome["issue"].as_array());
                Ok(ValidationAnswer {
                    result,
                    display: text("display"),
                    message: text("message"),
                    code: text("code"),
                    system: text("system"),
                    version: text("version"),
                    issues: issues.into_iter().flatten().map(ValidationIssue::read).collect(),
                })
            }
            None => Err(ApiError::Unexpected { url, reason: "parameter 'result' is missing".to_owned() }),
        }
    }

    /// Sends `$subsumes` by GET.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn subsumes(&self, query: &SubsumesQuery, bearer: &Bearer) -> Result<SubsumesAnswer, ApiError> {
        let all = [
            ("system", &query.system),
            ("version", &query.version),
            ("codeA", &query.code_a),
            ("codeB", &query.code_b),
        ];
        let parameters: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let url = self.operation("CodeSystem", &query.id, "$subsumes")?;
        let response = self.ask(self.http().get(&url).query(&parameters), &url, bearer).await?;
        match value(&response, "outcome").and_then(Value::as_str) {
            Some(outcome) => Ok(SubsumesAnswer { outcome: outcome.to_owned() }),
            None => Err(ApiError::Unexpected { url, reason: "parameter 'outcome' is missing".to_owned() }),
        }
    }

    /// Sends `$lookup` by GET.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn lookup(&self, query: &LookupQuery, bearer: &Bearer) -> Result<LookupAnswer, ApiError> {
        let all = [("system", &query.system), ("version", &query.version), ("code", &query.code)];
        let properties = query.properties.iter().map(|property| ("property", property));
        let parameters: Vec<_> =
            all.into_iter().filter(|(_, value)| !value.is_empty()).chain(properties).collect();
        let url = self.operation("CodeSystem", "", "$lookup")?;
        let response = self.ask(self.http().get(&url).query(&parameters), &url, bearer).await?;
        if response["parameter"].as_array().is_none() {
            return Err(ApiError::Unexpected {
                url,
                reason: "the response is not a Parameters resource".to_owned(),
            });
        }
        let text = |name| value(&response, name).and_then(Value::as_str).map(str::to_owned);
        Ok(LookupAnswer {
            name: text("name"),
            version: text("version"),
            display: text("display"),
            definition: text("definition"),
            designations: groups(&response, "designation").map(Designation::read).collect(),
            properties: groups(&response, "property").map(ConceptProperty::read).collect(),
        })
    }

    /// Sends `$expand` by GET and returns one page of the expansion.
    ///
    /// # Errors
    /// The error of the request.
    pub async fn expand(&self, query: &ExpandQuery, bearer: &Bearer) -> Result<Expansion, ApiError> {
        let count = EXPANSION_PAGE.to_string();
        let all =
            [("url", &query.url), ("filter", &query.filter), ("offset", &query.offset), ("count", &count)];
        let parameters: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let url = self.operation("ValueSet", "", "$expand")?;
        let response = self.ask(self.http().get(&url).query(&parameters), &url, bearer).await?;
        Self::read_expansion(&response, &url)
    }

    /// Reads the expansion of a ValueSet.
    pub(super) fn read_expansion(response: &Value, url: &str) -> Result<Expansion, ApiError> {
        let expansion = &response["expansion"];
        if !expansion.is_object() {
            let reason = "the expansion is missing in the response".to_owned();
            return Err(ApiError::Unexpected { url: url.to_owned(), reason });
        }
        let mut codes = Vec::new();
        collect_codes(&expansion["contains"], &mut codes);
        Ok(Expansion { total: expansion["total"].as_u64(), codes })
    }

    pub(super) fn operation(&self, kind: &str, id: &str, name: &str) -> Result<String, ApiError> {
        let base = &self.profile().fhir_base;
        if id.is_empty() {
            return Ok(format!("{base}/{kind}/{name}"));
        }
        Ok(format!("{base}/{kind}/{}/{name}", path_segment(id)?))
    }

    pub(super) async fn ask(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        bearer: &Bearer,
    ) -> Result<Value, ApiError> {
        let request = self.authorize(request, url, bearer).await?;
        let response = self.call(request.header("accept", "application/fhir+json")).await?;
        match response.exact_json(url) {
            Ok(json) => Ok(json),
            Err(error) => Err(error.explain_scope(self.requested_scope(bearer).await.as_deref())),
        }
    }
}

/// Encodes an id as one segment of a path.
///
/// # Errors
/// [`ApiError::Request`] for `.` and `..`, which a URL cannot contain as a segment.
pub(super) fn path_segment(id: &str) -> Result<String, ApiError> {
    /// Characters to encode: all that a FHIR id cannot contain. It may contain letters, digits, '-' and '.'.
    const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.');
    if matches!(id, "." | "..") {
        return Err(ApiError::Request(format!("'{id}' is not a valid id")));
    }
    Ok(utf8_percent_encode(id, OTHERS).to_string())
}

/// Collects the codes of an expansion, which may be nested.
fn collect_codes(contains: &Value, codes: &mut Vec<ExpandedCode>) {
    for entry in contains.as_array().into_iter().flatten() {
        let text = |name: &str| entry[name].as_str().map(str::to_owned);
        // An entry without a code is only a heading.
        if let Some(code) = text("code") {
            let inactive = entry["inactive"].as_bool().unwrap_or(false);
            codes.push(ExpandedCode { system: text("system"), code, display: text("display"), inactive });
        }
        collect_codes(&entry["contains"], codes);
    }
}

impl Designation {
    fn read(parts: &Value) -> Self {
        let text = |name| part(parts, name).and_then(Value::as_str).map(str::to_owned);
        let usage = part(parts, "use");
        let usage = usage.and_then(|usage| usage["display"].as_str().or(usage["code"].as_str()));
        Self {
            language: text("language"),
            r#use: usage.map(str::to_owned),
            value: text("value").unwrap_or_default(),
        }
    }
}

impl ConceptProperty {
    fn read(parts: &Value) -> Self {
        let text = |name| part(parts, name).and_then(Value::as_str).map(str::to_owned);
        let value = part(parts, "value").map(|value| match value {
            Value::Object(coding) => {
                coding.get("code").and_then(Value::as_str).unwrap_or_default().to_owned()
            }
            other => exact_json::scalar(other),
        });
        Self {
            code: text("code").unwrap_or_default(),
            value: value.unwrap_or_default(),
            description: text("description"),
        }
    }
}

/// The parameters with this name, which have parts.
fn groups<'a>(parameters: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    let all = parameters["parameter"].as_array().into_iter().flatten();
    all.filter(move |parameter| parameter["name"] == name)
}

/// The value of a part of any type.
fn part<'a>(parts: &'a Value, name: &str) -> Option<&'a Value> {
    let part = parts["part"].as_array()?.iter().find(|part| part["name"] == name)?;
    part.as_object()?.iter().find(|(key, _)| key.starts_with("value")).map(|(_, value)| value)
}

fn resource<'a>(parameters: &'a Value, name: &str) -> Option<&'a Value> {
    let parameter = parameters["parameter"].as_array()?.iter().find(|parameter| parameter["name"] == name)?;
    parameter.get("resource")
}

/// The value of a parameter of any type.
fn value<'a>(parameters: &'a Value, name: &str) -> Option<&'a Value> {
    let parameter = parameters["parameter"].as_array()?.iter().find(|parameter| parameter["name"] == name)?;
    parameter.as_object()?.iter().find(|(key, _)| key.starts_with("value")).map(|(_, value)| value)
}
