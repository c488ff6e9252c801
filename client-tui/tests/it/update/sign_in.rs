//! Sign-in, the token for requests, and the inspector of tokens.

use ratatui::crossterm::event::KeyCode;
use trefoil_tui::api::{Bearer, SignedInSession, TokenKind};
use trefoil_tui::journey::Step;
use trefoil_tui::model::{Model, SignInState};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::sign_in_method::SignInMethod;
use trefoil_tui::update::update;

use crate::support::{confirm, model, press, session, wait};

fn go_to(model: &mut Model) {
    let url = "https://t.example/oauth2/authorize".to_owned();
    update(model, Message::SignIn(Step::GoTo { url, browser: Ok(()) }));
}

#[test]
fn a_sign_in_waits_accepts_a_pasted_text_and_reads_userinfo() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::SignIn(SignInMethod::Browser)]);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "one sign-in at a time");
    go_to(&mut model);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "nothing was pasted");
    update(&mut model, Message::Paste("code=1&state=2\n".to_owned()));
    assert_eq!(press(&mut model, KeyCode::Enter), [RuntimeEffect::Pasted("code=1&state=2".to_owned())]);
    update(&mut model, Message::SignIn(Step::PasteRefused("not this one".to_owned())));
    assert_eq!(model.sign_in.paste_error.as_deref(), Some("not this one"));
    let contents = |id, bearer| RuntimeEffect::Contents { id, bearer, groups_bearer: Bearer::Backend };
    assert_eq!(
        update(&mut model, Message::SignedIn(Ok(session()))),
        [RuntimeEffect::Userinfo, contents(1, Bearer::User)]
    );
    assert_eq!((model.bearer.clone(), model.typing), (Bearer::User, false));
    assert_eq!(press(&mut model, KeyCode::Char('o')), [], "it must be confirmed");
    for key in "ooyoy".chars() {
        assert_eq!(press(&mut model, KeyCode::Char(key)), [], "a paste, or a key that is held");
    }
    wait(&mut model);
    assert_eq!(press(&mut model, KeyCode::Char('o')), [], "not by the same key");
    assert_eq!(
        confirm(&mut model),
        [RuntimeEffect::SignOut { browser: false }, contents(2, Bearer::Backend)]
    );
    assert_eq!((model.sign_in.state, model.bearer), (SignInState::Out, Bearer::Backend));
}

#[test]
fn esc_cancels_a_sign_in() {
    let mut model = model();
    press(&mut model, KeyCode::Enter);
    assert_eq!(press(&mut model, KeyCode::Char('c')), [], "there is no address yet");
    go_to(&mut model);
    let copy = RuntimeEffect::Copy("https://t.example/oauth2/authorize".to_owned());
    assert_eq!(press(&mut model, KeyCode::Char('c')), [copy]);
    assert_eq!(press(&mut model, KeyCode::Esc), [RuntimeEffect::CancelSignIn]);
    assert_eq!(model.sign_in.state, SignInState::Out);
}

#[test]
fn the_token_is_switched_among_those_that_exist() {
    let mut model = model();
    press(&mut model, KeyCode::Char('2'));
    let next = |model: &mut Model| {
        press(model, KeyCode::Char('t'));
        model.bearer.clone()
    };
    assert_eq!([next(&mut model), next(&mut model)], [Bearer::Anonymous, Bearer::Backend]);
    update(&mut model, Message::SignedIn(Ok(session())));
    assert_eq!(model.bearer, Bearer::User);
    assert_eq!([next(&mut model), next(&mut model)], [Bearer::Anonymous, Bearer::Backend]);
    assert_eq!(next(&mut model), Bearer::User);
}

#[test]
fn a_session_of_an_earlier_run_is_continued() {
    let mut model = model();
    let (bearer, groups_bearer) = (Bearer::Backend, Bearer::Backend);
    let contents =
        |id| RuntimeEffect::Contents { id, bearer: bearer.clone(), groups_bearer: groups_bearer.clone() };
    assert_eq!(update(&mut model, Message::Restored(None)), [contents(1)]);
    assert_eq!(
        update(&mut model, Message::Restored(Some(session()))),
        [RuntimeEffect::Userinfo, contents(2)]
    );
    assert_eq!(model.sign_in.state, SignInState::In(session()));
    assert_eq!(model.bearer, Bearer::Backend, "the token for requests is not switched");
    let renewed = SignedInSession { expires_at: "2024-05-01T15:00:00Z".parse().unwrap(), ..session() };
    update(&mut model, Message::Session(Some(renewed.clone())));
    assert_eq!(model.sign_in.state, SignInState::In(renewed));
}

#[test]
fn the_inspector_shows_one_token_after_the_other() {
    let mut model = model();
    let inspect = |model: &mut Model| match &press(model, KeyCode::Char('i'))[..] {
        [RuntimeEffect::Inspect(kind)] => *kind,
        effects => panic!("{effects:?}"),
    };
    assert_eq!(inspect(&mut model), TokenKind::BackendAccess);
    update(&mut model, Message::SignedIn(Ok(session())));
    let kinds = [inspect(&mut model), inspect(&mut model), inspect(&mut model)];
    assert_eq!(kinds, [TokenKind::UserAccess, TokenKind::Id, TokenKind::BackendAccess]);
    update(&mut model, Message::Inspected(TokenKind::Id, Err("late".to_owned())));
    assert!(model.sign_in.inspector.as_ref().unwrap().answer.is_waiting(), "another token is shown");
    update(&mut model, Message::Inspected(TokenKind::BackendAccess, Err("refused".to_owned())));
    press(&mut model, KeyCode::Esc);
    assert!(model.sign_in.inspector.is_none() && model.is_signed_in());
}

#[test]
fn the_demo_password_is_copied_but_not_shown() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('p')), [RuntimeEffect::CopyDemoPassword]);
    model.about.demo_user = None;
    assert_eq!(press(&mut model, KeyCode::Char('p')), []);
}

#[test]
fn without_a_token_there_is_nothing_to_inspect() {
    let mut model = model();
    model.about.backend_id = None;
    assert_eq!(press(&mut model, KeyCode::Char('i')), []);
    assert!(model.sign_in.inspector.is_none() && model.notice.is_some());
}

#[test]
fn only_an_inspected_token_is_copied() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('y')), []);
    assert_eq!(model.notice.as_deref(), Some("Not possible: no token is inspected."));
    press(&mut model, KeyCode::Char('i'));
    let copied = press(&mut model, KeyCode::Char('y'));
    assert_eq!(copied, [RuntimeEffect::CopyToken(TokenKind::BackendAccess)]);
}
