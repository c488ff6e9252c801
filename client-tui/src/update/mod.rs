//! The update of the model: a message changes the model and returns effects. This module does no IO.

mod batch;
mod codes;
mod completion;
mod export;
mod find;
mod history;
mod home;
mod navigation;
mod other_server;
mod palette;
mod profiles;
mod requests;
mod sign_in;
mod tree;
mod viewer;

use ratatui::crossterm::event::{KeyCode, KeyEvent};

use self::navigation::open;
use crate::api::{HttpProgram, SIGN_IN_AGAIN};
use crate::commands;
use crate::form::types_a_character;
use crate::keys::Action;
use crate::model::{
    ClickTarget, Confirmation, Model, Operation, Overlay, PendingConfirmation, Screen, SearchList, YES,
};
use crate::msg::{Message, RuntimeEffect};
use crate::sign_in_method::SignInMethod;

/// Number of lines by which the keys for pages scroll.
const PAGE: usize = 10;
/// More lines than any list has.
const ALL: usize = usize::MAX / 2;
/// Number of lines by which the mouse wheel scrolls.
const WHEEL: usize = 3;
/// Maximum number of steps by which a pane can be made larger or smaller.
const MAX_PANE_STEPS: i16 = 12;

/// Processes one message.
pub fn update(model: &mut Model, msg: Message) -> Vec<RuntimeEffect> {
    match msg {
        Message::Key(key) => return on_key(model, key),
        Message::Paste(text) => return on_paste(model, &text),
        Message::Click(target) => return on_click(model, target),
        Message::Wheel(down) => return scroll(model, down, WHEEL),
        Message::JumpLetters(typed) => model.overlay = Some(Overlay::Jump(typed)),
        // The runtime has drawn the new size, and translated the event of the mouse.
        Message::Resized | Message::Mouse(_) => {}
        Message::Tick(now) => model.tick(now),
        Message::Background(is_light) => model.about.display.take_background(is_light),
        Message::Terminate => model.quit = true,
        Message::Suspend => return vec![RuntimeEffect::Suspend],
        Message::Continued => return vec![RuntimeEffect::Redraw],
        Message::Exchanged(exchange) => requests::on_exchange(model, exchange),
        Message::Edited(result) => return requests::on_edited(model, result),
        Message::Sent(result) => requests::on_sent(model, result),
        Message::Saved(result) => {
            model.notice = Some(result.unwrap_or_else(|reason| format!("Error: {reason}")));
        }
        Message::SignIn(step) => sign_in::on_step(model, step),
        Message::SignedIn(result) => return sign_in::on_signed_in(model, result),
        Message::Restored(session) => return sign_in::on_restored(model, session),
        Message::SharedSession => {
            model.notice = Some(SIGN_IN_AGAIN.to_owned());
            return home::reload(model);
        }
        Message::Inspected(kind, result) => sign_in::on_inspected(model, kind, result),
        Message::Session(session) => sign_in::on_session(model, session),
        Message::Revoked(notice) => model.notice = notice.or(model.notice.take()),
        Message::SignedOut(result) => sign_in::on_signed_out(model, result),
        Message::Userinfo(result) => model.sign_in.claims = result.into(),
        Message::Code { id, operation, result } => {
            codes::on_answer(model, id, operation, result);
            return history::add_operation(model, id, operation);
        }
        Message::OtherCode { id, operation, result } => codes::on_other_answer(model, id, operation, result),
        Message::Tree(id, result) => {
            tree::on_answer(model, id, result);
            return history::add_tree(model, id);
        }
        Message::Home(id, answer) => return home::on_answer(model, id, answer),
        Message::Batch(id, event) => batch::on_event(model, id, event),
        Message::History(Ok(questions)) => model.history = questions,
        Message::History(Err(reason)) => model.notice = Some(format!("Error: {reason}")),
        Message::Profiles(result) => profiles::on_choices(model, result),
        Message::Exports(exports) => export::on_exports(model, exports),
        Message::ExportProgress { folder, event } => export::on_progress(model, &folder, event),
        Message::ExportNeedsHost { folder, host } => export::on_foreign_host(model, &folder, host),
        Message::ExportEnded { folder, result } => export::on_ended(model, &folder, result),
        Message::FilePage { path, filter, result } => viewer::on_page(model, &path, &filter, result),
        Message::Resource(result) => viewer::on_resource(model, result),
        Message::FoundResource(result) => return viewer::on_found(model, result),
        Message::CodesChecked { resource, result } => viewer::on_codes(model, &resource, result),
        Message::ExportDeleted { folder, result } => export::on_deleted(model, &folder, result),
    }
    Vec::new()
}

