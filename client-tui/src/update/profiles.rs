//! Updates of the menu of profiles. The runtime replaces the model when it opens another profile.

use ratatui::crossterm::event::{KeyCode, KeyEvent};

use crate::model::answer::Answer;
use crate::model::search_list::ListKey;
use crate::model::{Model, Overlay, ProfileConfirmation, ProfileMenu, YES};
use crate::msg::{Answered, RuntimeEffect};
use crate::profile::choice::ProfileChoice;

pub(super) fn open(model: &mut Model) -> Vec<RuntimeEffect> {
    model.overlay = Some(Overlay::Profiles(ProfileMenu::opened()));
    vec![RuntimeEffect::ListProfiles]
}

/// Fills the menu, and selects the open profile.
pub(super) fn on_choices(model: &mut Model, result: Answered<Vec<ProfileChoice>>) {
    let Some(Overlay::Profiles(menu)) = &mut model.overlay else { return };
    menu.choices = result.into();
    if let Answer::Done(choices) = &menu.choices {
        let open = choices.iter().position(|choice| choice.name == model.about.profile);
        menu.list.selected = open.unwrap_or_default();
    }
}

/// Processes a key of the open menu. A profile is opened at once, or, if this ends something, after a
/// confirmation.
pub(super) fn on_key(model: &mut Model, key: KeyEvent) -> Vec<RuntimeEffect> {
    let (ends, keys, now) = (model.in_flight(), model.keys, model.now);
    let Some(Overlay::Profiles(menu)) = &mut model.overlay else { return Vec::new() };
    if menu.to_confirm.as_ref().is_some_and(|pending| pending.is_new(now)) {
        return Vec::new();
    }
    if let Some(ProfileConfirmation { chosen, .. }) = menu.to_confirm.take()
        && key.code == KeyCode::Char(YES)
    {
        model.overlay = None;
        return vec![RuntimeEffect::OpenProfile(chosen)];
    }
    let count = menu.matching().len();
    match menu.list.on_key(key, keys, count) {
        ListKey::Chosen(at) => {
            let choice = menu.matching()[at].clone();
            let Some(ends) = ends else {
                model.overlay = None;
                return vec![RuntimeEffect::OpenProfile(choice)];
            };
            menu.to_confirm = Some(ProfileConfirmation { chosen: choice, ends, since: now });
        }
        ListKey::Closed => model.overlay = None,
        ListKey::Handled => {}
    }
    Vec::new()
}
