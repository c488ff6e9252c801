//! Failures of the database as store errors.

use std::error::Error as _;
use std::io::ErrorKind;

use tokio_postgres::error::SqlState;

use crate::StoreError;

/// The error of a database that cannot be reached at the moment.
pub(super) fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable { reason: reason.to_owned() }
}

/// The error of a statement without an answer in time.
pub(super) fn too_late() -> StoreError {
    unavailable("the database did not answer in time")
}

pub(super) fn failure(action: &'static str, error: &tokio_postgres::Error) -> StoreError {
    match error.code() {
        Some(code) if *code == SqlState::DISK_FULL => {
            StoreError::ReadOnly { part: "disk", reason: chain(error) }
        }
        // A syntax error, a missing table or a wrong password does not go away by waiting.
        Some(code) if !is_passing(code) => StoreError::Engine { action, reason: chain(error) },
        _ => {
            let mut reason = chain(error);
            if reason.contains("invalid peer certificate") {
                reason.push_str("; name the file with the CA of the database by sslrootcert=FILE in its URL");
            }
            unavailable(&reason)
        }
    }
}

/// Returns whether a statement that failed with this code may succeed later.
pub(super) fn is_passing(code: &SqlState) -> bool {
    let passing = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        // This node was silent within a transaction.
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        SqlState::OUT_OF_MEMORY,
        SqlState::INSUFFICIENT_RESOURCES,
        // A former primary that became a standby.
        SqlState::READ_ONLY_SQL_TRANSACTION,
        // Two rounds created the same key; the second one reads it again.
        SqlState::UNIQUE_VIOLATION,
    ];
    // Class 08 is a connection exception. PgBouncer reports a lost server with it.
    passing.contains(code) || code.code().starts_with("08")
}

/// Returns whether an error means that the connection has ended. If the database ends a connection while it
/// is being made, the socket reports that, and not a message of the database.
pub(super) fn is_connection_end(error: &tokio_postgres::Error) -> bool {
    let codes = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];
    let of_socket = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.is_closed()
        || error.code().is_some_and(|code| codes.contains(code))
        || of_socket.is_some_and(|error| kinds.contains(&error.kind()))
}

/// The text of an error with its causes.
pub(super) fn chain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