fn on_paste(model: &mut Model, text: &str) -> Vec<RuntimeEffect> {
    // While a sign-in waits for the browser, a pasted text belongs to its only field.
    let into_sign_in = model.screen == Screen::SignIn && model.form().is_some();
    model.typing |= into_sign_in;
    // Editors and shells end a copied line with a line feed.
    let text = text.trim_end_matches(['\r', '\n']);
    if model.typing && text.contains(['\r', '\n']) {
        let lines = text.lines().count();
        let batch = model.keys.label(Action::OpenBatch);
        model.notice = Some(match model.screen {
            Screen::Codes if !model.batch.open => {
                format!("{lines} lines were pasted, and a field has one; {batch} validates a file of codes.")
            }
            _ => format!("{lines} lines were pasted, and a field has one. Nothing was inserted."),
        });
        return Vec::new();
    }
    if model.typing
        && let Some(form) = model.form()
    {
        form.focused().insert(text);
        return completion::on_edit(model);
    }
    Vec::new()
}

fn on_click(model: &mut Model, target: ClickTarget) -> Vec<RuntimeEffect> {
    if matches!(model.overlay, Some(Overlay::Jump(_))) {
        model.overlay = None;
    }
    if let Some(list) = model.open_list() {
        // The list covers the screen.
        if let ClickTarget::Row(at) = target {
            list.selected = at;
        }
        return Vec::new();
    }
    match target {
        ClickTarget::Tab(screen) => open(model, screen),
        ClickTarget::Field(at) => {
            if let Some(form) = model.form() {
                form.focus = at.min(form.fields.len() - 1);
                model.typing = true;
                model.take_completion();
            }
        }
        ClickTarget::Row(at) => match model.screen {
            Screen::Home => return home::select(model, at),
            Screen::Export if model.export.form_open() => export::choose(model, |_, _| at),
            Screen::Export => export::select(model, at),
            Screen::Requests => {
                model.requests.selected = at.min(model.requests.exchanges.len().saturating_sub(1))
            }
            Screen::Files => return viewer::select(model, at),
            Screen::Tree => tree::select(model, at),
            Screen::Codes if model.batch.open => batch::select(model, at),
            Screen::SignIn | Screen::Codes | Screen::Help => {}
        },
    }
    Vec::new()
}

fn on_key(model: &mut Model, key: KeyEvent) -> Vec<RuntimeEffect> {
    if !key.is_press() {
        return Vec::new();
    }
    match &model.overlay {
        Some(Overlay::Palette(_)) => {
            let Some((screen, action)) = palette::on_key(model, key) else { return Vec::new() };
            if screen != model.screen {
                open(model, screen);
            }
            return act(model, action, None);
        }
        Some(Overlay::Find(_)) => {
            return match find::on_key(model, key) {
                Some(row) => on_click(model, ClickTarget::Row(row)),
                None => Vec::new(),
            };
        }
        // The runtime translates the letters of labels to clicks; other keys close the labels.
        Some(Overlay::Jump(_)) => {
            model.overlay = None;
            return Vec::new();
        }
        Some(Overlay::Profiles(_)) => return profiles::on_key(model, key),
        Some(Overlay::Recall(_)) => return history::on_key(model, key),
        Some(Overlay::Completion(_)) | None => {}
    }
    if model.codes.naming_other {
        return other_server::on_key(model, key);
    }
    if model.to_confirm.as_ref().is_some_and(|pending| pending.is_new(model.now)) {
        return Vec::new();
    }
    model.notice = None;
    if let Some(PendingConfirmation { needed, .. }) = model.to_confirm.take()
        && key.code == KeyCode::Char(YES)
    {
        return act(model, needed.action(), Some(needed));
    }
    let action = model.keys.action(key, model.screen, model.typing);
    match (action, key.code) {
        (Some(action), _) => return act(model, action, None),
        (None, KeyCode::Char(c)) if model.typing && types_a_character(key) => {
            if let Some(form) = model.form() {
                form.focused().insert(c.encode_utf8(&mut [0; 4]));
            }
            return completion::on_edit(model);
        }
        (None, _) => {}
    }
    Vec::new()
}

