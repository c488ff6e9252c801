//! What a command says, on the terminal or the pipe of who gave it: lines, and on a terminal a bar that moves.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Event;

/// Work of unknown length; below it what is being read, where that is known.
const WORKING: &str = "{spinner} {wide_msg}";
const READING: &str = "{spinner} {wide_msg}\n  [{wide_bar}] {bytes} of {total_bytes}, {bytes_per_sec}";

/// Where the events of a command are shown.
pub struct Console {
    /// On a terminal only.
    bar: Option<ProgressBar>,
}

impl Console {
    /// That of this process.
    pub fn new() -> Self {
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::no_length().with_style(style(WORKING));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar }
    }

    /// Shows an event.
    pub fn say(&self, event: Event) {
        match (event, &self.bar) {
            (Event::Reading { doing, bytes, of }, Some(bar)) => read(bar, doing, bytes, of),
            (Event::Progress(line), Some(bar)) if bar.length().is_none() => bar.set_message(line),
            // The bar tells more.
            (Event::Progress(_), Some(_)) => {}
            (Event::Line(line), Some(bar)) => bar.suspend(|| print(&line)),
            (Event::Trouble(line), Some(bar)) => bar.suspend(|| eprintln!("{line}")),
            (Event::Progress(line) | Event::Line(line), None) => print(&line),
            (Event::Trouble(line), None) => eprintln!("{line}"),
            (Event::Reading { .. }, None) | (Event::Exit(_), _) => {}
        }
    }

    /// Leaves the lines and takes the bar away.
    pub fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Moves the bar. What is read anew, or something else, has a rate of its own.
fn read(bar: &ProgressBar, doing: String, bytes: u64, of: u64) {
    if bar.length() != Some(of) || bytes < bar.position() {
        bar.reset();
        bar.set_length(of);
        bar.set_style(style(READING));
    }
    bar.set_message(doing);
    bar.set_position(bytes);
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("our own template is right").progress_chars("=> ")
}

/// A reader that went away (`| head`) is no reason to fail.
fn print(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
