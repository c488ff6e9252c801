//! The menu of profiles: its updates, and a change of the profile in the event loop while the old server
//! still answers.

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;
use tokio::sync::mpsc;
use trefoil_tui::args::ProfileArgs;
use trefoil_tui::display::DisplayOptions;
use trefoil_tui::export::ExportRegistry;
use trefoil_tui::history::HistoryFile;
use trefoil_tui::journey::Step;
use trefoil_tui::last_screens::LastScreensFile;
use trefoil_tui::model::answer::Answer;
use trefoil_tui::model::{ClickTarget, Model, Screen, YES};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::profile::choice::{ProfileChoice, ProfileSource};
use trefoil_tui::runtime::{self, ProfileEffects, Services};
use trefoil_tui::update::update;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::pty::PATIENCE;
use crate::support::{CLOCK, Programs, confirm, model, now, press, type_text, wait};

fn choice(name: Option<&str>, server: &str) -> ProfileChoice {
    ProfileChoice { name: name.map(str::to_owned), server: server.to_owned() }
}

/// Returns a model with the open menu. The open profile is `home`.
pub fn opened_menu() -> Model {
    let mut model = model();
    model.about.profile = Some("home".to_owned());
    assert_eq!(press(&mut model, KeyCode::Char('P')), [RuntimeEffect::ListProfiles]);
    let choices = vec![
        choice(None, "--demo ./demo"),
        choice(Some("home"), "https://t.example"),
        choice(Some("work"), "https://work.example"),
    ];
    update(&mut model, Message::Profiles(Ok(choices)));
    model
}

fn work() -> RuntimeEffect {
    RuntimeEffect::OpenProfile(choice(Some("work"), "https://work.example"))
}

#[test]
fn a_profile_is_chosen_from_the_menu() {
    let mut model = opened_menu();
    assert_eq!(model.profile_menu().unwrap().list.selected, 1, "the open profile is selected");
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Enter), [work()]);
    assert_eq!(model.overlay, None);

    let mut model = opened_menu();
    type_text(&mut model, "wrk");
    assert_eq!(press(&mut model, KeyCode::Enter), [work()]);

    let mut model = opened_menu();
    update(&mut model, Message::Click(ClickTarget::Row(2)));
    assert_eq!(press(&mut model, KeyCode::Enter), [work()]);

    let mut model = opened_menu();
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.overlay, None);
}

#[test]
fn a_change_that_ends_something_is_confirmed() {
    let mut model = opened_menu();
    let url = "https://t.example/oauth2/authorize".to_owned();
    update(&mut model, Message::SignIn(Step::GoTo { url, browser: Ok(()) }));
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Enter), [], "the sign-in is waiting");
    let is_confirming = |model: &Model| model.profile_menu().unwrap().to_confirm.is_some();
    assert!(is_confirming(&model));
    press(&mut model, KeyCode::Up);
    assert!(is_confirming(&model), "the question was not read yet");
    wait(&mut model);
    press(&mut model, KeyCode::Up);
    assert!(!is_confirming(&model), "another key withdraws the confirmation");
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Enter);
    assert_eq!(confirm(&mut model), [work()]);
}

#[test]
fn the_profiles_of_the_file_and_of_the_command_line_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.toml");
    let file =
        "[profiles.a]\nbase_url = \"https://a.example\"\n[profiles.b]\nbase_url = \"https://b.example\"\n";
    std::fs::write(&path, file).unwrap();
    let profiles = [choice(Some("a"), "https://a.example"), choice(Some("b"), "https://b.example")];
    let args = ProfileArgs {
        base_url: Some("https://c.example".to_owned()),
        client_id: Some("c".to_owned()),
        read_only: true,
        ..ProfileArgs::default()
    };
    let source = ProfileSource::at(args, path.clone());
    let options = choice(None, "--base-url https://c.example --client-id c");
    assert_eq!(source.choices().unwrap(), [std::slice::from_ref(&options), &profiles].concat());
    let profile = source.open(&profiles[1]).unwrap();
    assert_eq!((profile.base_url.as_str(), profile.client_id), ("https://b.example", None));
    assert!(profile.read_only, "--read-only applies to every profile");
    assert_eq!(source.open(&options).unwrap().client_id.as_deref(), Some("c"));
    let args = ProfileArgs { profile: Some("a".to_owned()), ..ProfileArgs::default() };
    assert_eq!(ProfileSource::at(args, path).choices().unwrap(), profiles);
}

fn write_profiles(path: &Path, slow: &str, other: &str) {
    let text = format!(
        "default = \"slow\"\n[profiles.slow]\nbase_url = \"{slow}\"\n[profiles.other]\nbase_url = \"{other}\"\n\
         [profiles.broken]\nbase_url = \"{other}\"\nca = \"/nowhere/ca.pem\"\n"
    );
    std::fs::write(path, text).unwrap();
}

