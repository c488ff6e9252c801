//! The open menu of profiles.

use jiff::Timestamp;

use super::SearchList;
use super::answer::Answer;
use super::confirmation::is_new;
use crate::fuzzy;
use crate::profile::choice::ProfileChoice;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileMenu {
    pub list: SearchList,
    /// The profiles of this run of the program.
    pub choices: Answer<Vec<ProfileChoice>>,
    pub to_confirm: Option<ProfileConfirmation>,
}

/// The question whether a change of the profile may end something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileConfirmation {
    pub chosen: ProfileChoice,
    /// Description of what ends.
    pub ends: &'static str,
    /// Time at which the question was shown.
    pub since: Timestamp,
}

impl ProfileConfirmation {
    /// Returns whether a person cannot have read the question yet.
    pub fn is_new(&self, now: Timestamp) -> bool {
        is_new(self.since, now)
    }
}

impl ProfileMenu {
    pub fn opened() -> Self {
        Self { list: SearchList::new("profile"), choices: Answer::None, to_confirm: None }
    }

    /// The profiles that match the text, the best matches first.
    pub fn matching(&self) -> Vec<&ProfileChoice> {
        let choices = match &self.choices {
            Answer::Done(choices) => &choices[..],
            _ => &[],
        };
        fuzzy::matching(self.list.field.text(), choices, |choice| {
            format!("{} {}", choice.name.as_deref().unwrap_or_default(), choice.server)
        })
    }
}
