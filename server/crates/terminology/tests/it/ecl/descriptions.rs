//! Random descriptions, the filters on them, and the naive test of a filter.

use proptest::prelude::*;
use trefoil_terminology::indexing::{
    ConceptDesignation, DescriptionFacts, IndexBuilder, SNOMED_CT, SNOMED_CT_DEFINITION, SNOMED_CT_NAME,
    SNOMED_CT_SYNONYM,
};

use super::naive::compares;
use super::release::{TIMES, code};

/// Language reference sets: two with an alias, and one that is a concept of the release.
const DIALECTS: [(&str, Option<&str>); 3] =
    [("900000000000509007", Some("en-US")), ("900000000000508004", Some("en-gb")), ("100004", None)];
const KINDS: [(&str, &str); 3] =
    [(SNOMED_CT_SYNONYM, "syn"), (SNOMED_CT_NAME, "fsn"), (SNOMED_CT_DEFINITION, "def")];
const TERMS: [&str; 5] =
    ["Heart attack", "heart (disorder)", "Attack of X-rays", "Disorder (finding)", "My scheme"];
const SEARCHES: [&str; 5] = ["hea", "att hear", "(DIS", "rays", "art"];
const PATTERNS: [&str; 6] = ["*", "heart*", "*a*a*", "heart", "*(disorder)", "*X*"];
const TAGS: [&str; 2] = ["Disorder", "finding"];

/// A description.
#[derive(Debug, Clone)]
pub(super) struct Description {
    active: bool,
    term: &'static str,
    language: &'static str,
    kind: usize,
    module: usize,
    time: &'static str,
    /// Number of the reference set, and whether the description is preferred there.
    dialects: Vec<(usize, bool)>,
}

/// The first concept is a scheme of alternate identifiers with this term.
pub(super) fn scheme_term() -> Description {
    let (language, time) = ("en", TIMES[0]);
    Description { active: true, term: TERMS[4], language, kind: 0, module: 0, time, dialects: Vec::new() }
}

pub(super) fn description() -> impl Strategy<Value = Description> {
    (
        (prop::bool::weighted(0.7), prop::sample::select(TERMS[..4].to_vec())),
        prop::sample::select(vec!["en", "en-GB", "sv"]),
        (0..3_usize, 0..2_usize, prop::sample::select(TIMES.to_vec())),
        prop::collection::btree_map(0..3_usize, any::<bool>(), 0..3),
    )
        .prop_map(|((active, term), language, (kind, module, time), dialects)| Description {
            active,
            term,
            language,
            kind,
            module,
            time,
            dialects: dialects.into_iter().collect(),
        })
}

/// Returns the id of a description of a concept.
fn id(concept: usize, number: usize) -> u64 {
    (1_000_000 + concept * 10 + number) as u64
}

pub(super) fn add_to(builder: &mut IndexBuilder, concept: usize, list: &[Description]) {
    for (number, one) in list.iter().enumerate() {
        let dialects = one.dialects.iter().map(|(which, preferred)| {
            format!("{}{}", DIALECTS[*which].0, if *preferred { '+' } else { '-' })
        });
        let facts = DescriptionFacts {
            id: id(concept, number),
            module: &code(one.module),
            effective_time: one.time,
            dialects: &dialects.collect::<Vec<_>>().join(" "),
        };
        let designation = ConceptDesignation {
            language: Some(one.language),
            usage: Some([SNOMED_CT, KINDS[one.kind].0, ""]),
            value: one.term,
            status: (!one.active).then_some("withdrawn"),
            description: Some(facts),
            ..ConceptDesignation::default()
        };
        builder.add_designation(concept as u32, designation).unwrap();
    }
}

