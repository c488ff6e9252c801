//! The commands, one type each.
//!
//! | module | contents |
//! |---|---|
//! | [`user`] | users, their sign-in methods, sessions and consents |
//! | [`client`] | clients and their secrets |
//! | [`keys`] | signing keys and the server secret |
//! | [`release`] | imported releases of code systems |
//! | [`store`] | import, export, backup, copy, erasure and check |
//! | [`server`] | state, configuration and clock of a running server |

pub mod client;
pub mod keys;
pub mod release;
pub mod server;
pub mod store;
pub mod user;
