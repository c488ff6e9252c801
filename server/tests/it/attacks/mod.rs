//! Hostile traffic against the real binary. Each attack asserts refusals and results, never times.
//!
//! The tests run a short version of each attack. `cargo xtask soak --only attacks` runs the full version against the
//! release binary and prints the measured times.

mod anonymous;
mod audit;
mod connections;
mod damage;
mod full_disk;
mod load;
mod memory;
mod passwords;
mod terminology;

use std::fmt::Display;

/// Returns `full` in a soak and `short` in the tests.
pub fn size(short: usize, full: usize) -> usize {
    if std::env::var_os("TREFOIL_ATTACKS").is_some_and(|value| value == "full") { full } else { short }
}

/// Prints one figure for the report of the soak.
pub fn report(attack: &str, figure: impl Display) {
    println!("attack {attack}: {figure}");
}
