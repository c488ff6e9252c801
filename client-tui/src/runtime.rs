//! The event loop: receives messages, updates the model, draws the screens and starts effects as tasks.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio::time::{Duration, MissedTickBehavior};

use crate::api::{Api, ApiError, Bearer};
use crate::args::PARALLEL_REQUESTS;
use crate::batch::{self, BatchDefaults};
use crate::browser;
use crate::clock::ClientClock;
use crate::display::DisplayOptions;
use crate::export::{ExportError, ExportEvent, ExportJob, ExportRegistry, ExportRun, run as export_run};
use crate::failure::CommandFailure;
use crate::history::HistoryFile;
use crate::journey;
use crate::model::{Model, Operation};
use crate::msg::{BatchEvent, CodeAnswer, CodeQuestion, Message, RuntimeEffect, TreeAnswer, TreeQuestion};
use crate::other_server::OtherServer;
use crate::private_files::private_file;
use crate::profile::Profile;
use crate::sign_in_method::SignInMethod;
use crate::terminal::{self, EventReader};
use crate::update::update;
use crate::view::{ClickRegion, view};
use crate::viewer_files::{self, OpenFile};

/// Time after the last change of a text until it is searched for.
const SEARCH_DELAY: Duration = Duration::from_millis(200);

/// Opens the screens on this terminal until the user quits. The state of the terminal is restored in any case, even
/// after a panic.
///
/// # Errors
/// Returns the error of the terminal, or the error of a profile whose certificates cannot be used.
pub async fn open(
    profile: Profile,
    display: DisplayOptions,
    clock: ClientClock,
) -> Result<(), CommandFailure> {
    let mut model = Model::new(&profile, display, (clock.now)());
    model.about.zone = jiff::tz::TimeZone::system();
    let (sender, messages) = mpsc::unbounded_channel();
    let api = api(profile, clock, sender.clone())?;
    let registry = ExportRegistry::of_user()?;
    let history = HistoryFile::of_user().map_err(CommandFailure::History)?;
    let ended_by = watch_signals(sender.clone())?;
    let mut terminal = terminal::open().map_err(CommandFailure::Terminal)?;
    let events = EventReader::start(sender.clone());
    let edit = Box::new(move |text: &str| events.edit(text));
    let ticking = tokio::spawn(tick(sender.clone(), clock));
    let services = Services { api, registry, history, sender, edit };
    let ended = run(&mut terminal, model, services, messages, |_| {}).await;
    ticking.abort();
    terminal::close();
    ended.map_err(CommandFailure::Terminal)?;
    match *ended_by.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(signal) => Err(CommandFailure::Signal(signal)),
        None => Ok(()),
    }
}

/// Ends the event loop when a signal asks the program to end. Returns the number of that signal.
///
/// # Errors
/// Returns [`CommandFailure::Terminal`] if the operating system refuses a signal handler.
#[cfg(unix)]
fn watch_signals(sender: UnboundedSender<Message>) -> Result<Arc<Mutex<Option<i32>>>, CommandFailure> {
    use tokio::signal::unix::{SignalKind, signal};
    let ended_by = Arc::new(Mutex::new(None));
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
    for kind in kinds {
        let mut signals = signal(kind).map_err(CommandFailure::Terminal)?;
        let (sender, ended_by) = (sender.clone(), ended_by.clone());
        tokio::spawn(async move {
            signals.recv().await;
            *ended_by.lock().unwrap_or_else(PoisonError::into_inner) = Some(kind.as_raw_value());
            // Sending fails if the screens are closed already.
            let _ = sender.send(Message::Terminate);
        });
    }
    Ok(ended_by)
}

