//! Texts of the issues in the answers of `$validate-code`.
//!
//! HL7's terminology ecosystem compares texts literally, so the wording is that of its reference server. The
//! comments state the ids of the texts in the message table of that server.

use fhir::{Issue, IssueCode, Severity};

use crate::model::concept_text::ConceptText;
use crate::model::error_text;
use crate::model::filter_fault::FilterFault;

#[derive(Debug, Clone)]
pub(crate) struct ValidationIssue {
    pub(crate) issue: Issue,
    /// Whether the text is also part of `message`, as the texts of errors always are.
    pub(crate) in_message: bool,
}

impl ValidationIssue {
    fn new(severity: Severity, code: IssueCode, kind: &str, text: String) -> Self {
        Self { issue: Issue::new(severity, code, text).tx(kind), in_message: false }
    }

    fn error(code: IssueCode, kind: &str, text: String) -> Self {
        Self::new(Severity::Error, code, kind, text)
    }

    fn with_message(mut self) -> Self {
        self.in_message = true;
        self
    }

    /// Sets the path of the element.
    pub(crate) fn at(mut self, path: String) -> Self {
        self.issue = self.issue.at(path);
        self
    }

    /// The issue `None_of_the_provided_codes_are_in_the_value_set_one`: an error for the whole answer, or
    /// information for one coding of several. `coding` is `system|version#code ('display')`.
    pub(crate) fn not_in_value_set(coding: &str, value_set: &str, one_of_several: bool) -> Self {
        let text = format!("The provided code '{coding}' was not found in the value set '{value_set}'");
        match one_of_several {
            true => Self::new(Severity::Information, IssueCode::CodeInvalid, "this-code-not-in-vs", text),
            false => Self::error(IssueCode::CodeInvalid, "not-in-vs", text),
        }
    }

    /// The issue `TX_GENERAL_CC_ERROR_MESSAGE`.
    pub(crate) fn no_valid_coding(value_set: &str) -> Self {
        let text = format!("No valid coding was found for the value set '{value_set}'");
        Self::error(IssueCode::CodeInvalid, "not-in-vs", text)
    }

    /// The issue `Unknown_Code_in_Version`.
    pub(crate) fn unknown_code(code: &str, system: &str, version: Option<&str>) -> Self {
        Self::error(IssueCode::CodeInvalid, "invalid-code", error_text::unknown_code(code, system, version))
    }

    /// The issue `Unable_to_resolve_value_Set_`, for a response with `result=false` instead of an error.
    pub(crate) fn unknown_value_set(url: &str) -> Self {
        Self::error(IssueCode::NotFound, "not-found", error_text::unknown_value_set(url))
    }

    /// The issue that no coding of a concept is from the requested code system.
    pub(crate) fn no_coding_of_system(system: &str) -> Self {
        let text = format!("None of the codings is from the code system '{system}'");
        Self::error(IssueCode::CodeInvalid, "invalid-code", text)
    }

    /// An issue with the reason why the grammar of a system rejects a code, in addition to the error.
    pub(crate) fn not_in_grammar(code: &str, reason: &str) -> Self {
        let text = format!("The code '{code}' cannot be read: {reason}");
        Self::new(Severity::Information, IssueCode::CodeInvalid, "invalid-code", text)
    }

    /// An issue with the edition of SNOMED CT that has a code, in addition to the error.
    pub(crate) fn in_other_edition(code: &str, edition: &str) -> Self {
        let text = format!("The code '{code}' is not in the edition that was used: {edition}");
        Self::new(Severity::Information, IssueCode::Informational, "invalid-code", text)
    }

    /// The warning that a code does not follow the grammar of its system, although it is accepted.
    pub(crate) fn grammar_remark(code: &str, remark: &str) -> Self {
        let text = format!("The code '{code}' is accepted, but does not follow the grammar: {remark}");
        Self::new(Severity::Warning, IssueCode::BusinessRule, "code-rule", text)
    }

    /// The warning that an include of the value set could not be evaluated, beside one that contains the
    /// code.
    pub(crate) fn include_left_out(fault: &FilterFault) -> Self {
        let text =
            format!("Another part of the value set contains the code; this part was left out: {fault}");
        Self::new(Severity::Warning, IssueCode::Processing, "vs-invalid", text)
    }

