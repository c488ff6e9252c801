//! The table of key bindings, which defines the actions of keys, the footer, the help screen and the table in
//! `README.md`.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::model::Screen;

/// Action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table describes each action")]
pub enum Action {
    Quit,
    Help,
    Open(Screen),
    NextScreen,
    PreviousScreen,
    NextField,
    PreviousField,
    Send,
    Leave,
    Erase,
    Clear,
    CursorLeft,
    CursorRight,
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
    LastLine,
    NextReference,
    FollowReference,
    CheckCodes,
    ResumeExport,
    DeleteExport,
    CopyCurl,
    Replay,
    EditRequest,
    SaveRequests,
    CopyAddress,
    CopyPassword,
    CopyCommand,
    NextOperation,
    PreviousOperation,
    OpenInTree,
    PreviousConcept,
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
    ToggleMouse,
}

/// State of the focus in which a key binding applies.
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
#[derive(Clone, Copy, Debug)]
pub struct KeyRow {
    /// Keys of the binding.
    pub keys: &'static [(KeyModifiers, KeyCode)],
    /// Names of the keys for display.
    pub label: &'static str,
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

const NONE: KeyModifiers = KeyModifiers::NONE;
const CTRL: KeyModifiers = KeyModifiers::CONTROL;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;
const FORMS: &[Screen] = &[Screen::SignIn, Screen::Codes, Screen::Tree, Screen::Export];
const TERMINOLOGY: &[Screen] = &[Screen::Codes, Screen::Tree];

const fn row(
    keys: &'static [(KeyModifiers, KeyCode)],
    label: &'static str,
    does: &'static str,
    when: When,
    screens: &'static [Screen],
    footer: Option<&'static str>,
    action: Action,
) -> KeyRow {
    KeyRow { keys, label, does, when, screens, footer, action }
}

/// All key bindings. While a field has the focus, other letters are typed.
#[rustfmt::skip]
pub const TABLE: &[KeyRow] = {
    use Action::*;
    use When::*;
    &[
        row(&[(NONE, KeyCode::Enter)], "Enter", "sign in, or send the pasted text", Always, &[Screen::SignIn], Some("sign in"), Send),
        row(&[(NONE, KeyCode::Enter)], "Enter", "send the form", Always, &[Screen::Codes], Some("send"), Send),
        row(&[(NONE, KeyCode::Enter)], "Enter", "open the code of the form, or the selected concept", Always, &[Screen::Tree], Some("open"), Send),
        row(&[(NONE, KeyCode::Enter)], "Enter", "open the form, or start the export in it", Always, &[Screen::Export], Some("start"), Send),
        row(&[(NONE, KeyCode::Enter)], "Enter", "show or hide the resource, or apply the filter", Always, &[Screen::Files], Some("show"), Send),
        row(&[(NONE, KeyCode::Char('/'))], "/", "select a part of the response with a JSONPath", Browsing, &[Screen::Requests], Some("JSONPath"), SelectBody),
        row(&[(NONE, KeyCode::Char('/'))], "/", "edit the filter", Browsing, &[Screen::Files], Some("filter"), EditFilter),
        row(&[(NONE, KeyCode::Tab)], "Tab", "next file", Always, &[Screen::Files], Some("next file"), NextFile),
        row(&[(NONE, KeyCode::Char('f'))], "f", "select the next reference", Browsing, &[Screen::Files], Some("reference"), NextReference),
        row(&[(NONE, KeyCode::Char('g'))], "g", "go to the resource of the reference", Browsing, &[Screen::Files], Some("go to"), FollowReference),
        row(&[(NONE, KeyCode::Char('c'))], "c", "validate the codes of the resource", Browsing, &[Screen::Files], Some("check codes"), CheckCodes),
        row(&[(NONE, KeyCode::Home)], "Home", "first line", Browsing, &[Screen::Files], None, FirstLine),
        row(&[(NONE, KeyCode::End)], "End", "last line", Browsing, &[Screen::Files], None, LastLine),
        row(&[(NONE, KeyCode::Char('v'))], "v", "view the downloaded files", Browsing, &[Screen::Export], Some("view files"), ViewFiles),
        row(&[(NONE, KeyCode::Enter)], "Enter", "show or hide the details", Always, &[Screen::Requests], Some("details"), Send),
        row(&[(NONE, KeyCode::Tab)], "Tab", "next field", Always, FORMS, Some("next field"), NextField),
        row(&[(SHIFT, KeyCode::BackTab), (NONE, KeyCode::BackTab)], "Shift-Tab", "previous field", Always, FORMS, None, PreviousField),
        row(&[(NONE, KeyCode::Esc)], "Esc", "leave the field", Typing, &[], Some("leave field"), Leave),
        row(&[(NONE, KeyCode::Esc)], "Esc", "go back, or cancel the sign-in", Browsing, &[], None, Leave),
        row(&[(NONE, KeyCode::Backspace)], "Backspace", "erase a character", Typing, &[], None, Erase),
        row(&[(CTRL, KeyCode::Char('u'))], "Ctrl-U", "clear the field", Typing, &[], Some("clear field"), Clear),
        row(&[(NONE, KeyCode::Left)], "Left", "move the cursor to the left", Typing, &[], None, CursorLeft),
        row(&[(NONE, KeyCode::Right)], "Right", "move the cursor to the right", Typing, &[], None, CursorRight),
        row(&[(NONE, KeyCode::Home)], "Home", "move the cursor to the start", Typing, &[], None, CursorStart),
        row(&[(NONE, KeyCode::End)], "End", "move the cursor to the end", Typing, &[], None, CursorEnd),
        row(&[(NONE, KeyCode::Down), (CTRL, KeyCode::Char('n')), (CTRL, KeyCode::Char(' '))], "Down, Ctrl-N", "complete the field: next value", Typing, TERMINOLOGY, Some("complete"), NextCompletion),
        row(&[(NONE, KeyCode::Up)], "Up", "complete the field: previous value", Typing, TERMINOLOGY, None, PreviousCompletion),
        row(&[(NONE, KeyCode::Char('i'))], "i", "inspect the next token", Browsing, &[Screen::SignIn], Some("inspect token"), InspectToken),
        row(&[(NONE, KeyCode::Char('w'))], "w", "read userinfo again", Browsing, &[Screen::SignIn], Some("userinfo"), Userinfo),
        row(&[(NONE, KeyCode::Char('o'))], "o", "sign out and revoke the token", Browsing, &[Screen::SignIn], Some("sign out"), SignOut),
        row(&[(NONE, KeyCode::Char('b'))], "b", "sign out, also in the browser", Browsing, &[Screen::SignIn], Some("and browser"), SignOutBrowser),
        row(&[(NONE, KeyCode::Char('v'))], "v", "sign in on another device with a code", Browsing, &[Screen::SignIn], Some("on a device"), SignInOnDevice),
        row(&[(NONE, KeyCode::Char('p'))], "p", "copy the password of the demo user", Browsing, &[Screen::SignIn], Some("copy password"), CopyPassword),
        row(&[(NONE, KeyCode::Char('c'))], "c", "copy the sign-in address", Browsing, &[Screen::SignIn], None, CopyAddress),
        row(&[(NONE, KeyCode::Char('t'))], "t", "switch between the tokens of user and backend", Browsing, TERMINOLOGY, Some("switch token"), SwitchBearer),
        row(&[(NONE, KeyCode::Char('o'))], "o", "next operation", Browsing, &[Screen::Codes], Some("operation"), NextOperation),
        row(&[(NONE, KeyCode::Char('O')), (SHIFT, KeyCode::Char('O'))], "O", "previous operation", Browsing, &[Screen::Codes], None, PreviousOperation),
        row(&[(NONE, KeyCode::Char('y'))], "y", "copy the command that does the same", Browsing, TERMINOLOGY, Some("copy command"), CopyCommand),
        row(&[(NONE, KeyCode::Char('g'))], "g", "go to the code in its hierarchy", Browsing, &[Screen::Codes], Some("in tree"), OpenInTree),
        row(&[(NONE, KeyCode::Char('b'))], "b", "validate a file of codes", Browsing, &[Screen::Codes], Some("batch"), OpenBatch),
        row(&[(NONE, KeyCode::Char('d'))], "d", "send each question to another server, too, and mark differences", Browsing, &[Screen::Codes], Some("compare"), CompareServers),
        row(&[(NONE, KeyCode::Char('f'))], "f", "show only the rows of the batch that are not valid, or all", Browsing, &[Screen::Codes], Some("only failures"), ShowFailures),
        row(&[(NONE, KeyCode::Char('x'))], "x", "stop the batch", Browsing, &[Screen::Codes], Some("stop"), StopBatch),
        row(&[(NONE, KeyCode::Char('r'))], "r", "recall an earlier question", Browsing, TERMINOLOGY, Some("recall"), OpenHistory),
        row(&[(NONE, KeyCode::Backspace)], "Backspace", "back to the concept before", Browsing, &[Screen::Tree], Some("back"), PreviousConcept),
        row(&[(NONE, KeyCode::Char('n'))], "n", "open the form for a new export", Browsing, &[Screen::Export], Some("new"), NewExport),
        row(&[(NONE, KeyCode::Char('r'))], "r", "resume the selected export", Browsing, &[Screen::Export], Some("resume"), ResumeExport),
        row(&[(NONE, KeyCode::Char('x'))], "x", "cancel the selected export, or delete it on the server", Browsing, &[Screen::Export], Some("cancel/delete"), DeleteExport),
        row(&[(NONE, KeyCode::Char('c'))], "c", "copy as a curl command", Browsing, &[Screen::Requests], Some("copy curl"), CopyCurl),
        row(&[(NONE, KeyCode::Char('p'))], "p", "send the selected request again", Browsing, &[Screen::Requests], Some("replay"), Replay),
        row(&[(NONE, KeyCode::Char('e'))], "e", "edit the selected request in $EDITOR and send it", Browsing, &[Screen::Requests], Some("edit"), EditRequest),
        row(&[(NONE, KeyCode::Char('s'))], "s", "save all requests as an HTTP Archive", Browsing, &[Screen::Requests], Some("save HAR"), SaveRequests),
        row(&[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))], "Up, k", "up in a list", Browsing, &[], None, Up),
        row(&[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))], "Down, j", "down in a list", Browsing, &[], None, Down),
        row(&[(NONE, KeyCode::PageUp)], "PgUp", "a page up", Browsing, &[], None, PageUp),
        row(&[(NONE, KeyCode::PageDown)], "PgDn", "a page down", Browsing, &[], None, PageDown),
        row(&[(NONE, KeyCode::Right), (NONE, KeyCode::Char('l'))], "Right, l", "next screen", Browsing, &[], None, NextScreen),
        row(&[(NONE, KeyCode::Left), (NONE, KeyCode::Char('h'))], "Left, h", "previous screen", Browsing, &[], None, PreviousScreen),
        row(&[(NONE, KeyCode::Char('1'))], "1", "Sign-in", Browsing, &[], None, Open(Screen::SignIn)),
        row(&[(NONE, KeyCode::Char('2'))], "2", "Codes", Browsing, &[], None, Open(Screen::Codes)),
        row(&[(NONE, KeyCode::Char('3'))], "3", "Tree", Browsing, &[], None, Open(Screen::Tree)),
        row(&[(NONE, KeyCode::Char('4'))], "4", "Export", Browsing, &[], None, Open(Screen::Export)),
        row(&[(NONE, KeyCode::Char('5'))], "5", "Requests", Browsing, &[], None, Open(Screen::Requests)),
        row(&[(NONE, KeyCode::Char('6'))], "6", "Help", Browsing, &[], None, Open(Screen::Help)),
        row(&[(NONE, KeyCode::Char(':')), (SHIFT, KeyCode::Char(':'))], ":", "search all commands", Browsing, &[], Some("commands"), OpenPalette),
        row(&[(CTRL, KeyCode::Char('p'))], "Ctrl-P", "search all commands", Always, &[], None, OpenPalette),
        row(&[(NONE, KeyCode::Char('P')), (SHIFT, KeyCode::Char('P'))], "P", "change the profile", Browsing, &[], None, ChangeProfile),
        row(&[(NONE, KeyCode::Char('z'))], "z", "show only the answer or the details, or both panes", Browsing, &[], None, Zoom),
        row(&[(NONE, KeyCode::Char('m'))], "m", "use the mouse here, or leave it to the terminal", Browsing, &[], None, ToggleMouse),
        row(&[(NONE, KeyCode::F(1))], "F1", "help", Always, &[], Some("help"), Help),
        row(&[(NONE, KeyCode::Char('?')), (SHIFT, KeyCode::Char('?'))], "?", "help", Browsing, &[], None, Help),
        row(&[(NONE, KeyCode::Char('q'))], "q", "quit", Browsing, &[], Some("quit"), Quit),
        row(&[(CTRL, KeyCode::Char('c'))], "Ctrl-C", "quit", Always, &[], None, Quit),
    ]
};

