//! `ValueSet/$validate-code` (FHIR R4): is a code in a value set, and is what is said about it right?
//!
//! Each coding is judged by itself ([`judge`]); [`answer`] puts the verdicts together.

mod judge;
mod request;

use fhir::{Coding, OperationOutcome, Parameters, Severity};
use serde_json::value::RawValue;

use self::judge::{Judge, Judged};
use self::request::{Place, Request, Subject};
use crate::catalog::{Catalog, Compiled};
use crate::code_system::CodeSystem;
use crate::display::Languages;
use crate::input::malformed;
use crate::messages::{Note, Told};
use crate::terminology::Change;
use crate::value_set::ValueSet;
use crate::value_set::search::{self, pinned};
use crate::wire::Header;
use crate::{Input, Level, TxError, Unprocessable, version};

/// Answers `$validate-code`.
pub(crate) fn answer(catalog: &Catalog, level: Level<'_>, input: Input<'_>) -> Result<Parameters, TxError> {
    let request = Request::read(input)?;
    let overlay = overlay(catalog, input)?;
    let catalog = overlay.as_ref().unwrap_or(catalog);
    let inline;
    let set = match level {
        Level::Instance(id) => catalog.value_set_by_id(id)?,
        Level::Type => match inline_value_set(input)? {
            Some(given) => {
                inline = given;
                &inline
            }
            None => by_url(catalog, &request, input)?,
        },
    };
    search::check(catalog, set, &request.pins, request.ecosystem)?;
    let judge = Judge {
        catalog,
        request: &request,
        set,
        supplements: supplements(catalog, &request, set)?,
        languages: languages(&request, set)?,
    };
    match &request.subject {
        Subject::Code(coding) if coding.system.is_none() => infer(&judge, coding),
        Subject::Concept(_) => {
            let several = request.codings().into_iter();
            let judged: Vec<_> =
                several.map(|(place, coding)| judge.coding(coding, place)).collect::<Result<_, _>>()?;
            Ok(answer_concept(&judge, judged))
        }
        Subject::Code(_) | Subject::Coding(_) => {
            let (place, coding) = request.codings()[0];
            Ok(answer_coding(judge.coding(coding, place)?))
        }
    }
}

/// The catalog with the resources that the request brings along, where it brings any.
fn overlay(catalog: &Catalog, input: Input<'_>) -> Result<Option<Catalog>, TxError> {
    let resources = input.resources("tx-resource")?;
    if resources.is_empty() {
        return Ok(None);
    }
    let mut changes = Vec::with_capacity(resources.len());
    for (at, json) in resources.iter().enumerate() {
        let header = header(json, "tx-resource")?;
        let kind = [CodeSystem::KIND, ValueSet::KIND].into_iter().find(|kind| *kind == header.resource_type);
        // No FHIR id has a space, so these cannot hide a stored resource.
        let id = format!("tx-resource {at}");
        let bytes = json.get().as_bytes().to_vec().into();
        changes.extend(kind.map(|kind| Change::Put { kind, id, bytes }));
    }
    Ok(Some(catalog.with(changes)))
}

fn inline_value_set(input: Input<'_>) -> Result<Option<ValueSet>, TxError> {
    let json = match input.resources("valueSet")?.as_slice() {
        [] => return Ok(None),
        [json] => *json,
        _ => return Err(malformed("valueSet", "it is there more than once; give one ValueSet")),
    };
    let header = header(json, "valueSet")?;
    if header.resource_type != ValueSet::KIND {
        return Err(malformed("valueSet", format!("it holds a {}, not a ValueSet", header.resource_type)));
    }
    ValueSet::compile(&header, json.get().as_bytes()).map(Some).map_err(|why| malformed("valueSet", why))
}

fn header(json: &RawValue, parameter: &str) -> Result<Header, TxError> {
    serde_json::from_str(json.get()).map_err(|error| malformed(parameter, error.to_string()))
}

fn by_url<'a>(
    catalog: &'a Catalog,
    request: &Request<'_>,
    input: Input<'_>,
) -> Result<&'a ValueSet, TxError> {
    let canonical = input.text("url")?.ok_or_else(|| TxError::Missing {
        what: "parameter 'url' is needed unless the operation is called on a ValueSet".to_owned(),
    })?;
    let (url, in_url) = version::split(canonical);
    let wanted = input.text("valueSetVersion")?.or(in_url);
    let found = catalog.value_set(url, wanted.or_else(|| pinned(&request.pins.value_sets, url)))?;
    let unknown =
        || TxError::UnknownValueSet { url: version::join(url, wanted), ecosystem: request.ecosystem };
    found.ok_or_else(unknown)
}

/// The supplements that the request or the value set asks for.
fn supplements<'a>(
    catalog: &'a Catalog,
    request: &Request<'_>,
    set: &ValueSet,
) -> Result<Vec<(&'a Header, &'a CodeSystem)>, TxError> {
    let asked = request.supplements.iter().copied().chain(set.supplements.iter().map(String::as_str));
    asked
        .map(|canonical| {
            let missing = || Unprocessable::MissingSupplement(canonical.to_owned());
            let resource = catalog.supplement(canonical).ok_or_else(missing)?;
            let header = resource.header().ok_or_else(missing)?;
            Ok((header, resource.get()?))
        })
        .collect()
}