#[derive(Debug, Clone)]
pub(super) enum DescriptionFilter {
    Active(bool, Option<bool>),
    Term(bool, Vec<Search>),
    Language(bool, Vec<&'static str>),
    Type(bool, Vec<usize>),
    TypeId(bool, Vec<usize>),
    /// Reference sets, each with the acceptabilities for it, and the acceptabilities for all others.
    Dialect(bool, Vec<(usize, Option<bool>)>, Option<bool>),
    Module(bool, usize),
    Time(&'static str, &'static str),
    Id(bool, Vec<u64>),
    Tag(bool, &'static str),
}

#[derive(Debug, Clone)]
pub(super) enum Search {
    Match(&'static str),
    Wild(&'static str),
}

pub(super) fn search() -> impl Strategy<Value = Search> {
    prop_oneof![
        prop::sample::select(SEARCHES.to_vec()).prop_map(Search::Match),
        prop::sample::select(PATTERNS.to_vec()).prop_map(Search::Wild),
    ]
}

pub(super) fn description_filter(concepts: usize) -> impl Strategy<Value = DescriptionFilter> {
    use DescriptionFilter::{Active, Dialect, Id, Language, Module, Tag, Term, Time, Type, TypeId};
    let not = any::<bool>;
    let ids = prop::collection::vec((0..concepts, 0..2_usize).prop_map(|(at, n)| id(at, n)), 1..4);
    let kinds = || prop::collection::vec(0..3_usize, 1..3);
    let dialects = prop::collection::vec((0..3_usize, any::<Option<bool>>()), 1..3);
    prop_oneof![
        1 => (not(), any::<Option<bool>>()).prop_map(|(not, yes)| Active(not, yes)),
        3 => (not(), prop::collection::vec(search(), 1..3)).prop_map(|(not, list)| Term(not, list)),
        1 => (not(), prop::sample::subsequence(vec!["EN", "sv"], 1..=2)).prop_map(|(not, list)| Language(not, list)),
        1 => (not(), kinds()).prop_map(|(not, list)| Type(not, list)),
        1 => (not(), kinds()).prop_map(|(not, list)| TypeId(not, list)),
        2 => (not(), dialects, any::<Option<bool>>()).prop_map(|(not, list, rest)| Dialect(not, list, rest)),
        1 => (not(), 0..2_usize).prop_map(|(not, module)| Module(not, module)),
        1 => (prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]), prop::sample::select(TIMES.to_vec()))
            .prop_map(|(order, time)| Time(order, time)),
        1 => (not(), ids).prop_map(|(not, list)| Id(not, list)),
        1 => (not(), prop::sample::select(TAGS.to_vec())).prop_map(|(not, tag)| Tag(not, tag)),
    ]
}

pub(super) fn write_search(searches: &[Search]) -> String {
    let one = |search: &Search| match search {
        Search::Match(words) if words.len() % 2 == 0 => format!("match: \"{words}\""),
        Search::Match(words) => format!("\"{words}\""),
        Search::Wild(pattern) => format!("wild:\"{pattern}\""),
    };
    bracketed(searches.iter().map(one).collect())
}

fn bracketed(list: Vec<String>) -> String {
    match list.as_slice() {
        [one] => one.clone(),
        list => format!("({})", list.join(" ")),
    }
}

impl DescriptionFilter {
    pub(super) fn write(&self) -> String {
        let operator = |not: &bool| if *not { "!=" } else { "=" };
        let acceptability = |of: &Option<bool>, preferred: &str, acceptable: &str| {
            of.map(|of| format!(" ({})", if of { preferred } else { acceptable })).unwrap_or_default()
        };
        match self {
            Self::Active(not, yes) => {
                let value = yes.map_or("*", |yes| if yes { "true" } else { "0" });
                format!("active {} {value}", operator(not))
            }
            Self::Term(not, searches) => format!("term {} {}", operator(not), write_search(searches)),
            Self::Language(not, list) => {
                let list = list.iter().map(|&language| language.to_owned()).collect();
                format!("language {} {}", operator(not), bracketed(list))
            }
            Self::Type(not, list) => {
                let list = list.iter().map(|kind| KINDS[*kind].1.to_owned()).collect();
                format!("type {} {}", operator(not), bracketed(list))
            }
            Self::TypeId(not, list) => {
                let list = list.iter().map(|kind| KINDS[*kind].0.to_owned()).collect();
                format!("typeId {} {}", operator(not), bracketed(list))
            }
            Self::Dialect(not, list, rest) => {
                let aliases: Option<Vec<_>> = list.iter().map(|(which, _)| DIALECTS[*which].1).collect();
                let name = if aliases.is_some() { "dialect" } else { "dialectId" };
                let names = aliases.unwrap_or(list.iter().map(|(which, _)| DIALECTS[*which].0).collect());
                let items = names.iter().zip(list).map(|(name, (_, of))| {
                    format!("{name}{}", acceptability(of, "prefer", "900000000000549004"))
                });
                let items: Vec<_> = items.collect();
                let rest = acceptability(rest, "900000000000548007", "accept");
                format!("{name} {} ({}){rest}", operator(not), items.join(" "))
            }
            Self::Module(not, module) => format!("moduleId {} {}", operator(not), code(*module)),
            Self::Time(order, time) => format!("effectiveTime {order} \"{time}\""),
            Self::Id(not, list) => {
                format!("id {} {}", operator(not), bracketed(list.iter().map(u64::to_string).collect()))
            }
            Self::Tag(not, tag) => format!("semanticTag {} \"{tag}\"", operator(not)),
        }
    }
}

impl Search {
    pub(super) fn finds(&self, text: &str) -> bool {
        let lower = text.to_lowercase();
        match self {
            Self::Match(search) => {
                let search = search.to_lowercase();
                let mut words = search.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
                words.all(|prefix| {
                    lower.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with(prefix))
                })
            }
            Self::Wild(pattern) => is_like(&lower, &pattern.to_lowercase()),
        }
    }
}

fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len()).any(|at| is_like(&text[at..], &pattern[1..])),
        Some(letter) => text.starts_with(letter) && is_like(&text[1..], &pattern[1..]),
    }
}

