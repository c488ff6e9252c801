//! Durations of the steps and test programs of a run.

use std::time::{Duration, Instant};

/// Number of steps in the list of the slowest ones.
const SLOWEST: usize = 12;

/// Durations of steps that follow one another, and of programs within them. A step ends when the next one
/// begins.
pub struct StepTimings {
    started: Instant,
    current: Option<(String, Instant)>,
    ended: Vec<(String, Duration)>,
}

impl StepTimings {
    pub fn start() -> Self {
        Self { started: Instant::now(), current: None, ended: Vec::new() }
    }

    /// Begins a step, and prints its name with the time since the start.
    pub fn begin(&mut self, name: &str) {
        println!("[{:>4} s] {name}", self.started.elapsed().as_secs());
        self.end();
        self.current = Some((name.to_owned(), Instant::now()));
    }

    /// Adds a program that has ended within the current step.
    pub fn add(&mut self, name: &str, took: Duration) {
        println!("[{:>4} s]   {name}: {} s", self.started.elapsed().as_secs(), took.as_secs());
        self.ended.push((format!("  {name}"), took));
    }

    /// Ends the last step.
    pub fn end(&mut self) {
        self.ended.extend(self.current.take().map(|(name, begun)| (name, begun.elapsed())));
    }

    /// The seconds since the start.
    pub fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// The slowest steps, one per line.
    pub fn slowest(&self) -> String {
        let mut steps: Vec<_> = self.ended.iter().collect();
        steps.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let lines =
            steps.iter().take(SLOWEST).map(|(name, time)| format!("{:>6} s  {name}\n", time.as_secs()));
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_steps_are_listed_first() {
        let mut timings = StepTimings::start();
        let seconds = |step: u64| (format!("step {step}"), Duration::from_secs(step));
        timings.ended = (1..=SLOWEST as u64 + 2).map(seconds).collect();
        let slowest = timings.slowest();
        assert!(slowest.starts_with("    14 s  step 14\n"), "{slowest}");
        assert_eq!(slowest.lines().count(), SLOWEST);
    }
}
