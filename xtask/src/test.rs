//! `cargo xtask test`: all checks. Output is written to a log. Failures are shown completely, checks that were left out
//! and the slowest steps are listed, and the last line contains the totals.

mod timings;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::mutants::{self, MutantArgs};
use crate::{cargo, fhir_tables, lint, root, target_dir, tidy, vocabularies};
use timings::StepTimings;

/// Message of the suite if it cannot start a database.
const NO_POSTGRES: &str = "PostgreSQL is not installed";

#[derive(Default)]
struct Sum {
    passed: u64,
    failed: u64,
    left_out: Vec<String>,
}

impl Sum {
    /// Records the result of a check that counts as one.
    fn step(&mut self, name: &str, held: Result<()>) {
        match held {
            Ok(()) => self.passed += 1,
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {error:#}");
            }
        }
    }
}

/// Runs all checks.
pub fn run() -> Result<()> {
    let mut timings = StepTimings::start();
    let path = target_dir().join("test.log");
    std::fs::create_dir_all(target_dir())?;
    let mut log = File::create(&path)?;
    let mut sum = Sum::default();
    timings.begin("fmt");
    sum.step("fmt", quiet(cargo().args(["fmt", "--all", "--check"]), &mut log));
    timings.begin("tidy");
    sum.step("tidy", tidy::run());
    timings.begin("tables of FHIR");
    match fhir_tables::run(true) {
        Ok(Some(missing)) => sum.left_out.push(format!("gen-fhir-tables --check: {missing}")),
        compared => sum.step("gen-fhir-tables --check", compared.map(drop)),
    }
    timings.begin("tables of vocabularies");
    let compared = vocabularies::run(true).map(|missing| {
        sum.left_out.extend(missing.iter().map(|missing| format!("gen-vocabularies --check: {missing}")));
    });
    sum.step("gen-vocabularies --check", compared);
    timings.begin("build");
    let build = quiet(cargo().args(["build", "--workspace", "--bins", "--quiet"]), &mut log);
    let built = build.is_ok();
    sum.step("build", build);
    if built {
        timings.begin("clippy");
        sum.step("clippy", quiet(&mut lint(), &mut log));
        timings.begin("fixtures");
        let mut fixtures = Command::new(target_dir().join("debug/gen-fixtures"));
        sum.step("gen-fixtures --check", quiet(fixtures.arg("--check").current_dir(root()), &mut log));
        timings.begin("planted faults");
        sum.step("mutants --sample 12", mutants::run(&MutantArgs::for_sample(12)));
        timings.begin("build of the tests");
        let build = quiet(cargo().args(["test", "--workspace", "--no-run", "--quiet"]), &mut log);
        let built = build.is_ok();
        sum.step("build of the tests", build);
        if built {
            timings = tests(&mut sum, &mut log, timings)?;
        }
        timings.begin("conformance on PostgreSQL");
        match conformance_on_postgres(&mut log) {
            Ok(Some(missing)) => sum.left_out.push(format!("conformance --store postgres: {missing}")),
            tested => sum.step("conformance --store postgres", tested.map(drop)),
        }
    }
    for what in &sum.left_out {
        println!("left out: {what}");
    }
    timings.end();
    print!("slowest steps:\n{}", timings.slowest());
    println!("log: {}; took {} s", path.display(), timings.seconds());
    println!("{} passed, {} failed", sum.passed, sum.failed);
    if sum.failed > 0 {
        bail!("{} of {} failed", sum.failed, sum.failed + sum.passed);
    }
    Ok(())
}

/// Runs a check. Its output is written to the log, and also to the terminal if the check fails.
fn quiet(command: &mut Command, log: &mut File) -> Result<()> {
    let output = command.output().context("failed to start the program")?;
    log.write_all(&output.stdout)?;
    log.write_all(&output.stderr)?;
    if !output.status.success() {
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("ended with {}", output.status);
    }
    Ok(())
}

/// Runs the conformance suite against servers whose store is in a database. Returns what is missing if PostgreSQL is not
/// installed.
fn conformance_on_postgres(log: &mut File) -> Result<Option<&'static str>> {
    let mut suite = Command::new(target_dir().join("debug/trefoil-conformance"));
    let output = suite.args(["run", "--store", "postgres"]).output().context("failed to start the suite")?;
    log.write_all(&output.stdout)?;
    log.write_all(&output.stderr)?;
    if output.status.success() {
        return Ok(None);
    }
    if String::from_utf8_lossy(&output.stderr).contains(NO_POSTGRES) {
        return Ok(Some(NO_POSTGRES));
    }
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    bail!("ended with {}", output.status)
}

/// Runs the tests: unit tests, tables, property tests, snapshots, journeys, examples in docs. Returns the durations with
/// those of the test programs.
fn tests(sum: &mut Sum, log: &mut File, mut timings: StepTimings) -> Result<StepTimings> {
    let mut child = cargo()
        .args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"])
        .env("INSTA_UPDATE", "no")
        // Property tests generate the same values in every run; a soak uses other seeds.
        .env("PROPTEST_RNG_SEED", "20261121")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start cargo test")?;
    let errors = child.stderr.take().context("the output of the process is not piped")?;
    let progress = std::thread::spawn(move || {
        let mut kept = String::new();
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            let line = line.trim();
            timings.begin_program(line);
            kept.push_str(line);
            kept.push('\n');
        }
        (kept, timings)
    });
    let mut failures = false;
    for line in BufReader::new(child.stdout.take().context("the output of the process is not piped")?)
        .lines()
        .map_while(Result::ok)
    {
        writeln!(log, "{line}")?;
        if let Some((passed, failed)) = closing_line(&line) {
            sum.passed += passed;
            sum.failed += failed;
            failures = false;
        } else if let Some(what) = line.split("left out: ").nth(1) {
            sum.left_out.push(what.to_owned());
        }
        if line == "failures:" {
            failures = true;
        }
        if failures || line.ends_with("... FAILED") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    let (kept, timings) =
        progress.join().map_err(|_| anyhow!("the thread that reads the output of cargo panicked"))?;
    writeln!(log, "{kept}")?;
    if !status.success() && sum.failed == 0 {
        // A test program that could not be built or crashed counts as one failure.
        sum.failed += 1;
        println!(
            "{}",
            kept.lines().filter(|line| !line.starts_with("Compiling")).collect::<Vec<_>>().join("\n")
        );
    }
    Ok(timings)
}

/// Parses `test result: ok. 3 passed; 0 failed; …` of one test program.
fn closing_line(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?.trim_end();
        before.rsplit([' ', ';']).next()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(closing_line(line), Some((12, 3)));
        assert_eq!(closing_line("running 3 tests"), None);
    }
}