    /// The information that an expression was not checked against the concept model.
    pub(crate) fn concept_model_not_checked() -> Self {
        let text = "The expression is grammatically correct and the concepts are valid, but the expression has not been checked against the SNOMED CT concept model (MRCM)";
        Self::new(Severity::Information, IssueCode::Informational, "process-note", text.to_owned())
    }

    /// The issue for a part of an expression that the concept model forbids.
    pub(crate) fn concept_model_fault(fault: &str, is_rejected: bool) -> Self {
        let severity = if is_rejected { Severity::Error } else { Severity::Warning };
        Self::new(severity, IssueCode::BusinessRule, "code-rule", fault.to_owned())
    }

    /// The issue `UNKNOWN_CODE_IN_FRAGMENT`.
    pub(crate) fn unknown_code_in_fragment(code: &str, system: &str, version: Option<&str>) -> Self {
        let text = format!(
            "Unknown Code '{code}' in the CodeSystem '{system}' version '{}' - note that the code system is labeled as a fragment, so the code may be valid in some other fragment",
            version.unwrap_or_default()
        );
        Self::new(Severity::Warning, IssueCode::CodeInvalid, "invalid-code", text)
    }

    /// The issue `UNKNOWN_CODESYSTEM`, or one of its two forms with a version.
    pub(crate) fn unknown_code_system(
        system: &str,
        version: Option<&str>,
        stored_versions: &[String],
    ) -> Self {
        Self::error(
            IssueCode::NotFound,
            "not-found",
            error_text::unknown_code_system(system, version, stored_versions),
        )
    }

    /// The issue `UNKNOWN_CODESYSTEM` for a system that the value set does not name either. The reference
    /// server writes this text without quotes.
    pub(crate) fn foreign_code_system(system: &str) -> Self {
        let text = format!(
            "A definition for CodeSystem {system} could not be found, so the code cannot be validated"
        );
        Self::error(IssueCode::NotFound, "not-found", text)
    }

    /// The issue for a code that the value set lists, if its code system is not stored.
    pub(crate) fn taken_on_trust(system: &str) -> Self {
        let text = format!(
            "A definition for CodeSystem '{system}' could not be found, so only the list in the value set was checked"
        );
        Self::new(Severity::Warning, IssueCode::NotFound, "not-found", text).with_message()
    }

    /// The issue `Coding_has_no_system__cannot_validate`.
    pub(crate) fn no_system() -> Self {
        let text = "Coding has no system. A code with no system has no defined meaning, and it cannot be validated. A system should be provided";
        // The issue is a warning, but it is the reason for the negative answer.
        Self::new(Severity::Warning, IssueCode::Invalid, "invalid-data", text.to_owned()).with_message()
    }

    /// The issue for a coding without a code, beside others of its concept.
    pub(crate) fn no_code() -> Self {
        let text = "The coding has no code, so it was not validated";
        Self::new(Severity::Warning, IssueCode::Invalid, "invalid-data", text.to_owned())
    }

    /// The issue `Terminology_TX_System_Relative`. It applies to codings only: a relative `system` next to
    /// `code` is an unknown system.
    pub(crate) fn relative_system() -> Self {
        let text = "Coding.system must be an absolute reference, not a local reference";
        Self::error(IssueCode::Invalid, "invalid-data", text.to_owned())
    }

    /// The issue `Terminology_TX_System_ValueSet2`.
    pub(crate) fn system_is_value_set(system: &str) -> Self {
        let text = format!("The Coding references a value set, not a code system ('{system}')");
        Self::error(IssueCode::Invalid, "invalid-data", text)
    }

    /// The issue `CODESYSTEM_CS_NO_SUPPLEMENT`.
    pub(crate) fn system_is_supplement(canonical: &str) -> Self {
        let text =
            format!("CodeSystem {canonical} is a supplement, so can't be used as a value in Coding.system");
        Self::error(IssueCode::Invalid, "invalid-data", text)
    }

