//! The hierarchy of one code system: a directed graph without circles, where a concept may have
//! several parents.
//!
//! Concepts are numbered in preorder over a spanning tree, so the tree descendants of a concept are
//! one interval of ordinals. A concept with several parents hangs from the tree at further places, those of its parents
//! and of what these hang from in turn; they stand in a row, and a concept with one parent shares the row of that. "Is
//! `b` below `a`?" then means: is `b`, or a place that it hangs from, in the interval of `a`?

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::codes::{Above, Concept};
use super::columns::{Rows, columns};
use super::others::Others;
use super::signature::Signature;

/// So many bytes a concept the rows may take on average; the shape of SNOMED CT takes about 35.
const BYTES_EACH: usize = 256;
/// So many places may be looked at for each concept on average.
const LOOKS_EACH: usize = 1024;
/// So many of them may be looked at for one concept, since they stand in memory together.
const LOOKS_AT_ONCE: usize = 4 << 20;
/// What small systems may take beyond that, in concepts.
const ALLOWANCE: usize = 1024;

/// Where a concept stands, side by side since a question needs all of it.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Place {
    /// Tree descendants of `a`, itself included, are `a..tree_end`.
    tree_end: u32,
    /// Start of its row.
    others: u32,
}

/// Parents, children and ancestors by ordinal.
#[derive(Debug, Default)]
pub(crate) struct Hierarchy {
    parents: Rows<u32>,
    /// Children that are another concept's in the tree; all children where there is no tree.
    adopted: Rows<u32>,
    places: Vec<Place>,
    /// The further places that concepts hang from: of those in a line of the tree, the lowest. `None` where they
    /// would take too much.
    others: Option<Others>,
    /// One circle, if there is any; then nothing else but `parents` and `adopted` is filled.
    circle: Vec<u32>,
}

impl Hierarchy {
    /// Builds the hierarchy of `len` concepts from `(child, parent)` pairs, in any order, doubles
    /// allowed. Returns, beside it, the old number of each new ordinal; where there is a circle,
    /// the numbers stay as they were. Returns, too, what the table of codes says; nothing where there is a circle.
    pub(crate) fn build(len: usize, links: Vec<(u32, u32)>) -> (Vec<u32>, Self, Above) {
        let graph = Graph::new(len, links);
        let Some(topological) = graph.topological() else {
            let circle = graph.circle();
            let hierarchy =
                Self { parents: graph.parents, adopted: graph.children, circle, ..Self::default() };
            return ((0..len as u32).collect(), hierarchy, Above::default());
        };
        let tree_parent = graph.spanning_tree(&topological);
        let (order, ordinal, tree_end) = preorder(len, &graph, &tree_parent);
        let places = tree_end.into_iter().map(|tree_end| Place { tree_end, others: 0 }).collect();
        let renumber = |rows: &Rows<u32>, keep: &dyn Fn(u32, u32) -> bool| {
            let mut out = Rows::with_capacity(len, rows.items());
            for &old in &order {
                let kept = rows.row(old).iter().filter(|other| keep(old, **other));
                let mut row: Vec<u32> = kept.map(|n| ordinal[*n as usize]).collect();
                row.sort_unstable();
                out.push(row);
            }
            out.shrink();
            out
        };
        let parents = renumber(&graph.parents, &|_, _| true);
        let adopted = renumber(&graph.children, &|parent, child| tree_parent[child as usize] != Some(parent));
        let to_ordinal = |old: u32| ordinal[old as usize];
        let from_above: Vec<u32> = topological.into_iter().map(to_ordinal).collect();
        drop(graph);
        let mut hierarchy = Self { parents, adopted, places, others: None, circle: Vec::new() };
        hierarchy.fill(&from_above);
        let others = hierarchy.places.iter().map(|place| place.others).collect();
        let above = Above { signatures: hierarchy.signatures(&from_above), others };
        (order, hierarchy, above)
    }

