//! `$validate-code` (FHIR R4), on ValueSet and on CodeSystem: is a code in it, and is what is said
//! about it right? And `ValueSet/$batch-validate-code` (HL7's terminology ecosystem).
//!
//! Each coding is judged by itself ([`judge`]); [`Answer`] puts the verdicts together.

mod batch;
mod code_system;
mod judge;
mod location;
pub(crate) mod request;

use std::collections::HashSet;

use fhir::{Coding, OperationOutcome, Parameters, Severity};
use serde_json::value::RawValue;

pub(crate) use self::batch::answer as answer_batch;
pub(crate) use self::code_system::answer as answer_code_system;
pub(crate) use self::judge::State;
use self::judge::{Judge, Judged};
use self::location::Location;
use self::request::{Operation, Place, Request, Subject};
use crate::catalog::{BYTES_PER_STEP, Catalog, Compiled};
use crate::display::Languages;
use crate::input::malformed;
use crate::messages::Note;
use crate::texts::{self, Supplement};
use crate::value_set::ValueSet;
use crate::value_set::imports::{self, Home, pinned};
use crate::wire::Header;
use crate::{Budget, Input, Level, TxError, version};

/// Answers `ValueSet/$validate-code`.
pub(crate) fn answer(
    catalog: &Catalog,
    level: Level<'_>,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.during("validating codes");
    let request = Request::read(input, Operation::ValueSet, budget)?;
    let inline;
    let at = match level {
        Level::Instance(id) => Home::own(catalog.value_set_by_id(id, budget)?),
        Level::Type => match inline_value_set(input, budget)? {
            Some(given) => {
                inline = given;
                within(&inline, input, request.ecosystem)?
            }
            None => Home::own(by_url(catalog, &request, input, budget)?),
        },
    };
    let Home { home, set } = at;
    match imports::check(catalog, at, &request.pins, request.ecosystem, budget) {
        Ok(()) => {}
        // The set asked for is there, but not what it imports: to the ecosystem that is an answer.
        Err(TxError::UnknownValueSet { url, ecosystem: true }) => {
            return Ok(undefined(&request, Note::unknown_value_set(&url)));
        }
        Err(error) => return Err(error),
    }
    let judge = Judge {
        catalog,
        budget,
        request: &request,
        set,
        home,
        system: None,
        supplements: supplements(catalog, &request, set, budget)?,
        languages: languages(&request, set)?,
    };
    let answer = match &request.subject {
        Subject::Code(coding) if coding.system.is_none() => infer(&judge, coding)?,
        _ => judged(&judge)?,
    };
    Ok(answer.write(Location::of(catalog, &request, input, budget)?))
}

/// The set that the request brings along, or the one contained in it that `url` refers to as `#id`.
pub(crate) fn within<'a>(
    given: &'a ValueSet,
    input: Input<'_>,
    ecosystem: bool,
) -> Result<Home<'a>, TxError> {
    let Some(id) = input.text("url")?.and_then(|url| url.strip_prefix('#')) else {
        return Ok(Home::own(given));
    };
    let unknown = || TxError::UnknownValueSet { url: format!("#{id}"), ecosystem };
    Ok(Home { home: given, set: given.contained.get(id).ok_or_else(unknown)? })
}

/// Judges all codings of the request.
fn judged(judge: &Judge<'_, '_>) -> Result<Answer, TxError> {
    // Of a concept, CodeSystem/$validate-code judges the codings of its system.
    let several = matches!(judge.request.subject, Subject::Concept(_));
    let counts = |coding: &Coding| {
        judge.system.is_none_or(|system| !several || coding.system.as_deref() == Some(&system.url))
    };
    let codings = judge.request.codings().into_iter().filter(|(_, coding)| counts(coding));
    let mut judged: Vec<_> =
        codings.map(|(place, coding)| judge.coding(coding, place)).collect::<Result<_, _>>()?;
    let mut answer = match &judge.request.subject {
        Subject::Concept(_) => answer_concept(judge, judged),
        Subject::Code(_) | Subject::Coding(_) => answer_coding(judge, judged.swap_remove(0)),
    };
    answer.notes.extend(judge.set_status());
    Ok(answer)
}

/// The answer where the set is not defined as a whole, so that nothing can be in it.
fn undefined(request: &Request<'_>, why: Note) -> Parameters {
    let mut answer = Answer { notes: vec![why], ..Answer::default() };
    match &request.subject {
        Subject::Code(coding) => answer.repeat(coding),
        Subject::Coding(coding) => answer.repeat(coding),
        Subject::Concept(concept) => answer.concept = Some((*concept).clone()),
    }
    answer.write(Location::Always)
}

