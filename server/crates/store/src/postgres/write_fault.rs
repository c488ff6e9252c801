//! A database that answers reads and fails writes: its disk is full, or a lock is held. From the first failed
//! write until a probe succeeds, the node is not ready. Nothing is probed while all is well.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::connect::Database;
use super::connection::PooledConnection;
use super::failure::{failure, too_late};
use crate::StoreError;

const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// Size of the probe in bytes: a table must be extended for it, which fails on a full disk.
const PROBE_BYTES: usize = 64 << 10;

/// The failure of the last write.
#[derive(Default)]
pub(super) struct WriteFault {
    error: Mutex<Option<StoreError>>,
    failed: Arc<Notify>,
}

impl WriteFault {
    /// Records the result of a write.
    pub fn report(&self, result: Result<(), &StoreError>) {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) if error.is_none() => {}
            Ok(()) => {
                *error = None;
                tracing::info!("the database accepts writes again");
            }
            Err(cause) => {
                *error = Some(cause.clone());
                self.failed.notify_one();
            }
        }
    }

    /// The failure, if the last write failed.
    pub fn check(&self) -> Result<(), StoreError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

/// Probes the database while writes fail, until the last clone of the engine is dropped.
pub(super) async fn probe_writes(database: Weak<Database>) {
    loop {
        let Some(current) = database.upgrade() else { return };
        if current.write_fault.check().is_ok() {
            let failed = Arc::clone(&current.write_fault.failed);
            // A task that waits must not keep the engine open.
            drop(current);
            let _ = tokio::time::timeout(PROBE_INTERVAL, failed.notified()).await;
            continue;
        }
        drop(current);
        tokio::time::sleep(PROBE_INTERVAL).await;
        let Some(current) = database.upgrade() else { return };
        if current.write_fault.check().is_err() {
            match current.probe().await {
                Ok(()) => current.write_fault.report(Ok(())),
                Err(error) => current.write_fault.report(Err(&error)),
            }
        }
    }
}

impl Database {
    /// Writes a record and removes it again, in one transaction that waits for the lock of the writers.
    async fn probe(&self) -> Result<(), StoreError> {
        let connection = self.connection().await?;
        let failed =
            |error: tokio_postgres::Error| failure("probe whether the database accepts writes", &error);
        let limit_ms = self.limits.write.as_millis();
        let begin = format!("BEGIN; SET LOCAL statement_timeout = {limit_ms}");
        let probe = async {
            connection.batch_execute(&begin).await.map_err(failed)?;
            connection.query_typed_one("SELECT seq FROM clock FOR UPDATE", &[]).await.map_err(failed)?;
            // Random bytes, which the database cannot compress.
            let mut value = vec![0_u8; PROBE_BYTES];
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            value.fill_with(|| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 56) as u8
            });
            let add = "INSERT INTO ledger (key, value, revision) VALUES ('probe', $1, 0) \
                       ON CONFLICT (key) DO UPDATE SET value = $1";
            connection.execute_typed(add, &[(&value, Type::BYTEA)]).await.map_err(failed)?;
            connection.batch_execute("DELETE FROM ledger WHERE key = 'probe'; COMMIT").await.map_err(failed)
        };
        let probed = tokio::time::timeout(self.limits.write, probe).await;
        match probed {
            Ok(Ok(())) => Ok(()),
            // The transaction ends with its connection.
            Ok(Err(error)) => {
                drop(PooledConnection::take(connection));
                Err(error)
            }
            Err(_) => {
                self.abandon(connection);
                Err(too_late())
            }
        }
    }
}
