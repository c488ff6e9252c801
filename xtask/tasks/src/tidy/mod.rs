//! `cargo xtask tidy`: rules for the source tree that a program can check.
//!
//! | module | rules |
//! |---|---|
//! | [`crates`] | dependencies of each crate |
//! | [`licences`] | licences, bans and sources of all packages |
//! | [`files`] | layout, file comments, unfinished code |
//! | [`module_cycles`] | no cycle among the top-level modules of a crate |
//! | [`file_circles`] | few and small circles of files that import each other |
//! | [`names`] | locals and parameters say what a thing is |
//! | [`prose`] | words and openings that comments, messages, documents and rows must not contain |
//! | [`line_width`] | comments wrap at the width of rustfmt, documents at 120 columns |
//! | [`module_tables`] | tables of modules are complete |
//! | [`links`] | documents and rows refer to anchors that exist |
//! | [`mutants`] | planted faults name expressions that exist; their list is current |
//! | [`commits`], [`commit_subject`], [`commit_body`] | length and form of commit subjects, and bodies |
//! | [`source_text`] | not a rule: comments, strings and test attributes of Rust sources |

mod commit_body;
mod commit_subject;
mod commits;
mod crates;
mod file_circles;
mod files;
mod licences;
mod line_width;
mod links;
mod module_cycles;
mod module_tables;
mod names;
mod prose;
mod source_text;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};

use crate::mutants;
use xtask::workspace::{root, tracked_files};

/// Checks all rules and prints all faults.
pub fn run() -> Result<()> {
    let mut faults = Vec::new();
    crates::check(&mut faults)?;
    let mut sources = BTreeMap::new();
    let mut documents = BTreeMap::new();
    let mut tables = BTreeMap::new();
    for file in tracked_files()? {
        files::check(&file, &mut faults);
        let group = match file.rsplit_once('.') {
            Some((_, "rs")) => &mut sources,
            Some((_, "md")) => &mut documents,
            Some((path, "toml")) if path.starts_with("conformance/specs/") => &mut tables,
            _ => continue,
        };
        let text =
            std::fs::read_to_string(root().join(&file)).with_context(|| format!("failed to read {file}"))?;
        group.insert(file, text);
    }
    module_cycles::check(&sources, &mut faults);
    file_circles::check(&sources, &mut faults);
    module_tables::check(&sources, &mut faults);
    names::check(&sources, &mut faults);
    prose::check(&sources, &documents, &tables, &mut faults);
    line_width::check(&sources, &documents, &mut faults)?;
    links::check(&documents, &tables, &mut faults);
    mutants::table::check(&mut faults)?;
    mutants::document::check(&mut faults)?;
    commits::check(&mut faults)?;
    if faults.is_empty() {
        return Ok(());
    }
    for line in &faults {
        println!("tidy: {line}");
    }
    bail!("{} faults", faults.len())
}
