//! The hierarchy of one code system: a directed acyclic graph, in which a concept may have several parents.
//!
//! Concepts are numbered in preorder of a spanning tree, so that the tree descendants of a concept are one
//! interval of ordinals. For a concept with several parents, a row stores, besides its position in the tree,
//! the positions of all further ancestors through which it is reachable. A concept with one parent shares the
//! row of its parent. Subsumption is then one test: `b` is a descendant of `a` if `b` or an entry of its row
//! is in the interval of `a`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::ancestor_filter::AncestorFilter;
use super::code_table::{AncestorColumns, LocatedConcept};
use super::columns::columns;
use super::elias_fano::EliasFanoRows;
use super::link_graph::{LinkGraph, number_in_preorder};
use super::row_column::RowColumn;

/// Maximum average size of the rows per concept, in bytes. SNOMED CT needs about 35.
const MAX_BYTES_PER_CONCEPT: usize = 256;
/// Maximum average number of row entries that are read per concept when the rows are built.
const MAX_READS_PER_CONCEPT: usize = 1024;
/// Maximum number of row entries that are read for one concept, which are in memory at the same time.
const MAX_READS_AT_ONCE: usize = 4 << 20;
/// Number of concepts that is added to these limits, for small code systems.
const ALLOWANCE: usize = 1024;

/// Position of a concept. Its two members are adjacent because each test needs both.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct HierarchyNode {
    /// Tree descendants of `a`, including `a`, are `a..tree_end`.
    tree_end: u32,
    /// Start of its row in the extra ancestors.
    extra_row: u32,
}

/// Parents, children and ancestors by ordinal.
#[derive(Debug, Default)]
pub(crate) struct ConceptHierarchy {
    parents: RowColumn<u32>,
    /// Children whose tree parent is another concept; all children in a hierarchy without a tree.
    non_tree_children: RowColumn<u32>,
    nodes: Vec<HierarchyNode>,
    /// Further ancestors through which concepts are reachable. Of those on one path of the tree, only the
    /// lowest is stored. `None` if the rows would be too large.
    extra_ancestors: Option<EliasFanoRows>,
    /// One cycle, if there is any. In that case only `parents` and `non_tree_children` have content.
    cycle: Vec<u32>,
}

impl ConceptHierarchy {
    /// Builds the hierarchy of `len` concepts from pairs of child and parent, in any order and with
    /// duplicates.
    ///
    /// Returns the old number of each new ordinal, the hierarchy, and the ancestor data for the code table.
    /// If there is a cycle, the numbers do not change and there is no ancestor data.
    pub(crate) fn build(len: usize, links: Vec<(u32, u32)>) -> (Vec<u32>, Self, AncestorColumns) {
        let graph = LinkGraph::new(len, links);
        let Some(topological) = graph.topological_order() else {
            let cycle = graph.find_cycle();
            let hierarchy =
                Self { parents: graph.parents, non_tree_children: graph.children, cycle, ..Self::default() };
            return ((0..len as u32).collect(), hierarchy, AncestorColumns::default());
        };
        let tree_parent = graph.spanning_tree(&topological);
        let (order, ordinal, tree_end) = number_in_preorder(len, &graph, &tree_parent);
        let nodes = tree_end.into_iter().map(|tree_end| HierarchyNode { tree_end, extra_row: 0 }).collect();
        let renumber = |rows: &RowColumn<u32>, keep: &dyn Fn(u32, u32) -> bool| {
            let mut out = RowColumn::with_capacity(len, rows.items());
            for &old in &order {
                let retained = rows.row(old).iter().filter(|other| keep(old, **other));
                let mut row: Vec<u32> = retained.map(|n| ordinal[*n as usize]).collect();
                row.sort_unstable();
                out.push(row);
            }
            out.shrink();
            out
        };
        let parents = renumber(&graph.parents, &|_, _| true);
        let non_tree_children =
            renumber(&graph.children, &|parent, child| tree_parent[child as usize] != Some(parent));
        let to_ordinal = |old: u32| ordinal[old as usize];
        let from_above: Vec<u32> = topological.into_iter().map(to_ordinal).collect();
        drop(graph);
        let mut hierarchy =
            Self { parents, non_tree_children, nodes, extra_ancestors: None, cycle: Vec::new() };
        hierarchy.build_extra_ancestors(&from_above);
        let extra_row = hierarchy.nodes.iter().map(|node| node.extra_row).collect();
        let above = AncestorColumns { filters: hierarchy.ancestor_filters(&from_above), extra_row };
        (order, hierarchy, above)
    }

