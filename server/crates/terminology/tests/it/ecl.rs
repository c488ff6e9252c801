//! Expression constraints of SNOMED CT against a naive evaluator, which computes sets as the specification defines them:
//! the test of one concept and the expansion must both agree with it. TREFOIL_ECL_CASES is the number of random cases.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fhir::Parameters;
use proptest::prelude::*;
use trefoil_terminology::indexing::{
    ContentMode, HierarchyMeaning, IndexBuilder, PropertyDefinition, ResourceHeader, SNOMED_CT,
};
use trefoil_terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange};

const CONCEPTS: usize = 14;
/// Concepts that are types of attributes.
const KINDS: std::ops::Range<usize> = 1..4;
/// Concepts that are reference sets.
const SETS: std::ops::Range<usize> = 4..6;
/// Reference sets of historical associations: SAME AS, REPLACED BY, and one that only `+HISTORY-MAX` uses.
const ASSOCIATIONS: [&str; 3] = ["900000000000527005", "900000000000526001", "900000000000523009"];
const TIMES: [&str; 3] = ["20200131", "20210131", "20220131"];

type Set = BTreeSet<usize>;

fn code(at: usize) -> String {
    (100_000 + at).to_string()
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
enum Literal {
    Concept(usize),
    Number(i32),
    Text(String),
    Boolean(bool),
}

#[derive(Debug, Clone)]
struct Concept {
    active: bool,
    parents: Vec<usize>,
    /// Group, type and value.
    attributes: Vec<(u32, usize, Literal)>,
    sets: Vec<usize>,
    defined: bool,
    module: usize,
    time: &'static str,
    /// Number of the association and its target.
    replaced: Vec<(usize, usize)>,
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        4 => (0..CONCEPTS).prop_map(Literal::Concept),
        1 => (0..3).prop_map(Literal::Number),
        1 => prop::sample::select(vec!["a", "b"]).prop_map(|text| Literal::Text(text.to_owned())),
        1 => any::<bool>().prop_map(Literal::Boolean),
    ]
}

fn concept(at: usize) -> impl Strategy<Value = Concept> {
    let attributes = prop::collection::vec((0..3_u32, KINDS, literal()), 0..4);
    let replaced = prop::collection::vec((0..ASSOCIATIONS.len(), 0..CONCEPTS), 0..2);
    (
        (prop::bool::weighted(0.8), any::<bool>()),
        prop::collection::vec(0..at.max(1), 0..3),
        attributes,
        prop::collection::vec(SETS, 0..2),
        (0..2_usize, prop::sample::select(TIMES.to_vec())),
        replaced,
    )
        .prop_map(move |((active, defined), mut parents, attributes, sets, (module, time), replaced)| {
            let active = active || at < SETS.end;
            parents.retain(|parent| *parent < at && active);
            let attributes = if active { attributes } else { Vec::new() };
            let replaced = if active { Vec::new() } else { replaced };
            Concept { active, parents, attributes, sets, defined, module, time, replaced }
        })
}

fn release() -> impl Strategy<Value = Vec<Concept>> {
    (0..CONCEPTS).map(concept).collect::<Vec<_>>().prop_map(|mut list| {
        let active: Vec<bool> = list.iter().map(|concept| concept.active).collect();
        for concept in &mut list {
            concept.parents.retain(|parent| active[*parent]);
        }
        list
    })
}

/// A hierarchy operator: its symbols, its word, its direction, and whether it takes one step or includes the concept.
type Walk = (&'static str, &'static str, bool, bool, bool);

const WALKS: [Walk; 8] = [
    ("<", "descendantOf", false, false, false),
    ("<<", "descendantOrSelfOf", false, false, true),
    ("<!", "childOf", false, true, false),
    ("<<!", "childOrSelfOf", false, true, true),
    (">", "ancestorOf", true, false, false),
    (">>", "ancestorOrSelfOf", true, false, true),
    (">!", "parentOf", true, true, false),
    (">>!", "parentOrSelfOf", true, true, true),
];

