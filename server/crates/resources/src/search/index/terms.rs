//! The encoding of terms of the search index.
//!
//! | values | term |
//! |---|---|
//! | tokens, references, URIs | 8 bytes: a hash of the element and the value |
//! | strings | 8 bytes: a hash of the element; then the first 24 bytes of the folded text, padded with zeros |
//! | searches of conditional requests | 8 bytes: a hash of the search |
//! | dates | 8 bytes: a hash of the parameter; then 8 bytes: milliseconds, so that terms sort by time |
//!
//! Equal hashes of different values only add candidates. The encoding is stored: a change of it, or of the
//! indexed elements, needs a new format of the store.

use fhir::search_parameters::{ElementPath, SearchParameter, ValueComparison};
use store::{IndexRange, IndexTerm};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Length of the indexed beginning of a text in bytes.
const STRING_BYTES: usize = 24;

/// The name of a set of terms: of the values of an element, or for dates, of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TermName(u64);

/// The part of a parameter's dates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateSet {
    /// Start of the only date of a resource, if it covers at most a day.
    Single,
    /// Starts of all other dates and periods.
    From,
    Until,
}

impl TermName {
    /// The name for the values of a parameter at one of its places, or `None` if they are not indexed.
    ///
    /// All places of a date parameter have the same name, because whether a date is the only one of its
    /// resource depends on all of them.
    pub fn of(kind: &str, parameter: &SearchParameter, place: &ElementPath) -> Option<Self> {
        // Stores that were written before these parameters were supported have no terms of them.
        let is_recent = place.path[0] == "useContext" && place.path.len() > 1 && place.path[1] != "code"
            || parameter.places.iter().any(|place| place.data == "RelatedArtifact")
            || (kind, parameter.code) == ("InsurancePlan", "name")
            || (kind, parameter.code) == ("Patient", "deceased");
        if is_recent {
            return None;
        }
        let name = match parameter.comparison {
            ValueComparison::Date if parameter.code != "_lastUpdated" => {
                format!("{kind} date {}", parameter.code)
            }
            ValueComparison::Token if parameter.code != "_id" => {
                format!("{kind} token {}", place.path.join("."))
            }
            ValueComparison::Reference => format!("{kind} reference {}", place.path.join(".")),
            ValueComparison::String => format!("{kind} string {}", place.path.join(".")),
            // Whole stores have the same profiles, so these terms would only take space.
            ValueComparison::Uri if matches!(parameter.code, "_profile" | "_source") => return None,
            ValueComparison::Uri => format!("{kind} uri {}", place.path.join(".")),
            _ => return None,
        };
        Some(Self(xxh3_64(name.as_bytes())))
    }

    /// The name for the dates of a parameter, or `None` if it has no dates or they are not indexed.
    pub fn of_dates(kind: &str, parameter: &SearchParameter) -> Option<Self> {
        let is_date = parameter.comparison == ValueComparison::Date;
        parameter.places.first().filter(|_| is_date).and_then(|place| Self::of(kind, parameter, place))
    }

    /// The term of a value that is compared as a whole.
    pub fn exact(self, value: &str) -> IndexTerm {
        xxh3_64_with_seed(value.as_bytes(), self.0).to_be_bytes().into()
    }

    /// The term of a resource that has too many values to index them all.
    pub fn overflow(self) -> IndexTerm {
        self.derived("overflow").to_be_bytes().into()
    }

    /// The term of a folded text.
    pub fn text(self, folded: &str) -> IndexTerm {
        let mut term = [0; 8 + STRING_BYTES];
        term[..8].copy_from_slice(&self.derived("text").to_be_bytes());
        let bytes = &folded.as_bytes()[..folded.len().min(STRING_BYTES)];
        term[8..8 + bytes.len()].copy_from_slice(bytes);
        term.into()
    }

    /// The terms of all folded texts that begin with `beginning`, which must not be empty.
    pub fn texts(self, beginning: &str) -> IndexRange {
        let bytes = &beginning.as_bytes()[..beginning.len().min(STRING_BYTES)];
        let from = [&self.derived("text").to_be_bytes()[..], bytes].concat();
        let mut until = from.clone();
        // UTF-8 has no byte 0xFF, so the last byte can be incremented.
        if let Some(last) = until.last_mut() {
            *last += 1;
        }
        IndexRange::Between(from.into(), until.into())
    }

    /// The term of a date in milliseconds.
    pub fn date(self, set: DateSet, ms: i64) -> IndexTerm {
        [self.date_set(set), ordered(ms)].concat().into()
    }

    /// The terms of all dates from `from` to `to` (inclusive).
    pub fn dates(self, set: DateSet, from: i64, to: i64) -> IndexRange {
        // No term of a date has 17 bytes, so the longer bound includes `to` itself.
        let until = [&self.date_set(set)[..], &ordered(to), &[0]].concat();
        IndexRange::Between(self.date(set, from), until.into())
    }

    /// The milliseconds of a term of a date.
    pub fn time(term: &[u8]) -> Option<i64> {
        let number: [u8; 8] = term.get(8..)?.try_into().ok()?;
        Some(i64::from_be_bytes(number) ^ i64::MIN)
    }

    fn date_set(self, set: DateSet) -> [u8; 8] {
        let set = match set {
            DateSet::Single => "single",
            DateSet::From => "from",
            DateSet::Until => "until",
        };
        self.derived(set).to_be_bytes()
    }

    fn derived(self, set: &str) -> u64 {
        xxh3_64_with_seed(set.as_bytes(), self.0)
    }
}

/// The term of the resources that conditional requests with a search have created. The order of its
/// parameters and their encoding make no difference.
pub(crate) fn of_search(search: &str) -> IndexTerm {
    let (kind, query) = search.split_once('?').unwrap_or_default();
    let mut parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    parameters.sort_unstable();
    TermName(xxh3_64(b"search")).exact(&format!("{kind} {parameters:?}"))
}

/// Encodes a number so that the bytes sort like the numbers.
fn ordered(ms: i64) -> [u8; 8] {
    (ms ^ i64::MIN).to_be_bytes()
}