pub(crate) fn inline_value_set(input: Input<'_>, budget: &Budget<'_>) -> Result<Option<ValueSet>, TxError> {
    let Some((header, json)) = inline(input, "valueSet", ValueSet::KIND)? else { return Ok(None) };
    budget.spend(json.get().len() / BYTES_PER_STEP)?;
    ValueSet::compile(&header, json.get().as_bytes()).map(Some).map_err(|why| malformed("valueSet", why))
}

/// The resource that the request brings along as a parameter of its own.
fn inline<'a>(input: Input<'a>, name: &str, kind: &str) -> Result<Option<(Header, &'a RawValue)>, TxError> {
    let json = match input.resources(name)?.as_slice() {
        [] => return Ok(None),
        [json] => *json,
        _ => return Err(malformed(name, format!("it is there more than once; give one {kind}"))),
    };
    let header = header(json, name)?;
    if header.resource_type != kind {
        return Err(malformed(name, format!("it holds a {}, not a {kind}", header.resource_type)));
    }
    Ok(Some((header, json)))
}

/// Reads the head of a resource that a parameter holds.
///
/// # Errors
/// When it is none.
pub(crate) fn header(json: &RawValue, parameter: &str) -> Result<Header, TxError> {
    serde_json::from_str(json.get()).map_err(|error| malformed(parameter, error.to_string()))
}

fn by_url<'a>(
    catalog: &'a Catalog,
    request: &Request<'_>,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<&'a ValueSet, TxError> {
    let canonical = match (input.text("url")?, input.text("context")?) {
        (Some(url), _) => url,
        (None, Some(context)) => catalog.bound_by(context, budget)?,
        (None, None) => {
            return Err(TxError::Missing {
                what: "parameter 'url' is needed unless the operation is called on a ValueSet".to_owned(),
            });
        }
    };
    let (url, in_url) = version::split(canonical);
    let pin = pinned(&request.pins.value_sets, url);
    let wanted = input.text("valueSetVersion")?.or(in_url).or(pin);
    let found = match wanted {
        None => catalog.value_set_of(url, request.pins.date.as_deref(), budget)?,
        version => catalog.value_set(url, version, budget)?,
    };
    let unknown =
        || TxError::UnknownValueSet { url: version::join(url, wanted), ecosystem: request.ecosystem };
    found.ok_or_else(unknown)
}

/// The supplements that the request or the value set asks for.
fn supplements<'a>(
    catalog: &'a Catalog,
    request: &Request<'_>,
    set: &ValueSet,
    budget: &Budget<'_>,
) -> Result<Vec<Supplement<'a>>, TxError> {
    let asked = request.supplements.iter().copied().chain(set.supplements.iter().map(String::as_str));
    Ok(texts::supplements(catalog, asked, budget)?)
}

/// The languages to go by: what the request says, else what the value set fixes, else the header,
/// else the language of the value set.
fn languages(request: &Request<'_>, set: &ValueSet) -> Result<Languages, TxError> {
    match (&request.languages, &set.display_language, &request.header_languages) {
        (Some(asked), ..) => Ok(asked.clone()),
        (None, Some(fixed), _) => Languages::parse(fixed),
        (None, None, Some(header)) => Ok(header.clone()),
        // What a resource says of itself is no demand, so one that cannot be read is passed over.
        (None, None, None) => {
            Ok(set.language.as_deref().and_then(|own| Languages::parse(own).ok()).unwrap_or_default())
        }
    }
}

/// `inferSystem`: the one system of the value set that has the code.
fn infer(judge: &Judge<'_, '_>, coding: &Coding) -> Result<Answer, TxError> {
    let code = coding.code.as_deref().unwrap_or_default();
    let mut matches = Vec::new();
    let at = Home { home: judge.home, set: judge.set };
    for system in imports::systems(judge.catalog, at, &judge.request.pins, judge.budget)? {
        if !judge.search(system, coding)?.members.is_empty() {
            matches.push(system);
        }
    }
    let set = version::join(&judge.set.url, judge.set.version.as_deref());
    let why = match matches.as_slice() {
        [system] => {
            let coding = Coding { system: Some((*system).to_owned()), ..coding.clone() };
            let mut answer = answer_coding(judge, judge.coding(&coding, Place::Code)?);
            answer.notes.extend(judge.set_status());
            return Ok(answer);
        }
        [] => Note::cannot_infer(code, &set),
        several => Note::cannot_choose(code, &set, several),
    };
    let notes = vec![
        Note::not_in_value_set(&format!("#{code}"), &set, false).at("code".to_owned()),
        why.at("code".to_owned()),
    ];
    Ok(Answer { code: Some(code.to_owned()), notes, ..Answer::default() })
}

/// Everything that an answer may say. Parameters are written in one fixed order.
#[derive(Debug, Default)]
struct Answer {
    result: bool,
    display: Option<String>,
    code: Option<String>,
    system: Option<String>,
    version: Option<String>,
    normalized_code: Option<String>,
    inactive: bool,
    status: Option<String>,
    concept: Option<fhir::CodeableConcept>,
    /// Systems that are not known here.
    missing: Vec<String>,
    /// The code is not in the value set, whatever those systems say.
    decided: bool,
    notes: Vec<Note>,
}

