//! A journey through the screens from sign-in to the deletion of an export, with the real event loop and the
//! real server.

use jiff::{SignedDuration, Timestamp};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tokio::sync::mpsc;
use trefoil_tui::api::{Expansion, LookupAnswer, SubsumesAnswer, ValidationAnswer};
use trefoil_tui::args::ProfileArgs;
use trefoil_tui::clock::ClientClock;
use trefoil_tui::display::DisplayOptions;
use trefoil_tui::export::{ExportPhase, ExportRegistry};
use trefoil_tui::form::FormField;
use trefoil_tui::history::HistoryFile;
use trefoil_tui::last_screens::LastScreensFile;
use trefoil_tui::model::answer::Answer;
use trefoil_tui::model::{Activity, Model, ResourceDetail, SignInState, Viewer};
use trefoil_tui::msg::Message;
use trefoil_tui::profile::Profile;
use trefoil_tui::profile::choice::ProfileSource;
use trefoil_tui::runtime::{self, ProfileEffects};
use url::Url;

use crate::pty::PATIENCE;
use crate::server::{Server, browse};
use crate::support::Programs;

/// A condition on the model, and the keys that are pressed when it holds.
type Step = (fn(&Model) -> bool, &'static [KeyCode]);

/// The steps after the sign-in.
const SCRIPT: &[Step] = &[
    (|model| matches!(model.sign_in.claims, Answer::Done(_)), &[KeyCode::Char('2'), KeyCode::Enter]),
    (|model| validation(model).is_some(), &[KeyCode::Char('o'), KeyCode::Enter]),
    (|model| subsumption(model).is_some(), &[KeyCode::Char('o'), KeyCode::Enter]),
    (|model| lookup(model).is_some(), &[KeyCode::Char('o'), KeyCode::Enter]),
    (|model| expansion(model).is_some(), &[KeyCode::Char('4'), KeyCode::Enter]),
    (
        |model| model.export.rows.first().is_some_and(|row| row.activity == Activity::Completed),
        &[KeyCode::Char('v')],
    ),
    (|model| viewer(model).is_some_and(|viewer| viewer.lines == Some(7)), &[KeyCode::End, KeyCode::Enter]),
    (|model| detail(model).is_some_and(|detail| !detail.references.is_empty()), &[KeyCode::Char('c')]),
    (|model| detail(model).is_some_and(|detail| detail.codes.is_some()), &[KeyCode::Char('g')]),
    (
        |model| {
            viewer(model)
                .is_some_and(|viewer| viewer.files[viewer.file].kind == "Patient" && viewer.detail.is_some())
        },
        &[KeyCode::Esc, KeyCode::Esc, KeyCode::Char('x'), KeyCode::Char('y')],
    ),
    (
        |model| model.export.rows[0].job.phase == ExportPhase::Deleted,
        &[KeyCode::Char('5'), KeyCode::Down, KeyCode::Char('e')],
    ),
    (
        |model| {
            model
                .notice
                .as_deref()
                .is_some_and(|notice| notice.starts_with("The server answered with the status"))
        },
        &[KeyCode::Char('1'), KeyCode::Char('o'), KeyCode::Char('y')],
    ),
    (|model| model.notice.as_deref() == Some("Signed out; the token is revoked."), &[KeyCode::Char('q')]),
];

fn validation(model: &Model) -> Option<&ValidationAnswer> {
    match &model.codes.validate.sent.as_ref()?.answer {
        Answer::Done(response) => Some(response),
        _ => None,
    }
}

fn viewer(model: &Model) -> Option<&Viewer> {
    model.export.viewer.as_ref()
}

fn detail(model: &Model) -> Option<&ResourceDetail> {
    viewer(model)?.detail.as_ref()
}

fn lookup(model: &Model) -> Option<&LookupAnswer> {
    match &model.codes.lookup.sent.as_ref()?.answer {
        Answer::Done(response) => Some(response),
        _ => None,
    }
}

fn expansion(model: &Model) -> Option<&Expansion> {
    match &model.codes.expand.sent.as_ref()?.answer {
        Answer::Done(response) => Some(response),
        _ => None,
    }
}

fn subsumption(model: &Model) -> Option<&SubsumesAnswer> {
    match &model.codes.subsumes.sent.as_ref()?.answer {
        Answer::Done(response) => Some(response),
        _ => None,
    }
}

#[tokio::test]
async fn a_user_signs_in_sends_queries_exports_and_signs_out() {
    trefoil_tui::install_crypto();
    let server = Server::start();
    let args =
        ProfileArgs { demo: Some(server.data.path().to_owned()), no_browser: true, ..ProfileArgs::default() };
    let profile = Profile::read(&args).unwrap();
    let (username, password) = server.person();
    let ca = server.ca();

    let mut model = Model::new(&profile, DisplayOptions::default(), Timestamp::now());
    let folder = server.data.path().join("out");
    let last = model.export.form.fields.len() - 1;
    model.export.form.fields[last] = FormField::new("folder", "", folder.to_str().unwrap());
    let (sender, input) = mpsc::unbounded_channel();
    let services = runtime::Services {
        profiles: ProfileSource::at(args, server.data.path().join("profiles.toml")),
        clock: ClientClock::SYSTEM,
        registry: ExportRegistry::at(&server.data.path().join("client-exports")),
        history: HistoryFile::at(&server.data.path().join("history.json")),
        screens: LastScreensFile::at(&server.data.path().join("screens.json")),
    };
    let effects = ProfileEffects::new(profile, services).unwrap();
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let ticking = tokio::spawn(runtime::tick(sender.clone(), ClientClock::SYSTEM, std::sync::Arc::default()));

    let keys = sender.clone();
    // Each key is pressed a second after the one before, so that questions were read.
    let pressed = std::cell::Cell::new(Timestamp::now());
    let press = move |code| {
        pressed.set(pressed.get() + SignedDuration::from_secs(1));
        keys.send(Message::Tick(pressed.get())).unwrap();
        keys.send(Message::Key(KeyEvent::new(code, KeyModifiers::NONE))).unwrap();
    };
    press(KeyCode::Char('s'));
    let (mut script, mut browser) = (SCRIPT.iter().peekable(), None);
    let observe = |model: &Model| {
        if let (SignInState::Waiting { url, .. }, None) = (&model.sign_in.state, &browser) {
            browser = Some(tokio::spawn(browse(ca.clone(), url.clone(), username.clone(), password.clone())));
        }
        if let Some((_, then)) = script.next_if(|(come, _)| come(model)) {
            then.iter().copied().for_each(&press);
        }
    };
    let running = runtime::run(&mut terminal, model, effects, input, Programs, observe);
    let end = tokio::time::timeout(PATIENCE, running).await;
    ticking.abort();
    let Ok(model) = end else { panic!("stuck at:\n{}", terminal.backend()) };
    let model = model.unwrap();

    let page = browser.expect("the screens showed the sign-in address").await.unwrap();
    assert!(page.contains("You can close this window"), "{page}");
    assert!(validation(&model).unwrap().result);
    assert_eq!(subsumption(&model).unwrap().outcome, "subsumes");
    assert_eq!(lookup(&model).unwrap().display.as_deref(), Some("Cane"));
    let codes = &expansion(&model).unwrap().codes;
    assert!(codes.iter().any(|code| code.code == "cane"), "{codes:?}");
    let export = &model.export.rows[0];
    assert!(export.folder.starts_with(&folder), "{}", export.folder.display());
    assert!(export.folder.join("Patient.ndjson").exists() && export.folder.join("manifest.json").exists());
    assert!(script.peek().is_none(), "some steps of the script were not reached");
    check_masked(&model, &server.person().1);
}

/// Checks that no token or password is visible in the model, which contains everything that the screens can
/// show.
fn check_masked(model: &Model, password: &str) {
    let model_text = format!("{model:?}");
    assert!(!model_text.contains("eyJ"), "a JWT is visible");
    assert!(!model_text.contains(password), "a password is visible");
    let redeemed = model.requests.exchanges.iter().find(|exchange| exchange.url.contains("/oauth2/token"));
    let body = redeemed.and_then(|exchange| exchange.request_body.clone()).unwrap_or_default();
    assert!(body.contains("•••"), "{body}");
    for exchange in &model.requests.exchanges {
        assert!(Url::parse(&exchange.url).is_ok(), "{}", exchange.url);
    }
}