impl KeyRow {
    /// Returns whether the binding applies to this screen and focus.
    pub fn holds(&self, screen: Screen, typing: bool) -> bool {
        let now = match self.when {
            When::Always => true,
            When::Typing => typing,
            When::Browsing => !typing,
        };
        now && (self.screens.is_empty() || self.screens.contains(&screen))
    }
}

/// Returns the action of a key in the current state.
pub fn action(key: KeyEvent, screen: Screen, typing: bool) -> Option<Action> {
    let pressed = (key.modifiers, key.code);
    TABLE.iter().find(|row| row.holds(screen, typing) && row.keys.contains(&pressed)).map(|row| row.action)
}

/// Returns the key bindings that the footer shows in the current state.
pub fn footer(screen: Screen, typing: bool) -> impl Iterator<Item = &'static KeyRow> {
    TABLE.iter().filter(move |row| row.footer.is_some() && row.holds(screen, typing))
}

/// Returns the key bindings of a screen outside of fields, without those that move the focus, for the command palette.
pub fn commands(screen: Screen) -> impl Iterator<Item = &'static KeyRow> {
    let moves = |action| {
        use Action::*;
        matches!(action, Up | Down | PageUp | PageDown | OpenPalette | Leave)
    };
    TABLE.iter().filter(move |row| row.holds(screen, false) && !moves(row.action))
}