    /// What is above each concept.
    fn signatures(&self, from_above: &[u32]) -> Vec<Signature> {
        let mut out = vec![Signature::NOTHING; from_above.len()];
        for &at in from_above {
            let parents = self.parents(at).iter().map(|parent| out[*parent as usize]);
            out[at as usize] = Signature::below(parents, at);
        }
        out
    }

    /// Writes the rows of all concepts, unless that takes too much.
    fn fill(&mut self, from_above: &[u32]) {
        let end = from_above.len() as u32;
        let most_bytes = BYTES_EACH * (from_above.len() + ALLOWANCE);
        let mut looks = LOOKS_EACH * (from_above.len() + ALLOWANCE);
        let mut rows = Others::default();
        // What hangs from no other place shares the first row.
        rows.push(&[], end);
        let mut all = Vec::new();
        for &at in from_above {
            let start = match self.parents.row(at) {
                [] => Some(0),
                [parent] => Some(self.places[*parent as usize].others),
                parents => {
                    let fits = self.gather(parents, &rows, looks.min(LOOKS_AT_ONCE), &mut all);
                    if !fits || rows.0.len() > most_bytes {
                        return;
                    }
                    looks -= all.len();
                    all.sort_unstable();
                    // Those that another one is below say nothing more, and nor do those that it is below itself.
                    let mut next = None;
                    for place in all.iter_mut().rev() {
                        let here = *place;
                        let is_told = self.spans(here, at) || next.is_some_and(|next| self.spans(here, next));
                        if is_told {
                            *place = u32::MAX;
                        } else {
                            next = Some(here);
                        }
                    }
                    all.retain(|place| *place != u32::MAX);
                    match all.as_slice() {
                        [] => Some(0),
                        places => rows.push(places, end),
                    }
                }
            };
            let Some(start) = start else { return };
            self.places[at as usize].others = start;
        }
        rows.0.shrink_to_fit();
        self.others = Some(rows);
    }

    /// The places of some parents and of what these hang from in turn, in any order. Says whether there are no more than
    /// `most`, and stops where there are.
    fn gather(&self, parents: &[u32], rows: &Others, most: usize, all: &mut Vec<u32>) -> bool {
        all.clear();
        all.extend(parents);
        let mut starts: Vec<u32> = parents.iter().map(|at| self.places[*at as usize].others).collect();
        // Many parents may share a row.
        starts.sort_unstable();
        starts.dedup();
        starts.into_iter().all(|start| {
            all.extend(rows.ordinals(start, self.places.len() as u32));
            all.len() <= most
        })
    }

    /// The concepts of one circle, the first again at the end; empty where there is none.
    pub(crate) fn circle(&self) -> &[u32] {
        &self.circle
    }

    /// Is `b` the same as `a` or below it? Only for hierarchies without a circle.
    pub(crate) fn is_a(&self, b: u32, a: u32) -> bool {
        self.is_below(self.concept(b), self.interval(a))
    }

    /// The same of a concept that was found by its code, and the interval of another one: faster, since less is read.
    pub(crate) fn is_below(&self, b: Concept, interval: Range<u32>) -> bool {
        interval.contains(&b.at)
            || match &self.others {
                Some(rows) => rows.meet(b.others, interval, self.places.len() as u32),
                None => self.leads_up(b.at, interval.start),
            }
    }

    /// Is it without rows, so that each question is a walk?
    pub(crate) fn is_walked(&self) -> bool {
        self.others.is_none()
    }

    /// How many concepts have a place in the tree: all, unless there is a cycle.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Steps that one question about two concepts takes beyond the first: where it is a walk, that of all concepts.
    pub(crate) fn walk_steps(&self) -> usize {
        if self.is_walked() { self.places.len() } else { 0 }
    }

    /// Children that are another concept's in the tree.
    pub(crate) fn adopted(&self, of: u32) -> &[u32] {
        self.adopted.row(of)
    }

    /// A concept and its descendants in the tree. Only for hierarchies without a circle.
    pub(crate) fn interval(&self, at: u32) -> Range<u32> {
        at..self.places[at as usize].tree_end
    }

    /// The concept of an ordinal, with a signature that tells nothing.
    pub(crate) fn concept(&self, at: u32) -> Concept {
        let others = self.places.get(at as usize).map_or(0, |place| place.others);
        Concept { at, others, above: Signature::ANYTHING }
    }

