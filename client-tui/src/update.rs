//! The update of the model: a message changes the model and returns effects. This module does no IO.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::api::{Bearer, ExportStatus, KickOff, SubsumesQuery, ValidateCode};
use crate::journey::Step;
use crate::keys::{self, Action};
use crate::model::{Answer, EXCHANGES_KEPT, ExportState, Model, Screen, SignInState};
use crate::msg::{Message, RuntimeEffect};

/// Number of lines by which the keys for pages scroll.
const PAGE: usize = 10;

/// Processes one message.
pub fn update(model: &mut Model, msg: Message) -> Vec<RuntimeEffect> {
    match msg {
        Message::Key(key) => return on_key(model, key),
        Message::Paste(text) => on_paste(model, &text),
        Message::Resized => {}
        Message::Tick(now) => return on_tick(model, now),
        Message::Exchanged(exchange) => {
            let requests = &mut model.requests;
            // The selected exchange remains selected when a newer one is inserted before it.
            if requests.detail || requests.selected > 0 {
                requests.selected = (requests.selected + 1).min(EXCHANGES_KEPT - 1);
            }
            requests.exchanges.push_front(exchange);
            requests.exchanges.truncate(EXCHANGES_KEPT);
        }
        Message::SignIn(Step::GoTo { url, browser }) => {
            model.sign_in.state = SignInState::Waiting { url, browser };
        }
        Message::SignIn(Step::PasteRefused(reason)) => model.sign_in.paste_error = Some(reason),
        Message::SignedIn(Ok(session)) => {
            model.typing &= model.screen != Screen::SignIn;
            model.sign_in.state = SignInState::In(session);
            model.sign_in.claims = Answer::Waiting;
            model.bearer = Bearer::User;
            return vec![RuntimeEffect::Userinfo];
        }
        Message::SignedIn(Err(reason)) => {
            model.typing &= model.screen != Screen::SignIn;
            model.sign_in.state = SignInState::Failed(reason);
        }
        Message::SignedOut(result) => {
            model.notice = Some(match result {
                Ok(()) => "Signed out; the token is revoked.".to_owned(),
                Err(reason) => format!("Error: the token was removed here, but not revoked: {reason}"),
            });
        }
        Message::Userinfo(result) => model.sign_in.claims = result.into(),
        Message::Validated(result) => model.validate.answer = result.into(),
        Message::SubsumesAnswer(result) => model.subsumes.answer = result.into(),
        Message::KickedOff(Ok(status_url)) => {
            model.export.state = ExportState::Running {
                status_url,
                since: model.now,
                progress: None,
                next_poll: Some(model.now),
            };
            return poll_when_due(model);
        }
        Message::KickedOff(Err(reason)) => model.export.state = ExportState::Failed(reason),
        Message::Polled(result) => on_polled(model, result),
        Message::Piece(piece) => {
            if let ExportState::Complete { pieces, .. } = &mut model.export.state
                && let Some(slot) = pieces.get_mut(piece.index)
            {
                *slot = Some(piece);
            }
        }
        Message::Downloaded(result) => {
            if let ExportState::Complete { download, .. } = &mut model.export.state {
                *download = result.into();
            }
        }
        Message::ExportDeleted(Ok(())) => model.export.state = ExportState::Deleted,
        Message::ExportDeleted(Err(reason)) => model.notice = Some(format!("Error: {reason}")),
    }
    Vec::new()
}

fn on_tick(model: &mut Model, now: Timestamp) -> Vec<RuntimeEffect> {
    model.now = now;
    poll_when_due(model)
}

/// Polls the status of a running export when the next poll is due.
fn poll_when_due(model: &mut Model) -> Vec<RuntimeEffect> {
    match &mut model.export.state {
        ExportState::Running { status_url, next_poll, .. } if next_poll.is_some_and(|at| at <= model.now) => {
            *next_poll = None;
            vec![RuntimeEffect::Poll { status_url: status_url.clone() }]
        }
        _ => Vec::new(),
    }
}

