//! The event loop: receives messages, updates the model, draws the screens and starts effects as tasks.

mod effects;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Duration;

pub use self::effects::{ProfileEffects, Services};
use crate::clock::{ClientClock, TICK_MS};
use crate::display::DisplayOptions;
use crate::export::ExportRegistry;
use crate::failure::CommandFailure;
use crate::history::HistoryFile;
use crate::keys::KeyTable;
use crate::last_screens::LastScreensFile;
use crate::model::{Model, Overlay};
use crate::msg::{Message, RuntimeEffect};
use crate::profile::Profile;
use crate::profile::choice::{ProfileChoice, ProfileSource};
use crate::terminal::{self, EventReader};
use crate::update::update;
use crate::user_programs::UserPrograms;
use crate::view::{ClickRegion, JumpLabels, view};

/// Number of the signal SIGHUP.
const HANGUP: i32 = 1;

/// Opens the screens on this terminal until the user quits. The state of the terminal is restored in any
/// case, even after a panic.
///
/// # Errors
/// The error of the terminal, or the error of a profile whose certificates cannot be used.
pub async fn open(
    profile: Profile,
    profiles: ProfileSource,
    keys: KeyTable,
    display: DisplayOptions,
    clock: ClientClock,
) -> Result<(), CommandFailure> {
    let mut model = Model::new(&profile, display, (clock.now)());
    // The table exists until the program ends.
    model.keys = Box::leak(Box::new(keys));
    model.about.zone = jiff::tz::TimeZone::system();
    let registry = ExportRegistry::of_user()?;
    let history = HistoryFile::of_user().map_err(CommandFailure::StateFolder)?;
    let screens = LastScreensFile::of_user().map_err(CommandFailure::StateFolder)?;
    restore_screens(&screens, &mut model);
    let services = Services { profiles, registry, history, screens: screens.clone(), clock };
    let effects = ProfileEffects::new(profile, services)?;
    let (sender, input) = mpsc::unbounded_channel();
    let ended_by = watch_signals(sender.clone())?;
    let mut terminal = terminal::open().map_err(CommandFailure::Terminal)?;
    let events = EventReader::start(sender.clone(), clock, display.asks_terminal);
    let is_moving = Arc::new(AtomicBool::new(false));
    let ticking = tokio::spawn(tick(sender, clock, Arc::clone(&is_moving)));
    let observe = |model: &Model| is_moving.store(model.is_moving(), Ordering::Relaxed);
    let mut end = run(&mut terminal, model, effects, input, events, observe).await;
    ticking.abort();
    terminal::close();
    if let Ok(model) = &mut end
        && let Err(reason) = screens.store(model)
    {
        eprintln!("The state of the screens is not stored: {reason}");
    }
    if let Some(signal) = *ended_by.lock().unwrap_or_else(PoisonError::into_inner) {
        return Err(CommandFailure::Signal(signal));
    }
    match end {
        // The window was closed, and SIGHUP has not arrived yet.
        Err(error) if terminal::is_closed(&error) => Err(CommandFailure::Signal(HANGUP)),
        Err(error) => Err(CommandFailure::Terminal(error)),
        Ok(_) => Ok(()),
    }
}

fn restore_screens(screens: &LastScreensFile, model: &mut Model) {
    if let Err(reason) = screens.restore(model) {
        model.notice = Some(format!("Error: {reason}"));
    }
}

/// Ends the event loop when a signal requests it, and suspends it. Returns the number of the signal that
/// ended it.
///
/// # Errors
/// [`CommandFailure::Terminal`] if the operating system refuses a signal handler.
#[cfg(unix)]
fn watch_signals(sender: UnboundedSender<Message>) -> Result<Arc<Mutex<Option<i32>>>, CommandFailure> {
    use rustix::process::Signal;
    use tokio::signal::unix::{SignalKind, signal};
    const SIGTSTP: i32 = Signal::TSTP.as_raw();
    const SIGCONT: i32 = Signal::CONT.as_raw();
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
    for (number, message) in [(SIGTSTP, Message::Suspend), (SIGCONT, Message::Continued)] {
        let mut signals = signal(SignalKind::from_raw(number)).map_err(CommandFailure::Terminal)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(message.clone()).is_ok() {}
        });
    }
    Ok(ended_by)
}

/// Other operating systems have no signals.
#[cfg(not(unix))]
fn watch_signals(_: UnboundedSender<Message>) -> Result<Arc<Mutex<Option<i32>>>, CommandFailure> {
    Ok(Arc::default())
}

