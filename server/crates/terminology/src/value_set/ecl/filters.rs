//! The syntax tree of filters, and the tests of texts.

use std::cmp::Ordering;

use super::syntax::EclExpression;
use crate::code_system::word_index::begins_word;

/// A test of a filter, and whether it must fail.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EclFilter<T> {
    pub(super) negated: bool,
    pub(super) test: T,
}

/// A test on data that concepts, descriptions and members have in common.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ComponentTest {
    /// A state; `None` admits both.
    Active(Option<bool>),
    /// Modules by their concepts, or by id if the edition does not contain the concept.
    Module(EclExpression),
    /// Dates as `YYYYMMDD`, one of which the date of the component has in this order.
    EffectiveTime(Ordering, bool, Vec<String>),
}

/// A test of `{{ C … }}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ConceptTest {
    Component(ComponentTest),
    DefinitionStatus(EclExpression),
    /// Semantic tags, in parentheses at the end of the fully specified name.
    SemanticTag(Vec<String>),
}

/// A test of `{{ D … }}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DescriptionTest {
    Component(ComponentTest),
    Term(Vec<SearchTerm>),
    Language(Vec<String>),
    Type(EclExpression),
    Dialect(Vec<DialectTest>),
    Id(Vec<u64>),
    SemanticTag(Vec<String>),
}

/// Rows of reference sets, which `^` selects: `^ [fields] sets {{ M … }}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemberQuery {
    pub(super) reference_sets: EclExpression,
    pub(super) selected: SelectedFields,
    /// Filters that one row must pass.
    pub(super) filters: Vec<EclFilter<MemberTest>>,
}

/// The fields of rows whose concepts are selected.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SelectedFields {
    Members,
    /// `[*]`: the members, and all fields of the reference set.
    All,
    Named(Vec<String>),
}

/// A test of `{{ M … }}`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MemberTest {
    Component(ComponentTest),
    Field(String, FieldTest),
}

/// A test of the value of a field. A value of another type fails it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldTest {
    Concepts(EclExpression),
    Number(Ordering, bool, f64),
    Text(Vec<SearchTerm>),
    /// Dates as `YYYYMMDD`, one of which the value has in this order.
    Time(Ordering, bool, Vec<String>),
    Boolean(bool),
}

/// Language reference sets, and the acceptabilities that a description must have in one of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DialectTest {
    pub(super) reference_sets: EclExpression,
    pub(super) acceptability: Acceptability,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acceptability {
    pub(super) preferred: bool,
    pub(super) acceptable: bool,
}

impl Acceptability {
    pub(super) const ANY: Self = Self { preferred: true, acceptable: true };
    pub(super) const NONE: Self = Self { preferred: false, acceptable: false };
}

/// A search for texts, without regard to case. A search for words also ignores accents and widths.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SearchTerm {
    /// Folded words, each of which begins a word of the text.
    Match(Vec<String>),
    /// Characters of the text in lower case; `None` is any number of characters.
    Wild(Vec<Option<char>>),
}

impl SearchTerm {
    /// The number of steps that one search takes.
    pub(super) fn steps(&self) -> usize {
        match self {
            Self::Match(words) => words.len(),
            Self::Wild(pattern) => 1 + pattern.len() / 16,
        }
    }

    pub(super) fn finds(&self, text: &str) -> bool {
        match self {
            Self::Match(words) => words.iter().all(|word| begins_word(text, word)),
            Self::Wild(pattern) => is_like(text, pattern),
        }
    }
}

/// Returns whether a pattern matches a text as a whole.
fn is_like(text: &str, pattern: &[Option<char>]) -> bool {
    if text.is_ascii() {
        let bytes = text.as_bytes();
        return is_like_letters(bytes.len(), |index| char::from(bytes[index].to_ascii_lowercase()), pattern);
    }
    let letters: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    is_like_letters(letters.len(), |index| letters[index], pattern)
}

fn is_like_letters(count: usize, letter_at: impl Fn(usize) -> char, pattern: &[Option<char>]) -> bool {
    let (mut index, mut next) = (0, 0);
    // The last wildcard, and the position after the text that it has matched so far.
    let mut wildcard = None;
    while index < count {
        match pattern.get(next) {
            Some(None) => {
                wildcard = Some((next, index));
                next += 1;
            }
            Some(Some(letter)) if *letter == letter_at(index) => (index, next) = (index + 1, next + 1),
            _ => match wildcard {
                Some((back, matched)) => {
                    wildcard = Some((back, matched + 1));
                    (index, next) = (matched + 1, back + 1);
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(Option::is_none)
}

/// The semantic tag of a fully specified name.
pub(super) fn semantic_tag(name: &str) -> Option<&str> {
    let (_, tag) = name.strip_suffix(')')?.rsplit_once('(')?;
    Some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_whole_texts() {
        for (pattern, text, expected) in [
            ("cardi*opathy", "Cardiomyopathy", true),
            ("cardi*", "Cardiomyopathy", true),
            ("*pathy", "Cardiomyopathy", true),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("cardi", "Cardiomyopathy", false),
            ("**a", "ba", true),
            ("grün*", "Grünkohl", true),
            ("*ß", "WEIẞ", true),
        ] {
            let pattern: Vec<_> = pattern.chars().map(|c| (c != '*').then_some(c)).collect();
            assert_eq!(is_like(text, &pattern), expected, "{pattern:?} {text}");
        }
    }

    #[test]
    fn semantic_tags_end_names() {
        assert_eq!(semantic_tag("Fern (plant)"), Some("plant"));
        assert_eq!(semantic_tag("Fern (green) plant"), None);
        assert_eq!(semantic_tag("Fern"), None);
    }
}
