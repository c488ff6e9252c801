//! The parameters of `$validate-code`, checked: the only way into the rules.

use fhir::{CodeableConcept, Coding};

use crate::display::Languages;
use crate::input::malformed;
use crate::value_set::imports::Pins;
use crate::version;
use crate::{Budget, Input, TxError};

/// Parameters that only HL7's terminology ecosystem has. One of them makes the difference between
/// the plain interface and the ecosystem's (DESIGN section 4).
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

/// Which of the two operations is asked: they name the same things differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `ValueSet/$validate-code`: `system` and `systemVersion` belong to the code, `url` to the set.
    ValueSet,
    /// `CodeSystem/$validate-code`: `url` (or `system`) and `version` belong to the code.
    CodeSystem,
}

/// What is to be validated.
#[derive(Debug)]
pub(crate) enum Subject<'a> {
    /// `code`, with `system` unless it is to be inferred.
    Code(Coding),
    /// `coding`.
    Coding(&'a Coding),
    /// `codeableConcept`, with at least one coding.
    Concept(&'a CodeableConcept),
}

/// Where a coding stands in the request, for the paths of issues.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Code,
    Coding,
    Concept(usize),
}

impl Place {
    /// Path of a member of the coding.
    pub(crate) fn member(self, name: &str) -> String {
        match self {
            Self::Code => name.to_owned(),
            Self::Coding => format!("Coding.{name}"),
            Self::Concept(at) => format!("CodeableConcept.coding[{at}].{name}"),
        }
    }

    /// Path of the coding itself.
    pub(crate) fn whole(self) -> String {
        match self {
            Self::Code => "code".to_owned(),
            Self::Coding => "Coding".to_owned(),
            Self::Concept(at) => format!("CodeableConcept.coding[{at}]"),
        }
    }
}

/// A `$validate-code` request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) subject: Subject<'a>,
    /// `abstract`: may a code be abstract? Where nothing is said, it may.
    pub(crate) abstract_allowed: bool,
    pub(crate) lenient_display: bool,
    pub(crate) membership_only: bool,
    pub(crate) active_only: bool,
    pub(crate) supplements: Vec<&'a str>,
    /// `displayLanguage`; `None` where it is left to the value set and the header.
    pub(crate) languages: Option<Languages>,
    pub(crate) header_languages: Option<Languages>,
    pub(crate) pins: Pins,
    pub(crate) ecosystem: bool,
}

impl<'a> Request<'a> {
    /// Reads everything but the choice of the value set.
    ///
    /// # Errors
    /// When a parameter is missing or cannot be used.
    pub(crate) fn read(input: Input<'a>, operation: Operation, budget: &Budget<'_>) -> Result<Self, TxError> {
        let flag = |name| Ok::<_, TxError>(input.boolean(name)?.unwrap_or(false));
        // An element's binding stands in for the system (R4); a code that is in several of them is refused.
        let infer_system = flag("inferSystem")? || input.has("context");
        let header_languages = match input.header_languages() {
            // A header that cannot be read is passed over: browsers and proxies send their own.
            Some(header) => Languages::parse(header).ok(),
            None => None,
        };
        Ok(Self {
            subject: subject(input, operation, infer_system)?,
            abstract_allowed: input.boolean("abstract")?.unwrap_or(true),
            lenient_display: flag("lenient-display-validation")?,
            membership_only: flag("valueset-membership-only")?,
            active_only: flag("activeOnly")?,
            supplements: input.texts("useSupplement")?,
            languages: input.text("displayLanguage")?.map(Languages::parse).transpose()?,
            header_languages,
            pins: Pins {
                default: pins(input, "system-version", budget)?,
                check: pins(input, "check-system-version", budget)?,
                force: pins(input, "force-system-version", budget)?,
                value_sets: pins(input, "default-valueset-version", budget)?,
                date: day(input)?,
            },
            ecosystem: ecosystem(input),
        })
    }