    /// The issue `ABSTRACT_CODE_NOT_ALLOWED`.
    pub(crate) fn abstract_code(system: &str, code: &str) -> Self {
        let text = format!("Code '{system}#{code}' is abstract, and not allowed in this context");
        Self::error(IssueCode::BusinessRule, "code-rule", text)
    }

    /// The issue `STATUS_CODE_WARNING_CODE`.
    pub(crate) fn not_active(code: &str) -> Self {
        Self::error(
            IssueCode::BusinessRule,
            "code-rule",
            format!("The concept '{code}' is valid but is not active"),
        )
    }

    /// The issue `INACTIVE_CONCEPT_FOUND`.
    pub(crate) fn inactive(code: &str, status: Option<&str>) -> Self {
        let status = match status {
            Some(status) if status != "inactive" => format!("{status} and inactive"),
            _ => "inactive".to_owned(),
        };
        let text = format!("The concept '{code}' has a status of {status} and its use should be reviewed");
        Self::new(Severity::Warning, IssueCode::BusinessRule, "code-comment", text).with_message()
    }

    /// The issue `DEPRECATED_CONCEPT_FOUND`.
    pub(crate) fn deprecated(code: &str) -> Self {
        let text = format!("The concept '{code}' is deprecated and its use should be reviewed");
        Self::new(Severity::Warning, IssueCode::BusinessRule, "code-comment", text).with_message()
    }

    /// The issue `CONCEPT_DEPRECATED_IN_VALUESET`.
    pub(crate) fn deprecated_in_value_set(code: &str, system: &str, value_set: &str) -> Self {
        let text = format!(
            "The presence of the concept '{code}' in the system '{system}' in the value set {value_set} is marked with a status of deprecated and its use should be reviewed"
        );
        Self::new(Severity::Warning, IssueCode::BusinessRule, "code-comment", text)
    }

    /// The issue `CODE_CASE_DIFFERENCE`.
    pub(crate) fn case_difference(code: &str, right: &str, canonical: &str) -> Self {
        let text = format!(
            "The code '{code}' differs from the correct code '{right}' by case. Although the code system '{canonical}' is case insensitive, implementers are strongly encouraged to use the correct case anyway"
        );
        Self::new(Severity::Information, IssueCode::BusinessRule, "code-rule", text)
    }

    /// The issue `MSG_DRAFT`, `MSG_EXPERIMENTAL`, `MSG_RETIRED`, `MSG_DEPRECATED` or `MSG_WITHDRAWN`.
    pub(crate) fn status(status: &str, kind: &str, canonical: &str) -> Self {
        let text = format!("Reference to {status} {kind} {canonical}");
        Self::new(Severity::Information, IssueCode::BusinessRule, "status-check", text)
    }

    /// The issue `VALUESET_VALUE_MISMATCH` or `VALUESET_VALUE_MISMATCH_CHANGED`.
    pub(crate) fn version_mismatch(
        system: &str,
        actual: &str,
        stated: Option<&str>,
        requested: &str,
    ) -> Self {
        let resulting = match stated {
            Some(stated) => {
                format!("version '{actual}' resulting from the version '{stated}' in the ValueSet include")
            }
            None => format!("version '{actual}' in the ValueSet include"),
        };
        let text = format!(
            "The code system '{system}' {resulting} is different to the one in the value ('{requested}')"
        );
        Self::error(IssueCode::Invalid, "vs-invalid", text)
    }

    /// The issue `VALUESET_VALUE_MISMATCH_DEFAULT`.
    pub(crate) fn default_version_mismatch(system: &str, actual: &str, requested: &str) -> Self {
        let text = format!(
            "The code system '{system}' version '{actual}' for the versionless include in the ValueSet include is different to the one in the value ('{requested}')"
        );
        Self::new(Severity::Warning, IssueCode::Invalid, "vs-invalid", text)
    }

    /// The issue `VALUESET_VERSION_CHECK`.
    pub(crate) fn version_check(system: &str, version: &str, required: &str) -> Self {
        Self::error(
            IssueCode::Exception,
            "version-error",
            error_text::version_not_allowed(system, version, required),
        )
    }

