//! The event loop: receives messages, updates the model, draws the screens and starts effects as tasks.

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

use crate::api::{Api, ApiError, Bearer, ClientClock, ExportManifest};
use crate::args::USER_SCOPE;
use crate::journey;
use crate::model::Model;
use crate::msg::{Message, RuntimeEffect};
use crate::profile::Profile;
use crate::update::update;
use crate::view::view;

/// Opens the screens on this terminal until the user quits. The state of the terminal is restored in any case, even
/// after a panic.
///
/// # Errors
/// Returns the error of the terminal, or the error of a profile whose certificates cannot be used.
pub async fn open(profile: Profile, clock: ClientClock) -> Result<(), crate::headless::CommandFailure> {
    // `NO_COLOR` disables colours if it is set and not empty (no-color.org).
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let model = Model::new(&profile, colour, clock());
    let (sender, messages) = mpsc::unbounded_channel();
    let api = api(profile, clock, sender.clone())?;
    let mut terminal = ratatui::try_init().map_err(crate::headless::CommandFailure::Terminal)?;
    leave_no_trace_after_panic();
    let pasting = execute!(io::stdout(), EnableBracketedPaste);
    read_terminal(sender.clone());
    let ticking = tokio::spawn(tick(sender.clone(), clock));
    let ended = match pasting {
        Ok(()) => run(&mut terminal, model, api, sender, messages, |_| {}).await,
        Err(error) => Err(error),
    };
    ticking.abort();
    // An error is ignored, because the terminal no longer exists.
    let _ = execute!(io::stdout(), DisableBracketedPaste);
    ratatui::restore();
    ended.map(drop).map_err(crate::headless::CommandFailure::Terminal)
}

/// Installs a panic hook that disables bracketed paste. The hook of ratatui restores everything else.
fn leave_no_trace_after_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // An error is ignored, because the terminal no longer exists.
        let _ = execute!(io::stdout(), DisableBracketedPaste);
        hook(panic);
    }));
}

/// Creates a client that sends each exchange as a message.
///
/// # Errors
/// Returns [`ApiError`] if the certificates of the profile cannot be used.
pub fn api(profile: Profile, clock: ClientClock, sender: UnboundedSender<Message>) -> Result<Api, ApiError> {
    // Sending fails if the screens are closed.
    Api::new(profile, clock, Box::new(move |exchange| drop(sender.send(Message::Exchanged(exchange)))))
}

/// Runs until the model quits and returns its last state. `observe` is called after every change.
///
/// # Errors
/// Returns the error of the terminal.
pub async fn run<B: Backend>(
    terminal: &mut Terminal<B>,
    mut model: Model,
    api: Api,
    sender: UnboundedSender<Message>,
    mut messages: UnboundedReceiver<Message>,
    mut observe: impl FnMut(&Model),
) -> io::Result<Model>
where
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut runtime = EffectRunner { api, sender, sign_in: None };
    while !model.quit {
        terminal.draw(|frame| view(&model, frame)).map_err(io::Error::other)?;
        // All waiting messages are processed before the next drawing.
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

/// State that effects need.
struct EffectRunner {
    api: Api,
    sender: UnboundedSender<Message>,
    sign_in: Option<WaitingSignIn>,
}

/// A sign-in that waits for the browser.
struct WaitingSignIn {
    task: JoinHandle<()>,
    pasted: mpsc::Sender<String>,
}

impl EffectRunner {
    /// Starts an effect, which sends its answer as a message.
    fn start(&mut self, effect: RuntimeEffect) {
        match effect {
            RuntimeEffect::SignIn => self.start_sign_in(),
            RuntimeEffect::CancelSignIn => self.stop_sign_in(),
            RuntimeEffect::Pasted(text) => {
                if let Some(waiting) = &self.sign_in {
                    // If the channel is full, an earlier text is still waiting to be read, and this text is dropped.
                    let _ = waiting.pasted.try_send(text);
                }
            }
            RuntimeEffect::Copy(text) => copy(&text),
            RuntimeEffect::Download { manifest, folder } => self.start_download(manifest, folder),
            other => self.ask(other),
        }
    }

    /// Starts an effect that sends one request to the server.
    fn ask(&self, effect: RuntimeEffect) {
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            let backend = Bearer::Backend;
            let message = match effect {
                RuntimeEffect::SignOut => Message::SignedOut(in_words(api.sign_out().await)),
                RuntimeEffect::Userinfo => Message::Userinfo(in_words(api.userinfo(&Bearer::User).await)),
                RuntimeEffect::ValidateCode(query, bearer) => {
                    Message::Validated(in_words(api.validate_code(&query, &bearer).await))
                }
                RuntimeEffect::Subsumes(query, bearer) => {
                    Message::SubsumesAnswer(in_words(api.subsumes(&query, &bearer).await))
                }
                RuntimeEffect::KickOff(query) => {
                    Message::KickedOff(in_words(api.kick_off(&query, &backend).await))
                }
                RuntimeEffect::Poll { status_url } => {
                    Message::Polled(in_words(api.poll(&status_url, &backend).await))
                }
                RuntimeEffect::DeleteExport { status_url } => {
                    Message::ExportDeleted(in_words(api.delete_export(&status_url, &backend).await))
                }
                RuntimeEffect::SignIn
                | RuntimeEffect::CancelSignIn
                | RuntimeEffect::Pasted(_)
                | RuntimeEffect::Copy(_)
                | RuntimeEffect::Download { .. } => {
                    return;
                }
            };
            // Sending this message, or one of those below, fails if the screens are closed.
            let _ = sender.send(message);
        });
    }

    fn start_sign_in(&mut self) {
        self.stop_sign_in();
        let (api, sender) = (self.api.clone(), self.sender.clone());
        let (pasted, receiver) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let tell = |step| drop(sender.send(Message::SignIn(step)));
            let tokens = journey::sign_in(&api, USER_SCOPE, receiver, tell).await;
            let _ = sender.send(Message::SignedIn(in_words(tokens.map(|tokens| tokens.session))));
        });
        self.sign_in = Some(WaitingSignIn { task, pasted });
    }

    fn stop_sign_in(&mut self) {
        if let Some(waiting) = self.sign_in.take() {
            waiting.task.abort();
        }
    }

    fn start_download(&self, manifest: ExportManifest, folder: PathBuf) {
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            let watch = |piece| drop(sender.send(Message::Piece(piece)));
            let saved = api.download(&manifest, &folder, &Bearer::Backend, watch).await;
            let _ = sender.send(Message::Downloaded(in_words(saved)));
        });
    }
}

fn in_words<T>(result: Result<T, ApiError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Copies a text to the clipboard with OSC 52, which also works over SSH.
fn copy(text: &str) {
    let mut out = io::stdout();
    // A terminal without support for OSC 52 ignores the sequence.
    let _ = write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text)).and_then(|()| out.flush());
}

/// Reads terminal events on a separate thread, because reading blocks. The thread ends with the program.
fn read_terminal(sender: UnboundedSender<Message>) {
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let message = match event {
                Event::Key(key) => Message::Key(key),
                Event::Paste(text) => Message::Paste(text),
                Event::Resize(..) => Message::Resized,
                Event::FocusGained | Event::FocusLost | Event::Mouse(_) => continue,
            };
            if sender.send(message).is_err() {
                break;
            }
        }
    });
}

/// Sends the current time once a second.
pub async fn tick(sender: UnboundedSender<Message>, clock: ClientClock) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        if sender.send(Message::Tick(clock())).is_err() {
            break;
        }
    }
}
