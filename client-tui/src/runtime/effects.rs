//! The effects of the open profile: requests, files, and the tasks that run until they are stopped.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use spreadsheet::ReadOptions;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Duration;

use crate::api::{Api, ApiError, Bearer, ContentKind};
use crate::args::PARALLEL_REQUESTS;
use crate::batch::{self, BatchDefaults};
use crate::browser;
use crate::clock::ClientClock;
use crate::export::{ExportError, ExportEvent, ExportJob, ExportRegistry, ExportRun, run as export_run};
use crate::failure::CommandFailure;
use crate::history::HistoryFile;
use crate::journey::{self, Patience};
use crate::last_screens::LastScreensFile;
use crate::model::{Operation, Screen};
use crate::msg::{
    BatchEvent, CodeAnswer, CodeQuestion, HomeAnswer, Message, RuntimeEffect, TreeAnswer, TreeQuestion,
};
use crate::other_server::OtherServer;
use crate::private_files::private_file;
use crate::profile::Profile;
use crate::profile::choice::ProfileSource;
use crate::sign_in_method::SignInMethod;
use crate::terminal;
use crate::viewer_files::{self, OpenFile};

/// Time after the last change of a text until it is searched for.
const SEARCH_DELAY: Duration = Duration::from_millis(200);

/// Time that the program waits at its end for the sign-out of a session that could not be stored.
const LAST_SIGN_OUT: Duration = Duration::from_secs(3);

/// Services that the effects of all profiles use.
#[derive(Clone)]
pub struct Services {
    pub profiles: ProfileSource,
    pub registry: ExportRegistry,
    pub history: HistoryFile,
    pub screens: LastScreensFile,
    pub clock: ClientClock,
}

/// The effects of a profile. Answers that arrive after a change of the profile are dropped with their
/// channel.
pub struct ProfileEffects {
    services: Services,
    api: Api,
    sender: UnboundedSender<Message>,
    pub(super) answers: UnboundedReceiver<Message>,
    files: OpenFile,
    sign_in: Option<WaitingSignIn>,
    exports: HashMap<PathBuf, JoinHandle<()>>,
    /// Task of the search for the text that is being typed.
    search: Option<JoinHandle<()>>,
    /// Task of the question for the place of the selected concept.
    place: Option<JoinHandle<()>>,
    batch: Option<JoinHandle<()>>,
    /// Requests that can be cancelled, with their screens.
    requests: Vec<(Screen, AbortHandle)>,
    other: OtherConnection,
}

/// Client and token of the other server of comparisons.
type OtherConnection = Arc<tokio::sync::Mutex<Option<(OtherServer, Api, Bearer)>>>;

/// A sign-in that waits for the browser.
struct WaitingSignIn {
    task: JoinHandle<()>,
    pasted: mpsc::Sender<String>,
}

impl ProfileEffects {
    /// Creates the client of a profile. Its exchanges are answers, too.
    ///
    /// # Errors
    /// [`ApiError`] if the certificates of the profile cannot be used.
    pub fn new(profile: Profile, services: Services) -> Result<Self, ApiError> {
        let (sender, answers) = mpsc::unbounded_channel();
        let exchanges = sender.clone();
        // Sending fails if the profile is closed.
        let watch = move |exchange| drop(exchanges.send(Message::Exchanged(exchange)));
        Ok(Self {
            api: Api::new(profile, services.clock, Box::new(watch))?,
            services,
            sender,
            answers,
            files: OpenFile::default(),
            sign_in: None,
            exports: HashMap::new(),
            search: None,
            place: None,
            batch: None,
            requests: Vec::new(),
            other: Arc::default(),
        })
    }

    /// Reads the state that earlier runs of the program have stored.
    pub(super) fn restore(&mut self) {
        self.start(RuntimeEffect::ListExports);
        self.start(RuntimeEffect::ReadHistory);
        self.start(RuntimeEffect::RestoreSession);
    }

    /// The services, which another profile can use, too.
    pub(super) fn services(&self) -> &Services {
        &self.services
    }

    /// Sends a message as if it were an answer.
    pub(super) fn send(&self, message: Message) {
        // Sending fails if the profile is closed.
        let _ = self.sender.send(message);
    }

    /// Ends all tasks. The folders of exports are no longer locked afterwards.
    pub(super) async fn stop(&mut self) {
        self.stop_sign_in();
        self.stop_search();
        self.stop_place();
        self.stop_batch();
        let not_stored = self.api.session().await.is_some_and(|session| session.not_stored.is_some());
        if not_stored {
            // The tokens are lost with this process.
            let _ = tokio::time::timeout(LAST_SIGN_OUT, self.api.sign_out()).await;
        }
        for (_, task) in self.exports.drain() {
            abort(task).await;
        }
    }

