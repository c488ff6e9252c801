//! The terms and compartments that a search looks up.

use fhir::patient_compartment;
use fhir::search_parameters::{ElementPath, SearchParameter};
use jiff::Timestamp;
use store::IndexRange;

use super::collect::SHORT_MS;
use super::terms::{DateSet, TermName};
use crate::search::filter::value::{Range, SearchPrefix, SearchValue, Target, folded};
use crate::search::filter::{FilterClause, FilterTest, TypeFilter};

/// The terms of one or more parameters of a search. Each resource that matches the search has one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexClause {
    pub ranges: Vec<IndexRange>,
}

impl TypeFilter {
    /// The indexed clauses of the search. Dates of one parameter are combined, so that `date=ge2020` and
    /// `date=lt2021` look up one year.
    pub(crate) fn index_clauses(&self) -> Vec<IndexClause> {
        let mut clauses = Vec::new();
        for (index, clause) in self.clauses.iter().enumerate() {
            let FilterTest::Any(wanted) = &clause.test else { continue };
            if !clause.is_indexed {
                continue;
            }
            let is_same = |other: &FilterClause| other.parameter.code == clause.parameter.code;
            let dates: Option<Vec<_>> = match wanted[..] {
                [SearchValue::Date(..)] if self.clauses[..index].iter().any(is_same) => continue,
                [SearchValue::Date(..)] => {
                    self.clauses.iter().filter(|other| is_same(other)).map(only_date).collect()
                }
                _ => None,
            };
            let ranges = match dates {
                Some(dates) => date_ranges(self.kind, &clause.parameter, &dates),
                None => value_ranges(self.kind, &clause.parameter, wanted),
            };
            clauses.extend(ranges.map(|ranges| IndexClause { ranges }));
        }
        clauses
    }

    /// The compartments of Patients that a parameter limits the search to, if one does.
    pub(crate) fn compartments(&self) -> Option<CompartmentClause> {
        self.clauses.iter().find_map(|clause| {
            let FilterTest::Any(wanted) = &clause.test else { return None };
            let is_in = |place: &ElementPath| is_compartment_reference(self.kind, place);
            if !clause.parameter.places.iter().all(is_in) {
                return None;
            }
            let mut references = CompartmentClause::default();
            for value in wanted {
                let SearchValue::Reference(Target::Local {
                    kind: kind @ (None | Some("Patient")), id, ..
                }) = value
                else {
                    return None;
                };
                references.compartments.push(format!("Patient/{id}"));
                let is_patient = |place: &ElementPath| place.only == Some("Patient");
                if kind.is_some() || clause.parameter.places.iter().all(is_patient) {
                    continue;
                }
                for name in names(self.kind, &clause.parameter)? {
                    references.others.push(IndexRange::Term(name.exact(id)));
                    references.others.push(IndexRange::Term(name.overflow()));
                }
            }
            references.compartments.sort_unstable();
            references.compartments.dedup();
            Some(references)
        })
    }
}

/// The compartments that a parameter limits a search to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompartmentClause {
    /// Names of the compartments, sorted.
    pub compartments: Vec<String>,
    /// Terms of resources that may match outside of the compartments, such as `Group/p` for `subject=p`.
    pub others: Vec<IndexRange>,
}

/// `true` if references at the place determine compartments.
fn is_compartment_reference(kind: &str, place: &ElementPath) -> bool {
    let path = place.path.join(".");
    place.data == "Reference" && patient_compartment::r4_paths(kind).contains(&path.as_str())
}

/// The only date of a clause.
fn only_date(clause: &FilterClause) -> Option<(SearchPrefix, Range<Timestamp>)> {
    match &clause.test {
        FilterTest::Any(wanted) => match wanted[..] {
            [SearchValue::Date(prefix, range)] => Some((prefix, range)),
            _ => None,
        },
        _ => None,
    }
}

/// The names of the terms of a parameter at its places, each once.
fn names(kind: &str, parameter: &SearchParameter) -> Option<Vec<TermName>> {
    let names = parameter.places.iter().map(|place| TermName::of(kind, parameter, place));
    let mut names = names.collect::<Option<Vec<_>>>()?;
    let mut systems = Vec::new();
    names.retain(|name| {
        !systems.contains(name) && {
            systems.push(*name);
            true
        }
    });
    Some(names)
}

