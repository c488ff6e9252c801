//! The table of key bindings, which defines the actions of keys, the footer, the help screen and the table in
//! `README.md`. The settings of the user can give an action other keys.

pub mod key;

use std::sync::LazyLock;

use clap::ValueEnum;
use ratatui::crossterm::event::KeyEvent;

use self::key::Key;
use crate::form::FieldEdit;
use crate::screen::Screen;

/// Action of a key. The settings name the actions, such as `copy-curl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[expect(missing_docs, reason = "the table describes each action")]
pub enum Action {
    Quit,
    Help,
    OpenHome,
    OpenSignIn,
    OpenCodes,
    OpenTree,
    OpenExport,
    OpenRequests,
    OpenHelp,
    NextScreen,
    PreviousScreen,
    NextField,
    PreviousField,
    Send,
    SearchEverything,
    ValidateConcept,
    SubsumesConcept,
    SignIn,
    Reload,
    Leave,
    Erase,
    EraseAfter,
    EraseWord,
    EraseToEnd,
    Clear,
    Undo,
    CursorLeft,
    CursorRight,
    CursorWordLeft,
    CursorWordRight,
    CursorStart,
    CursorEnd,
    Up,
    Down,
    PageUp,
    PageDown,
    InspectToken,
    SignOut,
    SignOutBrowser,
    SignInOnDevice,
    Userinfo,
    SwitchBearer,
    NewExport,
    ViewFiles,
    EditFilter,
    SelectBody,
    NextFile,
    FirstLine,
    Top,
    SearchKeys,
    LastLine,
    NextReference,
    FollowReference,
    CheckCodes,
    ResumeExport,
    DeleteExport,
    CopyCurl,
    CopyHttpie,
    Replay,
    EditRequest,
    OpenPager,
    SaveRequests,
    CopyAddress,
    CopyPassword,
    CopyToken,
    CopyParameters,
    CopyCommand,
    NextOperation,
    PreviousOperation,
    OpenInTree,
    PreviousConcept,
    OpenBelow,
    OpenAbove,
    NextCompletion,
    PreviousCompletion,
    OpenHistory,
    OpenBatch,
    CompareServers,
    StopBatch,
    ShowFailures,
    OpenPalette,
    ChangeProfile,
    Zoom,
    WidenPane,
    NarrowPane,
    Jump,
    Find,
    ToggleMouse,
    Suspend,
}

/// State of the focus in which a key binding applies. A key that types a character never applies in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The binding applies with any focus.
    Always,
    /// The binding applies while a field has the focus.
    Typing,
    /// The binding applies while no field has the focus.
    Browsing,
}

/// A key binding, which is one row of the table.
#[derive(Clone, Debug)]
pub struct KeyRow {
    /// Keys of the binding.
    pub keys: Vec<Key>,
    /// Short description of the action.
    pub does: &'static str,
    /// State of the focus in which the binding applies.
    pub when: When,
    /// Screens in which the binding applies; empty for all screens.
    pub screens: &'static [Screen],
    /// Text in the footer; `None` if the footer does not show the binding.
    pub footer: Option<&'static str>,
    pub action: Action,
}

/// The key bindings of this run of the program.
#[derive(Clone, Debug)]
pub struct KeyTable {
    rows: Vec<KeyRow>,
}

const FORMS: &[Screen] = &[Screen::SignIn, Screen::Codes, Screen::Tree, Screen::Export];
const LISTS: &[Screen] = &[Screen::Home, Screen::Codes, Screen::Tree, Screen::Export, Screen::Requests];
const SEARCHES: &[Screen] = &[Screen::Home, Screen::Codes, Screen::Tree];
const TERMINOLOGY: &[Screen] = &[Screen::Codes, Screen::Tree];

/// A row. `keys` are separated by commas.
fn row(
    keys: &str,
    does: &'static str,
    when: When,
    screens: &'static [Screen],
    footer: Option<&'static str>,
    action: Action,
) -> KeyRow {
    let keys = keys.split(", ").map(|key| key.parse().expect("the table contains only keys")).collect();
    KeyRow { keys, does, when, screens, footer, action }
}

static STANDARD: LazyLock<KeyTable> = LazyLock::new(|| KeyTable { rows: standard_rows() });

