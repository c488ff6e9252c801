//! The screens of the program.

/// The screens, in the order of their tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the titles describe the screens")]
pub enum Screen {
    Home,
    SignIn,
    Codes,
    Tree,
    Export,
    Requests,
    Help,
    /// The files of an export, which has no tab of its own.
    Files,
}

impl Screen {
    pub const EVERY: [Self; 8] = [
        Self::Home,
        Self::SignIn,
        Self::Codes,
        Self::Tree,
        Self::Export,
        Self::Requests,
        Self::Help,
        Self::Files,
    ];
    /// The screens with a tab. The key of each one is its index.
    pub const ALL: [Self; 7] =
        [Self::Home, Self::SignIn, Self::Codes, Self::Tree, Self::Export, Self::Requests, Self::Help];

    pub fn title(self) -> &'static str {
        match self {
            Self::Home => "Home",
            Self::SignIn => "Sign-in",
            Self::Codes => "Codes",
            Self::Tree => "Tree",
            Self::Export => "Export",
            Self::Requests => "Requests",
            Self::Help => "Help",
            Self::Files => "Files",
        }
    }
}