    /// The ancestor filter of each concept.
    fn ancestor_filters(&self, from_above: &[u32]) -> Vec<AncestorFilter> {
        let mut out = vec![AncestorFilter::NOTHING; from_above.len()];
        for &at in from_above {
            let parents = self.parents(at).iter().map(|parent| out[*parent as usize]);
            out[at as usize] = AncestorFilter::for_concept(parents, at);
        }
        out
    }

    /// Builds the rows of all concepts, unless they exceed the limits.
    fn build_extra_ancestors(&mut self, from_above: &[u32]) {
        let end = from_above.len() as u32;
        let most_bytes = MAX_BYTES_PER_CONCEPT * (from_above.len() + ALLOWANCE);
        let mut reads_left = MAX_READS_PER_CONCEPT * (from_above.len() + ALLOWANCE);
        let mut rows = EliasFanoRows::default();
        // The first row is empty. All concepts without extra ancestors share it.
        rows.push(&[], end);
        let mut all = Vec::new();
        for &at in from_above {
            let start = match self.parents.row(at) {
                [] => Some(0),
                [parent] => Some(self.nodes[*parent as usize].extra_row),
                parents => {
                    let fits =
                        self.collect_ancestors(parents, &rows, reads_left.min(MAX_READS_AT_ONCE), &mut all);
                    if !fits || rows.0.len() > most_bytes {
                        return;
                    }
                    reads_left -= all.len();
                    all.sort_unstable();
                    // Drops redundant entries: ancestors of another entry, and tree ancestors of the concept.
                    let mut next = None;
                    for node in all.iter_mut().rev() {
                        let here = *node;
                        let is_told = self.is_tree_ancestor(here, at)
                            || next.is_some_and(|next| self.is_tree_ancestor(here, next));
                        if is_told {
                            *node = u32::MAX;
                        } else {
                            next = Some(here);
                        }
                    }
                    all.retain(|node| *node != u32::MAX);
                    match all.as_slice() {
                        [] => Some(0),
                        nodes => rows.push(nodes, end),
                    }
                }
            };
            let Some(start) = start else { return };
            self.nodes[at as usize].extra_row = start;
        }
        rows.0.shrink_to_fit();
        self.extra_ancestors = Some(rows);
    }

    /// Collects some parents and the entries of their rows, in any order. Returns whether there are at most
    /// `most`, and stops if there are more.
    fn collect_ancestors(
        &self,
        parents: &[u32],
        rows: &EliasFanoRows,
        most: usize,
        all: &mut Vec<u32>,
    ) -> bool {
        all.clear();
        all.extend(parents);
        let mut starts: Vec<u32> =
            parents.iter().map(|index| self.nodes[*index as usize].extra_row).collect();
        // Several parents may share a row.
        starts.sort_unstable();
        starts.dedup();
        starts.into_iter().all(|start| {
            all.extend(rows.ordinals(start, self.nodes.len() as u32));
            all.len() <= most
        })
    }

    /// The concepts of one cycle, with the first one at the end again; empty if there is none.
    pub(crate) fn cycle(&self) -> &[u32] {
        &self.cycle
    }

    /// Returns whether `b` is `a` or a descendant of it. The hierarchy must not have a cycle.
    pub(crate) fn is_a(&self, b: u32, a: u32) -> bool {
        self.is_below(self.concept_at(b), self.interval(a))
    }

    /// Returns whether `b` is the concept with this interval or a descendant of it. Because `b` was located
    /// by its code, this reads less memory than [`is_a`](Self::is_a).
    pub(crate) fn is_below(&self, b: LocatedConcept, interval: Range<u32>) -> bool {
        interval.contains(&b.at)
            || match &self.extra_ancestors {
                Some(rows) => rows.intersects(b.extra_row, interval, self.nodes.len() as u32),
                None => self.walks_up_to(b.at, interval.start),
            }
    }

    /// Returns whether the rows are missing, so that each test walks upward.
    pub(crate) fn needs_walk(&self) -> bool {
        self.extra_ancestors.is_none()
    }

