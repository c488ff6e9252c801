//! The change of the visible screen.

use crate::model::{Model, Screen};

pub(super) fn open(model: &mut Model, screen: Screen) {
    if screen == Screen::Help && model.screen != Screen::Help {
        model.before_help = model.screen;
        model.help_scroll = 0;
    }
    model.screen = screen;
    model.typing = false;
    model.take_completion();
}
