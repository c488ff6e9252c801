//! Plants all faults in a copy of the sources, and builds the server from the copy. Each fault becomes `(if
//! crate::planted("name") { faulty } else { original })`, so that one program contains all faults and the
//! environment variable `TREFOIL_FAULT` selects one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::table::{Mutant, RustTest, TestTarget};
use xtask::workspace::{build, cargo, root, target_dir, tracked_files};

/// Environment variable with the name of the fault.
pub const VARIABLE: &str = "TREFOIL_FAULT";

/// Added to the end of each `lib.rs`.
const PLANTED: &str = r#"
/// Returns whether this fault is selected.
pub(crate) fn planted(name: &str) -> bool {
    static FAULT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    FAULT.get_or_init(|| std::env::var("TREFOIL_FAULT").ok()).as_deref() == Some(name)
}
"#;

pub struct Programs {
    pub suite: PathBuf,
    pub server: PathBuf,
    /// The test programs with all faults, by package and target.
    pub tests: BTreeMap<(String, TestTarget), PathBuf>,
}

/// Builds the suite, and the server and these tests from a copy of the sources that contains the faults.
pub fn build_all(mutants: &[Mutant], tests: &BTreeSet<&RustTest>) -> Result<Programs> {
    xtask::workspace::check(&mut build(&["trefoil-conformance"]))?;
    let copy = target_dir().join("mutants/source");
    write_copy(&copy, mutants)?;
    let output = target_dir().join("mutants/build");
    build_in_copy(&copy, &output, &["build", "--workspace", "--bin", "trefoil", "--quiet"])?;
    let targets: BTreeSet<_> = tests.iter().map(|test| (test.package.as_str(), test.target())).collect();
    let tests = targets
        .into_iter()
        .map(|(package, target)| {
            let mut args = vec!["test", "--no-run", "--package", package, "--message-format", "json"];
            args.extend(match target {
                TestTarget::Integration => &["--test", "it"][..],
                TestTarget::Unit => &["--lib"],
            });
            let program = test_program(&build_in_copy(&copy, &output, &args)?)
                .with_context(|| format!("{package} has no test program for {target:?} tests"))?;
            Ok(((package.to_owned(), target), program))
        })
        .collect::<Result<_>>()?;
    // The run uses a copy of the suite, so that the suite can be built again in the meantime.
    let debug = output.join("debug");
    let programs =
        Programs { suite: debug.join("trefoil-conformance"), server: debug.join("trefoil"), tests };
    // A file that is in use cannot be overwritten, but it can be replaced.
    drop(std::fs::remove_file(&programs.suite));
    std::fs::copy(target_dir().join("debug/trefoil-conformance"), &programs.suite)
        .context("failed to copy the suite")?;
    Ok(programs)
}

