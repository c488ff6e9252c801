//! The rows of the visible list as texts, among which the user searches.

use super::{HomeRow, Model, Screen};
use crate::fuzzy;

impl Model {
    /// The rows of the visible list; empty if the screen shows none.
    pub fn list_rows(&self) -> Vec<String> {
        match self.screen {
            Screen::Home => self.home.rows().iter().map(HomeRow::text).collect(),
            Screen::Requests => self.requests.exchanges.iter().map(|exchange| exchange.summary()).collect(),
            Screen::Export if !self.export.form_open() => {
                let row = |row: &super::ExportRow| format!("{}  {}", row.job.scope(), row.folder.display());
                self.export.rows.iter().map(row).collect()
            }
            Screen::Tree => {
                let rows = self.tree.rows().into_iter();
                rows.map(|row| format!("{}  {}", row.code, row.display.as_deref().unwrap_or_default()))
                    .collect()
            }
            Screen::Codes if self.batch.open => {
                self.batch.visible().map(|row| format!("{}  {}", row.code, row.explanation())).collect()
            }
            // The files of an export have a filter of their own.
            Screen::SignIn | Screen::Codes | Screen::Export | Screen::Help | Screen::Files => Vec::new(),
        }
    }

    /// The rows that match a text with their positions in the list, the best matches first.
    pub fn matching_rows(&self, text: &str) -> Vec<(usize, String)> {
        fuzzy::matching(text, self.list_rows().into_iter().enumerate(), |(_, row)| row.clone())
    }
}