fn on_polled(model: &mut Model, result: Result<ExportStatus, String>) {
    // If the export was deleted or restarted in the meantime, the answer is ignored.
    let ExportState::Running { status_url, progress, next_poll: next_poll @ None, .. } =
        &mut model.export.state
    else {
        return;
    };
    match result {
        Ok(ExportStatus::Running { progress: reported, retry_after_s }) => {
            *progress = reported.or(progress.take());
            *next_poll = model.now.checked_add(SignedDuration::from_secs(retry_after_s)).ok();
        }
        Ok(ExportStatus::Complete(manifest)) => {
            model.export.scroll = 0;
            model.export.state = ExportState::Complete {
                status_url: std::mem::take(status_url),
                pieces: vec![None; manifest.output.len() + manifest.error.len()],
                manifest,
                download: Answer::None,
            };
        }
        Err(reason) => model.export.state = ExportState::Failed(reason),
    }
}

fn on_paste(model: &mut Model, text: &str) {
    // While a sign-in waits for the browser, a pasted text belongs to its only field.
    let into_sign_in = model.screen == Screen::SignIn && model.form().is_some();
    model.typing |= into_sign_in;
    if model.typing
        && let Some(form) = model.form()
    {
        form.focused().insert(text);
    }
}

fn on_key(model: &mut Model, key: KeyEvent) -> Vec<RuntimeEffect> {
    if !key.is_press() {
        return Vec::new();
    }
    model.notice = None;
    let action = keys::action(key, model.screen, model.typing);
    let confirmed = std::mem::take(&mut model.export.confirm_delete);
    match (action, key.code) {
        (Some(Action::DeleteExport), _) => return delete_export(model, confirmed),
        (Some(action), _) => return act(model, action),
        // Some systems report AltGr as Ctrl and Alt. Ctrl or Alt alone types nothing.
        (None, KeyCode::Char(c))
            if model.typing
                && !matches!(
                    key.modifiers & !KeyModifiers::SHIFT,
                    KeyModifiers::CONTROL | KeyModifiers::ALT
                ) =>
        {
            if let Some(form) = model.form() {
                form.focused().insert(c.encode_utf8(&mut [0; 4]));
            }
        }
        (None, _) => {}
    }
    Vec::new()
}

fn act(model: &mut Model, action: Action) -> Vec<RuntimeEffect> {
    match action {
        Action::Quit => model.quit = true,
        Action::Help => {
            open(model, if model.screen == Screen::Help { model.before_help } else { Screen::Help })
        }
        Action::Open(screen) => open(model, screen),
        Action::NextScreen => step_screen(model, 1),
        Action::PreviousScreen => step_screen(model, Screen::ALL.len() - 1),
        Action::NextField => step_field(model, 1),
        Action::PreviousField => step_field(model, -1),
        Action::Send => return send(model),
        Action::Leave => return leave(model),
        Action::Erase => edit(model, |field| field.backspace()),
        Action::Clear => edit(model, |field| field.clear()),
        Action::CursorLeft => edit(model, |field| field.go(-1)),
        Action::CursorRight => edit(model, |field| field.go(1)),
        Action::CursorStart => edit(model, |field| field.go(isize::MIN)),
        Action::CursorEnd => edit(model, |field| field.go(isize::MAX)),
        Action::Up => scroll(model, false, 1),
        Action::Down => scroll(model, true, 1),
        Action::PageUp => scroll(model, false, PAGE),
        Action::PageDown => scroll(model, true, PAGE),
        Action::SignOut => return sign_out(model),
        Action::Userinfo => return userinfo(model),
        Action::SwitchBearer => switch_bearer(model),
        Action::Download => return download(model),
        // `on_key` handles this action, because it requires a second press.
        Action::DeleteExport => {}
        Action::CopyCurl => return copy_curl(model),
        Action::CopyAddress => return copy_address(model),
    }
    Vec::new()
}

fn open(model: &mut Model, screen: Screen) {
    if screen == Screen::Help && model.screen != Screen::Help {
        model.before_help = model.screen;
        model.help_scroll = 0;
    }
    model.screen = screen;
    model.typing = false;
}

fn step_screen(model: &mut Model, by: usize) {
    let at = Screen::ALL.iter().position(|screen| *screen == model.screen).unwrap_or(0);
    open(model, Screen::ALL[(at + by) % Screen::ALL.len()]);
}

