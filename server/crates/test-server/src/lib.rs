//! A Trefoil server as a separate process: found or built, started, awaited and stopped. The conformance
//! suite, the tests of all crates, the benchmarks and `cargo xtask` start servers with it.

#[cfg(feature = "json")]
mod data_folder;
mod process;
#[cfg(feature = "json")]
mod program;

#[cfg(feature = "json")]
pub use self::data_folder::DataFolder;
pub use self::process::{READY, ServerProcess, StartError};
#[cfg(feature = "json")]
pub use self::program::{BuildError, build, program};