/// All key bindings without the settings of the user.
#[rustfmt::skip]
fn standard_rows() -> Vec<KeyRow> {
    use Action::*;
    use When::*;
    vec![
        row("/", "search everything that the server has", Browsing, &[Screen::Home], Some("search"), SearchEverything),
        row("Enter", "open the selected concept, code system, value set or group", Always, &[Screen::Home], Some("open"), Send),
        row("v", "validate the selected concept", Browsing, &[Screen::Home], Some("validate"), ValidateConcept),
        row("u", "choose two concepts for $subsumes", Browsing, &[Screen::Home], Some("subsumes"), SubsumesConcept),
        row("s", "sign in", Browsing, &[Screen::Home], Some("sign in"), SignIn),
        row("R", "ask the server again what it has", Browsing, &[Screen::Home], None, Reload),
        row("Enter", "sign in, or send the pasted text", Always, &[Screen::SignIn], Some("sign in"), Send),
        row("Enter", "send the form", Always, &[Screen::Codes], Some("send"), Send),
        row("Enter", "open the code of the form, or the selected concept", Always, &[Screen::Tree], Some("open"), Send),
        row("Enter", "open the form, or start the export in it", Always, &[Screen::Export], Some("start"), Send),
        row("Enter", "show or hide the resource, or apply the filter", Always, &[Screen::Files], Some("show"), Send),
        row("/", "select a part of the response with a JSONPath", Browsing, &[Screen::Requests], Some("JSONPath"), SelectBody),
        row("/", "edit the filter", Browsing, &[Screen::Files], Some("filter"), EditFilter),
        row("Tab", "next file", Always, &[Screen::Files], Some("next file"), NextFile),
        row("f", "select the next reference", Browsing, &[Screen::Files], Some("reference"), NextReference),
        row("g", "go to the resource of the reference", Browsing, &[Screen::Files], Some("go to"), FollowReference),
        row("c", "validate the codes of the resource", Browsing, &[Screen::Files], Some("check codes"), CheckCodes),
        row("v", "view the downloaded files", Browsing, &[Screen::Export], Some("view files"), ViewFiles),
        row("Enter", "show or hide the details", Always, &[Screen::Requests], Some("details"), Send),
        row("Tab", "next field", Always, FORMS, Some("next field"), NextField),
        row("Shift-Tab", "previous field", Always, FORMS, None, PreviousField),
        row("Esc", "leave the field", Typing, &[], Some("leave field"), Leave),
        row("Esc", "cancel the waiting request or sign-in, or go back", Browsing, &[], None, Leave),
        row("Backspace", "erase a character", Typing, &[], None, Erase),
        row("Delete, Ctrl-D", "erase the character after the cursor", Typing, &[], None, EraseAfter),
        row("Ctrl-W, Alt-Backspace", "erase the word before the cursor", Typing, &[], None, EraseWord),
        row("Ctrl-K", "erase to the end of the field", Typing, &[], None, EraseToEnd),
        row("Ctrl-U", "erase to the start of the field", Typing, &[], Some("clear field"), Clear),
        row("Ctrl-7", "undo the last change of the field (Ctrl-_)", Typing, &[], None, Undo),
        row("Left", "move the cursor to the left", Typing, &[], None, CursorLeft),
        row("Right", "move the cursor to the right", Typing, &[], None, CursorRight),
        row("Alt-b, Ctrl-Left", "move the cursor a word to the left", Typing, &[], None, CursorWordLeft),
        row("Alt-f, Ctrl-Right", "move the cursor a word to the right", Typing, &[], None, CursorWordRight),
        row("Home, Ctrl-A", "move the cursor to the start", Typing, &[], None, CursorStart),
        row("End, Ctrl-E", "move the cursor to the end", Typing, &[], None, CursorEnd),
        row("Down, Ctrl-N, Ctrl-Space", "complete the field: next value, or select the next result", Typing, SEARCHES, Some("complete"), NextCompletion),
        row("Up", "complete the field: previous value, or select the result before", Typing, SEARCHES, None, PreviousCompletion),
        row("i", "inspect the next token", Browsing, &[Screen::SignIn], Some("inspect token"), InspectToken),
        row("y", "copy the inspected token, which is a secret", Browsing, &[Screen::SignIn], None, CopyToken),
        row("w", "read userinfo again", Browsing, &[Screen::SignIn], Some("userinfo"), Userinfo),
        row("o", "sign out and revoke the token", Browsing, &[Screen::SignIn], Some("sign out"), SignOut),
        row("b", "sign out, also in the browser", Browsing, &[Screen::SignIn], Some("and browser"), SignOutBrowser),
        row("v", "sign in on another device with a code", Browsing, &[Screen::SignIn], Some("on a device"), SignInOnDevice),
        row("p", "copy the password of the demo user", Browsing, &[Screen::SignIn], Some("copy password"), CopyPassword),
        row("c", "copy the sign-in address, or the code for another device", Browsing, &[Screen::SignIn], None, CopyAddress),
        row("t", "switch between the tokens of user and backend", Browsing, SEARCHES, Some("switch token"), SwitchBearer),
        row("o", "next operation", Browsing, &[Screen::Codes], Some("operation"), NextOperation),
        row("O", "previous operation", Browsing, &[Screen::Codes], None, PreviousOperation),
        row("y", "copy the command that does the same", Browsing, TERMINOLOGY, Some("copy command"), CopyCommand),
        row("Y", "copy the question as a Parameters resource", Browsing, TERMINOLOGY, None, CopyParameters),
        row("y", "copy the command that starts the same export", Browsing, &[Screen::Export], None, CopyCommand),
        row("g", "go to the code in its hierarchy", Browsing, &[Screen::Home, Screen::Codes], Some("in tree"), OpenInTree),
        row("b", "validate a file of codes", Browsing, &[Screen::Codes], Some("batch"), OpenBatch),
        row("d", "send each question to another server, too, and mark differences", Browsing, &[Screen::Home, Screen::Codes], Some("compare"), CompareServers),
        row("f", "show only the rows of the batch that are not valid, or all", Browsing, &[Screen::Codes], Some("only failures"), ShowFailures),
        row("x", "stop the batch", Browsing, &[Screen::Codes], Some("stop"), StopBatch),
        row("r", "recall an earlier question", Browsing, TERMINOLOGY, Some("recall"), OpenHistory),
        row("Backspace", "back to the concept before", Browsing, &[Screen::Tree], Some("back"), PreviousConcept),
        row("n", "open the form for a new export", Browsing, &[Screen::Export], Some("new"), NewExport),
        row("r", "resume the selected export", Browsing, &[Screen::Export], Some("resume"), ResumeExport),
        row("x", "cancel the selected export, or delete it on the server", Browsing, &[Screen::Export], Some("cancel/delete"), DeleteExport),
        row("c", "copy as a curl command", Browsing, &[Screen::Requests], Some("copy curl"), CopyCurl),
        row("C", "copy as an HTTPie command", Browsing, &[Screen::Requests], None, CopyHttpie),
        row("p", "send the selected request again", Browsing, &[Screen::Requests], Some("replay"), Replay),
        row("e", "edit the selected request in $EDITOR and send it", Browsing, &[Screen::Requests], Some("edit"), EditRequest),
        row("v", "open the body in $PAGER", Browsing, &[Screen::Requests], Some("pager"), OpenPager),
        row("v", "open the resource in $PAGER", Browsing, &[Screen::Files], Some("pager"), OpenPager),
        row("s", "save all requests as an HTTP Archive", Browsing, &[Screen::Requests], Some("save HAR"), SaveRequests),
        row("Up, k", "up in a list", Browsing, &[], None, Up),
        row("Down, j", "down in a list", Browsing, &[], None, Down),
        row("PgUp, Ctrl-U", "a page up", Browsing, &[], None, PageUp),
        row("PgDn, Ctrl-D", "a page down", Browsing, &[], None, PageDown),
        row("Home", "first row", Browsing, &[], None, FirstLine),
        row("g", "first row", Browsing, &[Screen::Tree, Screen::Export, Screen::Requests, Screen::Help], None, Top),
        row("End, G", "last row", Browsing, &[], None, LastLine),
        row("/", "search the keys", Browsing, &[Screen::Help], Some("search"), SearchKeys),
        row("l", "open the selected concept below, or the first one", Browsing, &[Screen::Tree], Some("below"), OpenBelow),
        row("h", "open the selected concept above, or the first one", Browsing, &[Screen::Tree], Some("above"), OpenAbove),
        row("Right", "next screen", Browsing, &[], None, NextScreen),
        row("Left", "previous screen", Browsing, &[], None, PreviousScreen),
        row("0", "Home", Browsing, &[], None, OpenHome),
        row("1", "Sign-in", Browsing, &[], None, OpenSignIn),
        row("2", "Codes", Browsing, &[], None, OpenCodes),
        row("3", "Tree", Browsing, &[], None, OpenTree),
        row("4", "Export", Browsing, &[], None, OpenExport),
        row("5", "Requests", Browsing, &[], None, OpenRequests),
        row("6", "Help", Browsing, &[], None, OpenHelp),
        row(":, Ctrl-P", "search all commands and earlier questions", Always, &[], Some("commands"), OpenPalette),
        row("P", "change the profile", Browsing, &[], None, ChangeProfile),
        row("z", "show only the answer or the details, or both panes", Browsing, &[], None, Zoom),
        row(">", "make the first pane larger", Browsing, &[], None, WidenPane),
        row("<", "make the first pane smaller", Browsing, &[], None, NarrowPane),
        row("Ctrl-O", "jump to a tab, a field or a row by its letter", Always, &[], None, Jump),
        row("Ctrl-F", "find a row of the list", Browsing, LISTS, None, Find),
        row("m", "use the mouse here, or leave it to the terminal", Browsing, &[], None, ToggleMouse),
        row("Ctrl-Z", "suspend the program; 'fg' continues it", Always, &[], None, Suspend),
        row("F1, ?", "help", Always, &[], Some("help"), Help),
        row("q, Ctrl-C", "quit", Always, &[], Some("quit"), Quit),
    ]
}

