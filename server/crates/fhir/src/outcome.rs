//! OperationOutcome (FHIR R4), the body of errors and warnings of FHIR endpoints.

use serde::{Deserialize, Serialize};

use crate::json::{Json, Object, serialize};
use crate::{CodeableConcept, Coding};

/// Code system of `issue.details.coding` in terminology responses (HL7 terminology ecosystem).
pub const TX_ISSUE_TYPE: &str = "http://hl7.org/fhir/tools/CodeSystem/tx-issue-type";

/// `OperationOutcome.issue.severity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The action could not be performed at all.
    Fatal,
    /// The action failed, or the result is negative.
    Error,
    /// The action succeeded, but the issue may need attention.
    Warning,
    /// Information without a problem.
    Information,
}

/// The values of `OperationOutcome.issue.code` that Trefoil uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are FHIR's own codes")]
pub enum IssueCode {
    Invalid,
    Structure,
    Required,
    Value,
    Invariant,
    Security,
    Login,
    Expired,
    Forbidden,
    Processing,
    NotSupported,
    Duplicate,
    NotFound,
    Deleted,
    MultipleMatches,
    TooLong,
    CodeInvalid,
    Extension,
    TooCostly,
    BusinessRule,
    Conflict,
    Transient,
    LockError,
    NoStore,
    Exception,
    Timeout,
    Throttled,
    Informational,
}

impl Severity {
    /// The code that FHIR defines for the severity.
    pub fn code(self) -> &'static str {
        match self {
            Self::Fatal => "fatal",
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Information => "information",
        }
    }
}

impl IssueCode {
    /// The code that FHIR defines for the issue type.
    pub fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Structure => "structure",
            Self::Required => "required",
            Self::Value => "value",
            Self::Invariant => "invariant",
            Self::Security => "security",
            Self::Login => "login",
            Self::Expired => "expired",
            Self::Forbidden => "forbidden",
            Self::Processing => "processing",
            Self::NotSupported => "not-supported",
            Self::Duplicate => "duplicate",
            Self::NotFound => "not-found",
            Self::Deleted => "deleted",
            Self::MultipleMatches => "multiple-matches",
            Self::TooLong => "too-long",
            Self::CodeInvalid => "code-invalid",
            Self::Extension => "extension",
            Self::TooCostly => "too-costly",
            Self::BusinessRule => "business-rule",
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::LockError => "lock-error",
            Self::NoStore => "no-store",
            Self::Exception => "exception",
            Self::Timeout => "timeout",
            Self::Throttled => "throttled",
            Self::Informational => "informational",
        }
    }
}

/// One item of `OperationOutcome.issue`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Issue {
    /// Severity of the issue.
    pub severity: Severity,
    /// Type of the issue.
    pub code: IssueCode,
    /// Text for people. Terminology operations add a coding for programs.
    pub details: CodeableConcept,
    /// Path of the element that caused the issue; sent in addition to `expression` for older clients.
    #[serde(default)]
    pub location: Vec<String>,
    /// FHIRPath of the element that caused the issue.
    #[serde(default)]
    pub expression: Vec<String>,
}

impl Issue {
    /// Creates an issue of severity `error` with a text.
    pub fn error(code: IssueCode, text: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, text)
    }

    /// Creates an issue with a text.
    pub fn new(severity: Severity, code: IssueCode, text: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            details: CodeableConcept { coding: Vec::new(), text: Some(text.into()) },
            location: Vec::new(),
            expression: Vec::new(),
        }
    }

    /// Adds the tx-issue-type coding of HL7's terminology ecosystem.
    #[must_use]
    pub fn tx(mut self, kind: &str) -> Self {
        self.details.coding.push(Coding::new(TX_ISSUE_TYPE, kind));
        self
    }

    /// Sets the element that caused the issue, in `location` and in `expression`.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        self.location.push(path.clone());
        self.expression.push(path);
        self
    }

    /// The text for people.
    pub fn text(&self) -> &str {
        self.details.text.as_deref().unwrap_or_default()
    }
}

/// The body of an error response of a FHIR endpoint, and the parameter `issues` of `$validate-code`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OperationOutcome {
    /// The issues, at least one.
    pub issue: Vec<Issue>,
}

impl OperationOutcome {
    /// Creates an outcome with these issues.
    pub fn new(issue: Vec<Issue>) -> Self {
        Self { issue }
    }

    /// Creates an outcome with one issue of severity `error`.
    pub fn error(code: IssueCode, text: impl Into<String>) -> Self {
        Self::new(vec![Issue::error(code, text)])
    }
}

impl From<Issue> for OperationOutcome {
    fn from(issue: Issue) -> Self {
        Self::new(vec![issue])
    }
}

impl Json for Issue {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.text("severity", Some(self.severity.code()));
        object.text("code", Some(self.code.code()));
        object.value("details", &self.details);
        object.list("location", &self.location);
        object.list("expression", &self.expression);
        object.end();
    }
}

impl Json for OperationOutcome {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.text("resourceType", Some("OperationOutcome"));
        object.list("issue", &self.issue);
        object.end();
    }
}

serialize!(Issue, OperationOutcome);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_same_for_reading_and_writing() {
        let codes = "invalid structure required value invariant security login expired forbidden processing \
            not-supported duplicate not-found deleted multiple-matches too-long code-invalid extension too-costly \
            business-rule conflict transient lock-error no-store exception timeout throttled informational";
        for code in codes.split_whitespace() {
            let read: IssueCode = serde_json::from_value(code.into()).unwrap();
            assert_eq!(read.code(), code);
        }
        for severity in ["fatal", "error", "warning", "information"] {
            let read: Severity = serde_json::from_value(severity.into()).unwrap();
            assert_eq!(read.code(), severity);
        }
    }

    #[test]
    fn an_error_has_the_json_of_the_specification() {
        let outcome = OperationOutcome::error(IssueCode::Invalid, "ValueSet http://x not found");
        insta::assert_snapshot!(serde_json::to_string(&outcome).unwrap(), @r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid","details":{"text":"ValueSet http://x not found"}}]}"#);
    }
}
