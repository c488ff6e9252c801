//! Colours and symbols of the screens.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::display::ColourScheme;

/// Text styles. Everything that a style expresses is also shown as text or as a mark.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    scheme: ColourScheme,
}

impl Theme {
    pub fn new(scheme: ColourScheme) -> Self {
        Self { scheme }
    }

    fn of(self, dark: Color, light: Color) -> Style {
        match self.scheme {
            ColourScheme::Dark => Style::new().fg(dark),
            ColourScheme::Light => Style::new().fg(light),
            ColourScheme::HighContrast | ColourScheme::None => Style::new(),
        }
    }

    /// The selected or focused element, and keys.
    pub fn accent(self) -> Style {
        self.of(Color::Cyan, Color::Blue).add_modifier(Modifier::BOLD)
    }

    pub fn good(self) -> Style {
        self.of(Color::Green, Color::Green).add_modifier(Modifier::BOLD)
    }

    /// A negative result or an error.
    pub fn bad(self) -> Style {
        self.of(Color::Red, Color::Red).add_modifier(Modifier::BOLD)
    }

    /// A warning, or an answer that does not belong to the form any more.
    pub fn warning(self) -> Style {
        self.of(Color::Yellow, Color::Magenta).add_modifier(Modifier::BOLD)
    }

    /// Less important text. It is dimmed, because the colour "dark gray" is the background of some colour
    /// schemes.
    pub fn quiet(self) -> Style {
        match self.scheme {
            ColourScheme::HighContrast => Style::new(),
            _ => Style::new().add_modifier(Modifier::DIM),
        }
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
        self.of(Color::Cyan, Color::Blue)
    }

    /// JSON strings.
    pub fn json_text(self) -> Style {
        self.of(Color::Green, Color::Green)
    }

    /// JSON numbers and literals.
    pub fn json_literal(self) -> Style {
        self.of(Color::Yellow, Color::Magenta)
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
            "…" => ".",
            "•" => "*",
            "█" | "▉" | "▊" | "▋" | "▌" | "▇" | "▆" | "▅" => "#",
            "▍" | "▎" | "▏" | "▄" | "▃" | "▂" | "▁" => "=",
            _ => "?",
        };
        cell.set_symbol(ascii);
    }
}
