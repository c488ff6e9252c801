//! The change of the visible screen.

use crate::model::{HelpScreen, Model, Screen};

pub(super) fn open(model: &mut Model, screen: Screen) {
    if screen == Screen::Help && model.screen != Screen::Help {
        model.before_help = model.screen;
        model.help = HelpScreen::default();
    }
    model.screen = screen;
    model.typing = false;
    model.take_completion();
}
