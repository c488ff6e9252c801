//! `cargo xtask test`: what every change must pass. Output is written to a log. Failures are shown
//! completely, checks that were left out and the slowest steps are listed, and the last line contains the
//! totals.
//!
//! | module | contents |
//! |---|---|
//! | [`pipeline`] | `cargo xtask ci`: what the pipeline checks besides |
//! | [`programs`] | the test programs, of which several run side by side |
//! | [`progress`] | what the run is doing, while it works |
//! | [`check_sum`], [`timings`] | the totals of a run, and its slowest steps |

mod check_sum;
pub mod pipeline;
mod programs;
mod progress;
mod timings;

use std::process::Command;

use anyhow::Result;

use self::check_sum::CheckSum;
use self::programs::TestSelection;
use crate::{fhir_tables, tidy, vocabularies};
use xtask::workspace::{cargo, root, target_dir};

pub fn run() -> Result<()> {
    let mut sum = CheckSum::start("test.log")?;
    sum.check("fmt", |sum| sum.run(cargo().args(["fmt", "--all", "--check"])));
    sum.check("tidy", |_| tidy::run());
    sum.check("gen-fhir-tables --check", |sum| {
        if let Some(missing) = fhir_tables::run(true)? {
            sum.leave_out(format!("gen-fhir-tables --check: {missing}"));
        }
        Ok(())
    });
    sum.check("gen-vocabularies --check", |sum| {
        for missing in vocabularies::run(true)? {
            sum.leave_out(format!("gen-vocabularies --check: {missing}"));
        }
        Ok(())
    });
    let mut programs = Vec::new();
    let is_built = sum.check("build of the programs and tests", |sum| {
        programs = programs::build(sum)?;
        Ok(())
    });
    if is_built {
        sum.check("gen-fixtures --check", |sum| {
            let mut fixtures = Command::new(target_dir().join("debug/gen-fixtures"));
            sum.run(fixtures.arg("--check").current_dir(root()))
        });
        sum.check("tests", |sum| programs::run(&programs, TestSelection::Contributor, sum));
    }
    sum.finish()
}
