//! The Trefoil server: the warp edge, the command line, and what wires the domains together.
//!
//! | module | what lives there |
//! |---|---|
//! | [`cli`] | flags and commands |
//! | [`config`] | settings: flags over file over defaults |
//! | [`app`] | the services wired together |
//! | [`clock`] | time and randomness |
//! | [`tls`] | certificates |
//! | [`http`] | the edge |
//! | [`serve`] | start, ready, stop |
//! | [`admin`] | administration, in process or through the socket of a running server |
//! | [`demo`] | the demo project |

pub mod admin;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod http;
pub mod serve;
pub mod tls;
