//! Random constraints, and their text with symbols or with the words of the long syntax.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::descriptions::{DescriptionFilter, description_filter};
use super::members::{MemberQuery, member_query};
use super::release::{CONCEPTS, KINDS, LOINC, SETS, TIMES, alternate_identifier, code};

/// A hierarchy operator: its symbols, its word, its direction, and whether it takes one step or includes the
/// concept.
pub(super) type Walk = (&'static str, &'static str, bool, bool, bool);

pub(super) const WALKS: [Walk; 8] = [
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
pub(super) enum Expression {
    Any,
    Concept(usize),
    /// A concept by its alternate identifier.
    Identified(usize),
    MemberOf(Box<Expression>),
    Members(MemberQuery),
    Walk(Walk, Box<Expression>),
    Extreme(bool, Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Minus(Box<Expression>, Box<Expression>),
    Refined(Box<Expression>, Box<Refinement>),
    Dot(Box<Expression>, Box<Expression>),
    Filtered(Box<Expression>, Vec<Filter>),
    Described(Box<Expression>, Vec<DescriptionFilter>),
    History(Box<Expression>, usize),
}

#[derive(Debug, Clone)]
pub(super) enum Refinement {
    And(Vec<Refinement>),
    Or(Vec<Refinement>),
    Group(Option<(u32, Option<u32>)>, Vec<Attribute>, bool),
    Attribute(Attribute),
}

#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) cardinality: Option<(u32, Option<u32>)>,
    pub(super) reversed: bool,
    pub(super) name: Expression,
    pub(super) negated: bool,
    pub(super) value: Wanted,
}

#[derive(Debug, Clone)]
pub(super) enum Wanted {
    Expression(Expression),
    Number(&'static str, i32),
    Texts(Vec<String>),
    Boolean(bool),
}

#[derive(Debug, Clone)]
pub(super) enum Filter {
    Active(bool, bool),
    Defined(bool, bool),
    Module(bool, Vec<usize>),
    Time(&'static str, Vec<&'static str>),
    Tag(bool, &'static str),
}

pub(super) fn cardinality() -> impl Strategy<Value = Option<(u32, Option<u32>)>> {
    prop::option::weighted(0.4, (0..3_u32, prop::option::of(0..3_u32)))
}

pub(super) fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![
        any::<[bool; 2]>().prop_map(|[not, yes]| Filter::Active(not, yes)),
        any::<[bool; 2]>().prop_map(|[not, yes]| Filter::Defined(not, yes)),
        (any::<bool>(), prop::sample::select(vec!["disorder", "Finding"]))
            .prop_map(|(not, tag)| Filter::Tag(not, tag)),
        (any::<bool>(), prop::collection::vec(0..2_usize, 1..3))
            .prop_map(|(not, list)| Filter::Module(not, list)),
        (
            prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]),
            prop::collection::vec(prop::sample::select(TIMES.to_vec()), 1..3)
        )
            .prop_map(|(order, times)| Filter::Time(order, times)),
    ]
}

pub(super) fn attribute(
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

pub(super) fn refinement(
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

pub(super) fn expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![1 => member_query().prop_map(Expression::Members), 1 => Just(Expression::Any), 5 => (0..CONCEPTS).prop_map(Expression::Concept),
        1 => (0..CONCEPTS).prop_map(Expression::Identified)];
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
            3 => (one(), prop::collection::vec(description_filter(CONCEPTS), 1..3))
                .prop_map(|(of, filters)| Expression::Described(of, filters)),
            1 => (one(), 0..4_usize).prop_map(|(of, profile)| Expression::History(of, profile)),
        ]
    })
}

/// Writes an expression with symbols, or with the words of the long syntax.
pub(super) fn write(expression: &Expression, long: bool) -> String {
    let inner = |of: &Expression| write(of, long);
    let join = |list: &[Expression], word: &str| {
        format!("({})", list.iter().map(inner).collect::<Vec<_>>().join(&format!(" {word} ")))
    };
    match expression {
        Expression::Any => if long { "ANY" } else { "*" }.to_owned(),
        Expression::Concept(at) => format!("{} |a term|", code(*at)),
        Expression::Identified(at) => match alternate_identifier(*at) {
            (LOINC, identifier) => format!("loinc#{identifier} |a term|"),
            (_, identifier) => format!("\"My-Scheme#{identifier}\""),
        },
        Expression::MemberOf(of) => format!("{} {}", if long { "memberOf" } else { "^" }, inner(of)),
        Expression::Members(query) => query.write(long),
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
        Expression::Described(of, filters) => {
            let list: Vec<_> = filters.iter().map(DescriptionFilter::write).collect();
            let letter = if long { "description" } else { ["", "D "][list.len() % 2] };
            format!("({} {{{{ {letter} {} }}}})", inner(of), list.join(", "))
        }
        Expression::History(of, profile) => {
            let profile = ["-MIN", "-MOD", "-MAX", ""][*profile];
            format!("({} {{{{ +HISTORY{profile} }}}})", inner(of))
        }
    }
}

pub(super) fn write_filter(filter: &Filter) -> String {
    let operator = |not: &bool| if *not { "!=" } else { "=" };
    match filter {
        Filter::Active(not, yes) => format!("active {} {}", operator(not), u8::from(*yes)),
        Filter::Defined(not, yes) => {
            format!("definitionStatus {} {}", operator(not), if *yes { "defined" } else { "primitive" })
        }
        Filter::Tag(not, tag) => format!("semanticTag {} \"{tag}\"", operator(not)),
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

pub(super) fn write_cardinality(cardinality: Option<(u32, Option<u32>)>, long: bool) -> String {
    let Some((least, most)) = cardinality else { return String::new() };
    let most = most.map_or(if long { "many" } else { "*" }.to_owned(), |most| most.to_string());
    format!("[{least}{}{most}] ", if long { " to " } else { ".." })
}

pub(super) fn write_attribute(attribute: &Attribute, long: bool) -> String {
    let mut out = write_cardinality(attribute.cardinality, long);
    if attribute.reversed {
        out.push_str(if long { "reverseOf " } else { "R " });
    }
    out.push_str(&write(&attribute.name, long));
    let operator = if attribute.negated { "!=" } else { "=" };
    let text = match &attribute.value {
        Wanted::Expression(value) => write!(out, " {operator} {}", write(value, long)),
        Wanted::Number(order, number) => write!(out, " {order} #{number}"),
        Wanted::Boolean(value) => write!(out, " {operator} {value}"),
        Wanted::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| format!("\"{text}\"")).collect();
            write!(out, " {operator} ({})", texts.join(" "))
        }
    };
    text.unwrap();
    out
}

pub(super) fn write_refinement(refinement: &Refinement, long: bool) -> String {
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
