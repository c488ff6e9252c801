//! A naive classifier of expressions over random terminologies, by the definitions and without any shortcut.

use super::*;

/// Root, root of the attributes, three attributes of which the second specializes the first, and others.
pub(super) const CONCEPTS: usize = 14;
pub(super) const ATTRIBUTE_ROOT: usize = 1;
pub(super) const ATTRIBUTES: std::ops::Range<usize> = 2..5;
/// The attribute that a release states outside of groups if it is alone.
pub(super) const UNGROUPED: usize = 4;

pub(super) fn is_ungrouped(group: &Group) -> bool {
    matches!(group[..], [(UNGROUPED, _)])
}

pub(super) fn code(at: usize) -> String {
    if at == ATTRIBUTE_ROOT { "410662002".to_owned() } else { (100_000 + at).to_string() }
}

pub(super) type Group = Vec<(usize, Value)>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Concept(usize),
    Number(u8),
    Expression(Box<Stated>),
}

/// An expression as a user states it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stated {
    pub(super) focus: Vec<usize>,
    pub(super) ungrouped: Group,
    pub(super) groups: Vec<Group>,
}

#[derive(Debug, Clone)]
pub(super) struct ConceptHierarchy {
    pub(super) parents: Vec<Vec<usize>>,
    pub(super) defined: Vec<bool>,
    /// Groups of each concept, with those of its parents.
    pub(super) groups: Vec<Vec<Group>>,
}

impl ConceptHierarchy {
    pub(super) fn is_a(&self, below: usize, above: usize) -> bool {
        below == above || self.parents[below].iter().any(|parent| self.is_a(*parent, above))
    }
}

/// The meaning of an expression, by the definitions and without any shortcut.
pub(super) struct Meaning {
    pub(super) focus: Vec<usize>,
    pub(super) subsumers: BTreeSet<usize>,
    pub(super) groups: Vec<Vec<(usize, Part)>>,
    /// Whether a release states a group as a relationship outside of groups.
    pub(super) ungrouped: Vec<bool>,
}

pub(super) enum Part {
    Concept(usize),
    Number(u8),
    Expression(Meaning),
}

impl ConceptHierarchy {
    pub(super) fn part(&self, value: &Value) -> Part {
        match value {
            Value::Concept(concept) => Part::Concept(*concept),
            Value::Number(number) => Part::Number(*number),
            Value::Expression(stated) => Part::Expression(self.meaning(stated)),
        }
    }

    pub(super) fn group(&self, group: &Group) -> Vec<(usize, Part)> {
        group.iter().map(|(name, value)| (*name, self.part(value))).collect()
    }

    pub(super) fn meaning(&self, stated: &Stated) -> Meaning {
        let inherited = stated.focus.iter().flat_map(|concept| &self.groups[*concept]);
        let mut ungrouped: Vec<bool> = inherited.clone().map(is_ungrouped).collect();
        let mut groups: Vec<_> = inherited.map(|group| self.group(group)).collect();
        let own = groups.len();
        groups.extend(stated.groups.iter().map(|group| self.group(group)));
        for (name, value) in &stated.ungrouped {
            let part = self.part(value);
            let refines = |group: &Vec<(usize, Part)>| {
                group.iter().position(|(other, of)| self.is_a(*name, *other) && self.is_below(&part, of))
            };
            let places: Vec<_> = groups[..own]
                .iter()
                .enumerate()
                .filter_map(|(at, group)| Some((at, refines(group)?)))
                .collect();
            match places[..] {
                [(group, place)] => groups[group][place] = (*name, part),
                _ => groups.push(vec![(*name, part)]),
            }
        }
        ungrouped.resize(groups.len(), false);
        let is_above = |concept: &usize| stated.focus.iter().any(|focus| self.is_a(*focus, *concept));
        let subsumers = (0..CONCEPTS).filter(is_above).collect();
        let mut meaning = Meaning { focus: stated.focus.clone(), subsumers, groups, ungrouped };
        if *stated != Stated::alone(stated.focus[0]) {
            while let Some(concept) = self.further_subsumer(&meaning) {
                meaning.subsumers.insert(concept);
            }
        }
        meaning
    }

    /// A concept that subsumes an expression by its definition, and is not known to.
    pub(super) fn further_subsumer(&self, meaning: &Meaning) -> Option<usize> {
        (0..CONCEPTS).find(|concept| {
            !meaning.subsumers.contains(concept)
                && self.defined[*concept]
                && self.parents[*concept].iter().all(|parent| meaning.subsumers.contains(parent))
                && self.groups[*concept]
                    .iter()
                    .all(|group| meaning.groups.iter().any(|own| self.covers(own, &self.group(group))))
        })
    }

    /// Whether each concept has all ancestors that follow from the definitions, as in a release.
    pub(super) fn is_classified(&self) -> bool {
        (0..CONCEPTS).all(|at| self.further_subsumer(&self.meaning(&Stated::alone(at))).is_none())
    }

    pub(super) fn covers(&self, special: &[(usize, Part)], general: &[(usize, Part)]) -> bool {
        general.iter().all(|(name, value)| {
            special.iter().any(|(own, part)| self.is_a(*own, *name) && self.is_below(part, value))
        })
    }

    pub(super) fn subsumes(&self, general: &Meaning, special: &Meaning) -> bool {
        general.focus.iter().all(|concept| special.subsumers.contains(concept))
            && general.groups.iter().all(|group| special.groups.iter().any(|own| self.covers(own, group)))
    }