/// Performs the action of a key. `confirmed` is the action that the user has confirmed.
fn act(model: &mut Model, action: Action, confirmed: Option<Confirmation>) -> Vec<RuntimeEffect> {
    // The palette shows the same reason, so that a key and a command are refused alike.
    if let Some(reason) = commands::unavailable(model, action) {
        model.notice = Some(format!("Not possible: {reason}."));
        return Vec::new();
    }
    match action {
        Action::Quit => quit(model, confirmed.as_ref()),
        Action::Help => {
            open(model, if model.screen == Screen::Help { model.before_help } else { Screen::Help })
        }
        Action::OpenHome => open(model, Screen::Home),
        Action::OpenSignIn => open(model, Screen::SignIn),
        Action::OpenCodes => open(model, Screen::Codes),
        Action::OpenTree => open(model, Screen::Tree),
        Action::OpenExport => open(model, Screen::Export),
        Action::OpenRequests => open(model, Screen::Requests),
        Action::OpenHelp => open(model, Screen::Help),
        Action::NextScreen => step_screen(model, 1),
        Action::PreviousScreen => step_screen(model, Screen::ALL.len() - 1),
        Action::NextField => step_field(model, 1),
        Action::PreviousField => step_field(model, -1),
        Action::Send => return send(model),
        Action::ValidateConcept => return home::validate(model),
        Action::SubsumesConcept => return home::subsumes(model),
        Action::SignIn => return sign_in::open(model),
        Action::Reload => return home::reload(model),
        Action::Leave => return leave(model),
        Action::Erase
        | Action::EraseAfter
        | Action::EraseWord
        | Action::EraseToEnd
        | Action::Clear
        | Action::Undo
        | Action::CursorLeft
        | Action::CursorRight
        | Action::CursorWordLeft
        | Action::CursorWordRight
        | Action::CursorStart
        | Action::CursorEnd => return edit(model, action),
        Action::Up => return scroll(model, false, 1),
        Action::Down => return scroll(model, true, 1),
        Action::PageUp => return scroll(model, false, PAGE),
        Action::PageDown => return scroll(model, true, PAGE),
        Action::InspectToken => return sign_in::inspect(model),
        Action::SignInOnDevice => return sign_in::start(model, SignInMethod::Device),
        Action::SignOut => return sign_in::sign_out(model, false, confirmed.as_ref()),
        Action::SignOutBrowser => return sign_in::sign_out(model, true, confirmed.as_ref()),
        Action::Userinfo => return sign_in::userinfo(model),
        Action::SwitchBearer => {
            model.bearer = model.other_bearer().unwrap_or(model.bearer.clone());
            return home::reload(model);
        }
        Action::NextOperation => codes::step_operation(model, 1),
        Action::PreviousOperation => codes::step_operation(model, Operation::ALL.len() - 1),
        Action::OpenInTree if model.screen == Screen::Home => return tree::open_from_home(model),
        Action::OpenInTree => return tree::open_from_codes(model),
        Action::PreviousConcept => return tree::back(model),
        Action::OpenBelow => return tree::open_neighbour(model, true),
        Action::OpenAbove => return tree::open_neighbour(model, false),
        Action::NextCompletion if model.screen == Screen::Home => return scroll(model, true, 1),
        Action::PreviousCompletion if model.screen == Screen::Home => return scroll(model, false, 1),
        Action::NextCompletion => completion::step(model, true),
        Action::PreviousCompletion => completion::step(model, false),
        Action::CompareServers if model.screen == Screen::Home => home::compare(model),
        Action::CompareServers => other_server::open(model),
        Action::OpenBatch => batch::open(model),
        Action::StopBatch => return batch::stop(model),
        Action::ShowFailures => batch::filter(model),
        Action::OpenHistory => history::open(model),
        Action::CopyCommand => return codes::copy_command(model),
        Action::OpenPalette => model.overlay = Some(Overlay::Palette(SearchList::new("command"))),
        Action::ChangeProfile => return profiles::open(model),
        Action::Zoom => model.zoomed = !model.zoomed,
        Action::WidenPane => model.pane_steps = (model.pane_steps + 1).min(MAX_PANE_STEPS),
        Action::NarrowPane => model.pane_steps = (model.pane_steps - 1).max(-MAX_PANE_STEPS),
        Action::Find => model.overlay = Some(Overlay::Find(SearchList::new("find"))),
        Action::Jump => {
            model.take_completion();
            model.overlay = Some(Overlay::Jump(String::new()));
        }
        Action::ToggleMouse => return toggle_mouse(model),
        Action::Suspend => return vec![RuntimeEffect::Suspend],
        Action::NewExport => export::open_form(model),
        Action::ViewFiles => return viewer::open(model),
        Action::EditFilter | Action::SearchEverything | Action::SearchKeys => model.typing = true,
        Action::SelectBody => {
            model.requests.detail = true;
            model.requests.scroll = 0;
            model.typing = true;
        }
        Action::NextFile => return viewer::step_file(model, 1),
        Action::FirstLine | Action::Top => return scroll(model, false, ALL),
        Action::LastLine => {
            // The number of lines of a text is known to the view only.
            let is_list = match model.screen {
                Screen::Help | Screen::Files => true,
                Screen::Requests => !model.requests.detail,
                _ => !model.list_rows().is_empty(),
            };
            return scroll(model, true, if is_list { ALL } else { 3 * PAGE });
        }
        Action::NextReference => viewer::next_reference(model),
        Action::FollowReference => return viewer::follow_reference(model),
        Action::CheckCodes => return viewer::check_codes(model),
        Action::ResumeExport => return export::resume(model, confirmed.as_ref()),
        Action::DeleteExport => return export::delete(model, confirmed.as_ref()),
        Action::CopyCurl => return requests::copy_command(model, HttpProgram::Curl),
        Action::CopyHttpie => return requests::copy_command(model, HttpProgram::Httpie),
        Action::Replay => return requests::replay(model, confirmed.as_ref()),
        Action::EditRequest => return requests::edit(model),
        Action::OpenPager => {
            return model.pager_text().map(RuntimeEffect::OpenPager).into_iter().collect();
        }
        Action::SaveRequests => return requests::save(model),
        Action::CopyToken => return sign_in::copy_token(model),
        Action::CopyParameters => return codes::copy_parameters(model),
        Action::CopyPassword => return vec![RuntimeEffect::CopyDemoPassword],
        Action::CopyAddress => return sign_in::copy_address(model),
    }
    Vec::new()
}