/// The languages to go by: what the request says, else the value set, else the header.
fn languages(request: &Request<'_>, set: &ValueSet) -> Result<Languages, TxError> {
    match (&request.languages, &set.display_language, &request.header_languages) {
        (Some(asked), ..) => Ok(asked.clone()),
        (None, Some(fixed), _) => Languages::parse(fixed),
        (None, None, header) => Ok(header.clone().unwrap_or_default()),
    }
}

/// `inferSystem`: the one system of the value set that has the code.
fn infer(judge: &Judge<'_, '_>, coding: &Coding) -> Result<Parameters, TxError> {
    let code = coding.code.as_deref().unwrap_or_default();
    let mut matches = Vec::new();
    for system in search::systems(judge.catalog, judge.set, &judge.request.pins)? {
        if !judge.search(system, coding)?.members.is_empty() {
            matches.push(system);
        }
    }
    let set = version::join(&judge.set.url, judge.set.version.as_deref());
    let why = match matches.as_slice() {
        [system] => {
            let coding = Coding { system: Some((*system).to_owned()), ..coding.clone() };
            return Ok(answer_coding(judge.coding(&coding, Place::Code)?));
        }
        [] => Note::cannot_infer(code, &set),
        several => Note::cannot_choose(code, &set, several),
    };
    let notes = vec![
        Note::not_in_value_set(&format!("#{code}"), &set, false).at("code".to_owned()),
        why.at("code".to_owned()),
    ];
    Ok(Answer { code: Some(code.to_owned()), notes, ..Answer::default() }.write())
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
    /// Systems without which the code could not be judged.
    caused_by: Vec<String>,
    /// Systems that neither the server nor the value set knows.
    unknown: Vec<String>,
    notes: Vec<Note>,
}

impl Answer {
    fn write(self) -> Parameters {
        let mut out = Parameters::new();
        out.push_boolean("result", self.result);
        let texts = |wanted: &dyn Fn(&Note) -> bool| {
            let mut texts: Vec<_> = self.notes.iter().filter(|n| wanted(n)).map(|n| n.issue.text()).collect();
            texts.sort_unstable();
            texts.dedup();
            texts.join("; ")
        };
        let message = match self.result {
            true => texts(&|note| note.told != Told::Never),
            false => texts(&|note| note.issue.severity == Severity::Error || note.told == Told::Always),
        };
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
        for (name, list) in
            [("x-caused-by-unknown-system", self.caused_by), ("x-unknown-system", self.unknown)]
        {
            for canonical in list {
                out.push(name, fhir::Value::Text("Canonical", canonical));
            }
        }
        if !self.notes.is_empty() {
            let issues = self.notes.into_iter().map(|note| note.issue).collect();
            out.push_resource("issues", &OperationOutcome::new(issues));
        }
        out
    }
}

fn answer_coding(judged: Judged<'_>) -> Parameters {
    Answer { result: judged.is_valid(), ..said(judged) }.write()
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
        caused_by: judged.caused_by,
        unknown: judged.unknown.into_iter().collect(),
        notes: judged.notes,
    }
}

/// True when one coding is in the value set (FHIR R4); the ecosystem also wants none to be wrong in
/// itself. In the plain interface what is wrong with the others is then a warning: records carry
/// local codes beside the standard ones.
fn answer_concept(judge: &Judge<'_, '_>, mut judged: Vec<Judged<'_>>) -> Parameters {
    let plain = !judge.request.ecosystem;
    let right = judged.iter().position(|one| plain && one.is_valid());
    if let Some(right) = right {
        judged.iter_mut().enumerate().filter(|(at, _)| *at != right).for_each(|(_, other)| other.only_warn());
    }
    let member = right.or_else(|| judged.iter().position(|one| one.in_set));
    let cannot_tell = judged.iter().any(|one| !one.caused_by.is_empty());
    let valid = member.is_some() && judged.iter().all(Judged::has_no_error);
    let mut answer = match member {
        Some(at) => said(judged.remove(at)),
        // Nothing to say of one coding in particular, except where there was only one.
        None => Answer {
            version: judged.first().filter(|_| cannot_tell).and_then(|one| one.version.clone()),
            ..Answer::default()
        },
    };
    for one in judged {
        answer.notes.extend(one.notes);
        answer.caused_by.extend(one.caused_by);
        answer.unknown.extend(one.unknown);
    }
    if member.is_none() && !cannot_tell {
        let set = version::join(&judge.set.url, judge.set.version.as_deref());
        answer.notes.insert(0, Note::no_valid_coding(&set));
    }
    if let Subject::Concept(concept) = &judge.request.subject {
        answer.concept = Some((*concept).clone());
    }
    Answer { result: valid, ..answer }.write()
}