/// Other operating systems have no signals.
#[cfg(not(unix))]
fn watch_signals(_: UnboundedSender<Message>) -> Result<Arc<Mutex<Option<i32>>>, CommandFailure> {
    Ok(Arc::default())
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
    services: Services,
    mut messages: UnboundedReceiver<Message>,
    mut observe: impl FnMut(&Model),
) -> io::Result<Model>
where
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut runtime = EffectRunner {
        services,
        sign_in: None,
        exports: HashMap::new(),
        files: OpenFile::default(),
        search: None,
        batch: None,
        other: Arc::default(),
    };
    runtime.start(RuntimeEffect::ListExports);
    runtime.start(RuntimeEffect::ReadHistory);
    runtime.start(RuntimeEffect::RestoreSession);
    while !model.quit {
        let mut regions = Vec::new();
        terminal.draw(|frame| regions = view(&model, frame)).map_err(io::Error::other)?;
        // All waiting messages are processed before the next drawing.
        let Some(first) = messages.recv().await else { break };
        let mut next = Some(first);
        while let Some(message) = next {
            let message = match message {
                Message::Mouse(event) => on_mouse(event, &regions),
                other => Some(other),
            };
            for effect in message.map(|message| update(&mut model, message)).unwrap_or_default() {
                if let RuntimeEffect::EditRequest(text) = effect {
                    let edited = (runtime.services.edit)(&text);
                    terminal.clear().map_err(io::Error::other)?;
                    if model.mouse {
                        terminal::capture_mouse(true);
                    }
                    let _ = runtime.services.sender.send(Message::Edited(edited));
                } else {
                    runtime.start(effect);
                }
            }
            observe(&model);
            next = messages.try_recv().ok();
        }
    }
    runtime.stop_sign_in();
    Ok(model)
}

/// Services that the effects use.
pub struct Services {
    pub api: Api,
    pub registry: ExportRegistry,
    pub history: HistoryFile,
    /// Receives the results of the effects.
    pub sender: UnboundedSender<Message>,
    pub edit: TextEditor,
}

/// Lets the user edit a text. An error is a message for the user.
pub type TextEditor = Box<dyn FnMut(&str) -> Result<String, String> + Send>;

/// State that effects need.
struct EffectRunner {
    files: OpenFile,
    services: Services,
    sign_in: Option<WaitingSignIn>,
    /// Tasks of exports by folder.
    exports: HashMap<PathBuf, JoinHandle<()>>,
    /// Task of the search for the text that is being typed.
    search: Option<JoinHandle<()>>,
    /// Task of the batch.
    batch: Option<JoinHandle<()>>,
    other: OtherConnection,
}

/// Client and token of the other server of comparisons.
type OtherConnection = Arc<tokio::sync::Mutex<Option<(OtherServer, Api, Bearer)>>>;

/// A sign-in that waits for the browser.
struct WaitingSignIn {
    task: JoinHandle<()>,
    pasted: mpsc::Sender<String>,
}

