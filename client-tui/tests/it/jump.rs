//! Jump labels with the real event loop, which knows where the elements are.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tokio::sync::mpsc;
use trefoil_tui::args::ProfileArgs;
use trefoil_tui::display::DisplayOptions;
use trefoil_tui::export::ExportRegistry;
use trefoil_tui::history::HistoryFile;
use trefoil_tui::last_screens::LastScreensFile;
use trefoil_tui::model::{Model, Screen};
use trefoil_tui::msg::Message;
use trefoil_tui::profile::choice::ProfileSource;
use trefoil_tui::runtime::{self, ProfileEffects, Services};

use crate::support::{CLOCK, Programs, now, profile};

/// The model after these keys. `^` opens the labels.
async fn after(typed: &str) -> Model {
    trefoil_tui::install_crypto();
    let folder = tempfile::tempdir().unwrap();
    let services = Services {
        profiles: ProfileSource::at(ProfileArgs::default(), folder.path().join("profiles.toml")),
        registry: ExportRegistry::at(&folder.path().join("exports")),
        history: HistoryFile::at(&folder.path().join("history.json")),
        screens: LastScreensFile::at(&folder.path().join("screens.json")),
        clock: CLOCK,
    };
    let profile = profile("https://t.example");
    let effects = ProfileEffects::new(profile.clone(), services).unwrap();
    let model = Model::new(&profile, DisplayOptions::default(), now());
    let (keys, input) = mpsc::unbounded_channel();
    let press = |code, modifiers| keys.send(Message::Key(KeyEvent::new(code, modifiers))).unwrap();
    for letter in typed.chars() {
        match letter {
            '^' => press(KeyCode::Char('o'), KeyModifiers::CONTROL),
            letter => press(KeyCode::Char(letter), KeyModifiers::NONE),
        }
    }
    press(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    runtime::run(&mut terminal, model, effects, input, Programs, |_| {}).await.unwrap()
}

#[tokio::test]
async fn a_letter_opens_a_tab() {
    assert_eq!(after("^f").await.screen, Screen::Tree);
    assert_eq!(after("^g").await.screen, Screen::Export);
}

#[tokio::test]
async fn another_key_closes_the_labels() {
    let model = after("^9").await;
    assert!(model.screen == Screen::Home && model.overlay.is_none());
    assert_eq!(after("^92").await.screen, Screen::Codes, "keys have their usual meaning again");
}