/// The terms of alternative values, or `None` if one of them is not indexed.
fn value_ranges(kind: &str, parameter: &SearchParameter, values: &[SearchValue]) -> Option<Vec<IndexRange>> {
    let mut ranges = Vec::new();
    let has_compartments = parameter.places.iter().any(|place| is_compartment_reference(kind, place));
    for name in names(kind, parameter)? {
        ranges.push(IndexRange::Term(name.overflow()));
        for value in values {
            match value {
                // References to Patients at these places have no terms.
                SearchValue::Reference(Target::Local { kind: None | Some("Patient"), .. })
                    if has_compartments =>
                {
                    return None;
                }
                SearchValue::Token { code: Some(code), .. } => {
                    ranges.push(IndexRange::Term(name.exact(&code.to_lowercase())));
                }
                SearchValue::Reference(Target::Local { id, .. }) => {
                    ranges.push(IndexRange::Term(name.exact(id)))
                }
                SearchValue::Reference(Target::Address(url)) | SearchValue::Uri(url) => {
                    ranges.push(IndexRange::Term(name.exact(url)));
                }
                SearchValue::StartsWith(folded) => ranges.push(beginning(name, folded)?),
                SearchValue::Exactly(text) => ranges.push(beginning(name, &folded(text))?),
                SearchValue::Date(prefix, range) => {
                    let [single, other] = windows(*prefix, *range)?;
                    ranges.push(name.dates(single.set, single.from, single.to));
                    ranges.push(name.dates(other.set, other.from, other.to));
                }
                SearchValue::Token { code: None, .. }
                | SearchValue::Contains(_)
                | SearchValue::Number(..)
                | SearchValue::Quantity(..)
                | SearchValue::Words(_) => return None,
            }
        }
    }
    Some(ranges)
}

fn beginning(name: TermName, folded: &str) -> Option<IndexRange> {
    (!folded.is_empty()).then(|| name.texts(folded))
}

/// The terms of dates that meet several conditions. A resource with one date must meet them all with it. A
/// resource with several dates may meet each with another, so only the first condition limits them.
fn date_ranges(
    kind: &str,
    parameter: &SearchParameter,
    conditions: &[(SearchPrefix, Range<Timestamp>)],
) -> Option<Vec<IndexRange>> {
    let windows: Vec<_> = conditions.iter().filter_map(|(prefix, range)| windows(*prefix, *range)).collect();
    let [_, other] = *windows.first()?;
    let from = windows.iter().map(|[single, _]| single.from).max()?;
    let to = windows.iter().map(|[single, _]| single.to).min()?;
    let mut ranges = Vec::new();
    for name in names(kind, parameter)? {
        ranges.push(IndexRange::Term(name.overflow()));
        ranges.push(name.dates(other.set, other.from, other.to));
        if from <= to {
            ranges.push(name.dates(DateSet::Single, from, to));
        }
    }
    Some(ranges)
}

/// A window of terms of dates, in milliseconds, with both bounds.
#[derive(Debug, Clone, Copy)]
struct DateWindow {
    set: DateSet,
    from: i64,
    to: i64,
}

/// The windows of single short dates and of all others that contain every date that meets a condition, or
/// `None` for `ne`, which almost every date meets.
fn windows(prefix: SearchPrefix, range: Range<Timestamp>) -> Option<[DateWindow; 2]> {
    // One millisecond on both sides for times that are more precise.
    let (from, to) = (range.from.as_millisecond() - 1, range.to.as_millisecond() + 1);
    // The start of a short date is at most a day before its end.
    let before = |end: i64| end - SHORT_MS - 1;
    let window = |set, from, to| DateWindow { set, from, to };
    let (single, other) = match prefix {
        SearchPrefix::Ne => return None,
        SearchPrefix::Eq => ((from, to), window(DateSet::From, from, to)),
        SearchPrefix::Gt => ((before(to), i64::MAX), window(DateSet::Until, to - 2, i64::MAX)),
        SearchPrefix::Ge => ((from.min(before(to)), i64::MAX), window(DateSet::Until, from, i64::MAX)),
        SearchPrefix::Sa => ((to - 2, i64::MAX), window(DateSet::From, to - 2, i64::MAX)),
        SearchPrefix::Lt | SearchPrefix::Eb => {
            ((i64::MIN, from + 2), window(DateSet::From, i64::MIN, from + 2))
        }
        SearchPrefix::Le => ((i64::MIN, to), window(DateSet::From, i64::MIN, to)),
        SearchPrefix::Ap => ((before(from), to), window(DateSet::From, i64::MIN, to)),
    };
    Some([window(DateSet::Single, single.0, single.1), other])
}
