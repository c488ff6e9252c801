//! The kick-off request, and those of its checks that do not read the store.

pub mod exported_kinds;
pub mod kick_off;
pub mod parameter_table;
pub mod parameters;