    /// Starts an effect, which sends its answer as a message.
    pub(super) fn start(&mut self, effect: RuntimeEffect) {
        match effect {
            RuntimeEffect::SignIn(method) => self.start_sign_in(method),
            RuntimeEffect::CancelSignIn => self.stop_sign_in(),
            RuntimeEffect::Pasted(text) => {
                if let Some(waiting) = &self.sign_in {
                    // If the channel is full, an earlier text is still waiting to be read, and this text is
                    // dropped.
                    let _ = waiting.pasted.try_send(text);
                }
            }
            RuntimeEffect::Copy(text) => terminal::copy(&text),
            // The event loop performs these effects, because they need the terminal or replace this profile.
            RuntimeEffect::EditRequest(_)
            | RuntimeEffect::OpenPager(_)
            | RuntimeEffect::OpenProfile(_)
            | RuntimeEffect::Suspend
            | RuntimeEffect::Redraw => {}
            RuntimeEffect::ListProfiles => {
                self.send(Message::Profiles(in_words(self.services.profiles.choices())));
            }
            RuntimeEffect::Save { path, content } => {
                let saved = save_private(&path, &content).map(|()| format!("Saved {}.", path.display()));
                self.send(Message::Saved(in_words(saved)));
            }
            RuntimeEffect::CopyDemoPassword => {
                let password = self.api.profile().demo_password();
                let copied = password.map(|password| {
                    terminal::copy(&password);
                    "The password of the demo user was copied.".to_owned()
                });
                self.send(Message::Saved(in_words(copied)));
            }
            RuntimeEffect::CopyToken(kind) => {
                self.ask(Screen::SignIn, async move |api| {
                    let copied = api.token_of_kind(kind).await.map(|(token, _)| {
                        terminal::copy(&token);
                        format!(
                            "The {} was copied. It is valid until it expires, also for others.",
                            kind.title()
                        )
                    });
                    Message::Saved(in_words(copied))
                });
            }
            RuntimeEffect::CaptureMouse(capture) => terminal::capture_mouse(capture),
            RuntimeEffect::ListExports => {
                self.send(Message::Exports(self.services.registry.list()));
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
                let (api, sender) = (self.api.clone(), self.sender.clone());
                self.search = Some(tokio::spawn(async move {
                    api.wait(SEARCH_DELAY).await;
                    let concepts = in_words(api.search_concepts(&search, &bearer).await);
                    let _ = sender.send(Message::Tree(id, TreeAnswer::Search(concepts)));
                }));
            }
            RuntimeEffect::CancelSearch => self.stop_search(),
            RuntimeEffect::Contents { id, bearer, groups_bearer } => {
                for kind in ContentKind::ALL {
                    let bearer =
                        if kind == ContentKind::Groups { groups_bearer.clone() } else { bearer.clone() };
                    self.ask(Screen::Home, async move |api| {
                        let list = in_words(api.contents(kind, &bearer).await);
                        Message::Home(id, HomeAnswer::List(kind, list))
                    });
                }
                self.ask(Screen::Home, async move |api| {
                    Message::Home(id, HomeAnswer::Summary(in_words(api.server_summary().await)))
                });
            }
            RuntimeEffect::SearchSystems { id, text, systems, kinds, bearer } => {
                self.search_systems(id, text, systems, kinds, bearer);
            }
            RuntimeEffect::Place(id, query, bearer) => {
                let (api, sender) = (self.api.clone(), self.sender.clone());
                let task = tokio::spawn(async move {
                    api.wait(SEARCH_DELAY).await;
                    let place = in_words(api.concept_place(&query, &bearer).await);
                    let _ = sender.send(Message::Home(id, HomeAnswer::Place(place)));
                });
                self.stop_place();
                self.place = Some(task);
            }
            RuntimeEffect::CancelRequests(cancelled) => {
                if cancelled == Screen::Home {
                    self.stop_search();
                    self.stop_place();
                }
                let requests = self.requests.iter().filter(|(screen, _)| *screen == cancelled);
                requests.for_each(|(_, request)| request.abort());
            }
            RuntimeEffect::StartBatch { id, path, defaults, bearer } => {
                self.start_batch(id, path, defaults, bearer);
            }
            RuntimeEffect::StopBatch => self.stop_batch(),
            RuntimeEffect::ReadHistory => {
                self.send(Message::History(self.services.history.read()));
            }
            RuntimeEffect::AddToHistory(question) => {
                if let Err(reason) = self.services.history.add(question) {
                    self.send(Message::Saved(Err(reason)));
                }
            }
            RuntimeEffect::StartExport { folder, job, bearer } => self.run_export(folder, Some(job), bearer),
            RuntimeEffect::ResumeExport { folder, bearer, file_host } => {
                if let Some(host) = file_host {
                    self.api.allow_file_host(&host);
                }
                self.run_export(folder, None, bearer);
            }
            RuntimeEffect::DeleteExport { folder, bearer } => self.delete_export(folder, bearer),
            RuntimeEffect::SignOut { browser } => {
                // A token must not remain valid because a key was pressed.
                self.ask_to_the_end(async move |api| Message::SignedOut(sign_out(&api, browser).await));
            }
            RuntimeEffect::Inspect(kind) => {
                self.ask(Screen::SignIn, async move |api| {
                    Message::Inspected(kind, in_words(api.inspect(kind, true).await))
                });
            }
            RuntimeEffect::RestoreSession => {
                self.ask_to_the_end(async |api| match api.revoke_pending().await {
                    Ok(None) => Message::Revoked(None),
                    Ok(Some(_)) => {
                        Message::Revoked(Some("The token of an earlier sign-out is revoked now.".to_owned()))
                    }
                    Err(error) => Message::Revoked(Some(format!(
                        "Error: the token of an earlier sign-out is still not revoked: {error}"
                    ))),
                });
                self.ask_to_the_end(async |api| match api.restore_session().await {
                    None if api.has_shared_session() => Message::SharedSession,
                    session => Message::Restored(session),
                });
            }
            RuntimeEffect::Userinfo => {
                self.ask(Screen::SignIn, async |api| {
                    Message::Userinfo(in_words(api.userinfo(&Bearer::User).await))
                });
            }
            RuntimeEffect::Code(id, question, bearer) => self.ask(Screen::Codes, async move |api| {
                let (operation, result) = ask_code(&api, question, &bearer).await;
                Message::Code { id, operation, result: in_words(result) }
            }),
            RuntimeEffect::CheckCodes(resource, bearer) => self.ask(Screen::Files, async move |api| {
                let result = viewer_files::check_codes(&api, &resource, &bearer).await;
                Message::CodesChecked { resource, result }
            }),
            RuntimeEffect::OtherCode(id, question, server) => {
                let connections = self.other.clone();
                self.ask(Screen::Codes, async move |api| {
                    let operation = question.operation();
                    let result = match connected(&connections, &api, server).await {
                        Ok((other, bearer)) => in_words(ask_code(&other, question, &bearer).await.1),
                        Err(error) => Err(error.to_string()),
                    };
                    Message::OtherCode { id, operation, result }
                });
            }
            RuntimeEffect::Tree(id, TreeQuestion::Concept(query), bearer) => {
                self.ask(Screen::Tree, async move |api| {
                    Message::Tree(id, TreeAnswer::Concept(in_words(api.concept(&query, &bearer).await)))
                })
            }
            RuntimeEffect::Tree(id, TreeQuestion::Path(query), bearer) => {
                self.ask(Screen::Tree, async move |api| {
                    Message::Tree(id, TreeAnswer::Path(in_words(api.hierarchy_path(&query, &bearer).await)))
                })
            }
            RuntimeEffect::SendRaw(request, bearer) => self.ask(Screen::Requests, async move |api| {
                let answer = api.send_raw(request, &bearer).await;
                Message::Sent(in_words(answer.map(|response| response.status.as_u16())))
            }),
        }
    }

