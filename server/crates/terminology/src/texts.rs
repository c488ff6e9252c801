//! Everything that is said of a concept in words: what a value set says, then its code system, then
//! supplements. What `$lookup` and `$expand` show.

use fhir::Coding;

use crate::catalog::Catalog;
use crate::code_system::{CodeSystem, Display};
use crate::display::Languages;
use crate::places::Places;
use crate::value_set::Listed;
use crate::wire::Header;
use crate::{Budget, TxError, Unprocessable, version};

/// A supplement and its header.
pub(crate) type Supplement<'a> = (&'a Header, &'a CodeSystem);

/// A display or designation with system, code and display of its `use`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    pub(crate) display: Display<'a>,
    pub(crate) purpose: Option<[&'a str; 3]>,
}

impl<'a> Text<'a> {
    fn of(display: Display<'a>) -> Self {
        Self { display, purpose: None }
    }

    /// Its `use`, where it has one.
    pub(crate) fn coding(&self) -> Option<Coding> {
        let [system, code, display] =
            self.purpose?.map(|part| Some(part).filter(|part| !part.is_empty()).map(String::from));
        Some(Coding { system, code, display, ..Coding::default() })
    }
}

/// The supplements with these canonical URLs.
///
/// # Errors
/// When one is missing or broken.
pub(crate) fn supplements<'a, 'c>(
    catalog: &'a Catalog,
    asked: impl IntoIterator<Item = &'c str>,
    budget: &Budget<'_>,
) -> Result<Vec<Supplement<'a>>, Unprocessable> {
    let find = |canonical: &str| {
        budget.spend(1)?;
        let missing = || Unprocessable::MissingSupplement(canonical.to_owned());
        let resource = catalog.supplement(canonical).ok_or_else(missing)?;
        Ok((resource.header().ok_or_else(missing)?, resource.get(budget)?))
    };
    asked.into_iter().map(find).collect()
}

/// The supplements that add to this concept, with their ordinal for it.
pub(crate) fn additions<'a, 's>(
    supplements: &'s [Supplement<'a>],
    system: &'s CodeSystem,
    at: u32,
) -> impl Iterator<Item = (&'a CodeSystem, u32)> + 's {
    let found = move |supplement: &'a CodeSystem| Some((supplement, supplement.find(system.code(at))?));
    adding(supplements, system).filter_map(found)
}

/// The supplements that add to this code system.
pub(crate) fn adding<'a, 's>(
    supplements: &'s [Supplement<'a>],
    system: &'s CodeSystem,
) -> impl Iterator<Item = &'a CodeSystem> + 's {
    let adds = move |header: &Header| {
        header.supplements.as_deref().is_some_and(|canonical| {
            let (url, wanted) = version::split(canonical);
            let have = system.version.as_deref().unwrap_or_default();
            url == system.url && wanted.is_none_or(|wanted| version::matches(wanted, have))
        })
    };
    supplements.iter().filter(move |(header, _)| adds(header)).map(|(_, supplement)| *supplement)
}

/// The display where no language decides: the value set's, else the code system's. Designations of a
/// set are additional (R4), so they do not take its place.
pub(crate) fn default<'a>(
    concept: Option<(&'a CodeSystem, u32)>,
    listed: Option<(&'a Listed, Option<&'a str>)>,
) -> Option<Display<'a>> {
    let own = listed.and_then(|(listed, language)| Some(Display::own(listed.display.as_deref()?, language)));
    own.or_else(|| {
        concept.and_then(|(system, at)| Some(Display::own(system.display(at)?, system.language.as_deref())))
    })
}

/// All texts of a concept, the preferred one first. `listed` is how a value set of this language
/// lists it.
pub(crate) fn texts<'a>(
    concept: Option<(&'a CodeSystem, u32)>,
    listed: Option<(&'a Listed, Option<&'a str>)>,
    supplements: &[Supplement<'a>],
    budget: &Budget<'_>,
) -> Result<Vec<Text<'a>>, TxError> {
    budget.spend(supplements.len())?;
    let mut out: Vec<Text<'a>> = default(concept, listed).map(Text::of).into_iter().collect();
    if let Some((listed, _)) = listed {
        out.extend(listed.designations.iter().map(|said| Text {
            display: Display { kind: said.kind, ..Display::own(&said.text, said.language.as_deref()) },
            purpose: said.purpose.as_ref().map(|parts| parts.each_ref().map(String::as_str)),
        }));
    }
    let of_system = |system: &'a CodeSystem, at| {
        let first = system.display(at).map(|text| Text::of(Display::own(text, system.language.as_deref())));
        let more = system.designations(at).map(|said| Text { display: said.into(), purpose: said.usage });
        first.into_iter().chain(more)
    };
    if let Some((system, at)) = concept {
        out.extend(of_system(system, at));
        for (supplement, at) in additions(supplements, system, at) {
            out.extend(of_system(supplement, at));
        }
    }
    // A set often repeats the system's display without its language.
    let mut kept: Vec<Text<'a>> = Vec::with_capacity(out.len());
    let mut places = Places::default();
    budget.spend(out.len())?;
    for text in out {
        let Display { text: words, language, .. } = text.display;
        let same = [places.find((words, language)), places.find((words, None))];
        match same.into_iter().flatten().min() {
            Some(at) => {
                let other = &mut kept[at];
                if other.display.language.is_none() && language.is_some() {
                    other.display.language = language;
                    places.rename(at, (words, language));
                }
                other.display.kind = other.display.kind.min(text.display.kind);
                other.purpose = other.purpose.or(text.purpose);
            }
            None => {
                places.push((words, language));
                kept.push(text);
            }
        }
    }
    Ok(kept)
}

/// The number of the text to show as display; `None` where there is none in a language that the
/// caller reads.
pub(crate) fn shown(texts: &[Text<'_>], languages: &Languages) -> Option<usize> {
    let displays: Vec<_> = texts.iter().map(|text| text.display).collect();
    let chosen = languages.choose(&displays)?;
    let at = displays.iter().position(|display| std::ptr::eq(display.text, chosen))?;
    (!languages.refuses(displays[at].language)).then_some(at)
}