impl Action {
    /// The name in the settings.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no action is skipped");
        value.get_name().to_owned()
    }

    /// The action with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::from_str(name, false).ok()
    }

    /// The change of a field that the action makes, if it makes one.
    pub fn field_edit(self) -> Option<FieldEdit> {
        Some(match self {
            Self::Erase => FieldEdit::EraseBefore,
            Self::EraseAfter => FieldEdit::EraseAfter,
            Self::EraseWord => FieldEdit::EraseWord,
            Self::EraseToEnd => FieldEdit::EraseToEnd,
            Self::Clear => FieldEdit::EraseToStart,
            Self::Undo => FieldEdit::Undo,
            Self::CursorLeft => FieldEdit::Left,
            Self::CursorRight => FieldEdit::Right,
            Self::CursorWordLeft => FieldEdit::WordLeft,
            Self::CursorWordRight => FieldEdit::WordRight,
            Self::CursorStart => FieldEdit::Start,
            Self::CursorEnd => FieldEdit::End,
            _ => return None,
        })
    }

    /// Returns whether the settings cannot give the action another key: open lists and fields use these keys,
    /// too.
    pub fn is_fixed(self) -> bool {
        use Action::*;
        matches!(self, Send | Leave | Erase | CursorLeft | CursorRight | CursorStart | CursorEnd)
    }

    /// Returns whether the action moves the focus or the selection. The command palette does not list it.
    fn moves(self) -> bool {
        use Action::*;
        matches!(self, Up | Down | PageUp | PageDown | OpenPalette | Leave)
    }
}