    /// The number of concepts in the tree: all, unless there is a cycle.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The number of additional steps of one test: one for each concept if the test walks upward.
    pub(crate) fn walk_steps(&self) -> usize {
        if self.needs_walk() { self.nodes.len() } else { 0 }
    }

    /// The children of an interval of concepts whose tree parent is another concept.
    pub(crate) fn non_tree_children(&self, of: Range<u32>) -> &[u32] {
        self.non_tree_children.rows(of)
    }

    /// A concept with its descendants in the tree. The hierarchy must not have a cycle.
    pub(crate) fn interval(&self, index: u32) -> Range<u32> {
        index..self.nodes[index as usize].tree_end
    }

    /// The concept of an ordinal, with a filter that rejects nothing.
    pub(crate) fn concept_at(&self, index: u32) -> LocatedConcept {
        let extra_row = self.nodes.get(index as usize).map_or(0, |node| node.extra_row);
        LocatedConcept { at: index, extra_row, above: AncestorFilter::ANYTHING }
    }

    /// Returns whether `b` is `a` or a descendant of it in the tree.
    fn is_tree_ancestor(&self, a: u32, b: u32) -> bool {
        a <= b && b < self.nodes[a as usize].tree_end
    }

    /// Returns whether `a` is `b` or an ancestor of it, by walking upward without the rows. Follows each link
    /// at most once.
    fn walks_up_to(&self, b: u32, a: u32) -> bool {
        let (mut seen, mut waiting) = (HashSet::from([b]), vec![b]);
        while let Some(here) = waiting.pop() {
            if self.is_tree_ancestor(a, here) {
                return true;
            }
            waiting.extend(self.parents(here).iter().copied().filter(|parent| seen.insert(*parent)));
        }
        false
    }

    pub(crate) fn parents(&self, of: u32) -> &[u32] {
        self.parents.row(of)
    }

    pub(crate) fn children(&self, of: u32) -> Vec<u32> {
        let mut children = self.non_tree_children.row(of).to_vec();
        if let Some(HierarchyNode { tree_end, .. }) = self.nodes.get(of as usize) {
            // The next child follows the descendants of the previous one.
            let behind = |index: &u32| self.nodes.get(*index as usize).map(|node| node.tree_end);
            children.extend(std::iter::successors(Some(of + 1), behind).take_while(|index| index < tree_end));
            children.sort_unstable();
        }
        children
    }

    /// The direct parents or the direct children.
    pub(crate) fn neighbours(&self, index: u32, up: bool) -> Cow<'_, [u32]> {
        if up { self.parents(index).into() } else { self.children(index).into() }
    }

    /// Returns whether the concept has no children.
    pub(crate) fn is_leaf(&self, index: u32) -> bool {
        let in_tree = self.nodes.get(index as usize).is_some_and(|node| node.tree_end > index + 1);
        !in_tree && self.non_tree_children.row(index).is_empty()
    }
}

