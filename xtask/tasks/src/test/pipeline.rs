//! `cargo xtask ci`: what the pipeline checks besides `cargo xtask test`. It uses the programs that the test
//! command builds.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::check_sum::CheckSum;
use super::programs::{self, TestSelection};
use crate::{dist, mutants};
use xtask::command_line::{DistArgs, MutantArgs};
use xtask::workspace::{document, lint, target_dir};

/// Number of planted faults in the sample.
const PLANTED_FAULTS: usize = 12;
/// Seeds of the simulation after those of the test command, divided among processes.
const FIRST_SEED: u64 = 7;
const SEEDS_OF_A_PROCESS: u64 = 57;
const SIMULATIONS: u64 = 2;

/// Message of the suite if it cannot start a database.
const NO_POSTGRES: &str = "PostgreSQL is not installed";

pub fn run() -> Result<()> {
    let mut sum = CheckSum::start("ci.log")?;
    let mut programs = Vec::new();
    let is_built = sum.check("build of the programs and tests", |sum| {
        programs = programs::build(sum)?;
        Ok(())
    });
    if is_built {
        sum.check("clippy", |sum| sum.run(&mut lint()));
        sum.check("links of comments", |sum| sum.run(&mut document()));
        sum.check("planted faults", |_| mutants::run(&MutantArgs::for_sample(PLANTED_FAULTS)));
        sum.check("simulations", |_| simulate());
        sum.check("packages", packages);
        sum.check("conformance on PostgreSQL", conformance_on_postgres);
        sum.check("tests of databases and nodes", |sum| {
            programs::run(&programs, TestSelection::Pipeline, sum)
        });
    }
    sum.finish()
}

/// Packs the programs, installs the packages and uses them.
fn packages(sum: &mut CheckSum) -> Result<()> {
    dist::run(&DistArgs { programs: Some(target_dir().join("debug")), releases: None })?;
    for missing in dist::installs::run()? {
        sum.leave_out(missing);
    }
    Ok(())
}

/// Runs the seeds that the test command leaves out.
fn simulate() -> Result<()> {
    let start = |process: u64| {
        let seed = FIRST_SEED + process * SEEDS_OF_A_PROCESS;
        let mut command = Command::new(target_dir().join("debug/trefoil-simulation"));
        command.args(["--seed", &seed.to_string(), "--count", &SEEDS_OF_A_PROCESS.to_string()]);
        command.spawn().context("failed to start the simulation")
    };
    let processes = (0..SIMULATIONS).map(start).collect::<Result<Vec<_>>>()?;
    for mut process in processes {
        let status = process.wait()?;
        if !status.success() {
            bail!("a simulation ended with {status}; its output names the seed");
        }
    }
    Ok(())
}

/// Runs the conformance suite against servers whose store is in a database.
fn conformance_on_postgres(sum: &mut CheckSum) -> Result<()> {
    let mut suite = Command::new(target_dir().join("debug/trefoil-conformance"));
    let output = suite.args(["run", "--store", "postgres"]).output().context("failed to start the suite")?;
    sum.log(&output.stdout)?;
    sum.log(&output.stderr)?;
    if output.status.success() {
        return Ok(());
    }
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if stderr.contains(NO_POSTGRES) {
        sum.leave_out(format!("conformance --store postgres: {NO_POSTGRES}"));
        return Ok(());
    }
    print!("{stdout}{stderr}");
    bail!("ended with {}", output.status)
}