#[derive(Debug, Clone)]
enum Expression {
    Any,
    Concept(usize),
    MemberOf(Box<Expression>),
    Walk(Walk, Box<Expression>),
    Extreme(bool, Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Minus(Box<Expression>, Box<Expression>),
    Refined(Box<Expression>, Box<Refinement>),
    Dot(Box<Expression>, Box<Expression>),
    Filtered(Box<Expression>, Vec<Filter>),
    History(Box<Expression>, usize),
}

#[derive(Debug, Clone)]
enum Refinement {
    And(Vec<Refinement>),
    Or(Vec<Refinement>),
    Group(Option<(u32, Option<u32>)>, Vec<Attribute>, bool),
    Attribute(Attribute),
}

#[derive(Debug, Clone)]
struct Attribute {
    cardinality: Option<(u32, Option<u32>)>,
    reversed: bool,
    name: Expression,
    negated: bool,
    value: Wanted,
}

#[derive(Debug, Clone)]
enum Wanted {
    Expression(Expression),
    Number(&'static str, i32),
    Texts(Vec<String>),
    Boolean(bool),
}

#[derive(Debug, Clone)]
enum Filter {
    Active(bool, bool),
    Defined(bool, bool),
    Module(bool, Vec<usize>),
    Time(&'static str, Vec<&'static str>),
}

fn cardinality() -> impl Strategy<Value = Option<(u32, Option<u32>)>> {
    prop::option::weighted(0.4, (0..3_u32, prop::option::of(0..3_u32)))
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![
        any::<[bool; 2]>().prop_map(|[not, yes]| Filter::Active(not, yes)),
        any::<[bool; 2]>().prop_map(|[not, yes]| Filter::Defined(not, yes)),
        (any::<bool>(), prop::collection::vec(0..2_usize, 1..3))
            .prop_map(|(not, list)| Filter::Module(not, list)),
        (
            prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]),
            prop::collection::vec(prop::sample::select(TIMES.to_vec()), 1..3)
        )
            .prop_map(|(order, times)| Filter::Time(order, times)),
    ]
}

fn attribute(
    inner: impl Strategy<Value = Expression> + Clone + 'static,
    may_reverse: bool,
) -> impl Strategy<Value = Attribute> {
    let name = prop_oneof![KINDS.prop_map(Expression::Concept), Just(Expression::Any), inner.clone()];
    let value = prop_oneof![
        4 => inner.prop_map(Wanted::Expression),
        1 => (prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]), 0..3)
            .prop_map(|(order, number)| Wanted::Number(order, number)),
        1 => prop::collection::vec(prop::sample::select(vec!["a".to_owned(), "b".to_owned()]), 1..3)
            .prop_map(Wanted::Texts),
        1 => any::<bool>().prop_map(Wanted::Boolean),
    ];
    (cardinality(), any::<bool>(), name, any::<bool>(), value).prop_map(
        move |(cardinality, reversed, name, negated, value)| {
            let reversed = reversed && may_reverse;
            let negated = negated && !matches!(value, Wanted::Number(..));
            Attribute { cardinality, reversed, name, negated, value }
        },
    )
}

fn refinement(
    inner: impl Strategy<Value = Expression> + Clone + 'static,
) -> impl Strategy<Value = Refinement> {
    let group = prop::collection::vec(attribute(inner.clone(), false), 1..3);
    let leaf = prop_oneof![
        3 => attribute(inner, true).prop_map(Refinement::Attribute),
        1 => (cardinality(), group, any::<bool>())
            .prop_map(|(cardinality, list, any)| Refinement::Group(cardinality, list, any)),
    ];
    leaf.prop_recursive(2, 4, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..3).prop_map(Refinement::And),
            prop::collection::vec(inner, 2..3).prop_map(Refinement::Or),
        ]
    })
}

fn expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![1 => Just(Expression::Any), 5 => (0..CONCEPTS).prop_map(Expression::Concept)];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let one = || inner.clone().prop_map(Box::new);
        let list = || prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            4 => (prop::sample::select(WALKS.to_vec()), one()).prop_map(|(walk, of)| Expression::Walk(walk, of)),
            1 => prop_oneof![SETS.prop_map(|at| Box::new(Expression::Concept(at))), one()]
                .prop_map(Expression::MemberOf),
            1 => (any::<bool>(), one()).prop_map(|(top, of)| Expression::Extreme(top, of)),
            1 => list().prop_map(Expression::And),
            1 => list().prop_map(Expression::Or),
            1 => (one(), one()).prop_map(|(a, b)| Expression::Minus(a, b)),
            3 => (one(), refinement(inner.clone())).prop_map(|(of, r)| Expression::Refined(of, Box::new(r))),
            1 => (one(), one()).prop_map(|(of, name)| Expression::Dot(of, name)),
            1 => (one(), prop::collection::vec(filter(), 1..3)).prop_map(|(of, f)| Expression::Filtered(of, f)),
            1 => (one(), 0..4_usize).prop_map(|(of, profile)| Expression::History(of, profile)),
        ]
    })
}