columns!(ConceptHierarchy: parents, non_tree_children, nodes, extra_ancestors, cycle);
columns!(EliasFanoRows: 0);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Links from later to earlier concepts, which cannot form a cycle.
    fn dag() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
        (1_usize..40).prop_flat_map(|len| {
            let link = (0..len as u32, 0..len as u32);
            (Just(len), prop::collection::vec(link, 0..80), any::<prop::sample::Index>()).prop_map(
                |(len, links, turn)| {
                    // Rotates the numbers, so that parents do not always precede their children.
                    let turn = turn.index(len) as u32;
                    let row = |n: u32| (n + turn) % len as u32;
                    let links = links
                        .into_iter()
                        .filter(|(a, b)| a != b)
                        .map(|(a, b)| (row(a.max(b)), row(a.min(b))));
                    (len, links.collect())
                },
            )
        })
    }

    fn walks_up(links: &[(u32, u32)], from: u32, to: u32) -> bool {
        from == to || links.iter().any(|(child, parent)| *child == from && walks_up(links, *parent, to))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn intervals_and_rows_agree_with_walking_upward((len, links) in dag()) {
            let (order, hierarchy, above) = ConceptHierarchy::build(len, links.clone());
            prop_assert!(hierarchy.cycle().is_empty());
            for a in 0..len as u32 {
                for b in 0..len as u32 {
                    let expected = walks_up(&links, order[b as usize], order[a as usize]);
                    prop_assert_eq!(hierarchy.is_a(b, a), expected, "{} below {}", b, a);
                    prop_assert_eq!(hierarchy.walks_up_to(b, a), expected, "walked: {} below {}", b, a);
                    let [up, down] = [a, b].map(|index| LocatedConcept {
                        at: index,
                        extra_row: above.extra_row[index as usize],
                        above: above.filters[index as usize],
                    });
                    prop_assert_eq!(hierarchy.is_below(down, hierarchy.interval(a)), expected, "as found: {} below {}", b, a);
                    let may_be = down.above.may_be_below(up.above);
                    prop_assert!(may_be || !expected, "by filter: {} below {}", b, a);
                }
                prop_assert_eq!(hierarchy.children(a).is_empty(), hierarchy.is_leaf(a));
                for child in hierarchy.children(a) {
                    prop_assert!(hierarchy.parents(child).contains(&a));
                }
            }
        }

        #[test]
        fn a_closed_cycle_is_found((len, mut links) in dag(), from in any::<prop::sample::Index>()) {
            prop_assume!(!links.is_empty());
            let (child, parent) = links[from.index(links.len())];
            links.push((parent, child));
            let (_, hierarchy, _) = ConceptHierarchy::build(len, links.clone());
            let cycle = hierarchy.cycle();
            prop_assert!(cycle.len() >= 3 && cycle[0] == cycle[cycle.len() - 1]);
            for pair in cycle.windows(2) {
                prop_assert!(links.contains(&(pair[0], pair[1])));
            }
        }
    }

    #[test]
    fn a_hierarchy_with_too_large_rows_is_walked() {
        // A ladder: each rung has two concepts, and both are ancestors of all rungs below.
        let rungs = 6_000;
        let links = (1..rungs).flat_map(|rung| {
            let (above, here) = (2 * (rung - 1), 2 * rung);
            [(here, above), (here, above + 1), (here + 1, above), (here + 1, above + 1)]
        });
        let (order, hierarchy, _) = ConceptHierarchy::build(2 * rungs as usize, links.collect());
        assert!(hierarchy.extra_ancestors.is_none());
        let ordinal = |of: u32| order.iter().position(|old| *old == of).unwrap() as u32;
        for (below, above) in [(11_999, 0), (11_999, 1), (7, 5), (6, 5), (5, 4), (4, 5), (0, 11_999), (1, 0)]
        {
            let expected = below == above || below / 2 > above / 2;
            assert_eq!(hierarchy.is_a(ordinal(below), ordinal(above)), expected, "{below} below {above}");
        }
    }

    #[test]
    fn a_row_shared_by_parents_is_read_once() {
        // One concept has many roots as parents and many children. The last concept is a child of all these
        // children.
        let width = 4_000;
        let (middle, lowest) = (width, 2 * width + 1);
        let links = (0..width).map(|root| (middle, root));
        let links = links.chain((middle + 1..lowest).flat_map(|index| [(index, middle), (lowest, index)]));
        let (order, hierarchy, _) = ConceptHierarchy::build(lowest as usize + 1, links.collect());
        assert!(hierarchy.extra_ancestors.is_some());
        let ordinal = |of: u32| order.iter().position(|old| *old == of).unwrap() as u32;
        for above in [0, 1, width - 1, middle, middle + 1, lowest - 1] {
            assert!(hierarchy.is_a(ordinal(lowest), ordinal(above)), "{above}");
            assert!(!hierarchy.is_a(ordinal(above), ordinal(lowest)), "{above}");
        }
    }

    #[test]
    fn a_long_cycle_is_found() {
        let len = 100_000;
        let links = (0..len).map(|index| (index, (index + 1) % len)).collect();
        let (_, hierarchy, _) = ConceptHierarchy::build(len as usize, links);
        assert_eq!(hierarchy.cycle().len(), len as usize + 1);
    }

    #[test]
    fn a_tree_keeps_the_order_of_the_file_and_a_self_link_is_a_cycle() {
        let (order, tree, _) = ConceptHierarchy::build(4, vec![(1, 0), (2, 1), (3, 0)]);
        assert_eq!(order, [0, 1, 2, 3]);
        assert_eq!(tree.children(0), [1, 3]);
        assert_eq!(ConceptHierarchy::build(1, vec![(0, 0)]).1.cycle(), [0, 0]);
    }
}
