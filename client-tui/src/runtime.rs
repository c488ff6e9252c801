//! The one loop: messages in, screens out, effects carried out beside it.

use std::io::{self, Write as _};
use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use ratatui::crossterm::execute;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::{Duration, MissedTickBehavior};

use crate::api::{Api, ApiError, Bearer, Clock, Manifest, USER_SCOPE};
use crate::journey;
use crate::model::Model;
use crate::msg::{Effect, Msg};
use crate::profile::Profile;
use crate::update::update;
use crate::view::view;

/// Opens the screens on this terminal until the person quits. The terminal is put back in any case,
/// after a panic too.
///
/// # Errors
/// The terminal's; a profile whose certificates cannot be used comes as an error of another kind.
pub async fn open(profile: Profile, clock: Clock) -> Result<(), crate::headless::Failure> {
    // NO_COLOR counts when it is there and not empty (no-color.org).
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let model = Model::new(&profile, colour, clock());
    let (sender, messages) = mpsc::unbounded_channel();
    let api = api(profile, clock, sender.clone())?;
    let mut terminal = ratatui::try_init().map_err(crate::headless::Failure::Terminal)?;
    leave_no_trace_after_panic();
    let pasting = execute!(io::stdout(), EnableBracketedPaste);
    read_terminal(sender.clone());
    let ticking = tokio::spawn(tick(sender.clone(), clock));
    let ended = match pasting {
        Ok(()) => run(&mut terminal, model, api, sender, messages, |_| {}).await,
        Err(error) => Err(error),
    };
    ticking.abort();
    // Nothing better can be done when the terminal is gone.
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    ratatui::restore();
    ended.map(drop).map_err(crate::headless::Failure::Terminal)
}

/// ratatui's hook puts back all but the paste mode, which we set.
fn leave_no_trace_after_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // Nothing better can be done when the terminal is gone.
        let _ = execute!(io::stdout(), DisableBracketedPaste);
        hook(panic);
    }));
}

/// A client whose exchanges come as messages.
///
/// # Errors
/// When the certificates of the profile cannot be used.
pub fn api(profile: Profile, clock: Clock, sender: UnboundedSender<Msg>) -> Result<Api, ApiError> {
    // A closed channel means that the screens are gone, and nobody wants the message.
    Api::new(profile, clock, Box::new(move |exchange| drop(sender.send(Msg::Exchanged(exchange)))))
}

/// Runs until the model says quit; gives the model as it was then. `observe` sees it after every change.
///
/// # Errors
/// The terminal's.
pub async fn run<B: Backend>(
    terminal: &mut Terminal<B>,
    mut model: Model,
    api: Api,
    sender: UnboundedSender<Msg>,
    mut messages: UnboundedReceiver<Msg>,
    mut observe: impl FnMut(&Model),
) -> io::Result<Model>
where
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut runtime = Runtime { api, sender, sign_in: None };
    while !model.quit {
        terminal.draw(|frame| view(&model, frame)).map_err(io::Error::other)?;
        // All that waits is taken in before the next drawing.
        let Some(first) = messages.recv().await else { break };
        let mut next = Some(first);
        while let Some(message) = next {
            for effect in update(&mut model, message) {
                runtime.start(effect);
            }
            observe(&model);
            next = messages.try_recv().ok();
        }
    }
    runtime.stop_sign_in();
    Ok(model)
}

/// What effects need.
struct Runtime {
    api: Api,
    sender: UnboundedSender<Msg>,
    sign_in: Option<Waiting>,
}

/// A sign-in that waits for the browser.
struct Waiting {
    task: JoinHandle<()>,
    pasted: mpsc::Sender<String>,
}

impl Runtime {
    /// Starts an effect; its answer comes as a message.
    fn start(&mut self, effect: Effect) {
        match effect {
            Effect::SignIn => self.start_sign_in(),
            Effect::CancelSignIn => self.stop_sign_in(),
            Effect::Pasted(text) => {
                if let Some(waiting) = &self.sign_in {
                    // One that is not read yet makes a second one needless.
                    let _ = waiting.pasted.try_send(text);
                }
            }
            Effect::Copy(text) => copy(&text),
            Effect::Download { manifest, folder } => self.start_download(manifest, folder),
            other => self.ask(other),
        }
    }

    /// The effects that are one question to the server each.
    fn ask(&self, effect: Effect) {
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            let backend = Bearer::Backend;
            let message = match effect {
                Effect::SignOut => Msg::SignedOut(in_words(api.sign_out().await)),
                Effect::Userinfo => Msg::Userinfo(in_words(api.userinfo(&Bearer::User).await)),
                Effect::ValidateCode(asked, bearer) => {
                    Msg::Validated(in_words(api.validate_code(&asked, &bearer).await))
                }
                Effect::Subsumes(asked, bearer) => {
                    Msg::Subsumed(in_words(api.subsumes(&asked, &bearer).await))
                }
                Effect::KickOff(asked) => Msg::KickedOff(in_words(api.kick_off(&asked, &backend).await)),
                Effect::Poll { status_url } => Msg::Polled(in_words(api.poll(&status_url, &backend).await)),
                Effect::DeleteExport { status_url } => {
                    Msg::ExportDeleted(in_words(api.delete_export(&status_url, &backend).await))
                }
                Effect::SignIn
                | Effect::CancelSignIn
                | Effect::Pasted(_)
                | Effect::Copy(_)
                | Effect::Download { .. } => {
                    return;
                }
            };
            // A closed channel means that the screens are gone; so for all messages below.
            let _ = sender.send(message);
        });
    }

    fn start_sign_in(&mut self) {
        self.stop_sign_in();
        let (api, sender) = (self.api.clone(), self.sender.clone());
        let (pasted, receiver) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let tell = |step| drop(sender.send(Msg::SignIn(step)));
            let tokens = journey::sign_in(&api, USER_SCOPE, receiver, tell).await;
            let _ = sender.send(Msg::SignedIn(in_words(tokens.map(|tokens| tokens.session))));
        });
        self.sign_in = Some(Waiting { task, pasted });
    }

    fn stop_sign_in(&mut self) {
        if let Some(waiting) = self.sign_in.take() {
            waiting.task.abort();
        }
    }

    fn start_download(&self, manifest: Manifest, folder: PathBuf) {
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            let watch = |piece| drop(sender.send(Msg::Piece(piece)));
            let saved = api.download(&manifest, &folder, &Bearer::Backend, watch).await;
            let _ = sender.send(Msg::Downloaded(in_words(saved)));
        });
    }
}

fn in_words<T>(result: Result<T, ApiError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Puts a text on the clipboard by OSC 52, which works over SSH too.
fn copy(text: &str) {
    let mut out = io::stdout();
    // A terminal that does not take it loses nothing.
    let _ = write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text)).and_then(|()| out.flush());
}

/// Reads the terminal on a thread of its own, since that cannot be awaited; it ends with the program.
fn read_terminal(sender: UnboundedSender<Msg>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let message = match event {
                Event::Key(key) => Msg::Key(key),
                Event::Paste(text) => Msg::Paste(text),
                Event::Resize(..) => Msg::Resized,
                Event::FocusGained | Event::FocusLost | Event::Mouse(_) => continue,
            };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
}

/// Says the time once a second.
pub async fn tick(sender: UnboundedSender<Msg>, clock: Clock) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        if sender.send(Msg::Tick(clock())).is_err() {
            break;
        }
    }
}