/// Gives the focus to the field that had it last, or moves it to the next field.
fn step_field(model: &mut Model, by: isize) {
    let typing = model.typing;
    if let Some(form) = model.form() {
        if typing {
            form.step(by);
        }
        model.typing = true;
    }
}

fn edit(model: &mut Model, change: impl FnOnce(&mut crate::form::FormField)) {
    if let Some(form) = model.form() {
        change(form.focused());
    }
}

fn leave(model: &mut Model) -> Vec<RuntimeEffect> {
    if model.typing {
        model.typing = false;
    } else if model.screen == Screen::Help {
        open(model, model.before_help);
    } else if model.screen == Screen::Requests {
        model.requests.detail = false;
    } else if model.screen == Screen::SignIn
        && matches!(model.sign_in.state, SignInState::Starting | SignInState::Waiting { .. })
    {
        model.sign_in.state = SignInState::Out;
        return vec![RuntimeEffect::CancelSignIn];
    }
    Vec::new()
}

fn scroll(model: &mut Model, down: bool, by: usize) {
    let step = |at: usize, last: usize| if down { (at + by).min(last) } else { at.saturating_sub(by) };
    match model.screen {
        Screen::Requests if model.requests.detail => {
            model.requests.scroll = step(model.requests.scroll.into(), usize::from(u16::MAX)) as u16;
        }
        Screen::Requests => {
            let last = model.requests.exchanges.len().saturating_sub(1);
            model.requests.selected = step(model.requests.selected, last);
        }
        Screen::Help => model.help_scroll = step(model.help_scroll.into(), keys::TABLE.len()) as u16,
        Screen::Export => {
            if let ExportState::Complete { pieces, .. } = &model.export.state {
                model.export.scroll = step(model.export.scroll, pieces.len().saturating_sub(1));
            }
        }
        Screen::SignIn | Screen::ValidateCode | Screen::Subsumes => {}
    }
}

fn send(model: &mut Model) -> Vec<RuntimeEffect> {
    match model.screen {
        Screen::SignIn => sign_in(model),
        Screen::ValidateCode => {
            let form = &model.validate.form;
            let query = ValidateCode {
                url: form.value(0),
                id: form.value(1),
                system: form.value(2),
                code: form.value(3),
                display: form.value(4),
            };
            model.validate.about = (query.code.clone(), String::new());
            model.validate.answer = Answer::Waiting;
            vec![RuntimeEffect::ValidateCode(query, model.bearer.clone())]
        }
        Screen::Subsumes => {
            let form = &model.subsumes.form;
            let query = SubsumesQuery {
                system: form.value(0),
                id: form.value(1),
                version: form.value(2),
                code_a: form.value(3),
                code_b: form.value(4),
            };
            model.subsumes.about = (query.code_a.clone(), query.code_b.clone());
            model.subsumes.answer = Answer::Waiting;
            vec![RuntimeEffect::Subsumes(query, model.bearer.clone())]
        }
        Screen::Export => kick_off(model),
        Screen::Requests => {
            let requests = &mut model.requests;
            requests.detail = !requests.detail && !requests.exchanges.is_empty();
            requests.scroll = 0;
            Vec::new()
        }
        Screen::Help => Vec::new(),
    }
}

fn sign_in(model: &mut Model) -> Vec<RuntimeEffect> {
    match model.sign_in.state {
        SignInState::Out | SignInState::Failed(_) => {
            model.sign_in.state = SignInState::Starting;
            model.sign_in.paste_error = None;
            model.sign_in.form.focused().clear();
            vec![RuntimeEffect::SignIn]
        }
        SignInState::Waiting { .. } => {
            let pasted = model.sign_in.form.value(0);
            model.sign_in.paste_error = None;
            if pasted.is_empty() { Vec::new() } else { vec![RuntimeEffect::Pasted(pasted)] }
        }
        SignInState::In(_) => {
            model.notice = Some("A user is signed in already; press o to sign out.".to_owned());
            Vec::new()
        }
        SignInState::Starting => Vec::new(),
    }
}