/// Writes an expression with symbols, or with the words of the long syntax.
fn write(expression: &Expression, long: bool) -> String {
    let inner = |of: &Expression| write(of, long);
    let join = |list: &[Expression], word: &str| {
        format!("({})", list.iter().map(inner).collect::<Vec<_>>().join(&format!(" {word} ")))
    };
    match expression {
        Expression::Any => if long { "ANY" } else { "*" }.to_owned(),
        Expression::Concept(at) => format!("{} |a term|", code(*at)),
        Expression::MemberOf(of) => format!("{} {}", if long { "memberOf" } else { "^" }, inner(of)),
        Expression::Walk((symbols, word, ..), of) => {
            format!("{} {}", if long { word } else { symbols }, inner(of))
        }
        Expression::Extreme(is_top, of) => format!("{} {}", if *is_top { "!!>" } else { "!!<" }, inner(of)),
        Expression::And(list) => join(list, if long { "and" } else { "," }),
        Expression::Or(list) => join(list, "OR"),
        Expression::Minus(a, b) => format!("({} MINUS {})", inner(a), inner(b)),
        Expression::Refined(of, refinement) => {
            format!("({} : {})", inner(of), write_refinement(refinement, long))
        }
        Expression::Dot(of, name) => format!("({} . {})", inner(of), inner(name)),
        Expression::Filtered(of, filters) => {
            let filters: Vec<_> = filters.iter().map(write_filter).collect();
            format!("({} {{{{ {} {} }}}})", inner(of), if long { "concept" } else { "C" }, filters.join(", "))
        }
        Expression::History(of, profile) => {
            let profile = ["-MIN", "-MOD", "-MAX", ""][*profile];
            format!("({} {{{{ +HISTORY{profile} }}}})", inner(of))
        }
    }
}

fn write_filter(filter: &Filter) -> String {
    let operator = |not: &bool| if *not { "!=" } else { "=" };
    match filter {
        Filter::Active(not, yes) => format!("active {} {}", operator(not), u8::from(*yes)),
        Filter::Defined(not, yes) => {
            format!("definitionStatus {} {}", operator(not), if *yes { "defined" } else { "primitive" })
        }
        Filter::Module(not, list) => {
            let list: Vec<_> = list.iter().map(|at| code(*at)).collect();
            match list.as_slice() {
                [one] => format!("moduleId {} {one}", operator(not)),
                several => format!("moduleId {} ({})", operator(not), several.join(" ")),
            }
        }
        Filter::Time(order, times) => {
            let times: Vec<_> = times.iter().map(|time| format!("\"{time}\"")).collect();
            format!("effectiveTime {order} ({})", times.join(" "))
        }
    }
}

fn write_cardinality(cardinality: Option<(u32, Option<u32>)>, long: bool) -> String {
    let Some((least, most)) = cardinality else { return String::new() };
    let most = most.map_or(if long { "many" } else { "*" }.to_owned(), |most| most.to_string());
    format!("[{least}{}{most}] ", if long { " to " } else { ".." })
}

fn write_attribute(attribute: &Attribute, long: bool) -> String {
    let mut out = write_cardinality(attribute.cardinality, long);
    if attribute.reversed {
        out.push_str(if long { "reverseOf " } else { "R " });
    }
    out.push_str(&write(&attribute.name, long));
    let operator = if attribute.negated { "!=" } else { "=" };
    let written = match &attribute.value {
        Wanted::Expression(value) => write!(out, " {operator} {}", write(value, long)),
        Wanted::Number(order, number) => write!(out, " {order} #{number}"),
        Wanted::Boolean(value) => write!(out, " {operator} {value}"),
        Wanted::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| format!("\"{text}\"")).collect();
            write!(out, " {operator} ({})", texts.join(" "))
        }
    };
    written.unwrap();
    out
}

fn write_refinement(refinement: &Refinement, long: bool) -> String {
    let join = |list: &[Refinement], word: &str| {
        let list: Vec<_> = list.iter().map(|one| write_refinement(one, long)).collect();
        format!("({})", list.join(word))
    };
    match refinement {
        Refinement::And(list) => join(list, ", "),
        Refinement::Or(list) => join(list, " OR "),
        Refinement::Attribute(attribute) => write_attribute(attribute, long),
        Refinement::Group(cardinality, list, any) => {
            let list: Vec<_> = list.iter().map(|one| write_attribute(one, long)).collect();
            let list = list.join(if *any { " OR " } else { ", " });
            format!("{}{{ {list} }}", write_cardinality(*cardinality, long))
        }
    }
}