impl KeyRow {
    /// The keys for display.
    pub fn label(&self) -> String {
        self.keys.iter().map(Key::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The screens and the focus in which the binding applies, in words.
    pub fn place(&self) -> String {
        let mut place = match self.screens {
            [] => "everywhere".to_owned(),
            screens => screens.iter().map(|screen| screen.title()).collect::<Vec<_>>().join(", "),
        };
        place.push_str(match self.when {
            When::Always => "",
            When::Typing => ", in a field",
            When::Browsing => ", outside of fields",
        });
        place
    }

    /// The keys that apply to this screen and focus.
    pub fn keys_at(&self, screen: Screen, typing: bool) -> impl Iterator<Item = &Key> {
        let now = match self.when {
            When::Always => true,
            When::Typing => typing,
            When::Browsing => !typing,
        };
        let holds = now && (self.screens.is_empty() || self.screens.contains(&screen));
        self.keys.iter().filter(move |key| holds && !(typing && key.types_a_character()))
    }
}

/// A key with two actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyConflict {
    pub key: Key,
    pub screen: Screen,
    pub actions: [Action; 2],
}

/// Keys that an action cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBinding {
    #[error("the key of '{0}' is fixed; remove this line")]
    Fixed(String),
    #[error("'{0}' needs a key; state one, or remove this line")]
    NoKey(String),
    #[error(
        "'{key}' types a character, but '{action}' is used in fields; choose a key like F2, Ctrl-X or Alt-x"
    )]
    Character { key: Key, action: String },
}

