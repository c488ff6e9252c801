//! Prints the events of a command: as lines, and on a terminal also as a progress bar.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use command_line::text::printable;
use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::OutputArgs;
use super::events::CommandEvent;

/// Templates of the progress bar: without and with a known number of bytes.
const WORKING: &str = "{spinner} {wide_msg}";
const READING: &str = "{spinner} {wide_msg}\n  [{wide_bar}] {bytes} of {total_bytes}, {bytes_per_sec}";

/// Prints the output of a command.
pub struct Console {
    /// Whether results are JSON.
    json: bool,
    quiet: bool,
    /// Progress bar. `None` if standard error is not a terminal.
    bar: Option<ProgressBar>,
}

impl Console {
    /// Creates a console on the standard output and standard error of this process.
    pub fn new(OutputArgs { json, quiet, .. }: OutputArgs) -> Self {
        let bar = (std::io::stderr().is_terminal() && !quiet).then(|| {
            let bar = ProgressBar::no_length().with_style(bar_style(WORKING));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { json, quiet, bar }
    }

    /// Prints an event.
    pub fn print_event(&self, event: CommandEvent) {
        let event = match event {
            CommandEvent::Record { json, .. } if self.json => CommandEvent::Line(json.to_string()),
            CommandEvent::Record { text, .. } => CommandEvent::Line(text),
            CommandEvent::Line(message) if self.json => {
                CommandEvent::Line(serde_json::json!({ "message": message }).to_string())
            }
            CommandEvent::Progress(_) if self.quiet => return,
            event => event,
        };
        match (event, &self.bar) {
            (CommandEvent::Reading { doing, bytes, of }, Some(bar)) => update_bar(bar, doing, bytes, of),
            (CommandEvent::Progress(line), Some(bar)) if bar.length().is_none() => bar.set_message(line),
            // The progress bar already shows this information.
            (CommandEvent::Progress(_), Some(_)) => {}
            (CommandEvent::Line(line), Some(bar)) => bar.suspend(|| print_line(&line)),
            (CommandEvent::Trouble(line), Some(bar)) => bar.suspend(|| eprintln!("{}", printable(&line))),
            (CommandEvent::Line(line), None) => print_line(&line),
            (CommandEvent::Progress(line) | CommandEvent::Trouble(line), None) => {
                eprintln!("{}", printable(&line))
            }
            // Records are lines here.
            (CommandEvent::Reading { .. }, None)
            | (CommandEvent::Exit(_) | CommandEvent::Record { .. }, _) => {}
        }
    }

    /// Removes the progress bar. Printed lines are kept.
    pub fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Updates the progress bar. For a new file, or a second pass over the same file, the transfer rate starts
/// again.
fn update_bar(bar: &ProgressBar, doing: String, bytes: u64, of: u64) {
    if bar.length() != Some(of) || bytes < bar.position() {
        bar.reset();
        bar.set_length(of);
        bar.set_style(bar_style(READING));
    }
    bar.set_message(doing);
    bar.set_position(bytes);
}

fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a valid constant").progress_chars("=> ")
}

/// Prints a line. A closed pipe (`| head`) is not an error.
fn print_line(line: &str) {
    drop(writeln!(std::io::stdout(), "{}", printable(line)));
}
