//! The variables and files of the program, for its man page.

use command_line::help::ManSection;

use super::TOKEN_VARIABLE;

/// Sections of the man page.
pub const MAN_SECTIONS: [ManSection<'_>; 2] = [
    (
        "ENVIRONMENT",
        &[
            (TOKEN_VARIABLE, "The access token to send, if there is no --token-file."),
            ("TREFOIL_PROFILE", "The profile, if no option names a server."),
            (
                "BROWSER",
                "The program that opens an address for a sign-in. Without it, a session of SSH signs in by device.",
            ),
            ("VISUAL, EDITOR", "The editor for a request."),
            ("PAGER", "The program that shows a body; less without it."),
            ("NO_COLOR", "Draw without colours."),
            ("TERM", "The terminal; with 'dumb', no screens are opened, and commands still work."),
            (
                "XDG_CONFIG_HOME, XDG_STATE_HOME",
                "The folders of the files below; ~/.config and ~/.local/state without them.",
            ),
            ("HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "The proxy for requests."),
        ],
    ),
    (
        "FILES",
        &[
            ("~/.config/trefoil-tui/profiles.toml", "Servers and clients; written by setup."),
            ("~/.config/trefoil-tui/settings.toml", "Keys and colours."),
            (
                "~/.local/state/trefoil-tui/tokens/",
                "The tokens of signed-in users, which only their owner may read.",
            ),
            ("~/.local/state/trefoil-tui/history.json", "Questions that were sent before."),
            ("~/.local/state/trefoil-tui/screens.json", "Screen, forms and sizes of the last use."),
            ("~/.local/state/trefoil-tui/exports", "The folders of exports."),
        ],
    ),
];
