//! Words and openings that comments, messages and documents must not contain. The list contains only rules
//! that a program can check.

use std::collections::BTreeMap;

use regex::Regex;

use super::source_text::{Piece, pieces};

/// Folders whose prose is not revised yet.
const UNREVISED: &[&str] = &[];

/// Patterns, each with the advice what to write instead.
const RULES: &[(&str, &str)] = &[
    (r"^(What|Whose|Those|So many|So long)\b", "begin with the noun, or with a verb in the third person"),
    (r"^\W*[Tt]he \w+'s[.;,]?$", "name the error or the value"),
    (
        r"\b([Ww]hoever|[Ww]homever|[Ss]omebody|[Aa]nybody)\b",
        "name the actor: the caller, another worker, the client",
    ),
    (
        r"\b(go(es)? on|once more|anew|taken away|all the same)\b",
        "write continues, again, rebuilt, removed or nevertheless",
    ),
    (r"\b(is|are|was|were) none of\b", "write 'is not one of'"),
];

/// Checks all comments, strings of four words or more, sentences of documents, and the gists of rows.
pub fn check(
    sources: &BTreeMap<String, String>,
    documents: &BTreeMap<String, String>,
    tables: &BTreeMap<String, String>,
    faults: &mut Vec<String>,
) {
    let rules: Vec<_> = RULES
        .iter()
        .map(|(pattern, advice)| (Regex::new(pattern).expect("the expression is valid"), *advice))
        .collect();
    let is_revised = |file: &&String| !UNREVISED.iter().any(|folder| file.starts_with(folder));
    let mut judge = |file: &str, line: usize, text: &str| {
        for (rule, advice) in &rules {
            if let Some(word) = rule.find(text) {
                faults.push(format!("{file}:{line}: '{}': {advice}", word.as_str()));
            }
        }
    };
    for (file, source) in sources.iter().filter(|(file, _)| is_revised(file)) {
        // Skips the file that contains this list.
        if file.ends_with("tidy/prose.rs") {
            continue;
        }
        for piece in pieces(source) {
            match piece {
                Piece::Comment(line, text) => judge(file, line, &text),
                Piece::Literal(line, text) if text.split_whitespace().count() >= 4 => {
                    judge(file, line, &text)
                }
                Piece::Literal(..) => {}
            }
        }
    }
    for (file, text) in tables {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(gist) = line.strip_prefix("gist = \"") {
                judge(file, number, gist);
            }
        }
    }
    for (file, text) in documents.iter().filter(|(file, _)| is_revised(file)) {
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                judge(file, number, line);
            }
        }
    }
}
