//! A limit on the writes that are only in memory and in the journal. It limits the memory of the engine, and
//! the part of the journal that is replayed when the store is opened after a crash.
//!
//! The engine limits each table separately and allows four full memtables for each: nine tables with
//! memtables of 8 MiB would take 360 MiB.

use std::thread;
use std::time::Duration;

use fjall::{AbstractTree as _, PersistMode};

use super::engine::OpenEngine;
use super::keys::StoreTable;

/// Maximum size of a memtable in bytes. Most written bytes belong to the table of resources.
const RESOURCES: u64 = 6 << 20;
const INDEX: u64 = 6 << 20;
const OTHERS: u64 = 1 << 20;
/// Size in bytes up to which a memtable stays in memory when the store is idle or closed. Smaller memtables
/// are replayed quickly and do not need a file.
const SMALL: u64 = 256 << 10;
/// Maximum number of memtables that wait to be flushed before writes are delayed.
const WAITING: usize = 1;
/// Maximum number of checks whether the older journals were removed.
const JOURNAL_LOOKS: u32 = 2_000;
const LOOK: Duration = Duration::from_millis(1);

/// Called after each round of writes: starts to flush memtables that are too large, and waits for earlier
/// flushes.
pub(super) fn bound(engine: &OpenEngine) {
    let began = write_out(engine, |table| match table {
        StoreTable::Current => RESOURCES,
        StoreTable::Terms => INDEX,
        _ => OTHERS,
    });
    if began {
        wait(engine, WAITING);
    }
}

/// Called when the store is idle: starts to flush all memtables that are not small.
pub(super) fn rest(engine: &OpenEngine) {
    write_out(engine, |_| SMALL);
}

/// Flushes all memtables, and waits until the engine has removed its older journals.
pub(super) fn write_all_out(engine: &OpenEngine) {
    write_out(engine, |_| 0);
    wait(engine, 0);
    // The engine removes a journal shortly after it has flushed the last memtable with writes in that
    // journal.
    for _ in 0..JOURNAL_LOOKS {
        if engine.db.journal_count() == 1 {
            break;
        }
        thread::sleep(LOOK);
    }
}

/// Called when the store is closed: flushes all memtables that are not small and waits for the end, so that
/// the next start replays little.
pub(super) fn end(engine: &OpenEngine) {
    rest(engine);
    wait(engine, 0);
}

/// Starts to flush each memtable that is larger than its limit. Returns `true` if there was one.
fn write_out(engine: &OpenEngine, limit: impl Fn(StoreTable) -> u64) -> bool {
    let mut began = false;
    for table in StoreTable::ALL {
        let keyspace = engine.tables.of(table);
        if keyspace.tree.active_memtable().size() > limit(table) {
            // The writes stay in the journal, and the next write reports the reason.
            if let Err(error) = keyspace.rotate_memtable() {
                tracing::error!(%error, "a memtable could not be flushed; its writes are only in the journal");
            }
            began = true;
        }
    }
    began
}

fn wait(engine: &OpenEngine, waiting: usize) {
    let of = |table: &StoreTable| engine.tables.of(*table).sealed_memtable_count();
    let is_waiting = || StoreTable::ALL.iter().map(of).sum::<usize>() > waiting;
    // An engine that has failed flushes no more memtables; `persist` then returns an error and ends the loop.
    while is_waiting() && engine.db.persist(PersistMode::Buffer).is_ok() {
        thread::sleep(LOOK);
    }
}