    /// Searches code systems for a text that is being typed.
    fn search_systems(
        &mut self,
        id: u64,
        text: String,
        systems: Vec<String>,
        kinds: Vec<ContentKind>,
        bearer: Bearer,
    ) {
        self.stop_search();
        if systems.is_empty() && kinds.is_empty() {
            return;
        }
        let (api, sender) = (self.api.clone(), self.sender.clone());
        self.search = Some(tokio::spawn(async move {
            api.wait(SEARCH_DELAY).await;
            for kind in kinds {
                let titled = in_words(api.contents_with_title(kind, &text, &bearer).await);
                let _ = sender.send(Message::Home(id, HomeAnswer::Titled(kind, titled)));
            }
            let on_result = |system, codes| {
                let _ = sender.send(Message::Home(id, HomeAnswer::Found(system, in_words(codes))));
            };
            api.search_systems(&text, systems, &bearer, on_result).await;
        }));
    }

    /// Starts a request that [`RuntimeEffect::CancelRequests`] ends.
    fn ask<F>(&mut self, screen: Screen, request: impl FnOnce(Api) -> F)
    where
        F: Future<Output = Message> + Send + 'static,
    {
        let task = self.ask_to_the_end(request);
        self.requests.retain(|(_, request)| !request.is_finished());
        self.requests.push((screen, task));
    }