impl EffectRunner {
    /// Starts an effect, which sends its answer as a message.
    fn start(&mut self, effect: RuntimeEffect) {
        match effect {
            RuntimeEffect::SignIn(method) => self.start_sign_in(method),
            RuntimeEffect::CancelSignIn => self.stop_sign_in(),
            RuntimeEffect::Pasted(text) => {
                if let Some(waiting) = &self.sign_in {
                    // If the channel is full, an earlier text is still waiting to be read, and this text is dropped.
                    let _ = waiting.pasted.try_send(text);
                }
            }
            RuntimeEffect::Copy(text) => terminal::copy(&text),
            // `run` starts the editor, because the editor needs the terminal.
            RuntimeEffect::EditRequest(_) => {}
            RuntimeEffect::Save { path, content } => {
                let saved = save_private(&path, &content).map(|()| format!("Saved {}.", path.display()));
                let _ = self.services.sender.send(Message::Saved(in_words(saved)));
            }
            RuntimeEffect::CopyDemoPassword => {
                let password = self.services.api.profile().demo_password();
                let copied = password.map(|password| {
                    terminal::copy(&password);
                    "The password of the demo user was copied.".to_owned()
                });
                let _ = self.services.sender.send(Message::Saved(in_words(copied)));
            }
            RuntimeEffect::CaptureMouse(capture) => terminal::capture_mouse(capture),
            RuntimeEffect::ListExports => {
                let _ = self.services.sender.send(Message::Exports(self.services.registry.list()));
            }
            RuntimeEffect::ReadPage { path, filter, first } => self.with_file(move |file| {
                let result = file.page(&path, &filter, first);
                Message::FilePage { path, filter, result }
            }),
            RuntimeEffect::ReadResource { path, filter, at } => {
                self.with_file(move |file| Message::Resource(file.resource(&path, &filter, at)));
            }
            RuntimeEffect::FindResource { files, reference } => {
                self.with_file(move |_| Message::FoundResource(viewer_files::find(&files, &reference)));
            }
            RuntimeEffect::Tree(id, TreeQuestion::Search(search), bearer) => {
                self.stop_search();
                let (api, sender) = (self.services.api.clone(), self.services.sender.clone());
                self.search = Some(tokio::spawn(async move {
                    api.wait(SEARCH_DELAY).await;
                    let found = in_words(api.search_concepts(&search, &bearer).await);
                    let _ = sender.send(Message::Tree(id, TreeAnswer::Search(found)));
                }));
            }
            RuntimeEffect::CancelSearch => self.stop_search(),
            RuntimeEffect::StartBatch { id, path, defaults, bearer } => {
                self.start_batch(id, path, defaults, bearer);
            }
            RuntimeEffect::StopBatch => self.stop_batch(),
            RuntimeEffect::ReadHistory => {
                let _ = self.services.sender.send(Message::History(self.services.history.read()));
            }
            RuntimeEffect::AddToHistory(question) => {
                if let Err(reason) = self.services.history.add(question) {
                    let _ = self.services.sender.send(Message::Saved(Err(reason)));
                }
            }
            RuntimeEffect::StartExport { folder, job, bearer } => self.run_export(folder, Some(job), bearer),
            RuntimeEffect::ResumeExport { folder, bearer } => self.run_export(folder, None, bearer),
            RuntimeEffect::DeleteExport { folder, bearer } => self.delete_export(folder, bearer),
            RuntimeEffect::SignOut { browser } => {
                self.ask(async move |api| Message::SignedOut(sign_out(&api, browser).await));
            }
            RuntimeEffect::Inspect(kind) => {
                self.ask(async move |api| Message::Inspected(kind, in_words(api.inspect(kind).await)));
            }
            RuntimeEffect::RestoreSession => {
                self.ask(async |api| Message::Restored(api.restore_session().await));
            }
            RuntimeEffect::Userinfo => {
                self.ask(async |api| Message::Userinfo(in_words(api.userinfo(&Bearer::User).await)));
            }
            RuntimeEffect::Code(id, question, bearer) => self.ask(async move |api| {
                let (operation, result) = ask_code(&api, question, &bearer).await;
                Message::Code { id, operation, result: in_words(result) }
            }),
            RuntimeEffect::CheckCodes(resource, bearer) => self.ask(async move |api| {
                let result = viewer_files::check_codes(&api, &resource, &bearer).await;
                Message::CodesChecked { resource, result }
            }),
            RuntimeEffect::OtherCode(id, question, server) => {
                let connections = self.other.clone();
                self.ask(async move |api| {
                    let operation = question.operation();
                    let result = match connected(&connections, &api, server).await {
                        Ok((other, bearer)) => in_words(ask_code(&other, question, &bearer).await.1),
                        Err(error) => Err(error.to_string()),
                    };
                    Message::OtherCode { id, operation, result }
                });
            }
            RuntimeEffect::Tree(id, TreeQuestion::Concept(query), bearer) => self.ask(async move |api| {
                Message::Tree(id, TreeAnswer::Concept(in_words(api.concept(&query, &bearer).await)))
            }),
            RuntimeEffect::Tree(id, TreeQuestion::Path(query), bearer) => self.ask(async move |api| {
                Message::Tree(id, TreeAnswer::Path(in_words(api.hierarchy_path(&query, &bearer).await)))
            }),
            RuntimeEffect::SendRaw(request, bearer) => self.ask(async move |api| {
                let answer = api.send_raw(request, &bearer).await;
                Message::Sent(in_words(answer.map(|answer| answer.status.as_u16())))
            }),
        }
    }

