//! Colours and symbols of the screens.
//!
//! Texts have three strengths: important ones are bold, less important ones are pale, and all others have the
//! colour of the terminal. Where the terminal shows the fixed colours of xterm, each text has a contrast of
//! at least 4.5:1 (WCAG 2.2, 1.4.3) on black, on white and on both backgrounds of Solarized; a test holds
//! that.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::display::{ColourDepth, ColourScheme, DisplayOptions};

/// Text styles. Everything that a style expresses is also shown as text or as a mark.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    scheme: ColourScheme,
    depth: ColourDepth,
}

/// A colour of the theme: one of the 16 colours of the terminal, and a colour of xterm, each for dark and for
/// light backgrounds.
struct ThemeColour {
    sixteen: [Color; 2],
    indexed: [u8; 2],
}

const ACCENT: ThemeColour = ThemeColour { sixteen: [Color::Cyan, Color::Blue], indexed: [81, 25] };
const GOOD: ThemeColour = ThemeColour { sixteen: [Color::Green, Color::Green], indexed: [114, 22] };
const BAD: ThemeColour = ThemeColour { sixteen: [Color::Red, Color::Red], indexed: [210, 124] };
const WARNING: ThemeColour = ThemeColour { sixteen: [Color::Yellow, Color::Magenta], indexed: [221, 90] };
/// Colours of xterm for pale texts.
const PALE: [u8; 2] = [248, 240];
/// Colours of xterm for the background of fields and notices.
const SURFACE: [u8; 2] = [236, 254];
/// Colours of xterm for texts on that background.
const ON_SURFACE: [u8; 2] = [255, 234];

impl Theme {
    pub fn new(display: DisplayOptions) -> Self {
        Self { scheme: display.colours, depth: display.depth }
    }

    /// Index of the background in the tables; `None` for themes without colours.
    fn background(self) -> Option<usize> {
        match self.scheme {
            ColourScheme::Dark => Some(0),
            ColourScheme::Light => Some(1),
            ColourScheme::HighContrast | ColourScheme::None => None,
        }
    }

    fn of(self, colour: &ThemeColour) -> Style {
        match (self.background(), self.depth) {
            (None, _) => Style::new(),
            (Some(background), ColourDepth::Sixteen) => Style::new().fg(colour.sixteen[background]),
            (Some(background), ColourDepth::Indexed) => {
                Style::new().fg(Color::Indexed(colour.indexed[background]))
            }
        }
    }

    /// The selected or focused element, and keys.
    pub fn accent(self) -> Style {
        self.of(&ACCENT).add_modifier(Modifier::BOLD)
    }

    /// Text that is more important than others.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn good(self) -> Style {
        self.of(&GOOD).add_modifier(Modifier::BOLD)
    }

    /// A negative result or an error.
    pub fn bad(self) -> Style {
        self.of(&BAD).add_modifier(Modifier::BOLD)
    }

    /// A warning, or an answer that does not belong to the form any more.
    pub fn warning(self) -> Style {
        self.of(&WARNING).add_modifier(Modifier::BOLD)
    }

    /// Less important text. With 16 colours it is dimmed, because the colour "dark gray" is the background of
    /// some colour schemes.
    pub fn quiet(self) -> Style {
        match (self.background(), self.depth) {
            (Some(background), ColourDepth::Indexed) => Style::new().fg(Color::Indexed(PALE[background])),
            _ if self.scheme == ColourScheme::HighContrast => Style::new(),
            _ => Style::new().add_modifier(Modifier::DIM),
        }
    }

    /// The text of a field.
    pub fn field(self) -> Style {
        self.surface().unwrap_or(Style::new().add_modifier(Modifier::UNDERLINED))
    }

    /// The background of notices.
    pub fn notice(self) -> Style {
        self.surface().unwrap_or_default()
    }

    fn surface(self) -> Option<Style> {
        let background = self.background().filter(|_| self.depth == ColourDepth::Indexed)?;
        let [text, surface] = [ON_SURFACE, SURFACE].map(|colours| Color::Indexed(colours[background]));
        Some(Style::new().fg(text).bg(surface))
    }

    /// The letter that jumps to an element.
    pub fn jump(self) -> Style {
        self.warning().add_modifier(Modifier::REVERSED)
    }

    pub fn tab(self) -> Style {
        self.accent().add_modifier(Modifier::REVERSED)
    }

    pub fn qr(self) -> Style {
        match self.scheme {
            ColourScheme::HighContrast | ColourScheme::None => Style::new().add_modifier(Modifier::REVERSED),
            _ => Style::new().fg(Color::Black).bg(Color::White),
        }
    }

    /// Names of JSON members.
    pub fn json_name(self) -> Style {
        self.of(&ACCENT)
    }

    /// JSON strings.
    pub fn json_text(self) -> Style {
        self.of(&GOOD)
    }

    /// JSON numbers and literals.
    pub fn json_literal(self) -> Style {
        self.of(&WARNING)
    }
}

/// Replaces all characters that are not ASCII.
pub fn to_ascii(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let symbol = cell.symbol();
        if symbol.is_ascii() {
            continue;
        }
        let ascii = match symbol {
            "─" | "━" | "·" => "-",
            "│" | "┃" => "|",
            "╭" | "╮" | "╰" | "╯" | "├" | "┤" | "┌" | "┐" | "└" | "┘" => "+",
            "›" | "▸" | "→" => ">",
            "▾" => "v",
            "▴" => "^",
            "⇣" => "v",
            "…" => ".",
            "•" => "*",
            "⠋" | "⠼" | "⠇" => "|",
            "⠙" | "⠴" | "⠏" => "/",
            "⠹" | "⠦" => "-",
            "⠸" | "⠧" => "\\",
            "█" | "▉" | "▊" | "▋" | "▌" | "▇" | "▆" | "▅" => "#",
            "▍" | "▎" | "▏" | "▄" | "▃" | "▂" | "▁" => "=",
            _ => "?",
        };
        cell.set_symbol(ascii);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of a colour of xterm (WCAG 2.2).
    fn luminance([red, green, blue]: [u8; 3]) -> f64 {
        let linear = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
    }

    /// The red, green and blue parts of a colour from 16 to 255.
    fn parts(index: u8) -> [u8; 3] {
        let step = |value: u8| if value == 0 { 0 } else { 55 + 40 * value };
        match index {
            232.. => [8 + 10 * (index - 232); 3],
            _ => {
                let cube = index - 16;
                [step(cube / 36), step(cube / 6 % 6), step(cube % 6)]
            }
        }
    }

    fn contrast(one: [u8; 3], other: [u8; 3]) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn texts_can_be_read_on_all_backgrounds() {
        let black = [[0, 0, 0], [0x1e, 0x1e, 0x1e], [0x00, 0x2b, 0x36]];
        let white = [[255, 255, 255], [0xfa, 0xfa, 0xfa], [0xfd, 0xf6, 0xe3]];
        for (index, backgrounds) in [black, white].into_iter().enumerate() {
            let texts = [ACCENT, GOOD, BAD, WARNING].map(|colour| colour.indexed[index]);
            for text in texts.into_iter().chain([PALE[index]]) {
                for background in backgrounds.into_iter().chain([parts(SURFACE[index])]) {
                    let contrast = contrast(parts(text), background);
                    assert!(contrast >= 4.5, "colour {text} on {background:?}: {contrast:.2}");
                }
            }
            assert!(contrast(parts(ON_SURFACE[index]), parts(SURFACE[index])) >= 7.0);
        }
    }
}