    /// Starts a request to the server. Its message is followed by the session, whose token the request may
    /// have renewed.
    fn ask_to_the_end<F>(&self, request: impl FnOnce(Api) -> F) -> AbortHandle
    where
        F: Future<Output = Message> + Send + 'static,
    {
        let (api, sender) = (self.api.clone(), self.sender.clone());
        let message = request(api.clone());
        let task = tokio::spawn(async move {
            // Sending fails if the screens are closed.
            let _ = sender.send(message.await);
            let _ = sender.send(Message::Session(api.session().await));
        });
        task.abort_handle()
    }

    fn start_sign_in(&mut self, method: SignInMethod) {
        self.stop_sign_in();
        let (api, sender) = (self.api.clone(), self.sender.clone());
        let (pasted, receiver) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let tell = |step| drop(sender.send(Message::SignIn(step)));
            let scope = &api.profile().scope;
            let tokens = match method {
                SignInMethod::Browser => {
                    journey::sign_in(&api, scope, Patience::ENDLESS, receiver, tell).await
                }
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
        let (file, sender) = (self.files.clone(), self.sender.clone());
        tokio::task::spawn_blocking(move || drop(sender.send(read(&file))));
    }

    fn start_batch(&mut self, id: u64, path: PathBuf, defaults: BatchDefaults, bearer: Bearer) {
        self.stop_batch();
        let (api, sender) = (self.api.clone(), self.sender.clone());
        self.batch = Some(tokio::spawn(async move {
            let send = |event| drop(sender.send(Message::Batch(id, event)));
            let read = tokio::task::spawn_blocking(move || {
                let text =
                    batch::read_text(&path, &ReadOptions::default()).map_err(|error| error.to_string());
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

    fn stop_place(&mut self) {
        if let Some(place) = self.place.take() {
            place.abort();
        }
    }

    fn stop_search(&mut self) {
        if let Some(search) = self.search.take() {
            search.abort();
        }
    }

    /// Runs an export to its end: a new one, or the one in the folder.
    fn run_export(&mut self, folder: PathBuf, new: Option<ExportJob>, bearer: Bearer) {
        let (api, sender) = (self.api.clone(), self.sender.clone());
        let registry = self.services.registry.clone();
        let export_folder = folder.clone();
        let task = tokio::spawn(async move {
            let (events, place) = (sender.clone(), export_folder.clone());
            let watch = move |event: ExportEvent| {
                let _ = events.send(Message::ExportProgress { folder: place.clone(), event });
            };
            let prepared = match new {
                Some(job) => ExportRun::start(&api, bearer, job, &export_folder, &registry, watch),
                None => ExportRun::resume(&api, bearer, &export_folder, watch),
            };
            let result = match prepared {
                Ok(run) => run.to_completion().await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(ExportError::Api(ApiError::ForeignHost { host })) = &result {
                let (folder, host) = (export_folder.clone(), host.clone());
                let _ = sender.send(Message::ExportNeedsHost { folder, host });
            }
            let _ = sender.send(Message::ExportEnded { folder: export_folder, result: in_words(result) });
        });
        self.exports.insert(folder, task);
    }

    fn delete_export(&mut self, folder: PathBuf, bearer: Bearer) {
        let task = self.exports.remove(&folder);
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            if let Some(task) = task {
                abort(task).await;
            }
            let result = in_words::<ExportJob, ExportError>(export_run::delete(&api, &bearer, &folder).await);
            let _ = sender.send(Message::ExportDeleted { folder, result });
        });
    }
}

/// Ends the task of an export, which locks its folder until then.
async fn abort(task: JoinHandle<()>) {
    task.abort();
    // An error means that the task was aborted.
    let _ = task.await;
}

/// Revokes the tokens of the user, and ends the session of the browser if that is asked for.
async fn sign_out(api: &Api, in_browser: bool) -> Result<String, String> {
    let signed_out = api
        .sign_out()
        .await
        .map_err(|error| format!("the token was removed here, but it may not be revoked: {error}"))?;
    let notice = signed_out.sentence();
    if !in_browser {
        return Ok(notice);
    }
    let url = signed_out.browser_sign_out().map_err(|error| error.to_string());
    match url.and_then(browser::open) {
        Ok(()) => Ok(notice),
        Err(reason) => Err(format!("{notice} The session of the browser was not ended: {reason}")),
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
