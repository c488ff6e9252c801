//! Random rows of reference sets, the queries for them, and the naive evaluation of a query.

use proptest::prelude::*;
use trefoil_terminology::indexing::{IndexBuilder, MemberFacts};

use super::descriptions::{Search, search, write_search};
use super::naive::compares;
use super::release::{CONCEPTS, SETS, Set, TIMES, code};

/// Fields of the two reference sets. The target is a concept in the first and a text in the second.
const FIELDS: [[&str; 2]; 2] = [["targetComponentId", "order"], ["mapTarget", "order"]];
const TEXTS: [&str; 4] = ["X-ray heart", "A00.1", "", "Heart"];

/// A row of a reference set.
#[derive(Debug, Clone)]
pub(super) struct MemberRow {
    pub(super) set: usize,
    pub(super) active: bool,
    module: usize,
    time: &'static str,
    /// Concept in the first field of the first reference set.
    target: usize,
    /// Text in the first field of the second reference set.
    text: &'static str,
    order: i32,
}

pub(super) fn member_row() -> impl Strategy<Value = MemberRow> {
    (
        (SETS, prop::bool::weighted(0.7), 0..2_usize, prop::sample::select(TIMES.to_vec())),
        (0..CONCEPTS, prop::sample::select(TEXTS.to_vec()), 0..3),
    )
        .prop_map(|((set, active, module, time), (target, text, order))| MemberRow {
            set,
            active,
            module,
            time,
            target,
            text,
            order,
        })
}

pub(super) fn add_to(builder: &mut IndexBuilder, member: usize, rows: &[MemberRow]) {
    for row in rows {
        let facts =
            MemberFacts { is_active: row.active, module: &code(row.module), effective_time: row.time };
        let target = if row.set == SETS.start { code(row.target) } else { row.text.to_owned() };
        let values = [target, row.order.to_string()];
        let fields = FIELDS[row.set - SETS.start].iter().copied().zip(values.iter().map(String::as_str));
        builder.add_member_row(&code(row.set), member as u32, facts, fields).unwrap();
        if row.active {
            builder.add_subset_member(&code(row.set), member as u32).unwrap();
        }
    }
}

/// A query for rows of one of the reference sets, or of both.
#[derive(Debug, Clone)]
pub(super) struct MemberQuery {
    sets: Vec<usize>,
    selected: Selected,
    filters: Vec<MemberFilter>,
}

#[derive(Debug, Clone)]
enum Selected {
    Members,
    All,
    /// Whether the members and the first field of the first reference set are selected.
    Named(bool, bool),
}

#[derive(Debug, Clone)]
enum MemberFilter {
    Active(bool, Option<bool>),
    Module(bool, usize),
    Time(&'static str, &'static str),
    /// The member, or the target in the first reference set.
    Concept(bool, bool, Vec<usize>),
    Order(&'static str, i32),
    /// The text in the second reference set.
    Text(bool, Vec<Search>),
}

fn member_filter() -> impl Strategy<Value = MemberFilter> {
    use MemberFilter::{Active, Concept, Module, Order, Text, Time};
    let order = || prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    prop_oneof![
        (any::<bool>(), any::<Option<bool>>()).prop_map(|(not, yes)| Active(not, yes)),
        (any::<bool>(), 0..2_usize).prop_map(|(not, module)| Module(not, module)),
        (order(), prop::sample::select(TIMES.to_vec())).prop_map(|(order, time)| Time(order, time)),
        (any::<bool>(), any::<bool>(), prop::collection::vec(0..CONCEPTS, 2..8))
            .prop_map(|(member, not, list)| Concept(member, not, list)),
        (order(), 0..3).prop_map(|(order, number)| Order(order, number)),
        (any::<bool>(), prop::collection::vec(search(), 1..3)).prop_map(|(not, list)| Text(not, list)),
    ]
}

pub(super) fn member_query() -> impl Strategy<Value = MemberQuery> {
    let selected = prop_oneof![
        3 => Just(Selected::Members),
        1 => Just(Selected::All),
        1 => any::<bool>().prop_map(|both| Selected::Named(both, true)),
        1 => Just(Selected::Named(true, false)),
    ];
    let sets = prop::sample::subsequence(SETS.collect::<Vec<_>>(), 1..=2);
    (sets, selected, prop::collection::vec(member_filter(), 0..3)).prop_map(
        |(mut sets, selected, filters)| {
            // A reference set that is named alone must have the fields.
            let is_of = |filter: &MemberFilter, set: usize| match filter {
                MemberFilter::Text(..) => set == SETS.start,
                MemberFilter::Concept(false, ..) => set > SETS.start,
                _ => false,
            };
            let misses = |set: usize| {
                filters.iter().any(|filter| is_of(filter, set))
                    || (set > SETS.start && matches!(selected, Selected::Named(_, true)))
            };
            if sets.len() == 1 && misses(sets[0]) {
                sets = SETS.collect();
            }
            MemberQuery { sets, selected, filters }
        },
    )
}

impl MemberQuery {
    pub(super) fn write(&self, long: bool) -> String {
        let sets: Vec<_> = self.sets.iter().map(|set| code(*set)).collect();
        let selected = match self.selected {
            Selected::Members => "",
            Selected::All => "[*] ",
            Selected::Named(true, true) => "[referencedComponentId, targetComponentId] ",
            Selected::Named(true, false) => "[ referencedComponentId ] ",
            Selected::Named(false, _) => "[targetComponentId]",
        };
        let mut out = format!("{} {selected}({})", if long { "memberOf" } else { "^" }, sets.join(" OR "));
        if sets.len() == 1 {
            out = out.replace(['(', ')'], "");
        }
        // A row must pass the filters of all pairs of braces.
        for filter in &self.filters {
            out.push_str(&format!(" {{{{ {} {} }}}}", if long { "member" } else { "M" }, filter.write()));
        }
        format!("({out})")
    }

