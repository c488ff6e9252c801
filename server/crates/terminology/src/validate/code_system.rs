//! `CodeSystem/$validate-code` (FHIR R4): is a code one of a code system, and is what is said about
//! it right? A code system counts as the value set of all its codes, so the rules are the same.

use fhir::Parameters;

use super::judge::Judge;
use super::request::{Operation, Place, Request, Subject};
use super::{Answer, Location, inline, judged, languages, supplements};
use crate::catalog::{BYTES_PER_STEP, Catalog, Compiled};
use crate::code_system::CodeSystem;
use crate::input::malformed;
use crate::messages::Note;
use crate::value_set::ValueSet;
use crate::wire::Content;
use crate::{Budget, Input, Level, TxError, version};

/// Answers `CodeSystem/$validate-code`.
pub(crate) fn answer(
    catalog: &Catalog,
    level: Level<'_>,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    budget.during("validating codes");
    let mut request = Request::read(input, Operation::CodeSystem, budget)?;
    let given;
    let system = match level {
        Level::Instance(id) => Ok(catalog.code_system_by_id(id, budget)?),
        Level::Type => match inline(input, "codeSystem", CodeSystem::KIND)? {
            Some((header, json)) => {
                budget.spend(json.get().len() / BYTES_PER_STEP)?;
                given = CodeSystem::compile(&header, json.get().as_bytes())
                    .map_err(|why| malformed("codeSystem", why))?;
                Ok(&given)
            }
            None => by_url(catalog, &request, input, budget)?,
        },
    };
    let system = match system {
        Ok(system) if matches!(system.content, Content::Complete | Content::Fragment) => system,
        Ok(system) => {
            let canonical = version::join(&system.url, system.version.as_deref());
            let why = match system.content {
                Content::Supplement => Note::system_is_supplement(&canonical),
                _ => Note::unknown_code_system(&system.url, None, &[]),
            };
            return Ok(unusable(&request, why, system.url.clone()));
        }
        Err((why, canonical)) => return Ok(unusable(&request, why, canonical)),
    };
    if !fit(&mut request, system)? {
        return Ok(unusable(&request, Note::no_coding_of_system(&system.url), String::new()));
    }
    let set = ValueSet::of_all(String::new(), None, system.url.clone());
    let judge = Judge {
        catalog,
        budget,
        request: &request,
        set: &set,
        home: &set,
        system: Some(system),
        supplements: supplements(catalog, &request, &set, budget)?,
        languages: languages(&request, &set)?,
    };
    Ok(judged(&judge)?.write(Location::Always))
}

/// Looks the code system up: by what the request names, else by what its coding names. The inner
/// error says why there is none to be judged by.
fn by_url<'a>(
    catalog: &'a Catalog,
    request: &Request<'_>,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<Result<&'a CodeSystem, (Note, String)>, TxError> {
    let (place, coding) = request.codings()[0];
    let named = input.text("url")?.or(input.text("system")?);
    let Some(canonical) = named.or(coding.system.as_deref()) else {
        return match place {
            Place::Code => Err(TxError::Missing {
                what: "parameter 'url' is needed unless the operation is called on a CodeSystem".to_owned(),
            }),
            _ => Ok(Err((Note::no_system().at(place.whole()), String::new()))),
        };
    };
    let (url, in_url) = version::split(canonical);
    let own = coding.version.as_deref().filter(|_| coding.system.as_deref() == Some(url));
    let wanted = input.text("version")?.or(in_url).or(own);
    let wanted = request.pins.replacing(url, wanted).or(wanted);
    let code = coding.code.as_deref().unwrap_or_default();
    let found = match wanted {
        None => catalog.code_system_of(url, request.pins.date.as_deref(), code),
        version => catalog.code_system_for(url, version, code),
    };
    if let Some(resource) = found.or_else(|| catalog.supplement(url)) {
        return Ok(Ok(resource.get(budget)?));
    }
    let known = catalog.code_system_versions(url);
    let (why, missing) = if catalog.value_set(url, None, budget)?.is_some() {
        (Note::system_is_value_set(url), url.to_owned())
    } else if !url.contains(':') && !matches!(place, Place::Code) {
        (Note::relative_system(), url.to_owned())
    } else {
        let canonical = version::join(url, wanted.filter(|_| !known.is_empty()));
        (Note::unknown_code_system(url, wanted, &known), canonical)
    };
    Ok(Err((why.at(place.member("system")), missing)))
}

/// The answer where there is no code system to judge by. With a canonical, that is the cause.
fn unusable(request: &Request<'_>, why: Note, cause: String) -> Parameters {
    let (place, coding) = request.codings()[0];
    let why = match why.issue.expression.is_empty() && !cause.is_empty() {
        true => why.at(place.member("system")),
        false => why,
    };
    let missing = Some(cause).filter(|cause| !cause.is_empty()).into_iter().collect();
    let mut answer = Answer { notes: vec![why], missing, ..Answer::default() };
    match &request.subject {
        Subject::Concept(concept) => answer.concept = Some((*concept).clone()),
        Subject::Code(_) | Subject::Coding(_) => answer.repeat(coding),
    }
    answer.write(Location::Always)
}

/// Holds the codings against the code system: is there any of this system? A code without a system
/// means this one; of a concept, the codings of this system count.
///
/// # Errors
/// When a code or coding is of another system: FHIR wants them to match.
fn fit(request: &mut Request<'_>, system: &CodeSystem) -> Result<bool, TxError> {
    let other = |url: &str| format!("'{url}' is not the code system asked about, '{}'", system.url);
    match &mut request.subject {
        Subject::Code(coding) => match &coding.system {
            Some(url) if *url != system.url => Err(malformed("url", other(url))),
            _ => {
                coding.system = Some(system.url.clone());
                Ok(true)
            }
        },
        Subject::Coding(coding) => match coding.system.as_deref() {
            Some(url) if url != system.url => Err(malformed("coding", other(url))),
            _ => Ok(true),
        },
        Subject::Concept(concept) => {
            Ok(concept.coding.iter().any(|coding| coding.system.as_deref() == Some(&system.url)))
        }
    }
}
