//! A Trefoil server as a separate process: found or built, started, awaited and stopped. The conformance
//! suite, the tests of all crates, the benchmarks and `cargo xtask` start servers with it.

mod data_folder;
mod process;
mod program;

pub use self::data_folder::DataFolder;
pub use self::process::{READY, ServerProcess, StartError};
pub use self::program::{BuildError, build, program};