/// The naive evaluator.
struct Naive<'r>(&'r [Concept]);

impl Naive<'_> {
    fn ancestors(&self, at: usize) -> Set {
        let mut all = Set::new();
        for &parent in &self.0[at].parents {
            all.insert(parent);
            all.extend(self.ancestors(parent));
        }
        all
    }

    fn is_below(&self, at: usize, above: usize) -> bool {
        self.ancestors(at).contains(&above)
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        0..self.0.len()
    }

    fn set(&self, expression: &Expression) -> Set {
        match expression {
            Expression::Any => self.all().filter(|at| self.0[*at].active).collect(),
            Expression::Concept(at) => Set::from([*at]),
            Expression::MemberOf(of) => {
                let sets = self.set(of);
                self.all().filter(|at| self.0[*at].sets.iter().any(|set| sets.contains(set))).collect()
            }
            Expression::Walk((_, _, up, one_step, with_self), of) => {
                let from = self.set(of);
                let is_next = |at: usize, other: usize| match (up, one_step) {
                    (false, true) => self.0[at].parents.contains(&other),
                    (true, true) => self.0[other].parents.contains(&at),
                    (false, false) => self.is_below(at, other),
                    (true, false) => self.is_below(other, at),
                };
                let reached = |at: &usize| {
                    (*with_self && from.contains(at)) || from.iter().any(|other| is_next(*at, *other))
                };
                self.all().filter(reached).collect()
            }
            Expression::Extreme(is_top, of) => {
                let set = self.set(of);
                let beyond = |at: usize, other: usize| match is_top {
                    true => self.is_below(at, other),
                    false => self.is_below(other, at),
                };
                set.iter().copied().filter(|at| !set.iter().any(|other| beyond(*at, *other))).collect()
            }
            Expression::And(list) => {
                let sets: Vec<Set> = list.iter().map(|one| self.set(one)).collect();
                self.all().filter(|at| sets.iter().all(|set| set.contains(at))).collect()
            }
            Expression::Or(list) => list.iter().flat_map(|one| self.set(one)).collect(),
            Expression::Minus(a, b) => &self.set(a) - &self.set(b),
            Expression::Refined(of, refinement) => {
                self.set(of).into_iter().filter(|at| self.satisfies(refinement, *at)).collect()
            }
            Expression::Dot(of, name) => {
                let (of, names) = (self.set(of), self.set(name));
                let attributes = of.iter().flat_map(|at| &self.0[*at].attributes);
                attributes
                    .filter_map(|(_, kind, value)| match value {
                        Literal::Concept(at) if names.contains(kind) => Some(*at),
                        _ => None,
                    })
                    .collect()
            }
            Expression::Filtered(of, filters) => {
                let has_state = filters.iter().any(|filter| matches!(filter, Filter::Active(..)));
                let set = match (&**of, has_state) {
                    (Expression::Any, true) => self.all().collect(),
                    (of, _) => self.set(of),
                };
                set.into_iter().filter(|at| filters.iter().all(|one| self.passes(one, *at))).collect()
            }
            Expression::History(of, profile) => {
                let mut set = self.set(of);
                let used = [1, 2, 3, 3][*profile];
                let leads = |at: &usize| {
                    self.0[*at].replaced.iter().any(|(which, to)| *which < used && set.contains(to))
                };
                let more: Set = self.all().filter(leads).collect();
                set.extend(more);
                set
            }
        }
    }

    fn passes(&self, filter: &Filter, at: usize) -> bool {
        let concept = &self.0[at];
        match filter {
            Filter::Active(not, yes) => (concept.active == *yes) != *not,
            Filter::Defined(not, yes) => (concept.defined == *yes) != *not,
            Filter::Module(not, list) => list.contains(&concept.module) != *not,
            // A list is a disjunction, whose negation excludes all its members.
            Filter::Time("!=", times) => times.iter().all(|time| concept.time != *time),
            Filter::Time(order, times) => times.iter().any(|time| compares(order, &concept.time, time)),
        }
    }

    fn satisfies(&self, refinement: &Refinement, at: usize) -> bool {
        match refinement {
            Refinement::And(list) => list.iter().all(|one| self.satisfies(one, at)),
            Refinement::Or(list) => list.iter().any(|one| self.satisfies(one, at)),
            Refinement::Attribute(attribute) => self.has(attribute, at, None),
            Refinement::Group(cardinality, list, any) => {
                let groups: BTreeSet<u32> = self.0[at]
                    .attributes
                    .iter()
                    .map(|(group, ..)| *group)
                    .filter(|group| *group > 0)
                    .collect();
                let holds = |group: &&u32| match any {
                    true => list.iter().any(|one| self.has(one, at, Some(**group))),
                    false => list.iter().all(|one| self.has(one, at, Some(**group))),
                };
                admits(*cardinality, groups.iter().filter(holds).count())
            }
        }
    }

    fn has(&self, wanted: &Attribute, at: usize, group: Option<u32>) -> bool {
        let names = self.set(&wanted.name);
        let count = if wanted.reversed {
            let to = Literal::Concept(at);
            let sources = self.all().map(|source| {
                let mine = self.0[source].attributes.iter().filter(|(_, kind, value)| {
                    names.contains(kind) && *value == to && self.matches(wanted, &Literal::Concept(source))
                });
                mine.count()
            });
            sources.sum()
        } else {
            let mine = self.0[at].attributes.iter().filter(|(of, kind, value)| {
                group.is_none_or(|group| group == *of) && names.contains(kind) && self.matches(wanted, value)
            });
            mine.count()
        };
        admits(wanted.cardinality, count)
    }

    fn matches(&self, wanted: &Attribute, value: &Literal) -> bool {
        let found = match (&wanted.value, value) {
            (Wanted::Expression(expression), Literal::Concept(at)) => self.set(expression).contains(at),
            (Wanted::Number(order, wanted), Literal::Number(number)) => compares(order, number, wanted),
            (Wanted::Texts(texts), Literal::Text(text)) => texts.contains(text),
            (Wanted::Boolean(wanted), Literal::Boolean(value)) => wanted == value,
            // A value of another type satisfies no comparison.
            _ => return false,
        };
        found != wanted.negated
    }
}

