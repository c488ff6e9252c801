//! The list over a screen, which takes its keys: at most one at a time.

use super::{Completion, Model, ProfileMenu};
use crate::model::search_list::SearchList;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// Values for the focused field. The field keeps the focus.
    Completion(Completion),
    /// Terminology questions that were sent before.
    Recall(SearchList),
    /// The profiles that can be opened.
    Profiles(ProfileMenu),
    Palette(SearchList),
    /// The rows of the visible list.
    Find(SearchList),
    /// The labels of the elements that can be selected. The value is what was typed of a label.
    Jump(String),
}

impl Model {
    /// The list that covers the screen, if one is open.
    pub fn open_list(&mut self) -> Option<&mut SearchList> {
        match self.overlay.as_mut()? {
            Overlay::Completion(_) | Overlay::Jump(_) => None,
            Overlay::Profiles(menu) => Some(&mut menu.list),
            Overlay::Recall(list) | Overlay::Palette(list) | Overlay::Find(list) => Some(list),
        }
    }

    /// The values for the focused field, if they are shown.
    pub fn completion(&self) -> Option<&Completion> {
        match self.overlay.as_ref()? {
            Overlay::Completion(completion) => Some(completion),
            _ => None,
        }
    }

    /// Shows these values, or none. A list that covers the screen remains open.
    pub fn set_completion(&mut self, completion: Option<Completion>) {
        if self.open_list().is_none() {
            self.overlay = completion.map(Overlay::Completion);
        }
    }

    /// Hides the values for the focused field, and returns them if they were shown.
    pub fn take_completion(&mut self) -> Option<Completion> {
        match self.overlay.take() {
            Some(Overlay::Completion(completion)) => Some(completion),
            other => {
                self.overlay = other;
                None
            }
        }
    }

    pub fn profile_menu(&self) -> Option<&ProfileMenu> {
        match self.overlay.as_ref()? {
            Overlay::Profiles(menu) => Some(menu),
            _ => None,
        }
    }
}
