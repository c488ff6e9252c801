//! A key with its modifiers: how a person writes it, and how the terminal reports it.

use std::fmt;
use std::str::FromStr;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    modifiers: KeyModifiers,
    code: KeyCode,
}

/// Names of the keys that type no character.
const NAMES: &[(&str, KeyCode)] = &[
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Backspace", KeyCode::Backspace),
    ("Delete", KeyCode::Delete),
    ("Insert", KeyCode::Insert),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Space", KeyCode::Char(' ')),
];
/// Modifiers in the order in which they are written.
const MODIFIERS: [(&str, KeyModifiers); 3] =
    [("Ctrl-", KeyModifiers::CONTROL), ("Alt-", KeyModifiers::ALT), ("Shift-", KeyModifiers::SHIFT)];

/// A text that does not name a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a key; write keys like a, A, ?, Space, Enter, Shift-Tab, PgUp, F2, Ctrl-X or Alt-x")]
pub struct UnknownKey(String);

impl Key {
    /// The event of a terminal in which this key is pressed.
    #[cfg(test)]
    pub(crate) fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// Returns whether the key types a character in a field.
    pub fn types_a_character(&self) -> bool {
        self.modifiers.is_empty() && matches!(self.code, KeyCode::Char(_))
    }
}

impl From<KeyEvent> for Key {
    /// Some terminals report the Shift of a capital letter, and others do not.
    fn from(event: KeyEvent) -> Self {
        let modifiers = match event.code {
            KeyCode::Char(_) | KeyCode::BackTab => event.modifiers - KeyModifiers::SHIFT,
            _ => event.modifiers,
        };
        Self { modifiers, code: event.code }
    }
}

impl FromStr for Key {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        let unknown = || UnknownKey(text.to_owned());
        let (mut modifiers, mut name) = (KeyModifiers::NONE, text);
        for (prefix, modifier) in MODIFIERS {
            if let Some(rest) = name.strip_prefix(prefix) {
                (modifiers, name) = (modifiers | modifier, rest);
            }
        }
        let known_key = NAMES.iter().find(|(key, _)| *key == name).map(|(_, code)| *code);
        let function = name.strip_prefix('F').and_then(|number| number.parse().ok());
        let mut characters = name.chars();
        let code = match (known_key, function, characters.next(), characters.next()) {
            (Some(code), ..) => code,
            (None, Some(number @ 1..=24), ..) => KeyCode::F(number),
            (None, None, Some(c), None) if !c.is_control() => KeyCode::Char(c),
            _ => return Err(unknown()),
        };
        // A terminal reports a capital letter instead of Shift with a letter, and no difference with Ctrl.
        match code {
            KeyCode::Char(_) if modifiers.contains(KeyModifiers::SHIFT) => Err(unknown()),
            KeyCode::Char(c) if modifiers.contains(KeyModifiers::CONTROL) => {
                Ok(Self { modifiers, code: KeyCode::Char(c.to_ascii_lowercase()) })
            }
            KeyCode::Tab if modifiers == KeyModifiers::SHIFT => {
                Ok(Self { modifiers: KeyModifiers::NONE, code: KeyCode::BackTab })
            }
            code => Ok(Self { modifiers, code }),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (prefix, modifier) in MODIFIERS {
            if self.modifiers.contains(modifier) {
                f.write_str(prefix)?;
            }
        }
        match self.code {
            KeyCode::BackTab => f.write_str("Shift-Tab"),
            KeyCode::F(number) => write!(f, "F{number}"),
            code => match NAMES.iter().find(|(_, known)| *known == code) {
                Some((name, _)) => f.write_str(name),
                None => match code {
                    KeyCode::Char(c) if self.modifiers.contains(KeyModifiers::CONTROL) => {
                        write!(f, "{}", c.to_ascii_uppercase())
                    }
                    code => write!(f, "{code}"),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_and_read() {
        for text in [
            "a",
            "O",
            "?",
            "/",
            "-",
            "Space",
            "Enter",
            "Shift-Tab",
            "F1",
            "F12",
            "Ctrl-U",
            "Alt-x",
            "Ctrl-Alt-Up",
            "Ctrl-Space",
            "Shift-Left",
            "é",
        ] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in ["", "ab", "Ctrl-", "Ctrl+X", "Shift-a", "F0", "F25", "enter", "Hyper-x"] {
            assert_eq!(text.parse::<Key>(), Err(UnknownKey(text.to_owned())));
        }
    }

    #[test]
    fn a_capital_letter_is_the_same_key_with_and_without_shift() {
        for modifiers in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
            assert_eq!(Key::from(KeyEvent::new(KeyCode::Char('O'), modifiers)), "O".parse().unwrap());
            assert_eq!(Key::from(KeyEvent::new(KeyCode::BackTab, modifiers)), "Shift-Tab".parse().unwrap());
        }
        let pressed = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(Key::from(pressed), "Ctrl-C".parse().unwrap());
    }
}
