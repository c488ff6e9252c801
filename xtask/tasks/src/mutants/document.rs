//! The list of faults in the documentation, `conformance/docs/mutants.md`, generated from the tables.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::table::{self, Mutant};
use xtask::workspace::root;

const FILE: &str = "conformance/docs/mutants.md";

const INTRODUCTION: &str = "\
# Planted faults

`cargo xtask mutants` plants each of these faults in a copy of the server, and runs the suite against it. The suite must
find every fault if it starts the server itself; a test finds those that need several nodes. Faults that a run with
`--target` cannot find are listed with the reason. This page is generated from the tables in [`mutants/`](../mutants)
with `cargo xtask mutants --document`.

Besides, a proxy plants the faults of [`mutants/wire/`](../mutants/wire) in answers and requests of an unchanged server,
which the suite knows by its address only and without `--house`. `cargo xtask soak --only wire-faults` plants all of
them, and the pipeline a sample. The same proxy makes the variations of [`mutants/permitted/`](../mutants/permitted),
which a standard permits and Trefoil does not do: with all of them at once, no row may fail.
";

pub fn write(mutants: &[Mutant]) -> Result<()> {
    let path = root().join(FILE);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text(mutants)).with_context(|| format!("failed to write {FILE}"))
}

/// Adds a fault if the document is out of date.
pub fn check(faults: &mut Vec<String>) -> Result<()> {
    let present = std::fs::read_to_string(root().join(FILE)).unwrap_or_default();
    if present != text(&table::load()?) {
        faults.push(format!("{FILE} is out of date; run cargo xtask mutants --document"));
    }
    Ok(())
}

fn text(mutants: &[Mutant]) -> String {
    let hidden: Vec<_> =
        mutants.iter().filter_map(|mutant| Some((mutant, mutant.hidden.as_ref()?))).collect();
    let mut out = INTRODUCTION.to_owned();
    // Writing to a text does not fail.
    let _ = write!(out, "\n{} faults, of which a run with `--target` finds ", mutants.len());
    let _ = writeln!(out, "{}.", mutants.len() - hidden.len());
    let mut area = "";
    for mutant in mutants {
        if mutant.area() != area {
            area = mutant.area();
            let _ = writeln!(out, "\n## {area}\n\n| fault | what the server does |\n|---|---|");
        }
        let slug = mutant.name.split('/').next_back().unwrap_or_default();
        let _ = writeln!(out, "| {slug} | {} |", mutant.gist);
    }
    let _ = writeln!(out, "\n## Hidden from a run with `--target`\n\n| fault | reason |\n|---|---|");
    for (mutant, reason) in hidden {
        let _ = writeln!(out, "| {} | {reason} |", mutant.name);
    }
    out
}