/// Quits at once, or, while exports are running, if the user confirms it.
fn quit(model: &mut Model, confirmed: Option<&Confirmation>) {
    let question = "An export is running and can be resumed later. Quit?";
    if !model.export.any_active() || model.confirms(confirmed, Confirmation::Quit, question) {
        model.quit = true;
    }
}

fn step_screen(model: &mut Model, by: usize) {
    let index = Screen::ALL.iter().position(|screen| *screen == model.screen).unwrap_or(0);
    open(model, Screen::ALL[(index + by) % Screen::ALL.len()]);
}

/// Gives the focus to the field that had it last, or moves it to the next field.
fn step_field(model: &mut Model, by: isize) {
    let typing = model.typing;
    model.take_completion();
    if let Some(form) = model.form() {
        if typing {
            form.step(by);
        }
        model.typing = true;
    }
}

/// Changes the text of the focused field, or moves its cursor.
fn edit(model: &mut Model, action: Action) -> Vec<RuntimeEffect> {
    let (Some(edit), Some(form)) = (action.field_edit(), model.form()) else { return Vec::new() };
    let before = form.focused().text().to_owned();
    form.focused().edit(edit);
    if form.focused().text() == before { Vec::new() } else { completion::on_edit(model) }
}

fn leave(model: &mut Model) -> Vec<RuntimeEffect> {
    if model.take_completion().is_some() {
        return Vec::new();
    }
    if model.typing {
        model.typing = false;
    } else if model.cancel_waiting() {
        model.notice = Some("The request was cancelled.".to_owned());
        return vec![RuntimeEffect::CancelRequests(model.screen)];
    } else if model.screen == Screen::Home {
        return home::leave(model);
    } else if model.screen == Screen::Help && !model.help.text().is_empty() {
        model.help.search.set("search", "");
    } else if model.screen == Screen::Help {
        open(model, model.before_help);
    } else if model.screen == Screen::Requests {
        model.requests.detail = false;
    } else if model.screen == Screen::Files {
        viewer::close(model);
    } else if model.screen == Screen::Codes {
        batch::close(model);
    } else if model.screen == Screen::Export {
        export::close_form(model);
    } else if model.screen == Screen::SignIn {
        return sign_in::cancel(model);
    }
    Vec::new()
}

