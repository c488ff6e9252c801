//! The rows of an NDJSON file, counted while it is received.

/// Counts rows. Each one is a resource: a JSON object, which begins with `{`. Empty rows are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowCount {
    /// Number of rows that have begun.
    pub resources: u64,
    /// Number of the first row that is not a resource.
    pub refused: Option<u64>,
    /// Number of line feeds so far.
    line_feeds: u64,
    /// Whether the first character of the row was received.
    has_begun: bool,
}

impl RowCount {
    pub fn add(&mut self, piece: &[u8]) {
        let mut rows = piece.split(|byte| *byte == b'\n').peekable();
        while let Some(row) = rows.next() {
            if !self.has_begun
                && let Some(first) = row.iter().find(|byte| !byte.is_ascii_whitespace())
            {
                self.has_begun = true;
                self.resources += 1;
                if *first != b'{' {
                    self.refused.get_or_insert(self.line_feeds + 1);
                }
            }
            if rows.peek().is_some() {
                self.line_feeds += 1;
                self.has_begun = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, resources: u64, expected: Option<u64>) {
        let mut count = RowCount::default();
        count.add(text.as_bytes());
        assert_eq!((count.resources, count.refused), (resources, expected), "{text:?}");
    }

    #[test]
    fn rows_are_objects() {
        check("", 0, None);
        check("{}\n{}\n", 2, None);
        check("{}\n{}", 2, None);
        check("{}\r\n\r\n \n{}", 2, None);
        check("[{}]", 1, Some(1));
        check("{}\n\n<html>\n[", 3, Some(3));
        check("\u{feff}{}", 1, Some(1));
    }

    proptest! {
        /// The pieces in which a file is received do not matter.
        #[test]
        fn pieces_do_not_matter(text in "[{}\\[\n ]{0,40}", at in 0_usize..40) {
            let at = at.min(text.len());
            let mut whole = RowCount::default();
            whole.add(text.as_bytes());
            let mut parts = RowCount::default();
            parts.add(&text.as_bytes()[..at]);
            parts.add(&text.as_bytes()[at..]);
            prop_assert_eq!(whole, parts);
            let rows = text.lines().filter(|row| !row.trim().is_empty()).count() as u64;
            prop_assert_eq!(whole.resources, rows);
        }
    }
}
