//! The command line of `cargo xtask`, and the commands that build the workspace.
//!
//! | module | contents |
//! |---|---|
//! | [`command_line`] | the commands and their arguments |
//! | [`workspace`] | the folders of the workspace, and the commands that build it |

pub mod command_line;
pub mod workspace;