/// Runs cargo in the copy and returns its output.
fn build_in_copy(copy: &Path, output: &Path, args: &[&str]) -> Result<String> {
    let mut command = cargo();
    command
        .current_dir(copy)
        .args(args)
        .arg("--offline")
        .env("CARGO_TARGET_DIR", output)
        // Intermediate files are shared, so that crates of others are not built again. The crates of the copy
        // have another version, so they do not replace those of the workspace.
        .env("CARGO_BUILD_BUILD_DIR", target_dir())
        .stdin(Stdio::null());
    let output = command.output().context("failed to start cargo")?;
    if !output.status.success() {
        bail!(
            "the server with the faults cannot be built:\n{}",
            errors(&String::from_utf8_lossy(&output.stderr))
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The path of the test program in the JSON messages of cargo.
fn test_program(messages: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = artifacts
        .filter(|artifact| artifact["profile"]["test"] == true)
        .filter_map(|artifact| artifact["executable"].as_str().map(PathBuf::from));
    programs.next()
}

/// The errors of the compiler without its warnings.
fn errors(messages: &str) -> String {
    let blocks = messages.split("\n\n").filter(|block| block.trim_start().starts_with("error"));
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Writes the copy, and removes the files that the project no longer has. Files that already have the right
/// content are not written, so that a second build is incremental.
fn write_copy(copy: &Path, mutants: &[Mutant]) -> Result<()> {
    let mut by_file: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        by_file.entry(&mutant.file).or_default().push(mutant);
    }
    let files: BTreeSet<String> = tracked_files()?.into_iter().collect();
    remove_others(copy, copy, &files)?;
    for file in files {
        let source = root().join(&file);
        let bytes = std::fs::read(&source).with_context(|| format!("failed to read {file}"))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => change(&file, text, by_file.get(file.as_str()).map_or(&[], Vec::as_slice))?.into(),
            Err(binary) => binary.into_bytes(),
        };
        let target = copy.join(&file);
        if std::fs::read(&target).is_ok_and(|present| present == bytes) {
            continue;
        }
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&target, bytes).with_context(|| format!("failed to write {}", target.display()))?;
    }
    Ok(())
}

/// Removes the files in a folder of the copy that are not among these.
fn remove_others(copy: &Path, folder: &Path, files: &BTreeSet<String>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(copy, &path, files)?;
        } else if !path.strip_prefix(copy)?.to_str().is_some_and(|file| files.contains(file)) {
            std::fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// The text of a file in the copy.
fn change(file: &str, text: String, mutants: &[&Mutant]) -> Result<String> {
    match file {
        "Cargo.toml" => {
            let version = concat!("version = \"", env!("CARGO_PKG_VERSION"));
            return Ok(text.replacen(version, &format!("{version}-mutants"), 1));
        }
        // The server reads the date of its version from it.
        "CHANGELOG.md" => {
            let heading = concat!("## [", env!("CARGO_PKG_VERSION"));
            return Ok(text.replacen(heading, &format!("{heading}-mutants"), 1));
        }
        _ => {}
    }
    let mut text = plant(file, &text, mutants)?;
    if file.starts_with("server/") && file.ends_with("src/lib.rs") {
        text.push_str(PLANTED);
    }
    Ok(text)
}

/// Replaces the expressions of the faults. Several faults can replace the same expression, or a part of it.
fn plant(file: &str, text: &str, mutants: &[&Mutant]) -> Result<String> {
    // An expression precedes its parts.
    let mut places: BTreeMap<(usize, Reverse<usize>), Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let place = mutant.find(text).with_context(|| format!("{} is out of date", mutant.name))?;
        places.entry((place.start, Reverse(place.end))).or_default().push(mutant);
    }
    let places: Vec<_> =
        places.into_iter().map(|((start, Reverse(end)), mutants)| (start..end, mutants)).collect();
    let mut out = String::new();
    plant_between(&mut out, text, 0..text.len(), &places).with_context(|| file.to_owned())?;
    Ok(out)
}

/// Adds a part of the text to `out`, with its faults.
fn plant_between(
    out: &mut String,
    text: &str,
    part: Range<usize>,
    mut places: &[(Range<usize>, Vec<&Mutant>)],
) -> Result<()> {
    let mut position = part.start;
    while let [(place, mutants), rest @ ..] = places {
        if place.end > part.end {
            bail!("{} overlaps with another fault", mutants[0].name);
        }
        let inner = rest.partition_point(|(other, _)| other.start < place.end);
        out.push_str(&text[position..place.start]);
        out.push('(');
        for Mutant { name, faulty, .. } in mutants {
            out.push_str(&format!("if crate::planted(\"{name}\") {{ {faulty} }} else "));
        }
        out.push_str("{ ");
        plant_between(out, text, place.clone(), &rest[..inner])?;
        out.push_str(" })");
        position = place.end;
        places = &rest[inner..];
    }
    out.push_str(&text[position..part.end]);
    Ok(())
}

/// The command that starts a program with a fault; an empty name selects none.
pub fn with_fault(program: &Path, fault: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).env(VARIABLE, fault).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str, original: &str) -> Mutant {
        Mutant {
            name: name.to_owned(),
            file: String::new(),
            after: String::new(),
            original: original.to_owned(),
            faulty: "false".to_owned(),
            gist: String::new(),
            rows: Vec::new(),
            test: None,
            hidden: None,
        }
    }

    #[test]
    fn expressions_are_replaced() {
        let (first, second) = (mutant("a/b", "x > 1"), mutant("a/c", "y"));
        let planted = plant("f", "if y && x > 1 {}", &[&first, &second]).unwrap();
        let expected = "if (if crate::planted(\"a/c\") { false } else { y }) && \
                        (if crate::planted(\"a/b\") { false } else { x > 1 }) {}";
        assert_eq!(planted, expected);
        let planted = plant("f", "if x > 1 {}", &[&first, &mutant("a/d", "1")]).unwrap();
        let inner = "(if crate::planted(\"a/d\") { false } else { 1 })";
        assert_eq!(
            planted,
            format!("if (if crate::planted(\"a/b\") {{ false }} else {{ x > {inner} }}) {{}}")
        );
        let error = plant("f", "if x > 1 {}", &[&first, &mutant("a/d", "> 1 {")]).unwrap_err();
        assert_eq!(format!("{error:#}"), "f: a/d overlaps with another fault");
    }
}
