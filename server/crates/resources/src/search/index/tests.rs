//! Tests of the candidates that the index returns.

use proptest::prelude::*;
use store::{IndexRange, ResourceDraft, ResourceKey, Store, VersionWrite, Versions};

use super::candidates::Candidates;
use super::clauses::IndexClause;

const TERMS: [&str; 3] = ["a", "b", "c"];

/// Writes resources with the terms of the bits of a number.
async fn write(store: &Store, terms_of: &[u8]) {
    for (id, bits) in terms_of.iter().enumerate() {
        let draft = ResourceDraft { bytes: b"{}".to_vec(), version_at: 1, updated_at: 1 };
        let terms = (0..TERMS.len()).filter(|bit| bits & (1 << bit) != 0);
        let terms = terms.map(|bit| TERMS[bit].as_bytes().into()).collect();
        let key = ResourceKey::new("Basic", format!("{:02}", id * 7 % 100));
        let write = VersionWrite::put(key, draft, Vec::new()).indexed(terms);
        store.commit(vec![write], jiff::Timestamp::UNIX_EPOCH).await.unwrap();
    }
}

async fn all(store: &Store, candidates: &Candidates, count: usize) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    loop {
        let page = candidates.next(store, versions.last().map(String::as_str), count).await.unwrap();
        assert!(page.len() <= count);
        if page.is_empty() {
            return versions;
        }
        versions.extend(page);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn merged_candidates_are_the_collected_ones(
        terms_of in proptest::collection::vec(0u8..8, 0..60), wanted in 1u8..8, count in 1usize..9,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = Store::memory();
            write(&store, &terms_of).await;
            let terms: Vec<_> =
                (0..TERMS.len()).filter(|bit| wanted & (1 << bit) != 0).map(|bit| TERMS[bit].as_bytes().into()).collect();
            let clause = IndexClause { ranges: terms.iter().cloned().map(IndexRange::Term).collect() };
            let collected = Candidates::best(&store, &[clause]).await.unwrap().unwrap();
            assert!(matches!(collected, Candidates::Collected(_)));
            let mut expected: Vec<_> = (0..terms_of.len())
                .filter(|id| terms_of[*id] & wanted != 0)
                .map(|id| format!("{:02}", id * 7 % 100))
                .collect();
            expected.sort();
            assert_eq!(all(&store, &collected, count).await, expected);
            assert_eq!(all(&store, &Candidates::Merged(terms), count).await, expected);
        });
    }
}
