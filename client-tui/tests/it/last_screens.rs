//! The state of the screens between two uses.

use jiff::SignedDuration;
use trefoil_tui::display::DisplayOptions;
use trefoil_tui::last_screens::LastScreensFile;
use trefoil_tui::model::{Model, Operation, Screen};

use crate::support::{now, profile};

fn model(server: &str) -> Model {
    Model::new(&profile(server), DisplayOptions::default(), now())
}

#[test]
fn the_program_starts_where_the_user_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/screens.json");
    let file = LastScreensFile::at(&path);
    let mut last = model("https://t.example");
    last.codes.lookup.form.set("code", "wombat");
    last.export.form.set("level", "Group/walking");
    last.tree.form.set("code", "animal");
    (last.screen, last.pane_steps, last.codes.operation) = (Screen::Codes, -3, Operation::Lookup);
    file.store(&mut last).unwrap();
    let mut next = model("https://t.example");
    file.restore(&mut next).unwrap();
    assert_eq!((next.screen, next.pane_steps, next.codes.operation), (Screen::Codes, -3, Operation::Lookup));
    let texts = |model: &Model| {
        let forms =
            [&model.codes.lookup.form, &model.codes.expand.form, &model.export.form, &model.tree.form];
        let fields = forms.into_iter().flat_map(|form| &form.fields);
        fields.map(|field| (field.name, field.text().to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(texts(&next), texts(&last));
    assert!(next.codes.lookup.sent.is_none(), "no request is sent again");
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn another_server_starts_with_its_own_state() {
    let folder = tempfile::tempdir().unwrap();
    let file = LastScreensFile::at(&folder.path().join("screens.json"));
    let mut last = model("https://t.example");
    last.screen = Screen::Export;
    file.store(&mut last).unwrap();
    let mut other = model("https://other.example");
    file.restore(&mut other).unwrap();
    assert_eq!(other.screen, Screen::Home);
}

#[test]
fn help_and_files_are_left_for_the_screen_before_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = LastScreensFile::at(&folder.path().join("screens.json"));
    for (screen, restored) in [(Screen::Help, Screen::Tree), (Screen::Files, Screen::Export)] {
        let mut last = model("https://t.example");
        (last.screen, last.before_help) = (screen, Screen::Tree);
        file.store(&mut last).unwrap();
        let mut next = model("https://t.example");
        file.restore(&mut next).unwrap();
        assert_eq!(next.screen, restored);
    }
}

#[test]
fn the_file_has_a_limited_number_of_profiles_and_loses_the_oldest() {
    let folder = tempfile::tempdir().unwrap();
    let file = LastScreensFile::at(&folder.path().join("screens.json"));
    for number in 0..60 {
        let mut last = model(&format!("https://t{number}.example"));
        last.now = now() + SignedDuration::from_secs(number);
        last.screen = Screen::Tree;
        file.store(&mut last).unwrap();
    }
    for (number, screen) in [(9, Screen::Home), (10, Screen::Tree), (59, Screen::Tree)] {
        let mut next = model(&format!("https://t{number}.example"));
        file.restore(&mut next).unwrap();
        assert_eq!(next.screen, screen, "{number}");
    }
}

#[test]
fn a_damaged_file_is_named_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("screens.json");
    std::fs::write(&path, "{\"a").unwrap();
    let file = LastScreensFile::at(&path);
    let mut model = model("https://t.example");
    for error in [file.restore(&mut model).unwrap_err(), file.store(&mut model).unwrap_err()] {
        assert!(error.contains("screens.json") && error.contains("delete the file"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a");
}