impl Answer {
    /// Says of a coding what the request said.
    fn repeat(&mut self, coding: &Coding) {
        self.code = coding.code.clone();
        self.system = coding.system.clone();
        self.version = coding.version.clone();
    }

    fn write(mut self, location: Location) -> Parameters {
        if !location.is_among(&self.notes) {
            self.notes.iter_mut().for_each(|note| note.issue.location.clear());
        }
        let mut out = Parameters::new();
        out.push_boolean("result", self.result);
        let is_told = |note: &&Note| note.told || note.issue.severity == Severity::Error;
        let mut texts: Vec<_> = self.notes.iter().filter(is_told).map(|note| note.issue.text()).collect();
        texts.sort_unstable();
        texts.dedup();
        let message = texts.join("; ");
        if !message.is_empty() {
            out.push_string("message", message);
        }
        if let Some(display) = self.display {
            out.push_string("display", display);
        }
        if let Some(code) = self.code {
            out.push_code("code", code);
        }
        if let Some(system) = self.system {
            out.push_uri("system", system);
        }
        if let Some(version) = self.version {
            out.push_string("version", version);
        }
        if let Some(code) = self.normalized_code {
            out.push_code("normalized-code", code);
        }
        if self.inactive {
            out.push_boolean("inactive", true);
        }
        if let Some(status) = self.status {
            out.push_code("status", status);
        }
        if let Some(concept) = self.concept {
            out.push("codeableConcept", fhir::Value::CodeableConcept(concept));
        }
        let name = if self.decided { "x-unknown-system" } else { "x-caused-by-unknown-system" };
        for canonical in self.missing {
            out.push(name, fhir::Value::Text("Canonical", canonical));
        }
        if !self.notes.is_empty() {
            let issues = self.notes.into_iter().map(|note| note.issue).collect();
            out.push_outcome("issues", OperationOutcome::new(issues));
        }
        out
    }
}

fn answer_coding(judge: &Judge<'_, '_>, judged: Judged<'_>) -> Answer {
    // The plain interface has one parameter for all systems that are not known.
    let decided = judge.request.ecosystem && !judged.in_set && !judged.undecided;
    Answer { result: judged.is_valid(), decided, ..said(judged) }
}

/// What one verdict says, its result left open.
fn said(judged: Judged<'_>) -> Answer {
    let coding = judged.coding;
    Answer {
        result: false,
        display: judged.display,
        code: coding.code.clone(),
        system: coding.system.clone(),
        version: judged.version,
        normalized_code: judged.normalized_code,
        inactive: judged.inactive,
        status: judged.status,
        concept: None,
        missing: judged.missing,
        decided: false,
        notes: judged.notes,
    }
}

/// True when one coding is in the value set (FHIR R4); the ecosystem also wants none to be wrong in
/// itself. In the plain interface what is wrong with the others is then a warning: records carry
/// local codes beside the standard ones.
fn answer_concept(judge: &Judge<'_, '_>, mut judged: Vec<Judged<'_>>) -> Answer {
    let plain = !judge.request.ecosystem;
    let right = judged.iter().position(|one| plain && one.is_valid());
    if let Some(right) = right {
        judged.iter_mut().enumerate().filter(|(at, _)| *at != right).for_each(|(_, other)| other.only_warn());
    }
    let member = right.or_else(|| judged.iter().position(|one| one.in_set));
    let undecided = judged.iter().any(|one| one.undecided);
    let valid = member.is_some() && judged.iter().all(Judged::has_no_error);
    let mut answer = match member {
        Some(at) => said(judged.remove(at)),
        // Nothing to say of one coding in particular, except where there was only one.
        None => Answer {
            inactive: judged.iter().any(|one| one.inactive),
            status: judged.iter().find_map(|one| one.status.clone()),
            version: judged.first().filter(|_| undecided).and_then(|one| one.version.clone()),
            ..Answer::default()
        },
    };
    let mut missing: HashSet<String> = answer.missing.iter().cloned().collect();
    for one in judged {
        answer.notes.extend(one.notes);
        answer.missing.extend(one.missing.into_iter().filter(|canonical| missing.insert(canonical.clone())));
    }
    if member.is_none() && !undecided && judge.system.is_none() {
        let set = version::join(&judge.set.url, judge.set.version.as_deref());
        answer.notes.insert(0, Note::no_valid_coding(&set));
    }
    if let Subject::Concept(concept) = &judge.request.subject {
        answer.concept = Some((*concept).clone());
    }
    let decided = !plain && member.is_none() && !undecided;
    Answer { result: valid, decided, ..answer }
}
