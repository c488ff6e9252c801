//! Comparison of texts without regard to case.

/// Returns whether two texts are equal without regard to case.
pub(crate) fn same_folded(a: &str, b: &str) -> bool {
    a.chars().flat_map(char::to_lowercase).eq(b.chars().flat_map(char::to_lowercase))
}
