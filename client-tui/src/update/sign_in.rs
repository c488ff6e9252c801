//! Updates of the sign-in screen.

use crate::api::{Bearer, SignedInSession};
use crate::journey::Step;
use crate::model::{Answer, Model, Screen, SignInState};
use crate::msg::{Answered, RuntimeEffect};

pub(super) fn on_step(model: &mut Model, step: Step) {
    match step {
        Step::GoTo { url, browser } => model.sign_in.state = SignInState::Waiting { url, browser },
        Step::PasteRefused(reason) => model.sign_in.paste_error = Some(reason),
    }
}

pub(super) fn on_signed_in(model: &mut Model, result: Answered<SignedInSession>) -> Vec<RuntimeEffect> {
    model.typing &= model.screen != Screen::SignIn;
    match result {
        Ok(session) => {
            model.sign_in.state = SignInState::In(session);
            model.sign_in.claims = Answer::Waiting;
            model.bearer = Bearer::User;
            vec![RuntimeEffect::Userinfo]
        }
        Err(reason) => {
            model.sign_in.state = SignInState::Failed(reason);
            Vec::new()
        }
    }
}

pub(super) fn on_signed_out(model: &mut Model, result: Answered<()>) {
    model.notice = Some(match result {
        Ok(()) => "Signed out; the token is revoked.".to_owned(),
        Err(reason) => format!("Error: the token was removed here, but not revoked: {reason}"),
    });
}

/// Starts a sign-in, or sends the pasted text of one that is waiting.
pub(super) fn sign_in(model: &mut Model) -> Vec<RuntimeEffect> {
    match model.sign_in.state {
        SignInState::Out | SignInState::Failed(_) => {
            model.sign_in.state = SignInState::Starting;
            model.sign_in.paste_error = None;
            model.sign_in.form.focused().clear();
            vec![RuntimeEffect::SignIn]
        }
        SignInState::Waiting { .. } => {
            let pasted = model.sign_in.form.value("paste");
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

/// Cancels a sign-in that waits for the browser.
pub(super) fn cancel(model: &mut Model) -> Vec<RuntimeEffect> {
    if !matches!(model.sign_in.state, SignInState::Starting | SignInState::Waiting { .. }) {
        return Vec::new();
    }
    model.sign_in.state = SignInState::Out;
    vec![RuntimeEffect::CancelSignIn]
}

pub(super) fn sign_out(model: &mut Model) -> Vec<RuntimeEffect> {
    model.sign_in.state = SignInState::Out;
    model.sign_in.claims = Answer::None;
    if model.about.backend_id.is_some() {
        model.bearer = Bearer::Backend;
    }
    vec![RuntimeEffect::SignOut]
}

pub(super) fn userinfo(model: &mut Model) -> Vec<RuntimeEffect> {
    model.sign_in.claims = Answer::Waiting;
    vec![RuntimeEffect::Userinfo]
}

pub(super) fn copy_address(model: &mut Model) -> Vec<RuntimeEffect> {
    match &model.sign_in.state {
        SignInState::Waiting { url, .. } => {
            model.notice = Some("The address was copied.".to_owned());
            vec![RuntimeEffect::Copy(url.clone())]
        }
        _ => Vec::new(),
    }
}
