//! {base}/console: the server as its administrators see it, with forms for the commands. It works without
//! scripts.
//!
//! | module | contents |
//! |---|---|
//! | [`actions`] | the form of each action, and its end |
//! | [`overview`] | the page with all users, clients, keys, releases, exports, nodes and refusals |
//! | [`details`] | the page of a user, and that of a client |
//! | `forms` | the forms, one for each command |
//! | `commands` | runs a command and collects its result |
//! | `visit` | the administrator who visits the console |
//!
//! The pages show the results of `trefoil status`, `trefoil user list` and so on, and a form runs a command
//! of the command line, so that both do the same, with the same entries of the audit log.

pub mod actions;
mod commands;
pub mod details;
mod forms;
pub mod overview;
mod visit;