fn sign_out(model: &mut Model) -> Vec<RuntimeEffect> {
    if !matches!(model.sign_in.state, SignInState::In(_)) {
        model.notice = Some("No user is signed in.".to_owned());
        return Vec::new();
    }
    model.sign_in.state = SignInState::Out;
    model.sign_in.claims = Answer::None;
    if model.about.backend_id.is_some() {
        model.bearer = Bearer::Backend;
    }
    vec![RuntimeEffect::SignOut]
}

fn userinfo(model: &mut Model) -> Vec<RuntimeEffect> {
    if !matches!(model.sign_in.state, SignInState::In(_)) {
        model.notice = Some("No user is signed in; press Enter.".to_owned());
        return Vec::new();
    }
    model.sign_in.claims = Answer::Waiting;
    vec![RuntimeEffect::Userinfo]
}

fn switch_bearer(model: &mut Model) {
    let signed_in = matches!(model.sign_in.state, SignInState::In(_));
    model.bearer = match model.bearer {
        Bearer::Backend if signed_in => Bearer::User,
        Bearer::User if model.about.backend_id.is_some() => Bearer::Backend,
        _ => {
            model.notice = Some("No other token is available; sign in on screen 1.".to_owned());
            return;
        }
    };
}

fn kick_off(model: &mut Model) -> Vec<RuntimeEffect> {
    if matches!(model.export.state, ExportState::Starting | ExportState::Running { .. }) {
        model.notice = Some("An export is running; cancel it with x first.".to_owned());
        return Vec::new();
    }
    let form = &model.export.form;
    let query = KickOff { group: form.value(0), types: form.value(1), since: form.value(2) };
    if !query.since.is_empty() && query.since.parse::<Timestamp>().is_err() {
        model.notice = Some("Error: _since must be an instant like 2024-01-31T08:00:00Z.".to_owned());
        return Vec::new();
    }
    // The user looks at the files next, so no field has the focus.
    model.typing = false;
    model.export.state = ExportState::Starting;
    vec![RuntimeEffect::KickOff(query)]
}

fn download(model: &mut Model) -> Vec<RuntimeEffect> {
    let folder = model.export.form.value(3);
    match &mut model.export.state {
        ExportState::Complete { .. } if folder.is_empty() => {
            model.notice = Some("Error: enter a folder for the files first.".to_owned());
        }
        ExportState::Complete { manifest, pieces, download, .. } if *download != Answer::Waiting => {
            *download = Answer::Waiting;
            pieces.fill(None);
            return vec![RuntimeEffect::Download {
                manifest: manifest.clone(),
                folder: PathBuf::from(folder),
            }];
        }
        ExportState::Complete { .. } => {}
        _ => model.notice = Some("No completed export is available to download.".to_owned()),
    }
    Vec::new()
}

fn delete_export(model: &mut Model, confirmed: bool) -> Vec<RuntimeEffect> {
    let status_url = match &model.export.state {
        ExportState::Running { status_url, .. } | ExportState::Complete { status_url, .. } => {
            status_url.clone()
        }
        _ => {
            model.notice = Some("No export was started.".to_owned());
            return Vec::new();
        }
    };
    if confirmed {
        return vec![RuntimeEffect::DeleteExport { status_url }];
    }
    model.export.confirm_delete = true;
    model.notice = Some("Press x again to delete the export on the server.".to_owned());
    Vec::new()
}

fn copy_curl(model: &mut Model) -> Vec<RuntimeEffect> {
    match model.requests.exchanges.get(model.requests.selected) {
        Some(exchange) => {
            model.notice =
                Some("Copied. The token is replaced by $TOKEN, and other secrets are masked.".to_owned());
            vec![RuntimeEffect::Copy(exchange.curl())]
        }
        None => Vec::new(),
    }
}

fn copy_address(model: &mut Model) -> Vec<RuntimeEffect> {
    match &model.sign_in.state {
        SignInState::Waiting { url, .. } => {
            model.notice = Some("The address was copied.".to_owned());
            vec![RuntimeEffect::Copy(url.clone())]
        }
        _ => Vec::new(),
    }
}
