//! The Trefoil server: configuration, HTTP, administration, and the wiring of the domain crates.
//!
//! Each module imports only modules further down in this table.
//!
//! | layer | modules |
//! |---|---|
//! | program | [`cli`]: the command line; [`serve`]: start and stop of the server; [`migrate`]: the tables of a database; [`transfer`]: restore, and copies to another store; [`upgrade_check`]: what an upgrade changes; [`new_app`]: an example app and its registration; [`ephemeral`]: the folder and the end of a server for tests; [`trust`]: the development CA in the stores of this machine |
//! | interfaces | [`http`]: routes and handlers; [`administration`]: commands on a data folder or a running server; [`demo`]: the demo project |
//! | node | [`node`]: the services of one server |
//! | records | [`records`]: the audit log and standard error |
//! | base | [`config`]: settings, from flags and `trefoil.toml`; [`clock`]: time and randomness |

pub mod administration;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
mod ephemeral;
#[cfg(test)]
mod generated_docs;
pub mod http;
pub mod migrate;
pub mod new_app;
pub mod node;
pub mod records;
pub mod serve;
pub mod transfer;
pub mod trust;
pub mod upgrade_check;
