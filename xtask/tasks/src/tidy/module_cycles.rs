//! The top-level modules of a crate must not form a cycle, so that each crate can be read from bottom to top.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

pub(super) type ModuleArrows = BTreeMap<String, BTreeSet<String>>;

/// Checks the `use` declarations and paths of every crate.
pub fn check(sources: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    let crates: BTreeSet<&str> =
        sources.keys().filter_map(|file| file.find("/src/").map(|offset| &file[..offset + 4])).collect();
    for root in crates {
        let files = sources
            .iter()
            .filter_map(|(file, text)| Some((file.strip_prefix(root)?.strip_prefix('/')?, text.as_str())));
        for cycle in cycles(&arrows(files)) {
            faults.push(format!(
                "{root}: the modules {} use each other; remove the uses in one direction",
                cycle.join(", ")
            ));
        }
    }
}

/// The modules that each top-level module uses.
fn arrows<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> ModuleArrows {
    let files: Vec<_> = files.collect();
    let top = |file: &str| file.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
    let modules: BTreeSet<String> =
        files.iter().map(|(file, _)| top(file)).filter(|name| name != "lib" && name != "main").collect();
    let path = Regex::new(r"\b(crate|super(?:::super)*)::(\{[^;]*\}|\w+)").expect("the expression is valid");
    let mut arrows = ModuleArrows::new();
    for (file, text) in &files {
        let own = top(file);
        if !modules.contains(&own) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let code: String = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\n");
        // Number of modules between the crate's root and this file.
        let depth = file.trim_end_matches(".rs").trim_end_matches("/mod").split('/').count();
        let used = arrows.entry(own.clone()).or_default();
        for captured in path.captures_iter(&code) {
            let supers = captured[1].matches("super").count();
            if supers != 0 && supers != depth {
                continue;
            }
            used.extend(first_names(&captured[2]).filter(|name| modules.contains(name) && *name != own));
        }
    }
    arrows
}

/// The first name of each path in a group such as `{a::b, c}`, or the name itself.
fn first_names(group: &str) -> impl Iterator<Item = String> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut current = String::new();
    for c in group.trim_start_matches('{').chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(std::mem::take(&mut current)),
            c if depth == 0 => current.push(c),
            _ => {}
        }
    }
    names.push(current);
    names.into_iter().map(|path| path.split("::").next().unwrap_or_default().trim().to_owned())
}

/// The groups of modules that depend on each other.
pub(super) fn cycles(arrows: &ModuleArrows) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        arrows.keys().map(|module| (module, reachable(arrows, module))).collect();
    let mut groups = BTreeSet::new();
    for (module, targets) in &reached {
        if targets.contains(module) {
            let is_mutual = |other: &&&String| reached.get(*other).is_some_and(|back| back.contains(module));
            let group: Vec<String> = targets.iter().filter(is_mutual).map(|name| (*name).clone()).collect();
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

fn reachable<'a>(arrows: &'a ModuleArrows, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = arrows.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(arrows.get(module).into_iter().flatten());
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_reported_and_chains_are_not() {
        let of = |files: &[(&'static str, &'static str)]| cycles(&arrows(files.iter().copied()));
        let chain = [("a.rs", "use crate::b::X;"), ("b/mod.rs", "use super::c;"), ("c.rs", "")];
        assert!(of(&chain).is_empty());
        let cycle =
            [("a.rs", "use crate::{b::X, d};"), ("b/inner.rs", "let x = crate::a::f();"), ("d.rs", "")];
        assert_eq!(of(&cycle), [["a", "b"]]);
        let in_comments = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "// See crate::a.\n#[cfg(test)]\nmod tests { use crate::a; }"),
        ];
        assert!(of(&in_comments).is_empty());
    }
}
