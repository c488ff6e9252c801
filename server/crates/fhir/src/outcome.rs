//! OperationOutcome (FHIR R4): what a FHIR endpoint says when it refuses or warns.

use serde::{Deserialize, Serialize};

use crate::json::{Json, Object, serialize};
use crate::{CodeableConcept, Coding};

/// Code system of `issue.details.coding` in terminology answers (HL7 terminology ecosystem).
pub const TX_ISSUE_TYPE: &str = "http://hl7.org/fhir/tools/CodeSystem/tx-issue-type";

/// `OperationOutcome.issue.severity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The action could not be carried out at all.
    Fatal,
    /// The action failed, or the answer is negative.
    Error,
    /// The action succeeded, but something deserves a look.
    Warning,
    /// A remark.
    Information,
}

/// `OperationOutcome.issue.code`, the values that Trefoil uses.
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
    /// As FHIR spells it.
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
    /// As FHIR spells it.
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
    /// How bad it is.
    pub severity: Severity,
    /// Kind of the issue.
    pub code: IssueCode,
    /// Text for people and, in terminology, a coding for programs.
    pub details: CodeableConcept,
    /// The element at fault, as a simple path; sent beside `expression` for older clients.
    #[serde(default)]
    pub location: Vec<String>,
    /// The element at fault, as FHIRPath.
    #[serde(default)]
    pub expression: Vec<String>,
}

impl Issue {
    /// An issue of severity `error` with a text.
    pub fn error(code: IssueCode, text: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, text)
    }

    /// An issue with a text.
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

    /// Names the element at fault, in `location` and in `expression`.
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

/// The body of an error answer of a FHIR endpoint, and `issues` of validate-code.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OperationOutcome {
    /// At least one.
    pub issue: Vec<Issue>,
}

impl OperationOutcome {
    /// An outcome of these issues.
    pub fn new(issue: Vec<Issue>) -> Self {
        Self { issue }
    }

    /// An outcome of one issue of severity `error`.
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
    fn codes_are_spelled_as_they_are_read() {
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
    fn an_error_reads_as_the_specification_shows_it() {
        let outcome = OperationOutcome::error(IssueCode::Invalid, "ValueSet http://x not found");
        insta::assert_snapshot!(serde_json::to_string(&outcome).unwrap(), @r#"{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid","details":{"text":"ValueSet http://x not found"}}]}"#);
    }
}
