//! Logs: files of records that are only ever appended to, and standard error.
//!
//! | module | contents |
//! |---|---|
//! | [`append_log`] | files of lines, written by one thread |
//! | [`audit`] | the audit log |
//! | [`export_log`] | the export log |
//! | [`server_log`] | the log on standard error |

pub mod append_log;
pub mod audit;
pub mod export_log;
pub mod server_log;