fn scroll(model: &mut Model, down: bool, by: usize) -> Vec<RuntimeEffect> {
    let step =
        |index: usize, last: usize| if down { (index + by).min(last) } else { index.saturating_sub(by) };
    match model.screen {
        Screen::Requests if model.requests.detail => {
            model.requests.scroll = step(model.requests.scroll.into(), usize::from(u16::MAX)) as u16;
        }
        Screen::Requests => {
            let last = model.requests.exchanges.len().saturating_sub(1);
            model.requests.selected = step(model.requests.selected, last);
        }
        Screen::Help => {
            // Help repeats the rows that several screens share.
            let last = model.keys.rows().len() * 3 / 2;
            model.help.scroll = step(model.help.scroll.into(), last) as u16;
        }
        Screen::Home => {
            let selected = step(model.home.selected, usize::MAX);
            return home::select(model, selected);
        }
        Screen::Files => return viewer::scroll(model, down, by as u64),
        Screen::Export if model.export.form_open() => export::choose(model, step),
        Screen::Export if by == PAGE => {
            let last = model.export.selected().map_or(0, |row| row.files.len().saturating_sub(1));
            model.export.scroll = step(model.export.scroll, last);
        }
        Screen::Export => {
            let selected = step(model.export.selected, usize::MAX);
            export::select(model, selected);
        }
        Screen::Tree if model.tree.error().is_some() => {
            model.tree.scroll = step(model.tree.scroll.into(), usize::from(u16::MAX)) as u16;
        }
        Screen::Tree => {
            let selected = step(model.tree.selected, usize::MAX);
            tree::select(model, selected);
        }
        Screen::Codes if model.batch.open => {
            let selected = step(model.batch.selected, usize::MAX);
            batch::select(model, selected);
        }
        Screen::Codes => {
            model.codes.scroll = step(model.codes.scroll.into(), usize::from(u16::MAX)) as u16;
        }
        Screen::SignIn => {
            if let Some(inspector) = &mut model.sign_in.inspector {
                inspector.scroll = step(inspector.scroll.into(), usize::from(u16::MAX)) as u16;
            }
        }
    }
    Vec::new()
}

fn send(model: &mut Model) -> Vec<RuntimeEffect> {
    let completed = completion::accept(model);
    match model.screen {
        // The form may need other fields, too.
        Screen::Codes if completed => Vec::new(),
        Screen::Codes if model.batch.open => batch::send(model),
        Screen::Home => home::open(model),
        Screen::Tree => tree::send(model),
        Screen::SignIn => sign_in::sign_in(model),
        Screen::Codes => codes::send(model),
        Screen::Export => export::send(model),
        Screen::Files => viewer::enter(model),
        Screen::Help => {
            model.typing = false;
            Vec::new()
        }
        Screen::Requests if model.typing => {
            model.typing = false;
            Vec::new()
        }
        Screen::Requests => {
            let requests = &mut model.requests;
            requests.detail = !requests.detail && !requests.exchanges.is_empty();
            requests.scroll = 0;
            Vec::new()
        }
    }
}

fn toggle_mouse(model: &mut Model) -> Vec<RuntimeEffect> {
    model.mouse = !model.mouse;
    model.notice = Some(match model.mouse {
        true => {
            let key = model.keys.label(Action::ToggleMouse);
            format!("The mouse selects tabs, fields and rows; {key} returns it to the terminal.")
        }
        false => "Mouse off: select text with the mouse as usual.".to_owned(),
    });
    vec![RuntimeEffect::CaptureMouse(model.mouse)]
}