    /// An issue about a code without a version, if the code system says that a code needs one
    /// (`CodeSystem.versionNeeded`).
    pub(crate) fn no_version(system: &str, code: &str, version: &str) -> Self {
        let text = format!(
            "The codes of '{system}' can change their meaning from one version to another (versionNeeded); state the version of '{code}'. Version '{version}' was used"
        );
        Self::new(Severity::Warning, IssueCode::BusinessRule, "version-error", text)
    }

    /// The issue `Display_Name_for__should_be_one_of__instead_of` or `Display_Name_WS_for__…`.
    pub(crate) fn wrong_display(
        sent_display: &str,
        coding: &str,
        whitespace: bool,
        right: &[ConceptText<'_>],
        languages: &str,
    ) -> Self {
        let wrong = if whitespace { "Wrong whitespace in Display Name" } else { "Wrong Display Name" };
        let choice = |display: &ConceptText<'_>| match display.language {
            Some(language) => format!("'{}' ({language})", display.text),
            None => format!("'{}'", display.text),
        };
        let choices: Vec<_> = right.iter().map(choice).collect();
        let valid = match choices.as_slice() {
            [one] => format!("Valid display is {one}"),
            [first @ .., last] => {
                format!("Valid display is one of {} choices: {} or {last}", choices.len(), first.join(", "))
            }
            [] => "There is no valid display".to_owned(),
        };
        let text =
            format!("{wrong} '{sent_display}' for {coding}. {valid} (for the language(s) '{languages}')");
        Self::error(IssueCode::Invalid, "invalid-display", text)
    }

    /// The issue `NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_ERR`.
    pub(crate) fn wrong_display_by_default(
        display: &str,
        coding: &str,
        languages: &str,
        default: Option<&str>,
    ) -> Self {
        let text = format!(
            "Wrong Display Name '{display}' for {coding}. There are no valid display names found for language(s) '{languages}'. Default display is '{}'",
            default.unwrap_or_default()
        );
        Self::error(IssueCode::Invalid, "invalid-display", text)
    }

    /// The issue `NO_VALID_DISPLAY_FOUND_NONE_FOR_LANG_OK`.
    pub(crate) fn display_by_default(display: &str, coding: &str, languages: &str) -> Self {
        let text = format!(
            "There are no valid display names found for the code {coding} for language(s) '{languages}'. The display is '{display}' which is a valid display for the default language"
        );
        Self::new(Severity::Information, IssueCode::Invalid, "invalid-display", text).with_message()
    }

    /// The issue `INACTIVE_DISPLAY_FOUND`. Like the reference server, it says "deprecated" for withdrawn
    /// displays, too.
    pub(crate) fn retired_display(display: &str, code: &str, right: &[&str]) -> Self {
        let right: Vec<_> = right.iter().map(|text| format!("\"{text}\"")).collect();
        let text = format!(
            "'{display}' is no longer considered a correct display for code '{code}' (status = deprecated). The correct display is one of {}.",
            right.join(", ")
        );
        Self::new(Severity::Warning, IssueCode::Invalid, "display-comment", text)
    }

    /// The issue `UNABLE_TO_INFER_CODESYSTEM`.
    pub(crate) fn cannot_infer(code: &str, value_set: &str) -> Self {
        let text = format!(
            "The System URI could not be determined for the code '{code}' in the ValueSet '{value_set}'"
        );
        Self::error(IssueCode::NotFound, "cannot-infer", text)
    }

    /// The issue `Unable_to_resolve_system__value_set_has_multiple_matches`.
    pub(crate) fn cannot_choose(code: &str, value_set: &str, systems: &[&str]) -> Self {
        let text = format!(
            "The System URI could not be determined for the code '{code}' in the ValueSet '{value_set}': value set expansion has multiple matches: [{}]",
            systems.join(", ")
        );
        Self::error(IssueCode::NotFound, "cannot-infer", text)
    }

    /// The issue as a warning, for lenient display validation.
    pub(crate) fn into_warning(mut self) -> Self {
        self.issue.severity = Severity::Warning;
        self.with_message()
    }

    /// The issue as information, which has no effect on the result.
    pub(crate) fn into_information(mut self) -> Self {
        self.issue.severity = Severity::Information;
        self
    }
}