/// Runs until the model quits and returns its last state. `input` has the events of the terminal, the time
/// and signals. `observe` is called after every change.
///
/// # Errors
/// The error of the terminal.
pub async fn run<B: Backend>(
    terminal: &mut Terminal<B>,
    mut model: Model,
    mut effects: ProfileEffects,
    mut input: UnboundedReceiver<Message>,
    mut programs: impl UserPrograms,
    mut observe: impl FnMut(&Model),
) -> io::Result<Model>
where
    B::Error: std::error::Error + Send + Sync + 'static,
{
    effects.restore();
    let mut regions = Vec::new();
    let mut is_drawn = false;
    while !model.quit {
        if !is_drawn {
            terminal.draw(|frame| regions = view(&model, frame)).map_err(io::Error::other)?;
        }
        is_drawn = true;
        // All waiting messages are processed before the next drawing.
        let mut next = tokio::select! {
            message = input.recv() => message,
            message = effects.answers.recv() => message,
        };
        if next.is_none() {
            break;
        }
        while let Some(message) = next {
            // Most ticks change nothing that is visible; drawing for each of them would cost CPU time for
            // ever.
            is_drawn &= matches!(message, Message::Tick(now) if !model.changes_until(now));
            let message = match message {
                Message::Mouse(event) => on_mouse(event, &regions),
                Message::Key(key) => Some(on_jump_letter(key, &model, &regions)),
                other => Some(other),
            };
            for effect in message.map(|message| update(&mut model, message)).unwrap_or_default() {
                match effect {
                    RuntimeEffect::EditRequest(text) => {
                        effects.send(Message::Edited(programs.edit(&text)));
                        redraw(terminal, &model)?;
                    }
                    RuntimeEffect::OpenPager(text) => {
                        if let Err(reason) = programs.page(&text) {
                            effects.send(Message::Saved(Err(reason)));
                        }
                        redraw(terminal, &model)?;
                    }
                    RuntimeEffect::Suspend => {
                        if let Err(reason) = programs.suspend() {
                            effects.send(Message::Saved(Err(reason)));
                        }
                        redraw(terminal, &model)?;
                    }
                    RuntimeEffect::Redraw => {
                        if let Err(reason) = programs.resume() {
                            effects.send(Message::Saved(Err(reason)));
                        }
                        redraw(terminal, &model)?;
                    }
                    RuntimeEffect::OpenProfile(choice) => {
                        match replace_profile(&mut model, &mut effects, &choice) {
                            Ok(mut replaced) => {
                                replaced.stop().await;
                                effects.restore();
                            }
                            Err(failure) => effects.send(Message::Saved(Err(failure.to_string()))),
                        }
                    }
                    other => effects.start(other),
                }
            }
            observe(&model);
            next = input.try_recv().or_else(|_| effects.answers.try_recv()).ok();
        }
    }
    effects.stop().await;
    Ok(model)
}

/// Draws everything again after another program has used the terminal.
fn redraw<B: Backend>(terminal: &mut Terminal<B>, model: &Model) -> io::Result<()>
where
    B::Error: std::error::Error + Send + Sync + 'static,
{
    terminal.clear().map_err(io::Error::other)?;
    if model.mouse {
        terminal::capture_mouse(true);
    }
    Ok(())
}

/// Replaces model and effects by those of another profile, which contain nothing of the open one. Returns the
/// effects of the open profile.
fn replace_profile(
    model: &mut Model,
    effects: &mut ProfileEffects,
    choice: &ProfileChoice,
) -> Result<Box<ProfileEffects>, CommandFailure> {
    let services = effects.services().clone();
    let profile = services.profiles.open(choice)?;
    let mut next = model.with_profile(&profile);
    if let Err(reason) = services.screens.store(model) {
        next.notice = Some(format!("Error: {reason}"));
    }
    restore_screens(&services.screens, &mut next);
    let replaced = std::mem::replace(effects, ProfileEffects::new(profile, services)?);
    *model = next;
    Ok(Box::new(replaced))
}

/// Translates a letter that is typed while jump labels are shown: to a click if the label is complete.
fn on_jump_letter(key: KeyEvent, model: &Model, regions: &[ClickRegion]) -> Message {
    let Some(Overlay::Jump(typed)) = &model.overlay else { return Message::Key(key) };
    let KeyCode::Char(letter) = key.code else { return Message::Key(key) };
    let typed = format!("{typed}{}", letter.to_ascii_lowercase());
    let labels = JumpLabels::new(regions.len());
    match labels.target(&typed, regions) {
        Some(target) => Message::Click(target),
        None if labels.has_prefix(&typed, regions.len()) => Message::JumpLetters(typed),
        None => Message::Key(key),
    }
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

/// Sends the current time: several times a second while something moves on the screens, and otherwise once.
pub async fn tick(sender: UnboundedSender<Message>, clock: ClientClock, is_moving: Arc<AtomicBool>) {
    loop {
        let pause_ms = if is_moving.load(Ordering::Relaxed) { TICK_MS } else { 1_000 };
        tokio::time::sleep(Duration::from_millis(pause_ms as u64)).await;
        if sender.send(Message::Tick((clock.now)())).is_err() {
            break;
        }
    }
}