    /// Is `b` the same as `a` or below it in the tree?
    fn spans(&self, a: u32, b: u32) -> bool {
        a <= b && b < self.places[a as usize].tree_end
    }

    /// The question without rows: walks upward, at most once along each link.
    fn leads_up(&self, b: u32, a: u32) -> bool {
        let (mut seen, mut waiting) = (HashSet::from([b]), vec![b]);
        while let Some(here) = waiting.pop() {
            if self.spans(a, here) {
                return true;
            }
            waiting.extend(self.parents(here).iter().copied().filter(|parent| seen.insert(*parent)));
        }
        false
    }

    /// Direct parents.
    pub(crate) fn parents(&self, of: u32) -> &[u32] {
        self.parents.row(of)
    }

    /// Direct children.
    pub(crate) fn children(&self, of: u32) -> Vec<u32> {
        let mut children = self.adopted.row(of).to_vec();
        if let Some(Place { tree_end, .. }) = self.places.get(of as usize) {
            // The next child follows behind the descendants of the one before.
            let behind = |at: &u32| self.places.get(*at as usize).map(|place| place.tree_end);
            children.extend(std::iter::successors(Some(of + 1), behind).take_while(|at| at < tree_end));
            children.sort_unstable();
        }
        children
    }

    /// Direct parents, or else direct children.
    pub(crate) fn next(&self, at: u32, up: bool) -> Cow<'_, [u32]> {
        if up { self.parents(at).into() } else { self.children(at).into() }
    }

    /// Has it no children?
    pub(crate) fn is_leaf(&self, at: u32) -> bool {
        let in_tree = self.places.get(at as usize).is_some_and(|place| place.tree_end > at + 1);
        !in_tree && self.adopted.row(at).is_empty()
    }
}

columns!(Hierarchy: parents, adopted, places, others, circle);
columns!(Others: 0);

/// The links as they came in, by old numbers.
struct Graph {
    parents: Rows<u32>,
    children: Rows<u32>,
    len: u32,
}

impl Graph {
    fn new(len: usize, mut links: Vec<(u32, u32)>) -> Self {
        links.sort_unstable();
        links.dedup();
        let parents = rows(len, &links);
        let mut turned: Vec<_> = links.into_iter().map(|(child, parent)| (parent, child)).collect();
        turned.sort_unstable();
        Self { parents, children: rows(len, &turned), len: len as u32 }
    }

    /// Parents before children; `None` where there is a circle.
    fn topological(&self) -> Option<Vec<u32>> {
        let mut waiting: Vec<u32> = (0..self.len).map(|n| self.parents.row(n).len() as u32).collect();
        let mut order: Vec<u32> = (0..self.len).filter(|n| waiting[*n as usize] == 0).collect();
        let mut at = 0;
        while let Some(&node) = order.get(at) {
            at += 1;
            for &child in self.children.row(node) {
                waiting[child as usize] -= 1;
                if waiting[child as usize] == 0 {
                    order.push(child);
                }
            }
        }
        (order.len() == self.len as usize).then_some(order)
    }

    /// One circle, walking upward, the first concept again at the end.
    fn circle(&self) -> Vec<u32> {
        // Peel off what cannot be part of a circle from both ends: every node left has a parent
        // that is left, so walking upward must come back.
        let mut left: Vec<bool> = vec![true; self.len as usize];
        for (up, down) in [(&self.parents, &self.children), (&self.children, &self.parents)] {
            let count = |n: u32, left: &[bool]| up.row(n).iter().filter(|p| left[**p as usize]).count();
            let mut waiting: Vec<usize> = (0..self.len).map(|n| count(n, &left)).collect();
            let mut free: Vec<u32> =
                (0..self.len).filter(|n| left[*n as usize] && waiting[*n as usize] == 0).collect();
            while let Some(node) = free.pop() {
                left[node as usize] = false;
                for &next in down.row(node).iter().filter(|n| left[**n as usize]) {
                    waiting[next as usize] -= 1;
                    if waiting[next as usize] == 0 {
                        free.push(next);
                    }
                }
            }
        }
        let Some(start) = left.iter().position(|left| *left) else { return Vec::new() };
        let (mut path, mut here) = (Vec::new(), start as u32);
        // Where each node stands in the path.
        let mut seen = vec![None; left.len()];
        loop {
            path.push(here);
            if let Some(first) = seen[here as usize].replace(path.len() - 1) {
                return path.split_off(first);
            }
            let up = self.parents.row(here).iter().copied().find(|p| left[*p as usize]);
            here = up.expect("a node left over has a parent left over");
        }
    }

