//! Output and questions of the programs `trefoil` and `trefoil-tui` in a terminal.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | texts of others without characters that a terminal executes; times; words of a shell |
//! | [`help`] | completion scripts and man pages |
//! | [`question`] | questions that are answered with yes or no |

pub mod help;
pub mod question;
pub mod text;
