//! Properties of `$subsumes` on small, medium and large random graphs with fixed seeds: it is reflexive,
//! antisymmetric and transitive, swapping the codes swaps the outcome, and the results equal those of a naive
//! walk.

use std::collections::HashSet;
use std::fmt::Write as _;

use trefoil_terminology::{OperationLevel, Terminology};

use crate::support::{put, subsumes};

/// A generator of pseudo-random numbers with the same sequence in every run (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }
}

/// Returns up to four parents of each concept, of smaller numbers. Small graphs are deep, with near parents.
/// Large ones have the depth of real terminologies, with parents in the level above.
fn parents(len: usize, numbers: &mut Numbers) -> Vec<Vec<usize>> {
    let parent = |at: usize, numbers: &mut Numbers| match numbers.below(50) {
        0 => numbers.below(at),
        _ if len > 1_000 => at / 4 + numbers.below(20.min(at - at / 4)),
        _ => at - 1 - numbers.below((len / 8).max(2).min(at)),
    };
    let list = |at: usize, numbers: &mut Numbers| match at {
        0 => Vec::new(),
        // Every tenth concept is a root.
        _ if numbers.below(10) == 0 => Vec::new(),
        _ => (0..=numbers.below(8) / 2).map(|_| parent(at, numbers)).collect(),
    };
    (0..len).map(|at| list(at, numbers)).collect()
}

fn terminology(parents: &[Vec<usize>]) -> Terminology {
    let mut concepts = String::new();
    // In reverse, so that children precede their parents.
    for (at, list) in parents.iter().enumerate().rev() {
        let links: Vec<_> =
            list.iter().map(|p| format!(r#"{{"code":"parent","valueCode":"c{p}"}}"#)).collect();
        let comma = if concepts.is_empty() { "" } else { "," };
        write!(concepts, r#"{comma}{{"code":"c{at}","property":[{}]}}"#, links.join(","))
            .expect("writing to a String cannot fail");
    }
    let terminology = Terminology::default();
    terminology.apply([put(&format!(
        r#"{{"resourceType":"CodeSystem","id":"s","url":"urn:s","status":"active","content":"complete","concept":[{concepts}]}}"#
    ))]);
    terminology
}

/// Returns all ancestors of a concept, by walking.
fn above(parents: &[Vec<usize>], of: usize) -> HashSet<usize> {
    let mut visited = HashSet::new();
    let mut waiting = parents[of].clone();
    while let Some(at) = waiting.pop() {
        if visited.insert(at) {
            waiting.extend(&parents[at]);
        }
    }
    visited
}

#[track_caller]
fn check(len: usize, seed: u64, samples: usize) {
    let mut numbers = Numbers(seed);
    let parents = parents(len, &mut numbers);
    let terminology = terminology(&parents);
    let relation = |a: usize, b: usize| {
        subsumes(&terminology, OperationLevel::Type, &format!("system=urn:s&codeA=c{a}&codeB=c{b}"))
    };
    for _ in 0..samples {
        let low = numbers.below(len);
        assert_eq!(relation(low, low), "equivalent", "c{low} of {len}, seed {seed}");
        let ancestors = above(&parents, low);
        let mut sorted: Vec<_> = ancestors.iter().copied().collect();
        sorted.sort_unstable();
        // Tests one ancestor, if there is any, and one arbitrary concept.
        let some = (!sorted.is_empty()).then(|| sorted[numbers.below(sorted.len())]);
        for other in some.into_iter().chain([numbers.below(len)]).filter(|other| *other != low) {
            let actual = (relation(other, low), relation(low, other));
            let expected = match (ancestors.contains(&other), above(&parents, other).contains(&low)) {
                (true, _) => ("subsumes", "subsumed-by"),
                (_, true) => ("subsumed-by", "subsumes"),
                _ => ("not-subsumed", "not-subsumed"),
            };
            assert_eq!(
                (actual.0.as_str(), actual.1.as_str()),
                expected,
                "c{other}, c{low} of {len}, seed {seed}"
            );
        }
        // Checks that an ancestor of an ancestor is an ancestor.
        if let Some(middle) = some
            && let Some(top) = above(&parents, middle).into_iter().min()
        {
            assert_eq!(
                relation(top, low),
                "subsumes",
                "c{top} over c{middle} over c{low} of {len}, seed {seed}"
            );
        }
    }
}

#[test]
fn the_properties_hold_for_small_graphs() {
    for seed in 1..40 {
        check(5, seed, 12);
        check(40, seed, 40);
    }
}

#[test]
fn the_properties_hold_for_medium_graphs() {
    for seed in 1..6 {
        check(1_000, seed, 100);
    }
}

#[test]
fn the_properties_hold_for_large_graphs() {
    check(10_000, 7, 200);
    check(50_000, 11, 200);
}