/// Time after which the old server answers. The list of profiles is read before that.
const SLOW_ANSWER: Duration = Duration::from_secs(2);

#[tokio::test]
async fn nothing_of_the_old_server_is_left_after_a_change() {
    trefoil_tui::install_crypto();
    let (slow, other) = (MockServer::start().await, MockServer::start().await);
    let yes = |name: &str| {
        let parameter =
            json!([{ "name": "result", "valueBoolean": true }, { "name": "message", "valueString": name }]);
        let body = json!({ "resourceType": "Parameters", "parameter": parameter });
        ResponseTemplate::new(200).set_body_json(body)
    };
    Mock::given(any()).respond_with(yes("slow").set_delay(SLOW_ANSWER)).mount(&slow).await;
    Mock::given(any()).respond_with(yes("other")).mount(&other).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.toml");
    write_profiles(&path, &slow.uri(), &other.uri());
    let profiles = ProfileSource::at(ProfileArgs::default(), path);
    let profile = profiles.selected().unwrap();
    let model = Model::new(&profile, DisplayOptions::default(), now());
    let services = Services {
        profiles,
        registry: ExportRegistry::at(&folder.path().join("exports")),
        history: HistoryFile::at(&folder.path().join("history.json")),
        screens: LastScreensFile::at(&folder.path().join("screens.json")),
        clock: CLOCK,
    };
    let effects = ProfileEffects::new(profile, services).unwrap();
    let (keys, input) = mpsc::unbounded_channel();
    let press = |code| keys.send(Message::Key(KeyEvent::new(code, KeyModifiers::NONE))).unwrap();
    // A second later, so that the question was read.
    let seconds = std::cell::Cell::new(0);
    let yes = || {
        seconds.set(seconds.get() + 1);
        keys.send(Message::Tick(now() + jiff::SignedDuration::from_secs(seconds.get()))).unwrap();
        press(KeyCode::Char(YES));
    };
    let fill = |text: &str| keys.send(Message::Paste(text.to_owned())).unwrap();
    let ask = || {
        press(KeyCode::Char('2'));
        for text in ["https://t.example/vs", "https://t.example/cs", "a"] {
            press(KeyCode::Tab);
            fill(text);
        }
        press(KeyCode::Enter);
    };
    ask();
    press(KeyCode::Char('P'));
    let mut step = 0;
    let observe = |model: &Model| {
        let has_choices =
            |model: &Model| model.profile_menu().is_some_and(|menu| matches!(menu.choices, Answer::Done(_)));
        let waits = model.requests.exchanges.iter().any(|exchange| exchange.outcome.is_none());
        match step {
            // The profile cannot be opened: the old one stays open.
            0 if has_choices(model) && waits => {
                "broken".chars().for_each(|c| press(KeyCode::Char(c)));
                press(KeyCode::Enter);
                yes();
            }
            1 if model.notice.as_deref().is_some_and(|notice| notice.contains("/nowhere/ca.pem")) => {
                assert_eq!(model.about.profile.as_deref(), Some("slow"));
                press(KeyCode::Char('P'));
            }
            2 if has_choices(model) => {
                "other".chars().for_each(|c| press(KeyCode::Char(c)));
                press(KeyCode::Enter);
                yes();
            }
            3 if model.about.profile.as_deref() == Some("other") => {
                assert!(model.requests.exchanges.is_empty() && model.codes.validate.sent.is_none());
                assert_eq!(model.screen, Screen::Home);
                ask();
            }
            4 if model.codes.validate.sent.as_ref().is_some_and(|question| !question.answer.is_pending()) => {
                // The answer of the old server would arrive in this time.
                let keys = keys.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(SLOW_ANSWER).await;
                    let quit = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
                    keys.send(Message::Key(quit)).unwrap();
                });
            }
            _ => return,
        }
        step += 1;
    };
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let running = runtime::run(&mut terminal, model, effects, input, Programs, observe);
    let end = tokio::time::timeout(PATIENCE, running).await;
    let Ok(model) = end else { panic!("stuck at:\n{}", terminal.backend()) };
    let model = model.unwrap();
    assert_eq!(model.about.base_url, other.uri());
    let Some(Answer::Done(answer)) = model.codes.validate.sent.as_ref().map(|question| &question.answer)
    else {
        panic!("the other server did not answer: {:?}", model.codes.validate.sent);
    };
    assert_eq!(answer.message.as_deref(), Some("other"));
    let urls: Vec<_> = model.requests.exchanges.iter().map(|exchange| exchange.url.as_str()).collect();
    assert!(urls.iter().all(|url| url.starts_with(&other.uri())), "{urls:?}");
}
