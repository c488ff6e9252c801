//! The hierarchy of one code system: a directed graph without circles, where a concept may have
//! several parents.
//!
//! Concepts are numbered in preorder over a spanning tree, so the tree descendants of a concept are
//! one interval of ordinals. Descendants that the tree does not reach are kept as further, merged
//! spans. "Is `b` below `a`?" is then two comparisons, or a binary search where `a` has more
//! than one interval.

use super::columns::{Rows, columns};

/// Ordinals from the first up to but not including the second.
type Span = [u32; 2];

/// Marks the last ordinal of a span, in a list where its first one stands before. Most spans are one ordinal and take
/// one entry.
const LAST: u32 = 1 << 31;

/// Reads spans from such a list.
fn spans(entries: &[u32]) -> impl Iterator<Item = Span> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        let last = after.first().filter(|next| **next & LAST != 0);
        rest = if last.is_some() { &after[1..] } else { after };
        Some([first, last.map_or(first, |last| last ^ LAST) + 1])
    })
}

/// Parents, children and descendants by ordinal.
#[derive(Debug, Default)]
pub(crate) struct Hierarchy {
    parents: Rows<u32>,
    children: Rows<u32>,
    /// Tree descendants of `a`, itself included, are `a..tree_end[a]`.
    tree_end: Vec<u32>,
    /// Descendants outside of that interval, as merged spans (see [`spans`]).
    beyond: Rows<u32>,
    /// One circle, if there is any; then nothing else but `parents` and `children` is filled.
    circle: Vec<u32>,
}

impl Hierarchy {
    /// Builds the hierarchy of `len` concepts from `(child, parent)` pairs, in any order, doubles
    /// allowed. Returns, beside it, the old number of each new ordinal; where there is a circle,
    /// the numbers stay as they were.
    pub(crate) fn build(len: usize, links: Vec<(u32, u32)>) -> (Vec<u32>, Self) {
        debug_assert!(len < LAST as usize, "ordinals leave one bit free");
        let graph = Graph::new(len, links);
        let Some(topological) = graph.topological() else {
            let circle = graph.circle();
            let hierarchy =
                Self { parents: graph.parents, children: graph.children, circle, ..Self::default() };
            return ((0..len as u32).collect(), hierarchy);
        };
        let tree_parent = graph.spanning_tree(&topological);
        let (order, ordinal, tree_end) = preorder(len, &graph, &tree_parent);

        let renumber = |rows: &Rows<u32>| {
            let mut out = Rows::default();
            for old in &order {
                let mut row: Vec<u32> = rows.row(*old).iter().map(|n| ordinal[*n as usize]).collect();
                row.sort_unstable();
                out.push(row);
            }
            out
        };
        let (parents, children) = (renumber(&graph.parents), renumber(&graph.children));
        let bottom_up = topological.iter().rev().map(|old| ordinal[*old as usize]);
        let beyond = beyond(len, bottom_up, &children, &tree_end);
        (order, Self { parents, children, tree_end, beyond, circle: Vec::new() })
    }

    /// The concepts of one circle, the first again at the end; empty where there is none.
    pub(crate) fn circle(&self) -> &[u32] {
        &self.circle
    }

    /// Is `b` the same as `a` or below it? Only for hierarchies without a circle.
    pub(crate) fn is_a(&self, b: u32, a: u32) -> bool {
        if b >= a && b < self.tree_end[a as usize] {
            return true;
        }
        let beyond = self.beyond.row(a);
        let after = beyond.partition_point(|entry| entry & !LAST <= b);
        // The entry before is `b` itself, or `b` lies within a span that the next one ends.
        after > 0
            && (beyond[after - 1] & !LAST == b || beyond.get(after).is_some_and(|next| next & LAST != 0))
    }

    /// The concept and all below it, as ranges of ordinals in order. Only for hierarchies without a circle.
    pub(crate) fn below(&self, a: u32) -> impl Iterator<Item = std::ops::Range<u32>> {
        let own = [a, self.tree_end[a as usize]];
        let (before, after) = {
            let beyond = self.beyond.row(a);
            beyond.split_at(beyond.partition_point(|entry| entry & !LAST < a))
        };
        spans(before).chain([own]).chain(spans(after)).map(|[start, end]| start..end)
    }

