//! Logs: files of records that are only ever appended to, and standard error.
//!
//! | module | contents |
//! |---|---|
//! | [`append_log`] | files of lines, written by one thread |
//! | [`audit`] | the audit log |
//! | [`recent_errors`] | the last errors of the log |
//! | [`refusal_log`] | the authorization requests that are refused |
//! | [`request_log`] | the requests that have a line in the log |
//! | [`request_metrics`] | counts and durations of requests |
//! | [`server_log`] | the log on standard error, or in files |
//! | [`otlp`] | what spans and audit events share in the JSON form of OTLP |
//! | [`traces`] | spans of requests for a collector of OpenTelemetry |
//! | [`newest`] | the newest entries of something without end |
//! | [`minute_counts`] | counts of the events that strangers can cause without limit |
//! | [`retained_folder`] | daily files with a maximum age and size |

pub mod append_log;
pub mod audit;
pub mod minute_counts;
pub mod newest;
pub mod otlp;
pub mod recent_errors;
pub mod refusal_log;
pub mod request_log;
pub mod request_metrics;
pub mod retained_folder;
pub mod server_log;
pub mod traces;
