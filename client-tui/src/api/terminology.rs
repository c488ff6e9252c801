//! The two terminology operations of FHIR R4: `ValueSet/$validate-code` and `CodeSystem/$subsumes`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Api, ApiError, Bearer};

/// Is this coding in that value set? Empty texts are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidateCode {
    /// Canonical URL of the value set.
    pub url: String,
    /// Id of the value set, which makes it a call at instance level.
    pub id: String,
    /// Code system of the code.
    pub system: String,
    /// The code.
    pub code: String,
    /// A display to be checked too.
    pub display: String,
}

/// The answer to [`ValidateCode`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Validated {
    /// Is it in?
    pub result: bool,
    /// The code's display.
    pub display: Option<String>,
    /// Why not, or a warning.
    pub message: Option<String>,
}

/// Does code A subsume code B? Empty texts are not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subsumes {
    /// Canonical URL of the code system.
    pub system: String,
    /// Id of the code system, which makes it a call at instance level.
    pub id: String,
    /// Version of the code system.
    pub version: String,
    /// One code.
    pub code_a: String,
    /// The other code.
    pub code_b: String,
}

/// The answer to [`Subsumes`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subsumed {
    /// `equivalent`, `subsumes`, `subsumed-by` or `not-subsumed`.
    pub outcome: String,
}

impl Subsumed {
    /// The outcome as a sentence about the two codes.
    pub fn sentence(&self, code_a: &str, code_b: &str) -> String {
        match self.outcome.as_str() {
            "equivalent" => format!("{code_a} and {code_b} mean the same"),
            "subsumes" => format!("{code_a} is the more general one; {code_b} is below it"),
            "subsumed-by" => format!("{code_a} is the more specific one; {code_b} is above it"),
            "not-subsumed" => format!("neither of {code_a} and {code_b} is above the other"),
            other => format!("an outcome that FHIR R4 does not know: {other}"),
        }
    }
}

impl Api {
    /// Asks `$validate-code` by POST.
    ///
    /// # Errors
    /// The server's.
    pub async fn validate_code(&self, asked: &ValidateCode, bearer: &Bearer) -> Result<Validated, ApiError> {
        let typed = [
            ("url", "valueUri", &asked.url),
            ("system", "valueUri", &asked.system),
            ("code", "valueCode", &asked.code),
            ("display", "valueString", &asked.display),
        ];
        let parameter = |(name, kind, value): (&str, &str, &String)| json!({ "name": name, kind: value });
        let parameters: Vec<Value> =
            typed.into_iter().filter(|(_, _, value)| !value.is_empty()).map(parameter).collect();
        let url = self.operation("ValueSet", &asked.id, "$validate-code")?;
        let body = json!({ "resourceType": "Parameters", "parameter": parameters }).to_string();
        let request = self.http().post(&url).header("content-type", "application/fhir+json").body(body);
        let answer = self.ask(request, &url, bearer).await?;
        let result = value(&answer, "result").and_then(Value::as_bool);
        let text = |name| value(&answer, name).and_then(Value::as_str).map(str::to_owned);
        match result {
            Some(result) => Ok(Validated { result, display: text("display"), message: text("message") }),
            None => Err(ApiError::Unexpected { url, reason: "there is no parameter 'result'".to_owned() }),
        }
    }

    /// Asks `$subsumes` by GET.
    ///
    /// # Errors
    /// The server's.
    pub async fn subsumes(&self, asked: &Subsumes, bearer: &Bearer) -> Result<Subsumed, ApiError> {
        let all = [
            ("system", &asked.system),
            ("version", &asked.version),
            ("codeA", &asked.code_a),
            ("codeB", &asked.code_b),
        ];
        let query: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let url = self.operation("CodeSystem", &asked.id, "$subsumes")?;
        let answer = self.ask(self.http().get(&url).query(&query), &url, bearer).await?;
        match value(&answer, "outcome").and_then(Value::as_str) {
            Some(outcome) => Ok(Subsumed { outcome: outcome.to_owned() }),
            None => Err(ApiError::Unexpected { url, reason: "there is no parameter 'outcome'".to_owned() }),
        }
    }

    fn operation(&self, kind: &str, id: &str, name: &str) -> Result<String, ApiError> {
        let base = &self.profile().fhir_base;
        if id.is_empty() {
            return Ok(format!("{base}/{kind}/{name}"));
        }
        Ok(format!("{base}/{kind}/{}/{name}", path_segment(id)?))
    }

    async fn ask(
        &self,
        request: reqwest::RequestBuilder,
        url: &str,
        bearer: &Bearer,
    ) -> Result<Value, ApiError> {
        let token = self.token(bearer).await?;
        self.call(request.bearer_auth(token).header("accept", "application/fhir+json")).await?.json(url)
    }
}

/// An id as one segment of a path, whatever was typed.
///
/// # Errors
/// `.` and `..`, which no URL can hold as a segment.
pub(super) fn path_segment(id: &str) -> Result<String, ApiError> {
    /// Letters, digits, '-' and '.' are all that a FHIR id may have.
    const OTHERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.');
    if matches!(id, "." | "..") {
        return Err(ApiError::Request(format!("'{id}' is no id")));
    }
    Ok(utf8_percent_encode(id, OTHERS).to_string())
}

/// The value of a parameter, whatever its type.
fn value<'a>(parameters: &'a Value, name: &str) -> Option<&'a Value> {
    let parameter = parameters["parameter"].as_array()?.iter().find(|parameter| parameter["name"] == name)?;
    parameter.as_object()?.iter().find(|(key, _)| key.starts_with("value")).map(|(_, value)| value)
}
