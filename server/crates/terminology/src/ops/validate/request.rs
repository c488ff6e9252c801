//! The validated parameters of `$validate-code`.

use fhir::{CodeableConcept, Coding};

use crate::membership::version_pins::VersionPins;
use crate::model::error::malformed;
use crate::model::language::LanguageRanges;
use crate::model::{Budget, TxError, canonical};
use crate::ops::OperationInput;

/// Parameters of HL7's terminology ecosystem. A request with any of them is a request to the ecosystem instead of the
/// plain interface.
const ECOSYSTEM: &[&str] = &[
    "tx-resource",
    "cache-id",
    "uuid",
    "inferSystem",
    "lenient-display-validation",
    "valueset-membership-only",
    "activeOnly",
    "useSupplement",
    "default-valueset-version",
    "system-version",
    "check-system-version",
    "force-system-version",
];

/// The operation that was called. The two operations name some parameters differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValidateOperation {
    /// `ValueSet/$validate-code`: `system` and `systemVersion` belong to the code, `url` to the value set.
    ValueSet,
    /// `CodeSystem/$validate-code`: `url` (or `system`) and `version` belong to the code.
    CodeSystem,
}

/// The code to validate.
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
    /// Returns the path of a member of the coding.
    pub(crate) fn member_path(self, name: &str) -> String {
        match self {
            Self::Code => name.to_owned(),
            Self::Coding => format!("Coding.{name}"),
            Self::Concept(at) => format!("CodeableConcept.coding[{at}].{name}"),
        }
    }

    /// Returns the path of the coding.
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
    /// Returns [`TxError`] if a parameter is missing or invalid.
    pub(crate) fn read(
        input: OperationInput<'a>,
        operation: ValidateOperation,
        budget: &Budget<'_>,
    ) -> Result<Self, TxError> {
        let flag = |name| Ok::<_, TxError>(input.boolean(name)?.unwrap_or(false));
        // The binding of an element determines the system (R4). A code that is in several systems is rejected.
        let infer_system = flag("inferSystem")? || input.has("context");
        let header_languages = match input.header_languages() {
            // An invalid header is ignored, because browsers and proxies add their own.
            Some(header) => LanguageRanges::parse(header).ok(),
            None => None,
        };
        Ok(Self {
            subject: read_subject(input, operation, infer_system)?,
            abstract_allowed: input.boolean("abstract")?.unwrap_or(true),
            lenient_display: flag("lenient-display-validation")?,
            membership_only: flag("valueset-membership-only")?,
            active_only: flag("activeOnly")?,
            supplements: input.texts("useSupplement")?,
            languages: input.text("displayLanguage")?.map(LanguageRanges::parse).transpose()?,
            header_languages,
            pins: VersionPins {
                default: read_pins(input, "system-version", budget)?,
                check: read_pins(input, "check-system-version", budget)?,
                force: read_pins(input, "force-system-version", budget)?,
                value_sets: read_pins(input, "default-valueset-version", budget)?,
                date: read_day(input)?,
            },
            ecosystem: is_ecosystem_request(input),
        })
    }

    /// Returns the codings with their positions.
    pub(crate) fn codings(&self) -> Vec<(CodingPath, &Coding)> {
        match &self.subject {
            ValidateSubject::Code(coding) => vec![(CodingPath::Code, coding)],
            ValidateSubject::Coding(coding) => vec![(CodingPath::Coding, *coding)],
            ValidateSubject::Concept(concept) => concept
                .coding
                .iter()
                .enumerate()
                .map(|(at, coding)| (CodingPath::Concept(at), coding))
                .collect(),
        }
    }
}

/// Returns whether a request uses HL7's terminology ecosystem.
pub(crate) fn is_ecosystem_request(input: OperationInput<'_>) -> bool {
    ECOSYSTEM.iter().any(|name| input.has(name))
}

/// Reads the code to validate. At least one of the three forms is required. If there are several, the first complete
/// one is used, in the order of the specification.
fn read_subject(
    input: OperationInput<'_>,
    operation: ValidateOperation,
    infer_system: bool,
) -> Result<ValidateSubject<'_>, TxError> {
    let missing = |what: &str| Err(TxError::Missing { what: what.to_owned() });
    let code = input.text("code")?;
    let coding = input.coding("coding")?;
    let concept = input.codeable_concept("codeableConcept")?;
    let (system, version) = match operation {
        ValidateOperation::ValueSet => (input.text("system")?, input.text("systemVersion")?),
        ValidateOperation::CodeSystem => {
            (input.text("url")?.or(input.text("system")?), input.text("version")?)
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
                display: input.text("display")?.map(String::from),
                user_selected: None,
            }))
        }
        (_, Some(coding), _) => {
            check_has_code(coding, "coding")?;
            Ok(ValidateSubject::Coding(coding))
        }
        (_, None, Some(concept)) => {
            if concept.coding.is_empty() {
                return missing("parameter 'codeableConcept' needs at least one coding");
            }
            // One coding without a code does not prevent the validation of the others.
            let checked = || concept.coding.iter().map(|coding| check_has_code(coding, "codeableConcept"));
            if !checked().any(|result| result.is_ok()) {
                checked().collect::<Result<(), _>>()?;
            }
            Ok(ValidateSubject::Concept(concept))
        }
        (Some(_), None, None) => missing("parameter 'system' is required with 'code'"),
        (None, None, None) => Err(TxError::NothingToValidate { ecosystem: is_ecosystem_request(input) }),
    }
}

/// Reads `date`, which is a day or a time. Of a time, only the day is used.
pub(crate) fn read_day(input: OperationInput<'_>) -> Result<Option<String>, TxError> {
    let Some(date) = input.text("date")? else { return Ok(None) };
    let day = date.split_once('T').map_or(date, |(day, _)| day);
    let digits = |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    let mut lengths = [4, 2, 2].into_iter();
    if day.split('-').all(|part| lengths.next().is_some_and(|length| digits(part, length))) {
        return Ok(Some(day.to_owned()));
    }
    Err(malformed("date", format!("'{date}' is not a date, such as 2026-11-21")))
}

fn check_has_code(coding: &Coding, parameter: &str) -> Result<(), TxError> {
    match coding.code.as_deref() {
        Some(code) if !code.is_empty() => Ok(()),
        _ => Err(malformed(parameter, "a coding without a code cannot be validated")),
    }
}

/// Reads the versions that a repeatable parameter pins, as pairs of URL and version.
pub(crate) fn read_pins(
    input: OperationInput<'_>,
    name: &str,
    budget: &Budget<'_>,
) -> Result<Vec<(String, String)>, TxError> {
    let pin = |canonical| match canonical::split(canonical) {
        (url, Some(version)) => Ok((url.to_owned(), version.to_owned())),
        (_, None) => Err(malformed(name, format!("'{canonical}' has no version; write url|version"))),
    };
    let given = input.texts(name)?;
    budget.spend(2 * given.len())?;
    given.into_iter().map(pin).collect()
}
