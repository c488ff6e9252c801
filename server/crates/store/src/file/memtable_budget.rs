//! A bound on the writes that are only in memory and in the journal. It limits the memory of the engine, and the part
//! of the journal that a start after a crash replays.
//!
//! The engine bounds each table separately and allows four full memtables of each: eight tables with 8 MiB would take
//! 320 MiB.

use std::thread;
use std::time::Duration;

use fjall::{AbstractTree as _, PersistMode};

use super::disk::OpenEngine;
use super::keys::StoreTable;

/// Maximum size of a memtable in bytes. Most writes are resources.
const RESOURCES: u64 = 6 << 20;
const OTHERS: u64 = 1 << 20;
/// Size up to which a memtable stays in memory when the store is idle or closed: smaller ones are not worth a file
/// and are replayed quickly.
const SMALL: u64 = 256 << 10;
/// Number of memtables that may wait to be written; writes wait for further ones.
const WAITING: usize = 1;
/// Maximum number of checks for the removal of the older journals.
const JOURNAL_LOOKS: u32 = 2_000;
/// Time between two checks.
const LOOK: Duration = Duration::from_millis(1);

/// After a round of writes: begins to write out what is too much, and waits for what was begun before.
pub(super) fn bound(opened: &OpenEngine) {
    let began = write_out(opened, |table| if table == StoreTable::Current { RESOURCES } else { OTHERS });
    if began {
        wait(opened, WAITING);
    }
}

/// When nothing was written for a while: begins to write out what is worth it.
pub(super) fn rest(opened: &OpenEngine) {
    write_out(opened, |_| SMALL);
}

/// Writes all tables out, and waits until the engine has removed its older journals.
pub(super) fn write_all_out(opened: &OpenEngine) {
    write_out(opened, |_| 0);
    wait(opened, 0);
    // The engine removes a journal shortly after the last table that it holds was written out.
    for _ in 0..JOURNAL_LOOKS {
        if opened.db.journal_count() == 1 {
            break;
        }
        thread::sleep(LOOK);
    }
}

/// At the end: the same, and waits for it, so that the next start has little to read again.
pub(super) fn end(opened: &OpenEngine) {
    rest(opened);
    wait(opened, 0);
}

/// Begins to write out each table that holds more than this; says whether there was one.
fn write_out(opened: &OpenEngine, limit: impl Fn(StoreTable) -> u64) -> bool {
    let mut began = false;
    for table in StoreTable::ALL {
        let keyspace = opened.tables.of(table);
        if keyspace.tree.active_memtable().size() > limit(table) {
            // The data stay in the journal, and the next write reports the reason.
            if let Err(error) = keyspace.rotate_memtable() {
                tracing::error!(%error, "writes stay in the journal only");
            }
            began = true;
        }
    }
    began
}

fn wait(opened: &OpenEngine, waiting: usize) {
    let of = |table: &StoreTable| opened.tables.of(*table).sealed_memtable_count();
    let is_waiting = || StoreTable::ALL.iter().map(of).sum::<usize>() > waiting;
    // An engine that has failed flushes nothing more, and reports it here.
    while is_waiting() && opened.db.persist(PersistMode::Buffer).is_ok() {
        thread::sleep(LOOK);
    }
}