fn admits(cardinality: Option<(u32, Option<u32>)>, count: usize) -> bool {
    let (least, most) = cardinality.unwrap_or((1, None));
    count >= least as usize && most.is_none_or(|most| count <= most as usize)
}

fn compares<T: PartialOrd>(order: &str, a: &T, b: &T) -> bool {
    match order {
        "=" => a == b,
        "!=" => a != b,
        "<" => a < b,
        "<=" => a <= b,
        ">" => a > b,
        _ => a >= b,
    }
}

/// Builds the index of a release.
fn terminology(release: &[Concept]) -> Terminology {
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
        for set in &concept.sets {
            builder.add_subset_member(&code(*set), at).unwrap();
        }
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

/// Returns the codes of an expansion.
fn expansion(terminology: &Terminology, url: &str) -> BTreeSet<String> {
    let mut parameters = Parameters::new();
    parameters.push_uri("url", url);
    parameters.push_boolean("excludeNested", true);
    let input = OperationInput::from_body(&parameters);
    let answer = terminology.expand(OperationLevel::Type, input, "2026-01-01T00:00:00Z");
    let answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
    let answer: serde_json::Value = serde_json::from_str(answer.get()).unwrap();
    let codes = answer["expansion"]["contains"].as_array().into_iter().flatten();
    codes.map(|row| row["code"].as_str().unwrap().to_owned()).collect()
}

fn cases() -> u32 {
    std::env::var("TREFOIL_ECL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn expressions_select_what_a_naive_evaluator_selects(
        release in release(),
        expression in expression(),
        long in any::<bool>(),
    ) {
        let (terminology, text) = (terminology(&release), write(&expression, long));
        let expected: BTreeSet<String> = Naive(&release).set(&expression).into_iter().map(code).collect();
        let url = format!("{SNOMED_CT}?fhir_vs=ecl/{text}");
        // The expansion comes second, because the test of one concept may use its cached set.
        for at in 0..CONCEPTS {
            let is_in = terminology.has_member(&url, SNOMED_CT, &code(at)).unwrap();
            prop_assert_eq!(is_in, expected.contains(&code(at)), "{} in {}", code(at), text);
        }
        prop_assert_eq!(&expansion(&terminology, &url), &expected, "{}", text);
    }
}