/// Returns whether one description passes all filters.
pub(super) fn has_description(concept: usize, list: &[Description], filters: &[DescriptionFilter]) -> bool {
    let any_state = filters.iter().any(|filter| matches!(filter, DescriptionFilter::Active(..)));
    let mut candidates = list.iter().enumerate().filter(|(_, one)| any_state || one.active);
    candidates.any(|(number, one)| filters.iter().all(|filter| passes(filter, one, id(concept, number))))
}

/// Returns whether a description is a fully specified name with this tag.
pub(super) fn has_tag(one: &Description, tag: &str) -> bool {
    one.kind == 1 && one.term.to_lowercase().ends_with(&format!("({})", tag.to_lowercase()))
}

/// Returns whether a concept has an active name with this tag.
pub(super) fn concept_has_tag(list: &[Description], tag: &str) -> bool {
    list.iter().any(|one| one.active && has_tag(one, tag))
}

fn passes(filter: &DescriptionFilter, one: &Description, id: u64) -> bool {
    match filter {
        DescriptionFilter::Active(not, yes) => yes.is_none_or(|yes| yes == one.active) != *not,
        DescriptionFilter::Term(not, searches) => {
            searches.iter().any(|search| search.finds(one.term)) != *not
        }
        DescriptionFilter::Language(not, list) => {
            list.iter().any(|language| one.language[..2].eq_ignore_ascii_case(language)) != *not
        }
        DescriptionFilter::Type(not, list) | DescriptionFilter::TypeId(not, list) => {
            list.contains(&one.kind) != *not
        }
        DescriptionFilter::Dialect(not, list, rest) => {
            let is_in = |(which, of): &(usize, Option<bool>)| {
                let language = of.or(*rest);
                one.dialects
                    .iter()
                    .any(|(own, preferred)| own == which && language.is_none_or(|of| of == *preferred))
            };
            list.iter().any(is_in) != *not
        }
        DescriptionFilter::Module(not, module) => (one.module == *module) != *not,
        DescriptionFilter::Time(order, time) => compares(order, &one.time, time),
        DescriptionFilter::Id(not, list) => list.contains(&id) != *not,
        DescriptionFilter::Tag(not, tag) => has_tag(one, tag) != *not,
    }
}