    /// The codings to judge and where they stand.
    pub(crate) fn codings(&self) -> Vec<(Place, &Coding)> {
        match &self.subject {
            Subject::Code(coding) => vec![(Place::Code, coding)],
            Subject::Coding(coding) => vec![(Place::Coding, *coding)],
            Subject::Concept(concept) => {
                concept.coding.iter().enumerate().map(|(at, coding)| (Place::Concept(at), coding)).collect()
            }
        }
    }
}

/// Does the request speak HL7's terminology ecosystem?
pub(crate) fn ecosystem(input: Input<'_>) -> bool {
    ECOSYSTEM.iter().any(|name| input.has(name))
}

/// What is to be validated. SPEC wants at least one of the three forms; of several the first one that
/// is whole counts, in SPEC's order.
fn subject(input: Input<'_>, operation: Operation, infer_system: bool) -> Result<Subject<'_>, TxError> {
    let missing = |what: &str| Err(TxError::Missing { what: what.to_owned() });
    let code = input.text("code")?;
    let coding = input.coding("coding")?;
    let concept = input.codeable_concept("codeableConcept")?;
    let (system, version) = match operation {
        Operation::ValueSet => (input.text("system")?, input.text("systemVersion")?),
        Operation::CodeSystem => (input.text("url")?.or(input.text("system")?), input.text("version")?),
    };
    match (code, coding, concept) {
        (Some(code), ..) if system.is_some() || infer_system || operation == Operation::CodeSystem => {
            let (system, in_system) = system.map(version::split).unzip();
            Ok(Subject::Code(Coding {
                system: system.map(String::from),
                version: version.or(in_system.flatten()).map(String::from),
                code: Some(code.to_owned()),
                display: input.text("display")?.map(String::from),
                user_selected: None,
            }))
        }
        (_, Some(coding), _) => {
            has_code(coding, "coding")?;
            Ok(Subject::Coding(coding))
        }
        (_, None, Some(concept)) => {
            if concept.coding.is_empty() {
                return missing("parameter 'codeableConcept' needs at least one coding");
            }
            concept.coding.iter().try_for_each(|coding| has_code(coding, "codeableConcept"))?;
            Ok(Subject::Concept(concept))
        }
        (Some(_), None, None) => missing("parameter 'system' is needed beside 'code'"),
        (None, None, None) => Err(TxError::NothingToValidate { ecosystem: ecosystem(input) }),
    }
}

/// `date`: a day, or a moment of which the day counts.
pub(crate) fn day(input: Input<'_>) -> Result<Option<String>, TxError> {
    let Some(date) = input.text("date")? else { return Ok(None) };
    let day = date.split_once('T').map_or(date, |(day, _)| day);
    let digits = |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
    let mut lengths = [4, 2, 2].into_iter();
    if day.split('-').all(|part| lengths.next().is_some_and(|length| digits(part, length))) {
        return Ok(Some(day.to_owned()));
    }
    Err(malformed("date", format!("'{date}' is no date, such as 2026-11-21")))
}

fn has_code(coding: &Coding, parameter: &str) -> Result<(), TxError> {
    match coding.code.as_deref() {
        Some(code) if !code.is_empty() => Ok(()),
        _ => Err(malformed(parameter, "a coding without a code cannot be validated")),
    }
}

/// The versions that a repeatable parameter pins, as `(url, version)`.
pub(crate) fn pins(
    input: Input<'_>,
    name: &str,
    budget: &Budget<'_>,
) -> Result<Vec<(String, String)>, TxError> {
    let pin = |canonical| match version::split(canonical) {
        (url, Some(version)) => Ok((url.to_owned(), version.to_owned())),
        (_, None) => Err(malformed(name, format!("'{canonical}' has no version; write url|version"))),
    };
    let given = input.texts(name)?;
    budget.spend(2 * given.len())?;
    given.into_iter().map(pin).collect()
}
