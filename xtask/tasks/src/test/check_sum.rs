//! The totals of a run: passed and failed checks, and what was left out.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::timings::StepTimings;
use xtask::workspace::target_dir;

/// The checks of a run, with their log.
pub struct CheckSum {
    passed: u64,
    failed: u64,
    left_out: Vec<String>,
    pub timings: StepTimings,
    log: File,
    log_path: PathBuf,
}

impl CheckSum {
    /// Starts a run whose log has this name in the target folder.
    pub fn start(log_name: &str) -> Result<Self> {
        std::fs::create_dir_all(target_dir())?;
        let log_path = target_dir().join(log_name);
        let log =
            File::create(&log_path).with_context(|| format!("failed to create {}", log_path.display()))?;
        Ok(Self { passed: 0, failed: 0, left_out: Vec::new(), timings: StepTimings::start(), log, log_path })
    }

    /// Runs a check that counts as one. Returns whether it passed.
    pub fn check(&mut self, name: &str, check: impl FnOnce(&mut Self) -> Result<()>) -> bool {
        self.timings.begin(name);
        match check(self) {
            Ok(()) => {
                self.passed += 1;
                true
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED {name}: {error:#}");
                false
            }
        }
    }

    /// Adds the results of a test program.
    pub fn add(&mut self, passed: u64, failed: u64) {
        self.passed += passed;
        self.failed += failed;
    }

    /// Records what could not be checked, and why.
    pub fn leave_out(&mut self, what: String) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }

    pub fn log(&mut self, output: &[u8]) -> Result<()> {
        self.log.write_all(output).with_context(|| format!("failed to write {}", self.log_path.display()))
    }

    /// Runs a command. Its output is written to the log, and also to the terminal if the command fails.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        let output = command.output().context("failed to start the program")?;
        self.log(&output.stdout)?;
        self.log(&output.stderr)?;
        if !output.status.success() {
            print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            bail!("ended with {}", output.status);
        }
        Ok(())
    }

    /// Prints the totals.
    ///
    /// # Errors
    /// An error if a check failed.
    pub fn finish(mut self) -> Result<()> {
        for what in &self.left_out {
            println!("left out: {what}");
        }
        self.timings.end();
        print!("slowest steps:\n{}", self.timings.slowest());
        println!("log: {}; took {} s", self.log_path.display(), self.timings.seconds());
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed > 0 {
            bail!("{} of {} failed", self.failed, self.failed + self.passed);
        }
        Ok(())
    }
}
