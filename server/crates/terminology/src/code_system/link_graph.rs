//! The graph of the links between concepts: topological order, cycles, and the spanning tree.

use super::row_column::RowColumn;

/// Links between concepts, by the numbers under which the concepts were added.
pub(super) struct LinkGraph {
    pub(super) parents: RowColumn<u32>,
    pub(super) children: RowColumn<u32>,
    len: u32,
}

impl LinkGraph {
    pub(super) fn new(len: usize, mut links: Vec<(u32, u32)>) -> Self {
        links.sort_unstable();
        links.dedup();
        let parents = rows_by_first(len, &links);
        let mut turned: Vec<_> = links.into_iter().map(|(child, parent)| (parent, child)).collect();
        turned.sort_unstable();
        Self { parents, children: rows_by_first(len, &turned), len: len as u32 }
    }

    /// An order in which parents precede their children; `None` if there is a cycle.
    pub(super) fn topological_order(&self) -> Option<Vec<u32>> {
        let mut waiting: Vec<u32> = (0..self.len).map(|n| self.parents.row(n).len() as u32).collect();
        let mut order: Vec<u32> = (0..self.len).filter(|n| waiting[*n as usize] == 0).collect();
        let mut index = 0;
        while let Some(&node) = order.get(index) {
            index += 1;
            for &child in self.children.row(node) {
                waiting[child as usize] -= 1;
                if waiting[child as usize] == 0 {
                    order.push(child);
                }
            }
        }
        (order.len() == self.len as usize).then_some(order)
    }

    /// One cycle, walking upward, with the first concept at the end again.
    pub(super) fn find_cycle(&self) -> Vec<u32> {
        // Removes nodes without remaining parents or children, which cannot be part of a cycle. Every
        // remaining node has a remaining parent, so a walk upward must reach a node twice.
        let mut is_remaining: Vec<bool> = vec![true; self.len as usize];
        for (up, down) in [(&self.parents, &self.children), (&self.children, &self.parents)] {
            let count =
                |n: u32, remaining: &[bool]| up.row(n).iter().filter(|p| remaining[**p as usize]).count();
            let mut waiting: Vec<usize> = (0..self.len).map(|n| count(n, &is_remaining)).collect();
            let mut free: Vec<u32> =
                (0..self.len).filter(|n| is_remaining[*n as usize] && waiting[*n as usize] == 0).collect();
            while let Some(node) = free.pop() {
                is_remaining[node as usize] = false;
                for &next in down.row(node).iter().filter(|n| is_remaining[**n as usize]) {
                    waiting[next as usize] -= 1;
                    if waiting[next as usize] == 0 {
                        free.push(next);
                    }
                }
            }
        }
        let Some(start) = is_remaining.iter().position(|is_there| *is_there) else { return Vec::new() };
        let (mut path, mut here) = (Vec::new(), start as u32);
        // Position of each node in the path.
        let mut order = vec![None; is_remaining.len()];
        loop {
            path.push(here);
            if let Some(first) = order[here as usize].replace(path.len() - 1) {
                return path.split_off(first);
            }
            let up = self.parents.row(here).iter().copied().find(|p| is_remaining[*p as usize]);
            here = up.expect("a remaining node has a remaining parent");
        }
    }

    /// One parent for each concept: the deepest one, because a long branch of the tree saves the most extra
    /// ancestors.
    pub(super) fn spanning_tree(&self, topological: &[u32]) -> Vec<Option<u32>> {
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

/// Builds rows of the second numbers by the first, from sorted pairs.
fn rows_by_first(len: usize, sorted: &[(u32, u32)]) -> RowColumn<u32> {
    let mut out = RowColumn::default();
    let mut rest = sorted;
    for node in 0..len as u32 {
        let (mine, remaining) = rest.split_at(rest.partition_point(|(first, _)| *first <= node));
        out.push(mine.iter().map(|(_, second)| *second));
        rest = remaining;
    }
    out
}

/// Numbers the spanning tree. Returns the old number of each ordinal, the ordinal of each old number, and the
/// end of each subtree by ordinal.
pub(super) fn number_in_preorder(
    len: usize,
    graph: &LinkGraph,
    tree_parent: &[Option<u32>],
) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let mut order = Vec::with_capacity(len);
    let mut ordinal = vec![0_u32; len];
    let mut tree_end = vec![0_u32; len];
    // `None` marks the end of the subtree of the ordinal next to it.
    let mut stack: Vec<(Option<u32>, u32)> = Vec::new();
    for root in (0..len as u32).filter(|n| tree_parent[*n as usize].is_none()) {
        stack.push((Some(root), 0));
        while let Some((node, index)) = stack.pop() {
            let Some(node) = node else {
                tree_end[index as usize] = order.len() as u32;
                continue;
            };
            let index = order.len() as u32;
            ordinal[node as usize] = index;
            order.push(node);
            stack.push((None, index));
            let mine = |child: &&u32| tree_parent[**child as usize] == Some(node);
            stack.extend(graph.children.row(node).iter().rev().filter(mine).map(|child| (Some(*child), 0)));
        }
    }
    (order, ordinal, tree_end)
}
