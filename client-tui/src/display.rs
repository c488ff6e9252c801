//! Display options: colours and characters.

/// Display options, from the command line, the environment and the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisplayOptions {
    pub colours: ColourScheme,
    /// Whether only ASCII characters are drawn.
    pub ascii: bool,
}

/// Colour schemes. They use the 16 colours of the terminal, which its user has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourScheme {
    #[default]
    Dark,
    Light,
    /// Without colours (`NO_COLOR`).
    None,
}

impl DisplayOptions {
    /// Reads the options of the environment: `NO_COLOR` disables colours if it is set and not empty
    /// (no-color.org), and a locale or a terminal without UTF-8 restricts the characters to ASCII. `is_light`
    /// says whether the terminal has a light background.
    pub fn from_environment(ascii: bool, is_light: impl FnOnce() -> bool) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let colours = match set("NO_COLOR") {
            Some(_) => ColourScheme::None,
            None if is_light() => ColourScheme::Light,
            None => ColourScheme::Dark,
        };
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let without_utf8 =
            locale.is_some_and(|name| !name.to_ascii_lowercase().replace('-', "").contains("utf8"));
        let console = set("TERM").as_deref() == Some("linux");
        Self { colours, ascii: ascii || without_utf8 || console }
    }
}