    pub(super) fn is_below(&self, special: &Part, general: &Part) -> bool {
        match (special, general) {
            (Part::Concept(special), Part::Concept(general)) => self.is_a(*special, *general),
            (Part::Number(a), Part::Number(b)) => a == b,
            (Part::Expression(special), Part::Concept(general)) => special.subsumers.contains(general),
            (Part::Concept(special), Part::Expression(general)) => {
                self.subsumes(general, &self.meaning(&Stated::alone(*special)))
            }
            (Part::Expression(special), Part::Expression(general)) => self.subsumes(general, special),
            _ => false,
        }
    }

    pub(super) fn terminology(&self) -> Terminology {
        let header = ResourceHeader {
            resource_type: "CodeSystem".to_owned(),
            url: Some(SNOMED_CT.to_owned()),
            content: Some(ContentMode::Complete),
            case_sensitive: Some(true),
            hierarchy_meaning: Some(HierarchyMeaning::IsA),
            ..ResourceHeader::default()
        };
        let mut builder = IndexBuilder::new(&header).unwrap();
        for at in 0..CONCEPTS {
            let (number, _) = builder.add_concept(&code(at)).unwrap();
            builder.set_display(number, &format!("Concept {at}")).unwrap();
            let defined = if self.defined[at] { "true" } else { "false" };
            builder.add_property(number, "sufficientlyDefined", defined).unwrap();
        }
        for (at, (parents, groups)) in (0..).zip(self.parents.iter().zip(&self.groups)) {
            parents.iter().for_each(|parent| builder.add_parent(at, *parent as u32));
            for (number, group) in (1..).zip(groups) {
                let number = if is_ungrouped(group) { 0 } else { number };
                for (name, value) in group {
                    match value {
                        Value::Concept(to) => builder.add_attribute(at, number, *name as u32, *to as u32),
                        Value::Number(n) => {
                            builder.add_literal_attribute(at, number, *name as u32, &format!("#{n}")).unwrap()
                        }
                        Value::Expression(_) => unreachable!("a release has no expressions"),
                    }
                }
            }
        }
        let terminology = Terminology::default();
        let index = builder.finish().unwrap();
        terminology.apply([TerminologyChange::Index { id: "snomed".to_owned(), index }]);
        terminology
    }
}

impl Stated {
    pub(super) fn alone(concept: usize) -> Self {
        Self { focus: vec![concept], ungrouped: Vec::new(), groups: Vec::new() }
    }

    pub(super) fn text(&self) -> String {
        let attribute = |(name, value): &(usize, Value)| {
            let value = match value {
                Value::Concept(concept) => code(*concept),
                Value::Number(number) => format!("#{number}.0"),
                Value::Expression(stated) => format!("({})", stated.text()),
            };
            format!("{} = {value}", code(*name))
        };
        let list = |group: &Group| group.iter().map(attribute).collect::<Vec<_>>().join(",");
        let focus = self.focus.iter().map(|concept| code(*concept)).collect::<Vec<_>>().join("+");
        let ungrouped = Some(list(&self.ungrouped)).filter(|text| !text.is_empty());
        let groups = self.groups.iter().map(|group| format!("{{{}}}", list(group)));
        let refinement: Vec<_> = ungrouped.into_iter().chain(groups).collect();
        match refinement.is_empty() {
            true => focus,
            false => format!("{focus}:{}", refinement.join(",")),
        }
    }
}

pub(super) fn value(nests: bool) -> BoxedStrategy<Value> {
    let plain = prop_oneof![
        6 => (ATTRIBUTES.end..CONCEPTS).prop_map(Value::Concept),
        1 => (1_u8..3).prop_map(Value::Number),
    ];
    match nests {
        false => plain.boxed(),
        true => {
            prop_oneof![4 => plain, 1 => stated(false).prop_map(|inner| Value::Expression(Box::new(inner)))]
                .boxed()
        }
    }
}

pub(super) fn group(nests: bool) -> impl Strategy<Value = Group> {
    proptest::collection::vec((ATTRIBUTES, value(nests)), 1..3)
}

pub(super) fn stated(nests: bool) -> impl Strategy<Value = Stated> {
    let focus = proptest::collection::vec(ATTRIBUTES.end..CONCEPTS, 1..3);
    let ungrouped = prop_oneof![Just(Vec::new()), group(nests)];
    (focus, ungrouped, proptest::collection::vec(group(nests), 0..3))
        .prop_map(|(focus, ungrouped, groups)| Stated { focus, ungrouped, groups })
}

pub(super) fn hierarchy() -> impl Strategy<Value = ConceptHierarchy> {
    let concept = |at: usize| {
        let parents = match at {
            0 => Just(Vec::new()).boxed(),
            1 | 2 | 4 => Just(vec![if at == 1 { 0 } else { 1 }]).boxed(),
            3 => Just(vec![2]).boxed(),
            5 => Just(vec![0]).boxed(),
            _ => proptest::collection::btree_set(ATTRIBUTES.end..at, 1..3)
                .prop_map(|parents| parents.into_iter().collect())
                .boxed(),
        };
        let groups = proptest::collection::vec(group(false), 0..3);
        (parents, any::<bool>(), groups).prop_map(move |(parents, is_defined, groups)| {
            let is_plain = at <= ATTRIBUTES.end;
            (parents, is_defined && !is_plain, if is_plain { Vec::new() } else { groups })
        })
    };
    (0..CONCEPTS).map(concept).collect::<Vec<_>>().prop_map(|list| {
        let mut hierarchy = ConceptHierarchy { parents: Vec::new(), defined: Vec::new(), groups: Vec::new() };
        for (parents, is_defined, mut groups) in list {
            for group in parents.iter().flat_map(|parent| &hierarchy.groups[*parent]) {
                if !groups.contains(group) {
                    groups.push(group.clone());
                }
            }
            hierarchy.parents.push(parents);
            hierarchy.defined.push(is_defined);
            hierarchy.groups.push(groups);
        }
        hierarchy
    })
}