    /// Returns whether a row passes all filters.
    fn admits(&self, member: usize, row: &MemberRow) -> bool {
        let any_state = self.filters.iter().any(|filter| matches!(filter, MemberFilter::Active(..)));
        self.sets.contains(&row.set)
            && (any_state || row.active)
            && self.filters.iter().all(|filter| filter.passes(member, row))
    }

    /// Returns the concepts that the query selects among the rows of each member.
    pub(super) fn concepts<'r>(&self, rows: impl Iterator<Item = (usize, &'r MemberRow)>) -> Set {
        let (takes_member, takes_target) = match self.selected {
            Selected::Members => (true, false),
            Selected::All => (true, true),
            Selected::Named(member, target) => (member, target),
        };
        let mut out = Set::new();
        for (member, row) in rows.filter(|(member, row)| self.admits(*member, row)) {
            out.extend(takes_member.then_some(member));
            out.extend((takes_target && row.set == SETS.start).then_some(row.target));
        }
        out
    }
}

impl MemberFilter {
    fn write(&self) -> String {
        let operator = |not: &bool| if *not { "!=" } else { "=" };
        match self {
            Self::Active(not, yes) => {
                let value = yes.map_or("*", |yes| if yes { "1" } else { "false" });
                format!("active {} {value}", operator(not))
            }
            Self::Module(not, module) => format!("moduleId {} {}", operator(not), code(*module)),
            Self::Time(order, time) => format!("effectiveTime {order} \"{time}\""),
            Self::Concept(member, not, list) => {
                let name = if *member { "referencedComponentId" } else { "targetComponentId" };
                let list: Vec<_> = list.iter().map(|at| code(*at)).collect();
                format!("{name} {} ({})", operator(not), list.join(" OR "))
            }
            Self::Order(order, number) => format!("order {order} #{number}"),
            Self::Text(not, searches) => format!("mapTarget {} {}", operator(not), write_search(searches)),
        }
    }

    fn passes(&self, member: usize, row: &MemberRow) -> bool {
        match self {
            Self::Active(not, yes) => yes.is_none_or(|yes| yes == row.active) != *not,
            Self::Module(not, module) => (row.module == *module) != *not,
            Self::Time(order, time) => compares(order, &row.time, time),
            Self::Concept(true, not, list) => list.contains(&member) != *not,
            Self::Concept(false, not, list) => row.set == SETS.start && list.contains(&row.target) != *not,
            Self::Order(order, number) => compares(order, &row.order, number),
            Self::Text(not, searches) => {
                row.set > SETS.start && searches.iter().any(|search| search.finds(row.text)) != *not
            }
        }
    }
}
