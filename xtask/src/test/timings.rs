//! Durations of the steps and test programs of `cargo xtask test`.

use std::time::{Duration, Instant};

/// Number of steps in the list of the slowest ones.
const SLOWEST: usize = 10;

/// Durations of steps that follow one another. A step ends when the next one begins.
pub struct StepTimings {
    started: Instant,
    current: Option<(String, Instant)>,
    ended: Vec<(String, Duration)>,
    /// Crate of the unit tests that ran last.
    tested: String,
}

impl StepTimings {
    pub fn start() -> Self {
        Self { started: Instant::now(), current: None, ended: Vec::new(), tested: String::new() }
    }

    /// Begins a step, and prints its name with the time since the start.
    pub fn begin(&mut self, name: &str) {
        println!("[{:>4} s] {name}", self.started.elapsed().as_secs());
        self.end();
        self.current = Some((name.to_owned(), Instant::now()));
    }

    /// Begins the step of a test program if a line of Cargo's output names one.
    pub fn begin_program(&mut self, line: &str) {
        if let Some(name) = program(line, &mut self.tested) {
            self.begin(&name);
        }
    }

    /// Ends the last step.
    pub fn end(&mut self) {
        self.ended.extend(self.current.take().map(|(name, begun)| (name, begun.elapsed())));
    }

    /// Returns the seconds since the start.
    pub fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Returns the slowest steps, one per line.
    pub fn slowest(&self) -> String {
        let mut steps: Vec<_> = self.ended.iter().collect();
        steps.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let lines =
            steps.iter().take(SLOWEST).map(|(name, time)| format!("{:>6} s  {name}\n", time.as_secs()));
        lines.collect()
    }
}

/// Returns the name of the test program in a line such as `Running tests/it/main.rs (target/debug/deps/it-0f)`. Cargo
/// names no package, but runs the unit tests of a library before its other test programs.
fn program(line: &str, tested: &mut String) -> Option<String> {
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(format!("examples in the documentation of {package}"));
    }
    let (source, path) = line.strip_prefix("Running ")?.split_once(" (")?;
    let file = path.trim_end_matches(')').rsplit('/').next()?;
    let program = file.rsplit_once('-').map_or(file, |(program, _)| program);
    Some(match source.strip_prefix("unittests ") {
        Some(source) => {
            if source == "src/lib.rs" {
                program.clone_into(tested);
            }
            format!("{program}, {source}")
        }
        None => format!("{tested}, {source}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_named_by_their_crate() {
        let mut tested = String::new();
        let mut name = |line| program(line, &mut tested);
        let line = "Running unittests src/lib.rs (target/debug/deps/trefoil_bulk-616a82b3b73901f1)";
        assert_eq!(name(line).as_deref(), Some("trefoil_bulk, src/lib.rs"));
        let line = "Running tests/it/main.rs (target/debug/deps/it-56df92d831ce1d39)";
        assert_eq!(name(line).as_deref(), Some("trefoil_bulk, tests/it/main.rs"));
        let line = "Doc-tests trefoil_bulk";
        assert_eq!(name(line).as_deref(), Some("examples in the documentation of trefoil_bulk"));
        assert_eq!(name("Compiling trefoil-bulk v0.1.0"), None);
    }

    #[test]
    fn the_slowest_steps_are_listed_first() {
        let mut timings = StepTimings::start();
        let seconds = |step: u64| (format!("step {step}"), Duration::from_secs(step));
        timings.ended = (1..=12).map(seconds).collect();
        let slowest = timings.slowest();
        assert!(slowest.starts_with("    12 s  step 12\n"), "{slowest}");
        assert_eq!(slowest.lines().count(), SLOWEST);
    }
}
