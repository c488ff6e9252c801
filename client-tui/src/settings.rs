//! The settings of the user, in `trefoil-tui/settings.toml` beside the profile file.
//!
//! ```toml
//! theme = "light"
//!
//! [keys]
//! copy-curl = "Y"
//! quit = ["Q", "Ctrl-Q"]
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use serde::Deserialize;
use toml::Spanned;

use crate::display::ThemeSetting;
use crate::keys::key::Key;
use crate::keys::{Action, KeyConflict, KeyTable};

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The operating system has no folder for settings.
    #[error("the folder of the settings cannot be determined: {0}")]
    Folder(etcetera::HomeDirError),
    #[error("failed to read {}: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    /// The file is not TOML, or contains an unknown setting.
    #[error("the settings {} are invalid: {reason}", path.display())]
    Syntax { path: PathBuf, reason: String },
    #[error("the settings {} are invalid in line {line}: {reason}", path.display())]
    Setting { path: PathBuf, line: usize, reason: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    #[serde(default)]
    theme: ThemeSetting,
    /// Keys by the names of their actions.
    #[serde(default)]
    keys: BTreeMap<Spanned<String>, KeyNames>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a key such as \"Y\", or a list of keys")]
enum KeyNames {
    One(String),
    Several(Vec<String>),
}

/// The path of the settings of this user.
///
/// # Errors
/// [`SettingsError::Folder`].
pub fn path_of_user() -> Result<PathBuf, SettingsError> {
    let base = etcetera::choose_base_strategy().map_err(SettingsError::Folder)?;
    Ok(base.config_dir().join("trefoil-tui/settings.toml"))
}

/// The settings of the user.
#[derive(Clone, Debug)]
pub struct UserSettings {
    pub keys: KeyTable,
    pub theme: ThemeSetting,
}

/// Reads the settings. Without a file, they are the standard ones.
///
/// # Errors
/// [`SettingsError`] if a setting is invalid, or if a key has two actions.
pub fn read(path: &Path) -> Result<UserSettings, SettingsError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(SettingsError::Read { path: path.to_owned(), error }),
    };
    let file: SettingsFile = toml::from_str(&text)
        .map_err(|error| SettingsError::Syntax { path: path.to_owned(), reason: error.to_string() })?;
    let wrong = |index: usize, reason: String| {
        let line = text[..index].matches('\n').count() + 1;
        SettingsError::Setting { path: path.to_owned(), line, reason }
    };
    let mut table = KeyTable::standard().clone();
    let mut lines = BTreeMap::new();
    for (name, names) in &file.keys {
        let index = name.span().start;
        let action = Action::named(name.get_ref()).ok_or_else(|| {
            let name = name.get_ref();
            wrong(index, format!("'{name}' is not an action; 'trefoil-tui keys' lists the actions"))
        })?;
        let names = match names {
            KeyNames::One(name) => std::slice::from_ref(name),
            KeyNames::Several(names) => names,
        };
        let keys: Result<Vec<Key>, _> = names.iter().map(|name| name.parse()).collect();
        let keys = keys.map_err(|error| wrong(index, format!("{error}")))?;
        table.set(action, &keys).map_err(|error| wrong(index, error.to_string()))?;
        lines.insert(action, index);
    }
    match table.conflict() {
        None => Ok(UserSettings { keys: table, theme: file.theme }),
        Some(KeyConflict { key, screen, actions: [one, other] }) => {
            // At least one of the actions is in the file, because the standard keys have no conflict.
            let (set, taken) = if lines.contains_key(&other) { (other, one) } else { (one, other) };
            let index = lines.get(&set).copied().unwrap_or_default();
            let (set, taken, screen) = (set.name(), taken.name(), screen.title());
            Err(wrong(
                index,
                format!(
                    "'{key}' has two actions on the screen {screen}: '{set}' and '{taken}'; choose another key for one of them"
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::screen::Screen;

    fn read_text(content: &str) -> Result<UserSettings, SettingsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        std::fs::write(&path, content).unwrap();
        read(&path)
    }

    #[track_caller]
    fn check_error(content: &str, line: usize, says: &[&str]) {
        let error = read_text(content).unwrap_err().to_string();
        assert!(error.contains(&format!("line {line}")), "{error}");
        for text in says {
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn keys_of_the_file_replace_the_standard_ones() {
        let table = read_text("[keys]\ncopy-curl = \"Y\"\nquit = [\"Q\", \"Ctrl-Q\"]\n").unwrap().keys;
        let action = |c, typing| {
            table.action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE), Screen::Requests, typing)
        };
        assert_eq!(
            [
                action('Y', false),
                action('c', false),
                action('Q', false),
                action('q', false),
                action('Q', true)
            ],
            [Some(Action::CopyCurl), None, Some(Action::Quit), None, None]
        );
        assert_eq!(
            (table.label(Action::CopyCurl), table.label(Action::Quit)),
            ("Y".to_owned(), "Q".to_owned())
        );
    }

    #[test]
    fn two_actions_can_exchange_their_keys() {
        let table = read_text("[keys]\nreplay = \"c\"\ncopy-curl = \"p\"\n").unwrap().keys;
        assert_eq!(table.label(Action::Replay), "c");
    }

    #[test]
    fn a_missing_file_and_the_printed_table_are_the_standard_keys() {
        let standard = KeyTable::standard().settings();
        assert_eq!(read(Path::new("/nowhere/settings.toml")).unwrap().keys.settings(), standard);
        assert_eq!(read_text("").unwrap().keys.settings(), standard);
        assert_eq!(read_text(&standard).unwrap().keys.settings(), standard);
    }

    #[test]
    fn the_theme_is_read() {
        assert_eq!(read_text("").unwrap().theme, ThemeSetting::Auto);
        assert_eq!(read_text("theme = \"high-contrast\"\n").unwrap().theme, ThemeSetting::HighContrast);
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        check_error("theme = \"blue\"\n", 1, &["unknown variant `blue`", "`high-contrast`"]);
        check_error(
            "\n[keys]\ncopy-crul = \"Y\"\n",
            3,
            &["'copy-crul' is not an action", "trefoil-tui keys"],
        );
        check_error("[keys]\nquit = \"Q\"\nhelp = \"Ctrl+H\"\n", 3, &["'Ctrl+H' is not a key", "Ctrl-X"]);
        check_error("[keys]\nquit = []\n", 2, &["'quit' needs a key"]);
        check_error("[keys]\nsend = \"x\"\n", 2, &["the key of 'send' is fixed"]);
        check_error("[keys]\nclear = \"x\"\n", 2, &["'x' types a character"]);
        check_error(
            "[keys]\nquit = \"Q\"\ncopy-curl = \"p\"\n",
            3,
            &["'p'", "Requests", "'copy-curl'", "'replay'"],
        );
        check_error("[keys]\nquit = 3\n", 2, &["expected a key"]);
        check_error("[key]\nquit = 3\n", 1, &["unknown field `key`"]);
    }
}
