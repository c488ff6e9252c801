//! The open menu of profiles.

use super::SearchList;
use super::answer::Answer;
use crate::fuzzy;
use crate::profile::choice::ProfileChoice;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileMenu {
    pub list: SearchList,
    /// The profiles of this run of the program.
    pub choices: Answer<Vec<ProfileChoice>>,
    /// Reason why the chosen profile must be confirmed with a second key press.
    pub to_confirm: Option<&'static str>,
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
