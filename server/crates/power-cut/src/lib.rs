//! Tests of what remains on a disk after a power cut.
//!
//! A killed process does not lose writes, because they stay in the page cache. A test with SIGKILL therefore
//! passes even if every fsync is removed. This crate records the writes and fsyncs of a workload, computes
//! the states in which a power cut may leave the disk, writes each of them to a folder, and passes the folder
//! to a check.
//!
//! | module | contents |
//! |---|---|
//! | `recording` | runs a workload under strace and keeps its operations on a folder |
//! | `trace` | parses the output of strace |
//! | `disk` | the content of a disk: files and folders by number |
//! | `model` | which operations an fsync makes durable |
//! | `states` | the states that a power cut may leave, and their order |
//! | `explore` | writes the states to folders, checks them on all cores, and reports failures |
//!
//! # Why strace
//!
//! strace records the system calls themselves, so that calls without the C library (rustix) are included,
//! which a library that replaces C functions does not see. It needs neither root nor a mount, which a FUSE
//! file system needs and containers of a pipeline refuse. It adds no code to the recorded program and no
//! library to the workspace. The kernel evaluates the filter of calls (`--seccomp-bpf`). A recording of 1,000
//! fsyncs takes about one second. A call that strace shows but this crate does not model (a writable shared
//! mapping, `copy_file_range`, `io_uring`) on a recorded file is an error, not a gap.
//!
//! # Planted faults
//!
//! [`Recording::without_syncs`](Recording::without_syncs) returns the same recording without some of its
//! fsyncs. A test that passes on the result does not test these fsyncs.

mod disk;
mod explore;
mod model;
mod recording;
mod states;
mod trace;

pub use explore::{StateFailure, StateReport, explore, record_recovery};
pub use model::NameRule;
pub use recording::{Operation, Recording, mark, recorded_folder, recorded_session};
pub use states::Exploration;