    /// Direct parents.
    pub(crate) fn parents(&self, of: u32) -> &[u32] {
        self.parents.row(of)
    }

    /// Direct children.
    pub(crate) fn children(&self, of: u32) -> &[u32] {
        self.children.row(of)
    }
}

columns!(Hierarchy: parents, children, tree_end, beyond, circle);

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
        let mut path = vec![start as u32];
        loop {
            let here = path[path.len() - 1];
            let up = self.parents.row(here).iter().copied().find(|p| left[*p as usize]);
            let up = up.expect("a node left over has a parent left over");
            if let Some(seen) = path.iter().position(|n| *n == up) {
                path.push(up);
                return path.split_off(seen);
            }
            path.push(up);
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

/// The spans of descendants that the tree does not reach, by ordinal. Children come before
/// their parents in `bottom_up`.
fn beyond(
    len: usize,
    bottom_up: impl Iterator<Item = u32>,
    children: &Rows<u32>,
    tree_end: &[u32],
) -> Rows<u32> {
    // Rows in the order in which they are made, and where the row of each concept stands.
    let (mut made, mut places) = (Vec::<u32>::new(), vec![[0_usize; 2]; len]);
    let mut all: Vec<Span> = Vec::new();
    for node in bottom_up {
        let own = [node, tree_end[node as usize]];
        all.clear();
        for &child in children.row(node) {
            let subtree = [child, tree_end[child as usize]];
            let [from, to] = places[child as usize];
            for span in std::iter::once(subtree).chain(spans(&made[from..to])) {
                // What the own interval covers is cut out; a merged span may reach over its edge.
                let before = [span[0], span[1].min(own[0])];
                let after = [span[0].max(own[1]), span[1]];
                all.extend([before, after].into_iter().filter(|part| part[0] < part[1]));
            }
        }
        all.sort_unstable();
        let from = made.len();
        let mut merged = all.iter().copied().peekable();
        while let Some([first, mut end]) = merged.next() {
            while let Some([_, further]) = merged.next_if(|next| next[0] <= end) {
                end = end.max(further);
            }
            made.push(first);
            if end > first + 1 {
                made.push((end - 1) | LAST);
            }
        }
        places[node as usize] = [from, made.len()];
    }
    let mut rows = Rows::with_capacity(len, made.len());
    for [from, to] in places {
        rows.push(made[from..to].iter().copied());
    }
    rows
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
            let (order, hierarchy) = Hierarchy::build(len, links.clone());
            prop_assert!(hierarchy.circle().is_empty());
            for a in 0..len as u32 {
                for b in 0..len as u32 {
                    let expected = walks_up(&links, order[b as usize], order[a as usize]);
                    prop_assert_eq!(hierarchy.is_a(b, a), expected, "{} below {}", b, a);
                }
                for &child in hierarchy.children(a) {
                    prop_assert!(hierarchy.parents(child).contains(&a));
                }
            }
        }

        #[test]
        fn a_closed_circle_is_found((len, mut links) in dag(), from in any::<prop::sample::Index>()) {
            prop_assume!(!links.is_empty());
            let (child, parent) = links[from.index(links.len())];
            links.push((parent, child));
            let (_, hierarchy) = Hierarchy::build(len, links.clone());
            let circle = hierarchy.circle();
            prop_assert!(circle.len() >= 3 && circle[0] == circle[circle.len() - 1]);
            for pair in circle.windows(2) {
                prop_assert!(links.contains(&(pair[0], pair[1])));
            }
        }
    }

    #[test]
    fn a_tree_keeps_the_order_of_the_file_and_a_self_link_is_a_circle() {
        let (order, tree) = Hierarchy::build(4, vec![(1, 0), (2, 1), (3, 0)]);
        assert_eq!(order, [0, 1, 2, 3]);
        assert_eq!(tree.children(0), [1, 3]);
        assert_eq!(Hierarchy::build(1, vec![(0, 0)]).1.circle(), [0, 0]);
    }
}
