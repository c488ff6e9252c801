//! The terminal of the screens: setup, restoration, its events, and the programs of the user, which borrow
//! it.

use std::io::{self, Write as _};
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
use crate::user_programs::{UserPrograms, edit, editor_of_user, page, pager_of_user};

/// Maximum time for the answer of the terminal about its colours.
const BACKGROUND_TIMEOUT: Duration = Duration::from_millis(100);
/// Time after which the reader of events checks whether another program needs the terminal.
const EVENT_TIMEOUT: Duration = Duration::from_millis(200);
/// Time between two checks while another program runs.
const PAUSE: Duration = Duration::from_millis(50);

/// Switches the terminal to the screens. A panic restores the terminal.
///
/// # Errors
/// The error of the terminal.
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
    /// Whether another program needs the terminal.
    paused: Arc<AtomicBool>,
    /// Held while an event is read.
    reading: Arc<Mutex<()>>,
}

impl EventReader {
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

    /// The next event, or `None` after a time without one.
    fn next(&self) -> io::Result<Option<Event>> {
        if self.paused.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE);
            return Ok(None);
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if event::poll(EVENT_TIMEOUT)? { event::read().map(Some) } else { Ok(None) }
    }

    /// Runs a program of the user, which has the terminal for itself meanwhile.
    fn lend<T>(&self, program: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        self.paused.store(true, Ordering::SeqCst);
        let reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let result = leave_screen().and_then(|()| program());
        let entered = enter_screen();
        drop(reading);
        self.paused.store(false, Ordering::SeqCst);
        entered.and(result)
    }
}

impl UserPrograms for EventReader {
    fn edit(&mut self, text: &str) -> Result<String, String> {
        self.lend(|| edit(&editor_of_user(), text))
    }

    fn page(&mut self, text: &str) -> Result<(), String> {
        self.lend(|| page(&pager_of_user(), text))
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
