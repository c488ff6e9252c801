//! Collects the terms of a resource while it is scanned.

use fhir::search_parameters::ValueComparison;
use jiff::Timestamp;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use store::IndexTerm;

use super::elements::IndexedElement;
use super::terms::{DateSet, TermName};
use crate::search::filter::value::{Range, dates, folded, reference_text, texts, tokens};

/// Maximum number of indexed values of an element. A resource with more values has the term
/// [`TermName::overflow`] instead, which each search of the element looks up too.
const MAX_VALUES: usize = 64;
/// Maximum length of a date that is indexed by its start only, in milliseconds: a day.
pub(crate) const SHORT_MS: i64 = 86_400_000;

/// The terms of a resource, by element.
#[derive(Debug, Default)]
pub(crate) struct TermCollector {
    elements: Vec<(TermName, ElementTerms)>,
}

#[derive(Debug, Default)]
struct ElementTerms {
    terms: SmallVec<[IndexTerm; 2]>,
    dates: SmallVec<[Range<Timestamp>; 1]>,
    is_overflown: bool,
}

impl TermCollector {
    /// Adds the terms of a value of an element. `value` is valid JSON and not an array.
    pub fn add(&mut self, element: &IndexedElement, value: &[u8]) {
        let index = self.elements.iter().position(|(name, _)| *name == element.name).unwrap_or_else(|| {
            self.elements.push((element.name, ElementTerms::default()));
            self.elements.len() - 1
        });
        let (name, collected) = &mut self.elements[index];
        if collected.is_overflown {
            return;
        }
        if let Ok(value) = serde_json::from_slice::<&RawValue>(value) {
            collected.add(*name, element, value);
        }
        if collected.terms.len() + collected.dates.len() > MAX_VALUES {
            *collected = ElementTerms { is_overflown: true, ..ElementTerms::default() };
        }
    }

    /// The terms, sorted, each once.
    pub fn finish(self) -> Vec<IndexTerm> {
        let mut all = Vec::new();
        for (name, element) in self.elements {
            all.extend(element.terms);
            if element.is_overflown {
                all.push(name.overflow());
            }
            match only_short_date(&element.dates) {
                Some(start) => all.push(name.date(DateSet::Single, start)),
                None => {
                    for range in element.dates {
                        all.push(name.date(DateSet::From, ms(range.from)));
                        all.push(name.date(DateSet::Until, ms(range.to)));
                    }
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl ElementTerms {
    fn add(&mut self, name: TermName, element: &IndexedElement, value: &RawValue) {
        match element.comparison {
            ValueComparison::Token => {
                let codes = tokens(&element.place, value).into_iter().filter_map(|token| token.code);
                self.terms.extend(codes.map(|code| name.exact(&code.to_lowercase())));
            }
            ValueComparison::Reference | ValueComparison::Uri => {
                let Some(text) = reference_text(element.place.data, value) else { return };
                if element.is_compartment_reference && text.starts_with("Patient/") {
                    return;
                }
                // The id is indexed for every base URL, because the base URL of the server may change.
                let is_reference = element.comparison == ValueComparison::Reference;
                if is_reference && let Some((_, id)) = crate::body::references::target(&text) {
                    self.terms.push(name.exact(id));
                }
                if !is_reference || text.contains(':') {
                    self.terms.push(name.exact(&text));
                    self.terms.extend(text.split_once('|').map(|(url, _)| name.exact(url)));
                }
            }
            ValueComparison::String => {
                self.terms.extend(texts(element.place.data, value).map(|text| name.text(&folded(&text))));
            }
            ValueComparison::Date => self.dates.extend(dates(element.place.data, value)),
            ValueComparison::Number | ValueComparison::Quantity => {}
        }
    }
}

/// The start of the only date of a resource in milliseconds, if it covers at most a day.
pub(crate) fn only_short_date(dates: &[Range<Timestamp>]) -> Option<i64> {
    match dates {
        [only] if ms(only.to) - ms(only.from) <= SHORT_MS => Some(ms(only.from)),
        _ => None,
    }
}

pub(crate) fn ms(time: Timestamp) -> i64 {
    time.as_millisecond()
}
