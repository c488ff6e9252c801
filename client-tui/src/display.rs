//! Display options: colours and characters.

use serde::Deserialize;

/// Display options, from the command line, the settings, the environment and the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisplayOptions {
    pub colours: ColourScheme,
    pub depth: ColourDepth,
    /// Whether only ASCII characters are drawn.
    pub ascii: bool,
    /// Whether the terminal is asked for its background colour, which then selects the colours.
    pub asks_terminal: bool,
}

/// Colours that the terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourDepth {
    /// The 16 colours that the user of the terminal has chosen.
    #[default]
    Sixteen,
    /// The colours 16 to 255 of xterm, which are the same in all terminals.
    Indexed,
}

/// Colours of the screens, by the background of the terminal.
#[expect(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourScheme {
    #[default]
    Dark,
    Light,
    /// The foreground colour of the terminal for all text, bold and reversed, and nothing dimmed.
    HighContrast,
    /// Without colours (`NO_COLOR`).
    None,
}

/// The setting `theme`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThemeSetting {
    /// By the background that `COLORFGBG` or the terminal names; dark if neither does.
    #[default]
    Auto,
    Dark,
    Light,
    HighContrast,
}

/// Parts of the values of `TERM` for terminals with 256 colours or more.
const TERMS_256: [&str; 6] = ["256color", "kitty", "alacritty", "ghostty", "foot", "direct"];

impl DisplayOptions {
    /// Reads the options of the environment: `NO_COLOR` disables colours if it is set and not empty
    /// (no-color.org), and a locale or a terminal without UTF-8 restricts the characters to ASCII.
    pub fn from_environment(ascii: bool, theme: ThemeSetting) -> Self {
        Self::from_variables(ascii, theme, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(ascii: bool, theme: ThemeSetting, set: impl Fn(&str) -> Option<String>) -> Self {
        let term = set("TERM").unwrap_or_default();
        let background = set("COLORFGBG").and_then(|value| is_light_in_environment(&value));
        // Over SSH the answer can take seconds. These terminals print the query, or parts of it.
        let understands_queries = set("SSH_CONNECTION").is_none()
            && set("SSH_TTY").is_none()
            && !term.is_empty()
            && !["dumb", "linux", "eterm", "screen", "vt"].iter().any(|name| term.starts_with(name));
        let (colours, asks_terminal) = match (set("NO_COLOR"), theme, background) {
            (Some(_), ..) => (ColourScheme::None, false),
            (None, ThemeSetting::Light, _) | (None, ThemeSetting::Auto, Some(true)) => {
                (ColourScheme::Light, false)
            }
            (None, ThemeSetting::Dark, _) | (None, ThemeSetting::Auto, Some(false)) => {
                (ColourScheme::Dark, false)
            }
            (None, ThemeSetting::HighContrast, _) => (ColourScheme::HighContrast, false),
            (None, ThemeSetting::Auto, None) => (ColourScheme::Dark, understands_queries),
        };
        let has_256_colours = set("COLORTERM").is_some() || TERMS_256.iter().any(|name| term.contains(name));
        let depth = if has_256_colours { ColourDepth::Indexed } else { ColourDepth::Sixteen };
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let without_utf8 =
            locale.is_some_and(|name| !name.to_ascii_lowercase().replace('-', "").contains("utf8"));
        Self { colours, depth, ascii: ascii || without_utf8 || term == "linux", asks_terminal }
    }

    /// The same options without colours.
    #[must_use]
    pub fn without_colours(self) -> Self {
        Self { colours: ColourScheme::None, asks_terminal: false, ..self }
    }

    /// Selects the colours for the background that the terminal has named.
    pub fn take_background(&mut self, is_light: bool) {
        if self.asks_terminal {
            self.colours = if is_light { ColourScheme::Light } else { ColourScheme::Dark };
        }
    }
}

/// Returns whether `COLORFGBG`, such as `15;0` or `0;default;15`, names a light background.
fn is_light_in_environment(value: &str) -> Option<bool> {
    let background: u8 = value.rsplit(';').next()?.parse().ok()?;
    Some(background == 7 || (9..=15).contains(&background))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(theme: ThemeSetting, variables: &[(&str, &str)], colours: ColourScheme, asks_terminal: bool) {
        let set = |name: &str| {
            let variable = variables.iter().find(|(variable, _)| *variable == name);
            variable.map(|(_, value)| (*value).to_owned())
        };
        let options = DisplayOptions::from_variables(false, theme, set);
        assert_eq!((options.colours, options.asks_terminal), (colours, asks_terminal), "{variables:?}");
    }

    #[test]
    fn the_terminal_is_asked_only_if_nothing_else_names_the_background() {
        use ColourScheme::{Dark, HighContrast, Light, None};
        let xterm = ("TERM", "xterm-256color");
        check(ThemeSetting::Auto, &[xterm], Dark, true);
        check(ThemeSetting::Auto, &[xterm, ("COLORFGBG", "0;15")], Light, false);
        check(ThemeSetting::Auto, &[xterm, ("COLORFGBG", "15;0")], Dark, false);
        check(ThemeSetting::Auto, &[xterm, ("SSH_CONNECTION", "a 1 b 2")], Dark, false);
        check(ThemeSetting::Auto, &[("TERM", "linux")], Dark, false);
        check(ThemeSetting::Light, &[xterm, ("COLORFGBG", "15;0")], Light, false);
        check(ThemeSetting::HighContrast, &[xterm], HighContrast, false);
        check(ThemeSetting::Light, &[xterm, ("NO_COLOR", "1")], None, false);
    }

    #[test]
    fn terminals_with_many_colours_are_recognised() {
        let depth = |variables: &[(&str, &str)]| {
            let set = |name: &str| {
                let variable = variables.iter().find(|(variable, _)| *variable == name);
                variable.map(|(_, value)| (*value).to_owned())
            };
            DisplayOptions::from_variables(false, ThemeSetting::Auto, set).depth
        };
        assert_eq!(depth(&[("TERM", "xterm-256color")]), ColourDepth::Indexed);
        assert_eq!(depth(&[("TERM", "xterm-kitty")]), ColourDepth::Indexed);
        assert_eq!(depth(&[("TERM", "xterm"), ("COLORTERM", "truecolor")]), ColourDepth::Indexed);
        assert_eq!(depth(&[("TERM", "xterm")]), ColourDepth::Sixteen);
        assert_eq!(depth(&[("TERM", "linux")]), ColourDepth::Sixteen);
    }

    #[test]
    fn the_environment_names_the_background() {
        for (value, expected) in [
            ("15;0", Some(false)),
            ("0;default;15", Some(true)),
            ("0;7", Some(true)),
            ("x", None),
            ("15;8", Some(false)),
        ] {
            assert_eq!(is_light_in_environment(value), expected, "{value}");
        }
    }
}
