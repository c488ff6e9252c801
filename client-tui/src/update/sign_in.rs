//! Updates of the sign-in screen.

use super::{home, navigation};
use crate::api::{Bearer, SignedInSession, TokenInspection, TokenKind};
use crate::journey::Step;
use crate::keys::Action;
use crate::model::answer::Answer;
use crate::model::{Confirmation, Inspector, Model, Screen, SignInState};
use crate::msg::{Answered, RuntimeEffect};
use crate::sign_in_method::SignInMethod;

pub(super) fn on_step(model: &mut Model, step: Step) {
    match step {
        Step::Device(prompt) => model.sign_in.state = SignInState::Device(prompt),
        Step::GoTo { url, browser } => {
            model.sign_in.state = SignInState::Waiting { since: model.now, url, browser };
        }
        Step::PasteRefused(reason) => model.sign_in.paste_error = Some(reason),
    }
}

pub(super) fn on_signed_in(model: &mut Model, result: Answered<SignedInSession>) -> Vec<RuntimeEffect> {
    model.typing &= model.screen != Screen::SignIn;
    match result {
        Ok(session) => {
            model.sign_in.state = SignInState::In(session);
            model.sign_in.claims = Answer::Waiting { since: model.now };
            model.bearer = Bearer::User;
            reload_with(model, RuntimeEffect::Userinfo)
        }
        Err(reason) => {
            model.sign_in.state = SignInState::Failed(reason);
            Vec::new()
        }
    }
}

pub(super) fn on_signed_out(model: &mut Model, result: Answered<String>) {
    model.notice = Some(result.unwrap_or_else(|reason| format!("Error: {reason}")));
}

/// Opens the sign-in screen and starts a sign-in.
pub(super) fn open(model: &mut Model) -> Vec<RuntimeEffect> {
    navigation::open(model, Screen::SignIn);
    sign_in(model)
}

/// An effect, and the contents of the Home screen with another token.
fn reload_with(model: &mut Model, effect: RuntimeEffect) -> Vec<RuntimeEffect> {
    let mut effects = vec![effect];
    effects.extend(home::reload(model));
    effects
}

/// Starts a sign-in, or sends the pasted text of one that is waiting.
pub(super) fn sign_in(model: &mut Model) -> Vec<RuntimeEffect> {
    match model.sign_in.state {
        SignInState::Out | SignInState::Failed(_) => start(model, model.about.sign_in_method),
        SignInState::Waiting { .. } => {
            let pasted = model.sign_in.form.value("paste");
            model.sign_in.paste_error = None;
            if pasted.is_empty() { Vec::new() } else { vec![RuntimeEffect::Pasted(pasted)] }
        }
        SignInState::In(_) => {
            let key = model.keys.label(Action::SignOut);
            model.notice = Some(format!("A user is signed in already; press {key} to sign out."));
            Vec::new()
        }
        SignInState::Starting { .. } | SignInState::Device(_) => Vec::new(),
    }
}

pub(super) fn start(model: &mut Model, method: SignInMethod) -> Vec<RuntimeEffect> {
    model.sign_in.state = SignInState::Starting { since: model.now };
    model.sign_in.paste_error = None;
    model.sign_in.form.focused().clear();
    vec![RuntimeEffect::SignIn(method)]
}

/// Continues the session of an earlier run of the program.
pub(super) fn on_restored(model: &mut Model, session: Option<SignedInSession>) -> Vec<RuntimeEffect> {
    match (session, &model.sign_in.state) {
        (Some(session), SignInState::Out) => {
            model.sign_in.state = SignInState::In(session);
            model.sign_in.claims = Answer::Waiting { since: model.now };
            if model.bearer == Bearer::Anonymous {
                model.bearer = Bearer::User;
            }
            reload_with(model, RuntimeEffect::Userinfo)
        }
        _ => home::reload(model),
    }
}

/// Takes over the session after its token may have been renewed.
pub(super) fn on_session(model: &mut Model, session: Option<SignedInSession>) {
    if let (Some(session), SignInState::In(current)) = (session, &mut model.sign_in.state) {
        *current = session;
    }
}

/// Opens the token inspector, or shows the next token in it.
pub(super) fn inspect(model: &mut Model) -> Vec<RuntimeEffect> {
    let kinds = model.inspectable_tokens();
    let kind_in_view = model.sign_in.inspector.as_ref().map(|inspector| inspector.kind);
    let index = kind_in_view.and_then(|current| kinds.iter().position(|kind| *kind == current));
    let kind = kinds[index.map_or(0, |index| (index + 1) % kinds.len())];
    model.sign_in.inspector =
        Some(Inspector { kind, answer: Answer::Waiting { since: model.now }, scroll: 0 });
    vec![RuntimeEffect::Inspect(kind)]
}

pub(super) fn on_inspected(model: &mut Model, kind: TokenKind, result: Answered<TokenInspection>) {
    if let Some(inspector) = model.sign_in.inspector.as_mut().filter(|inspector| inspector.kind == kind) {
        inspector.answer = result.into();
    }
}

/// Closes the token inspector, or cancels a sign-in that waits for the browser.
pub(super) fn cancel(model: &mut Model) -> Vec<RuntimeEffect> {
    if model.sign_in.inspector.take().is_some() {
        return Vec::new();
    }
    if !matches!(
        model.sign_in.state,
        SignInState::Starting { .. } | SignInState::Waiting { .. } | SignInState::Device(_)
    ) {
        return Vec::new();
    }
    model.sign_in.state = SignInState::Out;
    vec![RuntimeEffect::CancelSignIn]
}

/// Signs out if the user confirms it, because the tokens are revoked. `browser` also ends the session of
/// the browser at the server.
pub(super) fn sign_out(
    model: &mut Model,
    browser: bool,
    confirmed: Option<&Confirmation>,
) -> Vec<RuntimeEffect> {
    let question = match browser {
        true => "Sign out here and in the browser?",
        false => "Sign out and revoke the tokens?",
    };
    if !model.confirms(confirmed, Confirmation::SignOut { browser }, question) {
        return Vec::new();
    }
    model.sign_in.state = SignInState::Out;
    model.sign_in.claims = Answer::None;
    model.sign_in.inspector = None;
    if model.bearer == Bearer::User && model.about.backend_id.is_some() {
        model.bearer = Bearer::Backend;
    }
    reload_with(model, RuntimeEffect::SignOut { browser })
}

pub(super) fn userinfo(model: &mut Model) -> Vec<RuntimeEffect> {
    model.sign_in.claims = Answer::Waiting { since: model.now };
    vec![RuntimeEffect::Userinfo]
}

pub(super) fn copy_token(model: &mut Model) -> Vec<RuntimeEffect> {
    let kind = model.sign_in.inspector.as_ref().map(|inspector| inspector.kind);
    kind.map(RuntimeEffect::CopyToken).into_iter().collect()
}

pub(super) fn copy_address(model: &mut Model) -> Vec<RuntimeEffect> {
    match &model.sign_in.state {
        SignInState::Waiting { url, .. } => {
            model.notice = Some("The address was copied.".to_owned());
            vec![RuntimeEffect::Copy(url.clone())]
        }
        SignInState::Device(prompt) => {
            model.notice = Some("The code was copied.".to_owned());
            vec![RuntimeEffect::Copy(prompt.user_code.clone())]
        }
        _ => Vec::new(),
    }
}