    /// Starts a request to the server. Its message is followed by the session, whose token the request may have renewed.
    fn ask<F: Future<Output = Message> + Send + 'static>(&self, request: impl FnOnce(Api) -> F) {
        let (api, sender) = (self.services.api.clone(), self.services.sender.clone());
        let message = request(api.clone());
        tokio::spawn(async move {
            // Sending fails if the screens are closed.
            let _ = sender.send(message.await);
            let _ = sender.send(Message::Session(api.session().await));
        });
    }

    fn start_sign_in(&mut self, method: SignInMethod) {
        self.stop_sign_in();
        let (api, sender) = (self.services.api.clone(), self.services.sender.clone());
        let (pasted, receiver) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let tell = |step| drop(sender.send(Message::SignIn(step)));
            let scope = &api.profile().scope;
            let tokens = match method {
                SignInMethod::Browser => journey::sign_in(&api, scope, receiver, tell).await,
                SignInMethod::Device => journey::sign_in_on_device(&api, scope, tell).await,
            };
            let _ = sender.send(Message::SignedIn(in_words(tokens.map(|tokens| tokens.session))));
        });
        self.sign_in = Some(WaitingSignIn { task, pasted });
    }

    fn stop_sign_in(&mut self) {
        if let Some(waiting) = self.sign_in.take() {
            waiting.task.abort();
        }
    }

    /// Reads a file on a thread that may block.
    fn with_file(&self, read: impl FnOnce(&OpenFile) -> Message + Send + 'static) {
        let (file, sender) = (self.files.clone(), self.services.sender.clone());
        tokio::task::spawn_blocking(move || drop(sender.send(read(&file))));
    }

    fn start_batch(&mut self, id: u64, path: PathBuf, defaults: BatchDefaults, bearer: Bearer) {
        self.stop_batch();
        let (api, sender) = (self.services.api.clone(), self.services.sender.clone());
        self.batch = Some(tokio::spawn(async move {
            let send = |event| drop(sender.send(Message::Batch(id, event)));
            let read = tokio::task::spawn_blocking(move || {
                let text = batch::read_text(&path).map_err(|error| error.to_string());
                text.and_then(|text| batch::read(&text, &defaults).map_err(|error| error.to_string()))
                    .map_err(|reason| format!("{}: {reason}", path.display()))
            });
            // An error means that the program is ending.
            let Ok(rows) = read.await else { return };
            match rows {
                Ok(rows) => {
                    send(BatchEvent::Started(rows.len() as u64));
                    let mut results = pin!(batch::run(&api, rows, &bearer, PARALLEL_REQUESTS));
                    while let Some(result) = results.next().await {
                        send(BatchEvent::Row(result));
                    }
                    send(BatchEvent::Ended(Ok(())));
                }
                Err(reason) => send(BatchEvent::Ended(Err(reason))),
            }
        }));
    }

    fn stop_batch(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.abort();
        }
    }

    fn stop_search(&mut self) {
        if let Some(search) = self.search.take() {
            search.abort();
        }
    }

    /// Runs an export to its end: a new one, or the one in the folder.
    fn run_export(&mut self, folder: PathBuf, new: Option<ExportJob>, bearer: Bearer) {
        let Services { api, registry, sender, .. } = &self.services;
        let (api, registry, sender) = (api.clone(), registry.clone(), sender.clone());
        let at = folder.clone();
        let task = tokio::spawn(async move {
            let (events, place) = (sender.clone(), at.clone());
            let watch = move |event: ExportEvent| {
                let _ = events.send(Message::ExportProgress { folder: place.clone(), event });
            };
            let prepared = match new {
                Some(job) => ExportRun::start(&api, bearer, job, &at, &registry, watch),
                None => ExportRun::resume(&api, bearer, &at, watch),
            };
            let result = match prepared {
                Ok(run) => run.to_completion().await.map(drop),
                Err(error) => Err(error),
            };
            let _ = sender.send(Message::ExportEnded { folder: at, result: in_words(result) });
        });
        self.exports.insert(folder, task);
    }

    fn delete_export(&mut self, folder: PathBuf, bearer: Bearer) {
        let task = self.exports.remove(&folder);
        let (api, sender) = (self.services.api.clone(), self.services.sender.clone());
        tokio::spawn(async move {
            if let Some(task) = task {
                task.abort();
                // The task holds the lock of the folder until it has ended. An error means that it was aborted.
                let _ = task.await;
            }
            let result = in_words::<ExportJob, ExportError>(export_run::delete(&api, &bearer, &folder).await);
            let _ = sender.send(Message::ExportDeleted { folder, result });
        });
    }
}

