//! `CodeSystem/$subsumes` (FHIR R4): how two codes of one system stand to one another.

use fhir::Parameters;

use crate::catalog::Catalog;
use crate::code_system::hierarchy::Hierarchy;
use crate::code_system::{CodeSystem, Concept};
use crate::input::malformed;
use crate::value_set::filter::is_a_hierarchy;
use crate::wire::Content;
use crate::{Budget, Input, Level, TxError, Unprocessable};

/// How code A stands to code B.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subsumption {
    /// The codes are the same.
    Equivalent,
    /// A is an ancestor of B.
    Subsumes,
    /// A is a descendant of B.
    SubsumedBy,
    /// Neither is above the other.
    NotSubsumed,
}

impl Subsumption {
    /// How two concepts of a hierarchy without a circle stand to one another.
    pub(crate) fn of(hierarchy: &Hierarchy, a: Concept, b: Concept) -> Self {
        let is_a = |b: Concept, a: Concept| {
            b.above.may_be_below(a.above) && hierarchy.is_below(b, hierarchy.interval(a.at))
        };
        if a.at == b.at {
            Self::Equivalent
        } else if is_a(b, a) {
            Self::Subsumes
        } else if is_a(a, b) {
            Self::SubsumedBy
        } else {
            Self::NotSubsumed
        }
    }

    /// As FHIR's concept-subsumption-outcome spells it.
    pub fn code(self) -> &'static str {
        match self {
            Self::Equivalent => "equivalent",
            Self::Subsumes => "subsumes",
            Self::SubsumedBy => "subsumed-by",
            Self::NotSubsumed => "not-subsumed",
        }
    }
}

/// The two codes, the parameters they came in, and what was said about their system.
struct Request<'a> {
    codes: [(&'static str, &'a str); 2],
    system: Option<&'a str>,
    version: Option<&'a str>,
}

/// Answers `$subsumes`.
pub(crate) fn answer(
    catalog: &Catalog,
    level: Level<'_>,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.during("comparing codes");
    let request = Request::read(input)?;
    let system = match level {
        Level::Instance(id) => {
            let system = catalog.code_system_by_id(id, budget)?;
            request.fits(system)?;
            system
        }
        Level::Type => {
            let url = request.system.ok_or_else(|| TxError::Missing {
                what: "parameter 'system' is needed unless the operation is called on a CodeSystem"
                    .to_owned(),
            })?;
            let unknown = || TxError::UnknownCodeSystem {
                system: url.to_owned(),
                version: request.version.map(String::from),
                known: catalog.code_system_versions(url),
            };
            // A supplement is found too, so that the answer can say what is wrong with it.
            let found = catalog.code_system(url, request.version).or_else(|| catalog.supplement(url));
            found.ok_or_else(unknown)?.get(budget)?
        }
    };
    let mut out = Parameters::new();
    let outcome = match catalog.is_endless(&system.url) {
        true => compare_words(catalog, system, request.codes, budget)?,
        false => compare(system, request.codes, budget)?,
    };
    out.push_code("outcome", outcome.code());
    Ok(out)
}

impl<'a> Request<'a> {
    fn read(input: Input<'a>) -> Result<Self, TxError> {
        let codings = [input.coding("codingA")?, input.coding("codingB")?];
        let codes = [input.text("codeA")?, input.text("codeB")?];
        let missing = |name: &str| TxError::Missing { what: format!("parameter '{name}' is missing") };
        let (mut system, mut version) = (input.text("system")?, input.text("version")?);
        let codes = match (codes, codings) {
            ([a, b], [None, None]) => {
                [("codeA", a.ok_or_else(|| missing("codeA"))?), ("codeB", b.ok_or_else(|| missing("codeB"))?)]
            }
            ([None, None], [a, b]) => {
                let a = a.ok_or_else(|| missing("codingA"))?;
                let b = b.ok_or_else(|| missing("codingB"))?;
                for (name, coding) in [("codingA", a), ("codingB", b)] {
                    agree(name, "system", &mut system, coding.system.as_deref())?;
                    agree(name, "version", &mut version, coding.version.as_deref())?;
                }
                let code = |name, code: Option<&'a str>| {
                    code.filter(|code| !code.is_empty()).ok_or_else(|| malformed(name, "it has no code"))
                };
                [
                    ("codingA", code("codingA", a.code.as_deref())?),
                    ("codingB", code("codingB", b.code.as_deref())?),
                ]
            }
            _ => return Err(malformed("codeA", "give either codeA and codeB or codingA and codingB")),
        };
        Ok(Self { codes, system, version })
    }

    /// Holds the request against the system of the instance it was sent to.
    fn fits(&self, system: &CodeSystem) -> Result<(), TxError> {
        if let Some(asked) = self.system.filter(|asked| *asked != system.url) {
            return Err(malformed(
                "system",
                format!("'{asked}' is not the system of this CodeSystem, '{}'", system.url),
            ));
        }
        match self.version.filter(|asked| Some(*asked) != system.version.as_deref()) {
            None => Ok(()),
            Some(asked) => Err(TxError::UnknownCodeSystem {
                system: system.url.clone(),
                version: Some(asked.to_owned()),
                known: system.version.iter().cloned().collect(),
            }),
        }
    }
}

/// Takes over what a coding says, unless something else was said before.
fn agree<'a>(
    name: &str,
    member: &str,
    said: &mut Option<&'a str>,
    coding: Option<&'a str>,
) -> Result<(), TxError> {
    match (*said, coding) {
        (Some(before), Some(now)) if before != now => {
            Err(malformed(name, format!("its {member} '{now}' is not the {member} '{before}' given before")))
        }
        (_, now) => {
            *said = said.or(now);
            Ok(())
        }
    }
}

/// Codes of a grammar: each is looked up by itself, and none is above another.
fn compare_words(
    catalog: &Catalog,
    frame: &CodeSystem,
    codes: [(&'static str, &str); 2],
    budget: &Budget<'_>,
) -> Result<Subsumption, TxError> {
    let word = |(parameter, code): (&'static str, &str)| {
        let system =
            catalog.code_system_for(&frame.url, None, code).map(|found| found.get(budget)).transpose()?;
        let found = system.and_then(|system| Some(system.code(system.find(code)?).to_owned()));
        found.ok_or_else(|| unknown_code(frame, parameter, code))
    };
    Ok(match word(codes[0])? == word(codes[1])? {
        true => Subsumption::Equivalent,
        false => Subsumption::NotSubsumed,
    })
}

fn unknown_code(system: &CodeSystem, parameter: &'static str, code: &str) -> TxError {
    TxError::UnknownCode {
        parameter,
        code: code.to_owned(),
        system: system.url.clone(),
        version: system.version.clone(),
    }
}

fn compare(
    system: &CodeSystem,
    codes: [(&'static str, &str); 2],
    budget: &Budget<'_>,
) -> Result<Subsumption, TxError> {
    match system.content {
        Content::Complete | Content::Fragment => {}
        content => {
            return Err(Unprocessable::Content { system: system.url.clone(), content: content.name() }.into());
        }
    }
    let [a, b] = system.locate_all(codes.map(|(_, code)| code));
    let known = |found: Option<Concept>, (parameter, code): (&'static str, &str)| {
        found.ok_or_else(|| unknown_code(system, parameter, code))
    };
    let (a, b) = (known(a, codes[0])?, known(b, codes[1])?);
    if a.at == b.at {
        return Ok(Subsumption::Equivalent);
    }
    let hierarchy = is_a_hierarchy(system)?;
    budget.spend(1 + 2 * hierarchy.walk_steps())?;
    Ok(Subsumption::of(hierarchy, a, b))
}
