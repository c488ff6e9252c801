//! Tests of the suite that no server can pass without contradicting another test or the resources that the
//! test itself sends. A failure counts as the suite's only if its difference is the one that is listed here.

/// A test whose expectation is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Name of the suite.
    pub suite: &'static str,
    /// Name of the test.
    pub test: &'static str,
    /// The difference that a correct answer has, as a run reports it.
    pub difference: &'static str,
    /// The evidence against the expectation.
    pub reason: &'static str,
}

/// The display of `code2` in version 2.0.0 of the code system of the suite `overload`.
const OVERLOADED_DISPLAY: &str =
    r#"expansion.contains[code2].display: expected "Display 2", got "Display #2""#;
const OVERLOADED_REASON: &str = "code2 of version 2.0.0 has the display 'Display #2' in the resource that the test sends, and overload/expand-exclude-enum and overload/expand-mixed expect it";

/// All known contradictions.
pub const CONTRADICTIONS: [Contradiction; 2] = [
    Contradiction {
        suite: "overload",
        test: "expand-enum-good",
        difference: OVERLOADED_DISPLAY,
        reason: OVERLOADED_REASON,
    },
    Contradiction {
        suite: "overload",
        test: "expand-exclude-versioned",
        difference: OVERLOADED_DISPLAY,
        reason: OVERLOADED_REASON,
    },
];

/// The contradiction that explains this difference of a test.
pub fn explanation(suite: &str, test: &str, difference: &str) -> Option<&'static Contradiction> {
    CONTRADICTIONS.iter().find(|row| (row.suite, row.test, row.difference) == (suite, test, difference))
}
