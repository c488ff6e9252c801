//! The progress of a run: a line that is rewritten on a terminal, and elsewhere a line from time to time.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines if the output is not a terminal.
const INTERVAL: Duration = Duration::from_secs(20);
/// Maximum number of characters, so that the line fits on a terminal of 80 columns.
const CHARACTERS: usize = 78;

/// Writes what is being done to standard error.
pub struct Progress {
    on_terminal: bool,
    written: Mutex<Instant>,
}

impl Progress {
    pub fn start() -> Self {
        Self { on_terminal: stderr().is_terminal(), written: Mutex::new(Instant::now()) }
    }

    /// Says what is being done. An error of the output is of no interest.
    pub fn say(&self, text: &str) {
        let mut last_line = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let text: String = text.chars().take(CHARACTERS).collect();
        if self.on_terminal {
            let _shown = write!(stderr(), "\r\x1b[2K{text}");
        } else if last_line.elapsed() >= INTERVAL {
            let _shown = writeln!(stderr(), "{text}");
            *last_line = Instant::now();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.on_terminal {
            let _shown = write!(stderr(), "\r\x1b[2K");
        }
    }
}

/// The tests that are done, of all.
pub struct TestCount {
    progress: Progress,
    all: usize,
    done: AtomicUsize,
}

impl TestCount {
    pub fn of(all: usize) -> Self {
        Self { progress: Progress::start(), all, done: AtomicUsize::new(0) }
    }

    /// Counts a line of the output of a test program, if it is the result of a test.
    pub fn read(&self, program: &str, line: &str) {
        if line.starts_with("test ") && line.contains(" ... ") {
            let number = 1 + self.done.fetch_add(1, Ordering::Relaxed);
            self.progress.say(&format!("{number} of {} tests done; {program}", self.all));
        }
    }
}
