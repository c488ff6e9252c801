//! The kick-off request and its checks. Nothing is read from the store here.

pub(crate) mod elements;
pub mod kick_off;
pub mod parameters;