/// Returns the table as Markdown, for `README.md`.
pub fn markdown() -> String {
    let mut text = "| Key | Does | Where |\n|---|---|---|\n".to_owned();
    for row in TABLE {
        let mut place = match row.screens {
            [] => "everywhere".to_owned(),
            screens => screens.iter().map(|screen| screen.title()).collect::<Vec<_>>().join(", "),
        };
        place.push_str(match row.when {
            When::Always => "",
            When::Typing => ", in a field",
            When::Browsing => ", outside of fields",
        });
        text.push_str(&format!("| `{}` | {} | {place} |\n", row.label, row.does));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_actions() {
        for screen in Screen::ALL {
            for typing in [false, true] {
                let rows: Vec<_> = TABLE.iter().filter(|row| row.holds(screen, typing)).collect();
                for (at, row) in rows.iter().enumerate() {
                    for other in &rows[at + 1..] {
                        let both = row.keys.iter().any(|key| other.keys.contains(key));
                        assert!(!both, "{screen:?}: '{}' and '{}'", row.does, other.does);
                    }
                }
            }
        }
    }

    #[test]
    fn no_letter_has_an_action_in_a_field() {
        for row in TABLE.iter().filter(|row| row.when != When::Browsing) {
            let letter = row.keys.iter().any(|(with, key)| matches!(key, KeyCode::Char(_)) && *with == NONE);
            assert!(!letter, "'{}' binds a letter in a field", row.label);
        }
    }

    #[test]
    fn every_screen_opens_and_can_be_left() {
        for screen in Screen::ALL {
            assert!(TABLE.iter().any(|row| row.action == Action::Open(screen)), "{screen:?}");
            for typing in [false, true] {
                let keys: Vec<_> = footer(screen, typing).map(|row| row.label).collect();
                assert!(keys.contains(&"F1"), "{screen:?} {keys:?}");
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
        let expected = format!("{before}{BEGIN}{}{END}{after}", markdown());
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
