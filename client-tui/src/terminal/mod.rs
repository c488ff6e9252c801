//! The terminal of the screens: setup, restoration, its events, and the programs of the user, which borrow
//! it.
//!
//! | module | contents |
//! |---|---|
//! | [`backend`] | drawing without questions to the terminal |
//! | [`background`] | the query of the background colour, and its answer among the keys |

mod backend;
mod background;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ratatui::Terminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event,
    KeyEvent,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::mpsc::UnboundedSender;

pub use self::backend::ScreenBackend;
use self::background::{AnswerFilter, Filtered};
use crate::clock::ClientClock;
use crate::msg::Message;
use crate::user_programs::{UserPrograms, edit, editor_of_user, page, pager_of_user};

/// Time after which the reader of events checks whether another program needs the terminal.
const EVENT_TIMEOUT: Duration = Duration::from_millis(200);
/// The same if no event came for a while: programs are started by keys, and each wake-up costs CPU time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of timeouts without an event after which the reader is idle.
const TIMEOUTS_UNTIL_IDLE: u32 = 10;
/// Time between two checks while another program runs.
const PAUSE: Duration = Duration::from_millis(50);

/// Switches the terminal to the screens. A panic restores the terminal.
///
/// # Errors
/// An error if stdout is not a terminal, or the error of the terminal.
pub fn open() -> io::Result<Terminal<ScreenBackend>> {
    if !io::stdout().is_terminal() {
        return Err(io::Error::other(
            "stdout is not a terminal; use a subcommand such as 'trefoil-tui userinfo' for output to a file or a pipe",
        ));
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        close();
        hook(panic);
    }));
    enable_raw_mode()?;
    let result = execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)
        .and_then(|()| Terminal::new(ScreenBackend::new(io::stdout())));
    if result.is_err() {
        close();
    }
    result
}

/// Restores the terminal.
pub fn close() {
    // Errors are ignored, because the terminal no longer exists: its window was closed.
    let _ = execute!(io::stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen);
    let _ = execute!(io::stdout(), Show);
    let _ = disable_raw_mode();
}

/// Returns whether the error means that the window of the terminal was closed.
pub fn is_closed(error: &io::Error) -> bool {
    // The event loop wraps the errors of the backend.
    if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>()) {
        return is_closed(inner);
    }
    #[cfg(unix)]
    let is_hangup = error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    #[cfg(not(unix))]
    let is_hangup = false;
    is_hangup || error.kind() == io::ErrorKind::BrokenPipe
}

/// Asks the terminal for its background colour. The answer arrives as [`Message::Background`], however late.
fn ask_background() {
    let mut out = io::stdout();
    // The error of a closed terminal is reported when the screens are drawn.
    let _ = write!(out, "{}", background::QUERY).and_then(|()| out.flush());
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

/// Keys with the time at which they were pressed.
fn with_time(clock: ClientClock, keys: Vec<KeyEvent>) -> Vec<Message> {
    let time = (!keys.is_empty()).then(|| Message::Tick((clock.now)()));
    time.into_iter().chain(keys.into_iter().map(Message::Key)).collect()
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
    /// Starts the thread. It asks the terminal for its background colour first if `asks_background` is set.
    pub fn start(sender: UnboundedSender<Message>, clock: ClientClock, asks_background: bool) -> Self {
        let reader = Self::default();
        let this = reader.clone();
        if asks_background {
            ask_background();
        }
        let mut filter = AnswerFilter::new(asks_background);
        std::thread::spawn(move || {
            let mut timeouts = 0;
            while let Ok(event) = this.next(timeouts >= TIMEOUTS_UNTIL_IDLE) {
                timeouts = if event.is_some() { 0 } else { timeouts.saturating_add(1) };
                let messages = match event {
                    Some(Event::Key(key)) => match filter.on_key(key, Instant::now()) {
                        Filtered::Keys(keys) => with_time(clock, keys),
                        Filtered::Background { is_light } => {
                            is_light.map(Message::Background).into_iter().collect()
                        }
                    },
                    Some(Event::Paste(text)) => vec![Message::Paste(text)],
                    Some(Event::Resize(..)) => vec![Message::Resized],
                    Some(Event::Mouse(event)) => vec![Message::Mouse(event)],
                    Some(Event::FocusGained | Event::FocusLost) => Vec::new(),
                    None => with_time(clock, filter.on_pause()),
                };
                if messages.into_iter().any(|message| sender.send(message).is_err()) {
                    break;
                }
            }
        });
        reader
    }

    /// The next event, or `None` after a time without one.
    fn next(&self, is_idle: bool) -> io::Result<Option<Event>> {
        if self.paused.load(Ordering::SeqCst) {
            std::thread::sleep(PAUSE);
            return Ok(None);
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if event::poll(if is_idle { IDLE_TIMEOUT } else { EVENT_TIMEOUT })? {
            event::read().map(Some)
        } else {
            Ok(None)
        }
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
    fn edit(&mut self, text: &str) -> Result<Option<String>, String> {
        self.lend(|| edit(&editor_of_user(), text))
    }

    fn page(&mut self, text: &str) -> Result<(), String> {
        self.lend(|| page(&pager_of_user(), text))
    }

    fn suspend(&mut self) -> Result<(), String> {
        self.lend(stop_process)
    }

    fn resume(&mut self) -> Result<(), String> {
        // After Ctrl-Z here, everything is restored already. After another process stopped this one, the
        // shell has reset the modes, of which crossterm does not know.
        if reads_lines() { self.lend(|| Ok(())) } else { Ok(()) }
    }
}

/// Returns whether the terminal passes whole lines, as a shell sets it, and not each key.
#[cfg(unix)]
fn reads_lines() -> bool {
    use rustix::termios::{LocalModes, tcgetattr};
    // A closed window sends SIGCONT, too; its terminal has no modes, and reading from it does not end.
    tcgetattr(io::stdin()).is_ok_and(|modes| modes.local_modes.contains(LocalModes::ICANON))
}

#[cfg(not(unix))]
fn reads_lines() -> bool {
    false
}

/// Stops this process until it gets SIGCONT, as a terminal does after Ctrl-Z without raw mode.
#[cfg(unix)]
fn stop_process() -> Result<(), String> {
    use rustix::process::{Signal, getpid, kill_process};
    // SIGSTOP, because SIGTSTP is handled by this program.
    kill_process(getpid(), Signal::STOP).map_err(|error| format!("the program cannot be suspended: {error}"))
}

#[cfg(not(unix))]
fn stop_process() -> Result<(), String> {
    Err("the program cannot be suspended on this operating system".to_owned())
}

fn leave_screen() -> Result<(), String> {
    execute!(io::stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, Show)
        .and_then(|()| disable_raw_mode())
        .map_err(|error| format!("the terminal cannot be left: {error}"))
}

fn enter_screen() -> Result<(), String> {
    enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste))
        .map_err(|error| format!("the terminal cannot be entered: {error}"))
}
