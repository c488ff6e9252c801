//! Random releases: concepts with all data that constraints select by.

use std::collections::BTreeSet;

use proptest::prelude::*;
use trefoil_terminology::indexing::{
    ContentMode, HierarchyMeaning, IndexBuilder, PropertyDefinition, ResourceHeader, SNOMED_CT,
};
use trefoil_terminology::{Terminology, TerminologyChange};

use super::descriptions::{self, Description, description, scheme_term};
use super::members::{self, MemberRow, member_row};

pub(super) const CONCEPTS: usize = 14;
/// Concepts that are types of attributes.
pub(super) const KINDS: std::ops::Range<usize> = 1..4;
/// Concepts that are reference sets.
pub(super) const SETS: std::ops::Range<usize> = 4..6;
/// Reference sets of historical associations: SAME AS, REPLACED BY, and one that only `+HISTORY-MAX` uses.
pub(super) const ASSOCIATIONS: [&str; 3] = ["900000000000527005", "900000000000526001", "900000000000523009"];
pub(super) const TIMES: [&str; 3] = ["20200131", "20210131", "20220131"];

/// Concept of the scheme LOINC, which no release contains.
pub(super) const LOINC: &str = "30051010000102";

pub(super) type Set = BTreeSet<usize>;

pub(super) fn code(at: usize) -> String {
    (100_000 + at).to_string()
}

/// Returns scheme and alternate identifier of a concept. The second scheme is the first concept.
pub(super) fn alternate_identifier(at: usize) -> (&'static str, String) {
    match at % 2 {
        0 => (LOINC, format!("{at}-0")),
        _ => ("100000", format!("id {at}")),
    }
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Concept(usize),
    Number(i32),
    Text(String),
    Boolean(bool),
}

#[derive(Debug, Clone)]
pub(super) struct Concept {
    pub(super) active: bool,
    pub(super) parents: Vec<usize>,
    /// Group, type and value.
    pub(super) attributes: Vec<(u32, usize, Literal)>,
    pub(super) members: Vec<MemberRow>,
    pub(super) defined: bool,
    pub(super) module: usize,
    pub(super) time: &'static str,
    /// Number of the association and its target.
    pub(super) replaced: Vec<(usize, usize)>,
    pub(super) descriptions: Vec<Description>,
}

pub(super) fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        4 => (0..CONCEPTS).prop_map(Literal::Concept),
        1 => (0..3).prop_map(Literal::Number),
        1 => prop::sample::select(vec!["a", "b"]).prop_map(|text| Literal::Text(text.to_owned())),
        1 => any::<bool>().prop_map(Literal::Boolean),
    ]
}

pub(super) fn concept(at: usize) -> impl Strategy<Value = Concept> {
    let attributes = prop::collection::vec((0..3_u32, KINDS, literal()), 0..4);
    let replaced = prop::collection::vec((0..ASSOCIATIONS.len(), 0..CONCEPTS), 0..2);
    (
        (prop::bool::weighted(0.8), any::<bool>()),
        prop::collection::vec(0..at.max(1), 0..3),
        attributes,
        prop::collection::vec(member_row(), 0..3),
        (0..2_usize, prop::sample::select(TIMES.to_vec())),
        (replaced, prop::collection::vec(description(), 0..3)),
    )
        .prop_map(
            move |(
                (active, defined),
                mut parents,
                attributes,
                members,
                (module, time),
                (replaced, mut descriptions),
            )| {
                if at == 0 {
                    descriptions.push(scheme_term());
                }
                let active = active || at < SETS.end;
                parents.retain(|parent| *parent < at && active);
                let attributes = if active { attributes } else { Vec::new() };
                let replaced = if active { Vec::new() } else { replaced };
                Concept {
                    active,
                    parents,
                    attributes,
                    members,
                    defined,
                    module,
                    time,
                    replaced,
                    descriptions,
                }
            },
        )
}

pub(super) fn release() -> impl Strategy<Value = Vec<Concept>> {
    (0..CONCEPTS).map(concept).collect::<Vec<_>>().prop_map(|mut list| {
        let active: Vec<bool> = list.iter().map(|concept| concept.active).collect();
        for concept in &mut list {
            concept.parents.retain(|parent| active[*parent]);
        }
        list
    })
}

/// Builds the index of a release.
pub(super) fn terminology(release: &[Concept]) -> Terminology {
    let header = ResourceHeader {
        resource_type: "CodeSystem".to_owned(),
        url: Some(SNOMED_CT.to_owned()),
        content: Some(ContentMode::Complete),
        case_sensitive: Some(true),
        hierarchy_meaning: Some(HierarchyMeaning::IsA),
        property: vec![PropertyDefinition { code: "moduleId".to_owned(), ..PropertyDefinition::default() }],
        ..ResourceHeader::default()
    };
    let mut builder = IndexBuilder::new(&header).unwrap();
    for at in 0..release.len() {
        builder.add_concept(&code(at)).unwrap();
    }
    for (at, concept) in (0..).zip(release) {
        if !concept.active {
            builder.mark_inactive(at);
        }
        for parent in &concept.parents {
            builder.add_parent(at, *parent as u32);
        }
        for (group, kind, value) in &concept.attributes {
            let kind = *kind as u32;
            match value {
                Literal::Concept(to) => builder.add_attribute(at, *group, kind, *to as u32),
                Literal::Number(n) => {
                    builder.add_literal_attribute(at, *group, kind, &format!("#{n}")).unwrap()
                }
                Literal::Text(t) => {
                    builder.add_literal_attribute(at, *group, kind, &format!("\"{t}\"")).unwrap()
                }
                Literal::Boolean(b) => {
                    builder.add_literal_attribute(at, *group, kind, &b.to_string()).unwrap()
                }
            }
        }
        members::add_to(&mut builder, at as usize, &concept.members);
        descriptions::add_to(&mut builder, at as usize, &concept.descriptions);
        let (scheme, identifier) = alternate_identifier(at as usize);
        builder.add_identifier(scheme, &identifier, at).unwrap();
        for (which, to) in &concept.replaced {
            builder.add_property(at, ASSOCIATIONS[*which], &code(*to)).unwrap();
        }
        let defined = if concept.defined { "true" } else { "false" };
        builder.add_property(at, "sufficientlyDefined", defined).unwrap();
        builder.add_property(at, "moduleId", &code(concept.module)).unwrap();
        builder.add_property(at, "effectiveTime", concept.time).unwrap();
    }
    let terminology = Terminology::default();
    terminology
        .apply([TerminologyChange::Index { id: "snomed".to_owned(), index: builder.finish().unwrap() }]);
    terminology
}
