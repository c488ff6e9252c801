//! The layout of the tree and the rules for each source file.

use std::path::Path;

use xtask::workspace::root;

/// Folder of the sources that must not access files, and two spellings of the standard library's module.
const NO_FILE_ACCESS: &str = "server/crates/terminology/src/";
const FILE_ACCESS: [&str; 2] = ["std::fs", "fs::"];

/// Checks the location and, for Rust, the text of a file.
pub fn check(file: &str, faults: &mut Vec<String>) {
    const TOP: [&str; 10] = [
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "server",
        "client-tui",
        "conformance",
        "fixtures",
        "xtask",
    ];
    let top = file.split('/').next().unwrap_or_default();
    if !top.starts_with('.') && !TOP.contains(&top) {
        faults.push(format!("{file}: the top level of the project has a fixed layout"));
    }
    if Path::new(file).extension().is_none_or(|ending| ending != "rs") {
        return;
    }
    let Ok(text) = std::fs::read_to_string(root().join(file)) else { return };
    if !text.starts_with("//!") && !text.starts_with("#!") {
        faults.push(format!("{file}: the file must begin with a //! comment that describes it"));
    }
    if file.starts_with(NO_FILE_ACCESS) {
        let is_access = |line: &str| FILE_ACCESS.iter().any(|word| line.contains(word));
        for (number, _) in text.lines().enumerate().filter(|(_, line)| is_access(line)) {
            faults.push(format!("{file}:{}: only terminology-import accesses files", number + 1));
        }
    }
    // The words are written in two halves, so that this file does not contain them.
    for (word, reason) in [
        (concat!("todo", "!("), "finish it"),
        (concat!("unimplemented", "!("), "finish it"),
        (concat!("#[ign", "ore"), "run the test, or delete it"),
        (concat!("allow(dead", "_code)"), "delete the dead code"),
    ] {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains(word)) {
            if !line.trim_start().starts_with("//") {
                faults.push(format!("{file}:{}: {word}: {reason}", number + 1));
            }
        }
    }
}
