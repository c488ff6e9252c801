//! The validated parameters of `$validate-code`.

use fhir::{CodeableConcept, Coding};

use crate::interface::parameters::{
    ABSTRACT, ACTIVE_ONLY, CODE, CODE_SYSTEM_ALIAS, CODE_SYSTEM_OF_CODE, CODE_SYSTEM_URL, CODEABLE_CONCEPT,
    CODING, CONTEXT, DISPLAY, DISPLAY_LANGUAGE, INFER_SYSTEM, LENIENT_DISPLAY_VALIDATION, MEMBERSHIP_ONLY,
    SYSTEM_VERSION_OF_CODE, USE_SUPPLEMENT, VERSION,
};
use crate::membership::version_pins::VersionPins;
use crate::model::error::malformed;
use crate::model::language::LanguageRanges;
use crate::model::{Budget, TxError, canonical};
use crate::ops::OperationInput;
use crate::ops::shared_parameters::read_pins;

/// The operation that was called. The two operations name some parameters differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValidateOperation {
    /// `ValueSet/$validate-code`: `system` and `systemVersion` belong to the code, `url` to the value set.
    ValueSet,
    /// `CodeSystem/$validate-code`: `url` (or `system`) and `version` belong to the code.
    CodeSystem,
}

#[derive(Debug)]
pub(crate) enum ValidateSubject<'a> {
    /// The parameter `code`, with `system` unless it is inferred.
    Code(Coding),
    /// The parameter `coding`.
    Coding(&'a Coding),
    /// The parameter `codeableConcept`, with at least one coding.
    Concept(&'a CodeableConcept),
}

/// Position of a coding in the request, for the paths of issues.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CodingPath {
    Code,
    Coding,
    Concept(usize),
}

impl CodingPath {
    /// The path of a member of the coding.
    pub(crate) fn member_path(self, name: &str) -> String {
        match self {
            Self::Code => name.to_owned(),
            Self::Coding => format!("Coding.{name}"),
            Self::Concept(at) => format!("CodeableConcept.coding[{at}].{name}"),
        }
    }

    pub(crate) fn coding_path(self) -> String {
        match self {
            Self::Code => "code".to_owned(),
            Self::Coding => "Coding".to_owned(),
            Self::Concept(at) => format!("CodeableConcept.coding[{at}]"),
        }
    }
}

/// A `$validate-code` request.
#[derive(Debug)]
pub(crate) struct ValidateRequest<'a> {
    pub(crate) subject: ValidateSubject<'a>,
    /// `abstract`: whether an abstract code is valid. The default is true.
    pub(crate) abstract_allowed: bool,
    pub(crate) lenient_display: bool,
    pub(crate) membership_only: bool,
    pub(crate) active_only: bool,
    pub(crate) supplements: Vec<&'a str>,
    /// `displayLanguage`; if `None`, the value set and the header decide.
    pub(crate) languages: Option<LanguageRanges>,
    pub(crate) header_languages: Option<LanguageRanges>,
    pub(crate) pins: VersionPins,
    pub(crate) ecosystem: bool,
}

impl<'a> ValidateRequest<'a> {
    /// Reads all parameters except those that select the value set.
    ///
    /// # Errors
    /// [`TxError`] if a parameter is missing or invalid.
    pub(crate) fn read(
        input: OperationInput<'a>,
        operation: ValidateOperation,
        budget: &Budget<'_>,
    ) -> Result<Self, TxError> {
        // The binding of an element determines the system (R4). A code that is in several systems is
        // rejected.
        let infer_system =
            input.flag(INFER_SYSTEM)? || operation == ValidateOperation::ValueSet && input.has(CONTEXT.row());
        let header_languages = match input.header_languages() {
            // An invalid header is ignored, because browsers and proxies add their own.
            Some(header) => LanguageRanges::parse(header).ok(),
            None => None,
        };
        Ok(Self {
            subject: read_subject(input, operation, infer_system)?,
            abstract_allowed: input.boolean(ABSTRACT)?.unwrap_or(true),
            lenient_display: input.flag(LENIENT_DISPLAY_VALIDATION)?,
            membership_only: input.flag(MEMBERSHIP_ONLY)?,
            active_only: input.flag(ACTIVE_ONLY)?,
            supplements: input.texts(USE_SUPPLEMENT)?,
            languages: input.text(DISPLAY_LANGUAGE)?.map(LanguageRanges::parse).transpose()?,
            header_languages,
            pins: read_pins(input, budget)?,
            ecosystem: input.is_of_ecosystem(),
        })
    }

    pub(crate) fn codings(&self) -> Vec<(CodingPath, &Coding)> {
        match &self.subject {
            ValidateSubject::Code(coding) => vec![(CodingPath::Code, coding)],
            ValidateSubject::Coding(coding) => vec![(CodingPath::Coding, *coding)],
            ValidateSubject::Concept(concept) => concept
                .coding
                .iter()
                .enumerate()
                .map(|(index, coding)| (CodingPath::Concept(index), coding))
                .collect(),
        }
    }
}

/// Reads the code to validate. At least one of the three forms is required. If there are several, the first
/// complete one is used, in the order of the specification.
fn read_subject(
    input: OperationInput<'_>,
    operation: ValidateOperation,
    infer_system: bool,
) -> Result<ValidateSubject<'_>, TxError> {
    let missing = |what: &str| Err(TxError::Missing { what: what.to_owned() });
    let code = input.text(CODE)?;
    let coding = input.coding(CODING)?;
    let concept = input.codeable_concept(CODEABLE_CONCEPT)?;
    let (system, version) = match operation {
        ValidateOperation::ValueSet => {
            (input.text(CODE_SYSTEM_OF_CODE)?, input.text(SYSTEM_VERSION_OF_CODE)?)
        }
        ValidateOperation::CodeSystem => {
            (input.text(CODE_SYSTEM_URL)?.or(input.text(CODE_SYSTEM_ALIAS)?), input.text(VERSION)?)
        }
    };
    match (code, coding, concept) {
        (Some(code), ..)
            if system.is_some() || infer_system || operation == ValidateOperation::CodeSystem =>
        {
            let (system, in_system) = system.map(canonical::split).unzip();
            Ok(ValidateSubject::Code(Coding {
                system: system.map(String::from),
                version: version.or(in_system.flatten()).map(String::from),
                code: Some(code.to_owned()),
                display: input.text(DISPLAY)?.map(String::from),
                user_selected: None,
            }))
        }
        (_, Some(coding), _) => {
            if coding.code.as_deref().is_none_or(str::is_empty) {
                return Err(malformed("coding", "a coding without a code cannot be validated"));
            }
            Ok(ValidateSubject::Coding(coding))
        }
        (_, None, Some(concept)) => {
            if concept.coding.is_empty() {
                return missing("parameter 'codeableConcept' needs at least one coding");
            }
            // A record may have only texts, so that codings without a code are in no value set.
            Ok(ValidateSubject::Concept(concept))
        }
        (Some(_), None, None) => missing("parameter 'system' is required with 'code'"),
        (None, None, None) => Err(TxError::NothingToValidate { ecosystem: input.is_of_ecosystem() }),
    }
}
