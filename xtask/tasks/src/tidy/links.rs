//! Links between documents, and from rows to documents: the file and the anchor must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

use xtask::workspace::root;

/// Checks every relative link of the documents and every `house` of the rows.
pub fn check(
    documents: &BTreeMap<String, String>,
    tables: &BTreeMap<String, String>,
    faults: &mut Vec<String>,
) {
    let anchors: BTreeMap<&String, BTreeSet<String>> =
        documents.iter().map(|(file, text)| (file, anchors(text))).collect();
    let mut check_link = |file: &str, line: usize, target: &str| {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if path.is_empty() { file.to_owned() } else { path.to_owned() };
        if !root().join(&path).exists() {
            faults.push(format!("{file}:{line}: {path} does not exist"));
        } else if !anchor.is_empty() && anchors.get(&path).is_none_or(|anchors| !anchors.contains(anchor)) {
            faults.push(format!("{file}:{line}: {path} has no heading with the anchor '{anchor}'"));
        }
    };
    let link = Regex::new(r"\]\(([^)\s]+)\)").expect("the expression is valid");
    for (file, text) in documents {
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        for (number, line) in (1..).zip(text.lines()) {
            for destination in link.captures_iter(line).map(|captures| captures[1].to_owned()) {
                // Other sites are not read: the checks need no network.
                if destination.contains("://") || destination.starts_with("mailto:") {
                    continue;
                }
                let target = if destination.starts_with('#') {
                    destination
                } else {
                    normalized(&folder.join(destination))
                };
                check_link(file, number, &target);
            }
        }
    }
    for (file, text) in tables {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(target) = line.strip_prefix("house = \"").and_then(|rest| rest.strip_suffix('"')) {
                check_link(file, number, target);
            }
        }
    }
}

/// A relative path without `..`.
fn normalized(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.to_string_lossy().split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part.to_owned()),
        }
    }
    parts.join("/")
}

/// The anchors of a document: its headings in lower case, with hyphens for spaces and without punctuation,
/// and the ids of rows.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if let (false, true) = (is_code, line.starts_with('#')) {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let characters = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            names.insert(characters.collect::<String>().replace(' ', "-"));
        } else if !is_code {
            // Rows of tables have addresses of their own.
            let ids = line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(ids.map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_become_anchors() {
        let names =
            anchors("# A, b (c)\n```\n# not\n```\n## `$subsumes` by GET\n| row <a id=\"row\"></a> | 1 |\n");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a-b-c", "row", "subsumes-by-get"]);
        assert_eq!(normalized(Path::new("server/docs/../../README.md")), "README.md");
    }
}
