//! Attacks on the real server binary. Each test asserts rejections and results, but not times.
//!
//! The tests run a short version of each attack. `cargo xtask soak --only attacks` runs the full version with
//! the release binary and prints the measured times.

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

/// Returns `full` in a soak run and `short` in the tests.
pub fn size(short: usize, full: usize) -> usize {
    if std::env::var_os("TREFOIL_ATTACKS").is_some_and(|value| value == "full") { full } else { short }
}

/// Prints one figure for the report of the soak run.
pub fn report(attack: &str, figure: impl Display) {
    println!("attack {attack}: {figure}");
}
