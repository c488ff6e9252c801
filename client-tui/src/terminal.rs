//! The terminal of the screens: setup, restoration, its events, and the editor of the user, which borrows it.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use terminal_colorsaurus::{QueryOptions, ThemeMode, theme_mode};
use tokio::sync::mpsc::UnboundedSender;

use crate::msg::Message;

/// Maximum time for the answer of the terminal about its colours.
const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(100);
/// Time after which the reader of events checks whether the editor needs the terminal.
const EVENT_TIMEOUT: Duration = Duration::from_millis(200);
/// Time between two checks while the editor runs.
const PAUSE: Duration = Duration::from_millis(50);

/// Switches the terminal to the screens. A panic restores the terminal.
///
/// # Errors
/// Returns the error of the terminal.
pub fn open() -> io::Result<DefaultTerminal> {
    let terminal = ratatui::try_init()?;
    // The hook of ratatui restores everything else.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // An error is ignored, because the terminal no longer exists.
        let _ = execute!(io::stdout(), DisableBracketedPaste, DisableMouseCapture);
        hook(panic);
    }));
    execute!(io::stdout(), EnableBracketedPaste)?;
    Ok(terminal)
}

/// Restores the terminal.
pub fn close() {
    // An error is ignored, because the terminal no longer exists.
    let _ = execute!(io::stdout(), DisableBracketedPaste, DisableMouseCapture);
    ratatui::restore();
}

/// Asks the terminal for its background colour. A terminal that does not answer in time has a dark one.
pub fn has_light_background() -> bool {
    let mut options = QueryOptions::default();
    options.timeout = BACKGROUND_TIMEOUT;
    matches!(theme_mode(options), Ok(ThemeMode::Light))
}

/// Copies a text to the clipboard with OSC 52, which also works over SSH.
pub fn copy(text: &str) {
    let mut out = io::stdout();
    // A terminal without support for OSC 52 ignores the sequence.
    let _ = write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text)).and_then(|()| out.flush());
}

/// Reads the mouse, or leaves it to the terminal, which selects text with it.
pub fn capture_mouse(capture: bool) {
    // A terminal without a mouse ignores the sequences.
    let _ = match capture {
        true => execute!(io::stdout(), EnableMouseCapture),
        false => execute!(io::stdout(), DisableMouseCapture),
    };
}

/// A thread that reads the events of the terminal, because reading blocks. It ends with the program.
#[derive(Clone, Default)]
pub struct EventReader {
    /// Whether the editor needs the terminal.
    paused: Arc<AtomicBool>,
    /// Held while an event is read.
    reading: Arc<Mutex<()>>,
}

impl EventReader {
    /// Starts the thread.
    pub fn start(sender: UnboundedSender<Message>) -> Self {
        let reader = Self::default();
        let this = reader.clone();
        std::thread::spawn(move || {
            while let Ok(event) = this.next() {
                let message = match event {
                    Some(Event::Key(key)) => Message::Key(key),
                    Some(Event::Paste(text)) => Message::Paste(text),
                    Some(Event::Resize(..)) => Message::Resized,
                    Some(Event::Mouse(event)) => Message::Mouse(event),
                    Some(Event::FocusGained | Event::FocusLost) | None => continue,
                };
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        reader
    }

    /// Returns the next event, or `None` after a time without one.
    fn next(&self) -> io::Result<Option<Event>> {
        if self.paused.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE);
            return Ok(None);
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if event::poll(EVENT_TIMEOUT)? { event::read().map(Some) } else { Ok(None) }
    }

    /// Opens a text in `$VISUAL`, `$EDITOR` or `vi`, and returns the edited text. The editor has the terminal for
    /// itself meanwhile.
    ///
    /// # Errors
    /// Returns the message for the user if no editor could be started, or if it failed.
    pub fn edit(&self, text: &str) -> Result<String, String> {
        self.paused.store(true, Ordering::SeqCst);
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let edited = leave_screen().and_then(|()| run_editor(text));
        let entered = enter_screen();
        drop(reading);
        self.paused.store(false, Ordering::SeqCst);
        entered.and(edited)
    }
}

fn leave_screen() -> Result<(), String> {
    execute!(io::stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen)
        .and_then(|()| disable_raw_mode())
        .map_err(|error| format!("the terminal cannot be left: {error}"))
}

fn enter_screen() -> Result<(), String> {
    enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste))
        .map_err(|error| format!("the terminal cannot be entered: {error}"))
}

/// Runs the editor on a private temporary file.
fn run_editor(text: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let path = folder.path().join("request.http");
    std::fs::write(&path, text).map_err(|error| format!("failed to write {}: {error}", path.display()))?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let command = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let status = editor(&command, &path)
        .status()
        .map_err(|error| format!("the editor '{command}' cannot be started: {error}; set EDITOR"))?;
    if !status.success() {
        return Err(format!("the editor '{command}' failed: {status}"));
    }
    std::fs::read_to_string(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))
}

/// Returns the command of an editor, which may contain options, such as `code --wait`.
fn editor(command: &str, path: &Path) -> Command {
    let mut words = command.split_whitespace();
    let mut editor = Command::new(words.next().unwrap_or_default());
    editor.args(words).arg(path);
    editor
}
