//! Questions that are answered with yes or no.

use std::io::{self, BufRead, IsTerminal as _};

/// Asks a question on standard error and reads the answer from standard input. Returns `None` if standard
/// input is not a terminal, because a script cannot answer.
pub fn ask(question: &str) -> Option<bool> {
    let input = io::stdin();
    if !input.is_terminal() {
        return None;
    }
    eprint!("{question} [y/N] ");
    Some(is_yes(input.lock()))
}

/// Returns whether the next line is a yes. An answer that cannot be read is not.
fn is_yes(mut input: impl BufRead) -> bool {
    let mut line = String::new();
    let read = input.read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_a_yes() {
        for (typed, yes) in [("y\n", true), (" YES \n", true), ("n\n", false), ("\n", false), ("", false)] {
            assert_eq!(is_yes(typed.as_bytes()), yes, "{typed:?}");
        }
        assert!(!is_yes(&b"\xff\xfe\n"[..]), "an answer that is not text");
    }
}
