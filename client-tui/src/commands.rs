//! The commands of the palette, and the reasons why an action is not possible in the current state.

use crate::export::ExportPhase;
use crate::history::PastQuestion;
use crate::keys::{Action, KeyRow};
use crate::model::{Model, ResourceDetail, Screen, SignInState, matching_questions};

/// Maximum number of earlier questions in the palette.
const QUESTIONS: usize = 20;

const NO_CLIENT: &str = "the profile does not name a client for signing in users";
const NO_CONCEPT: &str = "no concept is selected";

/// An entry of the palette.
#[derive(Clone, Debug)]
pub enum Command {
    /// An action of the visible screen.
    Here(&'static KeyRow),
    /// An action of another screen, which is opened first.
    On(Screen, &'static KeyRow),
    /// A terminology question that was sent before. Its form is opened.
    Question(PastQuestion),
}

/// The commands of the visible screen that match a text, followed by those of other screens and by earlier
/// questions if the text is not empty. Each word of the text must occur in the description of the command, in
/// the name of its action, in that of a key or in that of its screen.
pub fn matching(model: &Model, text: &str) -> Vec<Command> {
    let words: Vec<_> = text.split_whitespace().map(str::to_lowercase).collect();
    let matches = |row: &KeyRow, screen: &str| {
        let text = format!("{} {} {} {screen}", row.does, row.label(), row.action.name()).to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    };
    let here = model.keys.commands(model.screen).filter(|row| matches(row, "")).map(Command::Here);
    if words.is_empty() {
        return here.collect();
    }
    let elsewhere = model.keys.commands_elsewhere(model.screen);
    let elsewhere = elsewhere.filter(|(screen, row)| matches(row, screen.title()));
    let questions = matching_questions(model, text).into_iter().take(QUESTIONS).cloned();
    here.chain(elsewhere.map(|(screen, row)| Command::On(screen, row)))
        .chain(questions.map(Command::Question))
        .collect()
}

/// The reason why an action is not possible now.
pub fn unavailable(model: &Model, action: Action) -> Option<&'static str> {
    // Other requests are checked when they are sent.
    let changes_the_server =
        matches!(action, Action::DeleteExport | Action::NewExport | Action::SignOut | Action::SignOutBrowser);
    if model.about.read_only && changes_the_server {
        return Some("the client is read-only (--read-only)");
    }
    // The order matters where an action has several reasons: the first is the one that the user can remove
    // first.
    let signed_in = matches!(model.sign_in.state, SignInState::In(_));
    let export = model.export.selected();
    match action {
        Action::SignOut | Action::SignOutBrowser | Action::Userinfo if !signed_in => {
            Some("no user is signed in")
        }
        Action::Send | Action::SignInOnDevice
            if model.screen == Screen::SignIn && model.about.client_id.is_none() =>
        {
            Some(NO_CLIENT)
        }
        Action::SignInOnDevice
            if !matches!(model.sign_in.state, SignInState::Out | SignInState::Failed(_)) =>
        {
            Some("a sign-in is in progress, or a user is signed in")
        }
        Action::SwitchBearer if model.other_bearer().is_none() => {
            Some("sign in on screen 1 first; no token is stored")
        }
        Action::CopyAddress
            if !matches!(model.sign_in.state, SignInState::Waiting { .. } | SignInState::Device(_)) =>
        {
            Some("no sign-in is waiting")
        }
        Action::InspectToken if model.inspectable_tokens().is_empty() => {
            Some("no user is signed in, and the profile has no backend client")
        }
        Action::Find if model.list_rows().is_empty() => Some("the screen shows no list"),
        Action::CopyToken if model.sign_in.inspector.is_none() => Some("no token is inspected"),
        Action::CopyPassword if model.about.demo_user.is_none() => Some("this is not a demo server"),
        Action::NewExport if model.export.form_open() => Some("the form is open"),
        Action::ViewFiles if model.export.downloaded_files().is_empty() => {
            Some("no file of the selected export is downloaded")
        }
        Action::NextReference | Action::FollowReference
            if resource(model).is_none_or(|detail| detail.references.is_empty()) =>
        {
            Some("no resource with a reference is shown")
        }
        Action::CheckCodes if resource(model).is_none() => Some("no resource is shown"),
        Action::ResumeExport | Action::DeleteExport
            if export.is_some_and(|row| row.job.fhir_base != model.about.fhir_base) =>
        {
            Some("the export belongs to another server; open its profile")
        }
        Action::ResumeExport if !export.is_some_and(|row| row.can_resume()) => {
            Some("no interrupted export is selected")
        }
        Action::DeleteExport if export.is_none_or(|row| row.job.phase == ExportPhase::Deleted) => {
            Some("no export is selected that could be deleted on the server")
        }
        Action::SelectBody
        | Action::CopyCurl
        | Action::CopyHttpie
        | Action::Replay
        | Action::EditRequest
        | Action::SaveRequests
            if model.requests.exchanges.is_empty() =>
        {
            Some("no request was sent")
        }
        Action::OpenPager if model.pager_text().is_none() => match model.screen {
            Screen::Files => Some("no resource is shown"),
            _ => Some("no exchange with a body is selected"),
        },
        Action::CopyParameters if model.sent_parameters().is_none() => Some("no question was sent"),
        Action::CopyCommand if model.sent_command().is_none() => match model.screen {
            Screen::Export => Some("no export was started"),
            _ => Some("no question was sent"),
        },
        Action::ValidateConcept | Action::SubsumesConcept if model.home.selected_concept().is_none() => {
            Some(NO_CONCEPT)
        }
        Action::OpenInTree | Action::CompareServers
            if model.screen == Screen::Home && model.home.selected_concept().is_none() =>
        {
            Some(NO_CONCEPT)
        }
        Action::SignIn if signed_in => Some("a user is signed in"),
        Action::SignIn if model.about.client_id.is_none() => Some(NO_CLIENT),
        Action::OpenInTree
            if model.screen == Screen::Codes && model.codes.concept_in_hierarchy().is_none() =>
        {
            Some("the form names no code of a code system")
        }
        Action::OpenBatch if model.batch.open => Some("the batch is open"),
        Action::ShowFailures if !model.batch.open => Some("no batch is open"),
        Action::StopBatch if !model.batch.is_running() => Some("no batch is running"),
        Action::NextOperation | Action::PreviousOperation | Action::OpenInTree | Action::CompareServers
            if model.screen == Screen::Codes && model.batch.open =>
        {
            Some("the batch is open; Esc closes it")
        }
        Action::OpenHistory if model.history.is_empty() => Some("no question was sent"),
        Action::OpenBelow if model.tree.neighbour(true).is_none() => {
            Some("the concept has no concept below it")
        }
        Action::OpenAbove if model.tree.neighbour(false).is_none() => {
            Some("the concept has no concept above it")
        }
        Action::PreviousConcept if model.tree.history.is_empty() => Some("no concept was shown before"),
        Action::NextField | Action::PreviousField if !model.has_form() => Some("no form is open"),
        _ => None,
    }
}

/// The resource that the viewer of files shows.
fn resource(model: &Model) -> Option<&ResourceDetail> {
    model.export.viewer.as_ref()?.detail.as_ref()
}
