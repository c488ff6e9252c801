//! Files of records that are only ever appended to.
//!
//! | module | contents |
//! |---|---|
//! | [`append_log`] | files of lines, written by one thread |
//! | [`audit`] | the audit log |
//! | [`export_log`] | the export log |

pub mod append_log;
pub mod audit;
pub mod export_log;