/// Revokes the tokens of the user, and ends the session of the browser if that is asked for.
async fn sign_out(api: &Api, in_browser: bool) -> Result<String, String> {
    let signed_out = api
        .sign_out()
        .await
        .map_err(|error| format!("the token was removed here, but it may not be revoked: {error}"))?;
    let notice = signed_out.sentence().to_owned();
    match signed_out.end_session.filter(|_| in_browser) {
        Some(url) => match browser::open(&url) {
            Ok(()) => Ok(notice),
            Err(reason) => Err(format!("{notice} The session of the browser was not ended: {reason}")),
        },
        None if in_browser => {
            Err(format!("{notice} The server has no address that ends the session of the browser."))
        }
        None => Ok(notice),
    }
}

/// Sends a question to the terminology server.
async fn ask_code(
    api: &Api,
    question: CodeQuestion,
    bearer: &Bearer,
) -> (Operation, Result<CodeAnswer, ApiError>) {
    match question {
        CodeQuestion::ValidateCode(query) => {
            (Operation::ValidateCode, api.validate_code(&query, bearer).await.map(CodeAnswer::ValidateCode))
        }
        CodeQuestion::Subsumes(query) => {
            (Operation::Subsumes, api.subsumes(&query, bearer).await.map(CodeAnswer::Subsumes))
        }
        CodeQuestion::Lookup(query) => {
            (Operation::Lookup, api.lookup(&query, bearer).await.map(CodeAnswer::Lookup))
        }
        CodeQuestion::Expand(query) => {
            (Operation::Expand, api.expand(&query, bearer).await.map(CodeAnswer::Expand))
        }
    }
}

/// Returns client and token of the other server, which are kept for the next question.
async fn connected(
    connection: &OtherConnection,
    api: &Api,
    server: OtherServer,
) -> Result<(Api, Bearer), CommandFailure> {
    let mut connection = connection.lock().await;
    if let Some((known, other, bearer)) = &*connection
        && *known == server
    {
        return Ok((other.clone(), bearer.clone()));
    }
    let (other, bearer) = server.connect(api).await?;
    *connection = Some((server, other.clone(), bearer.clone()));
    Ok((other, bearer))
}

fn in_words<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

/// Writes a new file that only the user may read.
fn save_private(path: &Path, content: &str) -> io::Result<()> {
    private_file(path, true)?.write_all(content.as_bytes())
}

/// Translates an event of the mouse. The last region that contains the position was drawn on top.
fn on_mouse(event: MouseEvent, regions: &[ClickRegion]) -> Option<Message> {
    match event.kind {
        MouseEventKind::Down(MouseButton::Left) => {
            let position = Position::new(event.column, event.row);
            let hit = regions.iter().rev().find(|(area, _)| area.contains(position));
            hit.map(|(_, target)| Message::Click(*target))
        }
        MouseEventKind::ScrollDown => Some(Message::Wheel(true)),
        MouseEventKind::ScrollUp => Some(Message::Wheel(false)),
        _ => None,
    }
}

/// Sends the current time once a second.
pub async fn tick(sender: UnboundedSender<Message>, clock: ClientClock) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        if sender.send(Message::Tick((clock.now)())).is_err() {
            break;
        }
    }
}
