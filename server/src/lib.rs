//! The Trefoil server: the warp edge, the command line, and what wires the domains together.
//!
//! | module | what lives there |
//! |---|---|
//! | [`cli`] | flags and commands |
//! | [`config`] | settings: flags over file over defaults |
//! | [`settings`] | what can be changed while the server runs |
//! | [`reload`] | reads the settings again |
//! | [`registration`] | a client as it is written down |
//! | [`app`] | the services wired together |
//! | [`audit`] | the audit log |
//! | [`export_log`] | what clients did with their exports |
//! | [`line_log`] | files of lines that are appended to |
//! | [`key_fetch`] | key sets of clients from their addresses |
//! | [`clock`] | time and randomness |
//! | [`clock_guard`] | refuses writes after a jump of the clock |
//! | [`tls`] | certificates |
//! | [`hashing`] | how many passwords are hashed at once |
//! | [`question_pool`] | terminology questions that take long |
//! | [`http`] | the edge |
//! | [`serve`] | start, ready, stop |
//! | [`admin`] | administration, in process or through the socket of a running server |
//! | [`demo`] | the demo project |

pub mod admin;
pub mod app;
pub mod audit;
pub mod cli;
pub mod clock;
pub mod clock_guard;
pub mod config;
pub mod demo;
pub mod descriptors;
pub mod export_log;
pub mod group_members;
pub mod hashing;
pub mod http;
pub mod indexes;
pub mod key_fetch;
pub mod line_log;
pub mod question_pool;
pub mod registration;
pub mod reload;
pub mod serve;
pub mod settings;
pub mod tls;