    /// One parent for each concept: the deepest one, since a long branch of the tree saves the most
    /// further intervals.
    fn spanning_tree(&self, topological: &[u32]) -> Vec<Option<u32>> {
        let mut depth = vec![0_u32; self.len as usize];
        let mut tree_parent = vec![None; self.len as usize];
        for &node in topological {
            let mut deepest: Option<u32> = None;
            for &parent in self.parents.row(node) {
                if deepest.is_none_or(|best| depth[parent as usize] > depth[best as usize]) {
                    deepest = Some(parent);
                }
            }
            tree_parent[node as usize] = deepest;
            depth[node as usize] = deepest.map_or(0, |parent| depth[parent as usize] + 1);
        }
        tree_parent
    }
}

/// Rows of the second numbers by the first, from sorted pairs.
fn rows(len: usize, sorted: &[(u32, u32)]) -> Rows<u32> {
    let mut out = Rows::default();
    let mut rest = sorted;
    for node in 0..len as u32 {
        let (mine, others) = rest.split_at(rest.partition_point(|(first, _)| *first <= node));
        out.push(mine.iter().map(|(_, second)| *second));
        rest = others;
    }
    out
}

/// Walks the spanning tree and numbers it: old numbers by ordinal, ordinals by old number, and the
/// end of each subtree by ordinal.
fn preorder(len: usize, graph: &Graph, tree_parent: &[Option<u32>]) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let mut order = Vec::with_capacity(len);
    let mut ordinal = vec![0_u32; len];
    let mut tree_end = vec![0_u32; len];
    // `None` marks the end of the subtree of the ordinal beside it.
    let mut stack: Vec<(Option<u32>, u32)> = Vec::new();
    for root in (0..len as u32).filter(|n| tree_parent[*n as usize].is_none()) {
        stack.push((Some(root), 0));
        while let Some((node, at)) = stack.pop() {
            let Some(node) = node else {
                tree_end[at as usize] = order.len() as u32;
                continue;
            };
            let at = order.len() as u32;
            ordinal[node as usize] = at;
            order.push(node);
            stack.push((None, at));
            let mine = |child: &&u32| tree_parent[**child as usize] == Some(node);
            stack.extend(graph.children.row(node).iter().rev().filter(mine).map(|child| (Some(*child), 0)));
        }
    }
    (order, ordinal, tree_end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Links from later to earlier concepts never close a circle.
    fn dag() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
        (1_usize..40).prop_flat_map(|len| {
            let link = (0..len as u32, 0..len as u32);
            (Just(len), prop::collection::vec(link, 0..80), any::<prop::sample::Index>()).prop_map(
                |(len, links, turn)| {
                    // Turn the numbers, so that parents do not always come first in the file.
                    let turn = turn.index(len) as u32;
                    let at = |n: u32| (n + turn) % len as u32;
                    let links =
                        links.into_iter().filter(|(a, b)| a != b).map(|(a, b)| (at(a.max(b)), at(a.min(b))));
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
        fn labels_agree_with_walking_upward((len, links) in dag()) {
            let (order, hierarchy, above) = Hierarchy::build(len, links.clone());
            prop_assert!(hierarchy.circle().is_empty());
            for a in 0..len as u32 {
                for b in 0..len as u32 {
                    let expected = walks_up(&links, order[b as usize], order[a as usize]);
                    prop_assert_eq!(hierarchy.is_a(b, a), expected, "{} below {}", b, a);
                    prop_assert_eq!(hierarchy.leads_up(b, a), expected, "walked: {} below {}", b, a);
                    let [up, down] = [a, b].map(|at| Concept {
                        at,
                        others: above.others[at as usize],
                        above: above.signatures[at as usize],
                    });
                    prop_assert_eq!(hierarchy.is_below(down, hierarchy.interval(a)), expected, "as found: {} below {}", b, a);
                    let may_be = down.above.may_be_below(up.above);
                    prop_assert!(may_be || !expected, "by signature: {} below {}", b, a);
                }
                prop_assert_eq!(hierarchy.children(a).is_empty(), hierarchy.is_leaf(a));
                for child in hierarchy.children(a) {
                    prop_assert!(hierarchy.parents(child).contains(&a));
                }
            }
        }

        #[test]
        fn a_closed_circle_is_found((len, mut links) in dag(), from in any::<prop::sample::Index>()) {
            prop_assume!(!links.is_empty());
            let (child, parent) = links[from.index(links.len())];
            links.push((parent, child));
            let (_, hierarchy, _) = Hierarchy::build(len, links.clone());
            let circle = hierarchy.circle();
            prop_assert!(circle.len() >= 3 && circle[0] == circle[circle.len() - 1]);
            for pair in circle.windows(2) {
                prop_assert!(links.contains(&(pair[0], pair[1])));
            }
        }
    }

    #[test]
    fn where_rows_would_take_too_much_the_question_is_walked() {
        // A ladder: each rung has two concepts, and both are above all of the rungs below.
        let rungs = 6_000;
        let links = (1..rungs).flat_map(|rung| {
            let (above, here) = (2 * (rung - 1), 2 * rung);
            [(here, above), (here, above + 1), (here + 1, above), (here + 1, above + 1)]
        });
        let (order, hierarchy, _) = Hierarchy::build(2 * rungs as usize, links.collect());
        assert!(hierarchy.others.is_none());
        let ordinal = |of: u32| order.iter().position(|old| *old == of).unwrap() as u32;
        for (below, above) in [(11_999, 0), (11_999, 1), (7, 5), (6, 5), (5, 4), (4, 5), (0, 11_999), (1, 0)]
        {
            let expected = below == above || below / 2 > above / 2;
            assert_eq!(hierarchy.is_a(ordinal(below), ordinal(above)), expected, "{below} below {above}");
        }
    }

    #[test]
    fn parents_that_share_a_row_are_looked_at_once() {
        // One concept below many roots, many below that one, and one below all of these.
        let width = 4_000;
        let (middle, lowest) = (width, 2 * width + 1);
        let links = (0..width).map(|root| (middle, root));
        let links = links.chain((middle + 1..lowest).flat_map(|at| [(at, middle), (lowest, at)]));
        let (order, hierarchy, _) = Hierarchy::build(lowest as usize + 1, links.collect());
        assert!(hierarchy.others.is_some());
        let ordinal = |of: u32| order.iter().position(|old| *old == of).unwrap() as u32;
        for above in [0, 1, width - 1, middle, middle + 1, lowest - 1] {
            assert!(hierarchy.is_a(ordinal(lowest), ordinal(above)), "{above}");
            assert!(!hierarchy.is_a(ordinal(above), ordinal(lowest)), "{above}");
        }
    }

    #[test]
    fn a_long_circle_is_found() {
        let len = 100_000;
        let links = (0..len).map(|at| (at, (at + 1) % len)).collect();
        let (_, hierarchy, _) = Hierarchy::build(len as usize, links);
        assert_eq!(hierarchy.circle().len(), len as usize + 1);
    }

    #[test]
    fn a_tree_keeps_the_order_of_the_file_and_a_self_link_is_a_circle() {
        let (order, tree, _) = Hierarchy::build(4, vec![(1, 0), (2, 1), (3, 0)]);
        assert_eq!(order, [0, 1, 2, 3]);
        assert_eq!(tree.children(0), [1, 3]);
        assert_eq!(Hierarchy::build(1, vec![(0, 0)]).1.circle(), [0, 0]);
    }
}
