//! {base}/console: the server as its administrators see it, and the commands that they need most. It works
//! without scripts.
//!
//! | module | contents |
//! |---|---|
//! | [`actions`] | the form of each action, and its end |
//! | [`overview`] | the page with all users, clients, keys, releases, exports, nodes and refusals |
//! | [`details`] | the page of a user, and that of a client |
//! | `action_table` | the actions, one row each, with the command that each runs |
//! | `commands` | runs a command and collects its result |
//! | `visit` | the administrator who visits the console |
//!
//! The pages show the results of `trefoil status`, `trefoil user list` and so on, and a form runs a command
//! of the command line, so that both do the same, with the same entries of the audit log.

mod action_table;
pub mod actions;
mod commands;
pub mod details;
pub mod overview;
mod visit;
