//! The document interface-coverage.md: each line of the pages in server/docs/interface with the cases about
//! it. `TREFOIL_UPDATE_DOCS=1 cargo test -p trefoil-conformance --test it interface_coverage` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use regex::Regex;
use serde::Deserialize;
use trefoil_conformance::spec::Specification;
use trefoil_conformance::spec::case::Case;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/interface-coverage.md");
/// Number of cases that the document names for a line.
const NAMED: usize = 3;

/// The file interface.toml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterfaceMap {
    section: Vec<Section>,
}

/// A heading of a page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    heading: String,
    /// Beginnings of the ids of the cases among which a line finds its own.
    cases: Vec<String>,
    /// Beginnings of lines, and of the ids of their cases.
    #[serde(default)]
    lines: BTreeMap<String, Vec<String>>,
    /// Beginnings of lines without cases, and the reasons.
    #[serde(default)]
    untested: BTreeMap<String, String>,
}

/// A sentence or a row of a table, with its page and heading.
struct Line {
    heading: String,
    text: String,
}

/// The pages, in the order of the document.
fn pages() -> Vec<PathBuf> {
    let docs = Path::new(FOLDER).join("../server/docs");
    let mut pages: Vec<PathBuf> =
        std::fs::read_dir(docs.join("interface")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    pages.insert(0, docs.join("interface.md"));
    pages
}

/// The sentences of a paragraph. A period within a code span ends none.
fn sentences(paragraph: &str) -> Vec<String> {
    let (mut found, mut begin, mut is_code) = (Vec::new(), 0, false);
    let ends = Regex::new(r"^\. [A-Z`\[*]").unwrap();
    for (at, c) in paragraph.char_indices() {
        is_code ^= c == '`';
        if !is_code && ends.is_match(&paragraph[at..]) {
            found.push(paragraph[begin..=at].to_owned());
            begin = at + 2;
        }
    }
    found.push(paragraph[begin..].to_owned());
    found
}

/// The sentences and rows of tables of a page.
fn lines_of(page: &Path) -> Vec<Line> {
    let name = page.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(page).unwrap();
    let (mut lines, mut heading, mut rows, mut paragraph) = (Vec::new(), String::new(), 0, String::new());
    let mut is_fenced = false;
    for text in text.lines().chain([""]) {
        let item = text.trim_start().strip_prefix("- ");
        let ends =
            text.is_empty() || item.is_some() || text.starts_with(['#', '|', '<']) || text.starts_with("```");
        if ends && !paragraph.is_empty() {
            let paragraph_sentences = sentences(&std::mem::take(&mut paragraph));
            lines.extend(paragraph_sentences.into_iter().map(|text| Line { heading: heading.clone(), text }));
        }
        if text.starts_with("<!--") {
            // The rows of a generated table stand between two comments, below its head.
            continue;
        } else if text.starts_with("```") {
            is_fenced = !is_fenced;
        } else if let Some(title) = text.strip_prefix('#') {
            heading = format!("{name}: {}", title.trim_start_matches(['#', ' ']));
        } else if text.starts_with('|') {
            rows += 1;
            // Two lines are the head of the table.
            if rows > 2 {
                lines.push(Line { heading: heading.clone(), text: text.to_owned() });
            }
            continue;
        } else if !is_fenced && !text.is_empty() {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph += item.unwrap_or(text.trim());
        }
        rows = 0;
    }
    lines
}

/// Patterns for the names of a line in the text of a case: those of its first cell, or all of a sentence.
fn patterns(line: &str) -> Vec<Regex> {
    let request = Regex::new(r"^((?:GET|POST|PUT|PATCH|DELETE)(?:, (?:GET|POST))*) (\S+)$").unwrap();
    let parameter = Regex::new(r"\\\{\w+\\\}").unwrap();
    let name_part = if line.starts_with('|') { line.split(" | ").next().unwrap() } else { line };
    let names = name_part.split('`').skip(1).step_by(2);
    let pattern = |name: &str| match request.captures(name) {
        Some(parts) => {
            let path = parts[2].replacen("{fhir}", "fhir", 1);
            let path = regex::escape(path.trim_start_matches('/'));
            let path = parameter.replace_all(&path, r#"[^/"?]+"#);
            let methods = parts[1].to_lowercase().replace(", ", "|");
            format!(r#"\b(?:{methods})\s*=\s*"/?{path}(?:\?[^"]*)?""#)
        }
        // The tables write these resources apart from the parameters.
        None if name == "tx-resource" => r"\bwith = \[".to_owned(),
        None => format!(
            r"(?:^|[^\w-]){}(?:$|[^\w-])",
            regex::escape(name.trim_start_matches('{').trim_end_matches('}'))
        ),
    };
    names.map(|name| Regex::new(&format!("(?m){}", pattern(name))).unwrap()).collect()
}

/// Returns whether the id of a case, or of a requirement that it covers, begins with a text.
fn begins_with(case: &Case, start: &str) -> bool {
    // A text that ends with a slash names the cases of a requirement.
    let names = |id: &String| id.starts_with(start) || start.strip_suffix('/') == Some(id);
    case.id.starts_with(start) || case.covers.iter().any(names)
}

/// The cases about a line, or the reason why it has none.
fn cases_of<'a>(line: &Line, section: &'a Section, cases: &'a [Case]) -> Result<Vec<&'a Case>, String> {
    let begins = |text: &&String| line.text.starts_with(text.as_str());
    if let Some(reason) = section.untested.keys().find(begins).map(|key| &section.untested[key]) {
        return Err(reason.clone());
    }
    let with = |starts: &[String]| -> Vec<&Case> {
        cases.iter().filter(|case| starts.iter().any(|start| begins_with(case, start))).collect()
    };
    if let Some(key) = section.lines.keys().find(begins) {
        return Ok(with(&section.lines[key]));
    }
    let patterns = patterns(&line.text);
    let uses = |case: &&Case| patterns.iter().any(|pattern| pattern.is_match(&case.row));
    Ok(with(&section.cases).into_iter().filter(uses).collect())
}

/// The beginning of a line, for a cell of a table.
fn cell(text: &str) -> String {
    let text = text.trim_matches(['|', ' ']).replace("\\|", "|");
    let short: String = text.chars().take(110).collect();
    let mut short = if short.len() < text.len() { format!("{}…", short.trim_end()) } else { short };
    // A cut code span has no end.
    if short.matches('`').count() % 2 == 1 {
        short.push('`');
    }
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)?").unwrap();
    link.replace_all(&short, "$1").replace('|', "\\|")
}

/// The document, and what is wrong with interface.toml.
fn document() -> (String, Vec<String>) {
    let map = std::fs::read_to_string(format!("{FOLDER}/interface.toml")).unwrap();
    let map: InterfaceMap = toml::from_str(&map).unwrap();
    let specification = Specification::load().unwrap();
    let lines: Vec<Line> = pages().iter().flat_map(|page| lines_of(page)).collect();
    let (mut faults, mut text, mut heading, mut counts) = (Vec::new(), String::new(), "", [0; 3]);
    for line in &lines {
        let Some(section) = map.section.iter().find(|section| section.heading == line.heading) else {
            faults.push(format!("interface.toml has no section '{}'", line.heading));
            continue;
        };
        if heading != line.heading {
            heading = &line.heading;
            write!(text, "\n## {heading}\n\n| line | cases |\n|---|---|\n").unwrap();
        }
        let cases_cell = match cases_of(line, section, &specification.cases) {
            Err(reason) => {
                counts[if reason.contains("no row yet") { 2 } else { 1 }] += 1;
                format!("none: {reason}")
            }
            Ok(cases) if cases.is_empty() => {
                faults.push(format!("no case is about '{}': {}", line.heading, line.text));
                continue;
            }
            Ok(cases) => {
                counts[0] += 1;
                let ids: Vec<_> = cases.iter().take(NAMED).map(|case| format!("`{}`", case.id)).collect();
                match cases.len().saturating_sub(NAMED) {
                    0 => ids.join(", "),
                    more => format!("{} and {more} more", ids.join(", ")),
                }
            }
        };
        writeln!(text, "| {} | {cases_cell} |", cell(&line.text)).unwrap();
    }
    for section in &map.section {
        let of_section: Vec<_> = lines.iter().filter(|line| line.heading == section.heading).collect();
        let keys = section.lines.keys().chain(section.untested.keys());
        for key in keys.filter(|key| !of_section.iter().any(|line| line.text.starts_with(key.as_str()))) {
            faults.push(format!("{}: no line begins with '{key}'", section.heading));
        }
        let starts = section.lines.values().flatten().chain(&section.cases);
        let is_used = |start: &&String| specification.cases.iter().any(|case| begins_with(case, start));
        faults.extend(
            starts
                .filter(|start| !is_used(start))
                .map(|start| format!("{}: no case begins with '{start}'", section.heading)),
        );
    }
    let [tested, untestable, missing] = counts;
    let head = format!(
        "# Coverage of the interface\n\nEach sentence and row of a table in \
         [the interface](../../server/docs/interface.md), with the cases about it.\n\n\
         | lines | number |\n|---|---|\n| with cases | {tested} |\n\
         | that need none, or cannot be tested over HTTP | {untestable} |\n| without cases yet | {missing} |\n\n\
         [interface.toml](../interface.toml) says how a line finds its cases. [Coverage](coverage.md) has the \
         clauses of\nstandards.\n"
    );
    (head + &text, faults)
}

#[test]
fn every_line_of_the_interface_has_its_cases() {
    let (document, faults) = document();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    if std::env::var_os("TREFOIL_UPDATE_DOCS").is_some() {
        std::fs::write(DOCUMENT, &document).unwrap();
    }
    let file_text = std::fs::read_to_string(DOCUMENT).unwrap();
    assert!(file_text == document, "set TREFOIL_UPDATE_DOCS=1 to write docs/interface-coverage.md");
}

#[test]
fn a_period_in_a_code_span_ends_no_sentence() {
    let paragraph = "One `a. B` line. Two, e.g. this. `Three`.";
    assert_eq!(sentences(paragraph), ["One `a. B` line.", "Two, e.g. this.", "`Three`."]);
}