impl KeyTable {
    /// The key bindings without the settings of the user.
    pub fn standard() -> &'static Self {
        &STANDARD
    }

    pub fn rows(&self) -> &[KeyRow] {
        &self.rows
    }

    /// Replaces the keys of an action.
    ///
    /// # Errors
    /// [`BadBinding`] if the action cannot have these keys.
    pub fn set(&mut self, action: Action, keys: &[Key]) -> Result<(), BadBinding> {
        if action.is_fixed() {
            return Err(BadBinding::Fixed(action.name()));
        }
        if keys.is_empty() {
            return Err(BadBinding::NoKey(action.name()));
        }
        for row in self.rows.iter_mut().filter(|row| row.action == action) {
            if row.when == When::Typing
                && let Some(key) = keys.iter().find(|key| key.types_a_character())
            {
                return Err(BadBinding::Character { key: *key, action: action.name() });
            }
            row.keys = keys.to_vec();
        }
        Ok(())
    }

    /// A key that has two actions on a screen, if there is one.
    pub fn conflict(&self) -> Option<KeyConflict> {
        for screen in Screen::EVERY {
            for typing in [false, true] {
                let bound: Vec<_> = self
                    .rows
                    .iter()
                    .flat_map(|row| row.keys_at(screen, typing).map(|key| (*key, row.action)))
                    .collect();
                for (at, (key, action)) in bound.iter().enumerate() {
                    if let Some((_, other)) = bound[at + 1..].iter().find(|(other, _)| other == key) {
                        return Some(KeyConflict { key: *key, screen, actions: [*action, *other] });
                    }
                }
            }
        }
        None
    }

    /// The action of a key in the current state.
    pub fn action(&self, key: KeyEvent, screen: Screen, typing: bool) -> Option<Action> {
        let pressed = Key::from(key);
        let row = self.rows.iter().find(|row| row.keys_at(screen, typing).any(|key| *key == pressed));
        row.map(|row| row.action)
    }

    /// The change of a field that a key makes on all screens, for the fields of open lists.
    pub fn field_edit(&self, key: KeyEvent) -> Option<FieldEdit> {
        let pressed = Key::from(key);
        let edits = self.rows.iter().filter(|row| row.when == When::Typing && row.screens.is_empty());
        edits.filter(|row| row.keys.contains(&pressed)).find_map(|row| row.action.field_edit())
    }

    /// The first key of an action for a sentence.
    pub fn label(&self, action: Action) -> String {
        let row = self.rows.iter().find(|row| row.action == action);
        row.and_then(|row| row.keys.first()).map(Key::to_string).unwrap_or_default()
    }

    /// The key bindings that the footer shows in the current state, each with its first key.
    pub fn footer(&self, screen: Screen, typing: bool) -> impl Iterator<Item = (&Key, &KeyRow)> {
        let rows = self.rows.iter().filter(|row| row.footer.is_some());
        rows.filter_map(move |row| Some((row.keys_at(screen, typing).next()?, row)))
    }

    /// The keys whose actions a screen has and another one does not have, for the command palette.
    pub fn commands_elsewhere(&self, screen: Screen) -> impl Iterator<Item = (Screen, &KeyRow)> {
        let elsewhere = move |row: &KeyRow| match row.screens {
            // The files of an export are opened from the export.
            [] | [Screen::Files] => None,
            screens if screens.contains(&screen) => None,
            screens => Some(screens[0]),
        };
        self.rows
            .iter()
            .filter(|row| !row.action.moves() && row.when != When::Typing)
            .filter_map(move |row| Some((elsewhere(row)?, row)))
    }

    /// The key bindings of a screen outside of fields, without those that move the focus, for the command
    /// palette.
    pub fn commands(&self, screen: Screen) -> impl Iterator<Item = &KeyRow> {
        self.rows.iter().filter(move |row| !row.action.moves() && row.keys_at(screen, false).next().is_some())
    }

    /// The table as Markdown, for `README.md`.
    pub fn markdown(&self) -> String {
        let mut text = "| Key | Does | Where |\n|---|---|---|\n".to_owned();
        for row in &self.rows {
            text.push_str(&format!("| `{}` | {} | {} |\n", row.label(), row.does, row.place()));
        }
        text
    }

    /// The keys of all actions in the form of the settings.
    pub fn settings(&self) -> String {
        let mut text = "[keys]\n".to_owned();
        for row in self.rows_by_action() {
            let keys: Vec<_> = row.keys.iter().map(|key| toml::Value::String(key.to_string())).collect();
            let keys = match &keys[..] {
                [key] => key.clone(),
                _ => toml::Value::Array(keys),
            };
            let setting = format!("{} = {keys}", row.action.name());
            text.push_str(&format!("{setting:<40} # {}; {}\n", row.does, row.place()));
        }
        text
    }

    /// The first row of each action that the settings can change.
    pub fn rows_by_action(&self) -> impl Iterator<Item = &KeyRow> {
        let is_first =
            |index: usize| self.rows[..index].iter().all(|row| row.action != self.rows[index].action);
        let rows =
            self.rows.iter().enumerate().filter(move |(index, _)| is_first(*index)).map(|(_, row)| row);
        rows.filter(|row| !row.action.is_fixed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_readline_edit() {
        use crate::form::FormField;
        let pressed = |field: &mut FormField, keys: &str| {
            for name in keys.split(' ') {
                let key: Key = name.parse().unwrap();
                let edit = KeyTable::standard().field_edit(key.event());
                field.edit(edit.unwrap_or_else(|| panic!("{name} edits nothing")));
            }
            let (before, after) = field.split_at_cursor();
            format!("{before}^{after}")
        };
        let mut field = FormField::new("url", "", "http://snomed.info/sct|20 x");
        for (keys, expected) in [
            ("Alt-b Ctrl-Left", "http://snomed.info/sct|^20 x"),
            ("Ctrl-W", "http://snomed.info/^20 x"),
            ("Ctrl-7", "http://snomed.info/sct|^20 x"),
            ("Ctrl-K", "http://snomed.info/sct|^"),
            ("Ctrl-A Alt-f", "http^://snomed.info/sct|"),
            ("Ctrl-D Delete", "http^/snomed.info/sct|"),
            ("Ctrl-Right Ctrl-U", "^/sct|"),
            ("Ctrl-E Alt-Backspace", "/^"),
            ("Home Right Left End Backspace", "^"),
            ("Ctrl-7 Ctrl-7", "/sct|^"),
        ] {
            assert_eq!(pressed(&mut field, keys), expected, "{keys}");
        }
    }

    #[test]
    fn no_key_has_two_actions() {
        assert_eq!(KeyTable::standard().conflict(), None);
    }

    #[test]
    fn no_character_is_bound_only_in_fields() {
        for row in KeyTable::standard().rows().iter().filter(|row| row.when == When::Typing) {
            assert!(!row.keys.iter().any(Key::types_a_character), "'{}'", row.does);
        }
    }

    #[test]
    fn the_rows_of_an_action_have_the_same_keys() {
        for row in KeyTable::standard().rows() {
            let other = KeyTable::standard().rows().iter().find(|other| other.action == row.action);
            assert_eq!(other.unwrap().keys, row.keys, "the settings replace the keys of all rows");
        }
    }

    #[test]
    fn every_screen_opens_and_can_be_left() {
        let opens = |title| KeyTable::standard().rows().iter().any(|row| row.does == title);
        for screen in Screen::ALL {
            assert!(opens(screen.title()), "{screen:?}");
            for typing in [false, true] {
                let keys: Vec<_> =
                    KeyTable::standard().footer(screen, typing).map(|(key, _)| key.to_string()).collect();
                assert!(keys.contains(&"F1".to_owned()), "{screen:?} {keys:?}");
            }
        }
    }

    /// Checks the table in `README.md`. `TREFOIL_UPDATE_DOCS=1 cargo test -p trefoil-tui` writes it.
    #[test]
    fn the_readme_has_the_table() {
        const BEGIN: &str = "<!-- keys -->\n";
        const END: &str = "<!-- end of keys -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let expected = format!("{before}{BEGIN}{}{END}{after}", KeyTable::standard().markdown());
        if std::env::var_os("TREFOIL_UPDATE_DOCS").is_some() {
            std::fs::write(path, &expected).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            expected,
            "set TREFOIL_UPDATE_DOCS=1 to write the table"
        );
    }
}
