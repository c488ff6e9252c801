//! What stands only in the journal and in memory, and how it is kept small: the engine's memory is bounded by it, and so
//! is what a start after a crash has to read again.
//!
//! The engine bounds each table by itself, and lets four full ones of each wait; eight tables with 8 MiB would be 320 MiB.

use std::thread;
use std::time::Duration;

use fjall::{AbstractTree as _, PersistMode};

use super::disk::Opened;
use super::keys::Table;

/// What a table may hold in memory before it is written out, in bytes. Resources are most of what is written.
const RESOURCES: u64 = 6 << 20;
const OTHERS: u64 = 1 << 20;
/// What is left in memory when nothing is written for a while and at the end: less is not worth a file, and quickly
/// read again.
const SMALL: u64 = 256 << 10;
/// How many tables may wait to be written out; writes wait for the others.
const WAITING: usize = 1;
/// How often to look whether the older journals are gone.
const JOURNAL_LOOKS: u32 = 2_000;
/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(1);

/// After a round of writes: begins to write out what is too much, and waits for what was begun before.
pub(super) fn bound(opened: &Opened) {
    let began = write_out(opened, |table| if table == Table::Current { RESOURCES } else { OTHERS });
    if began {
        wait(opened, WAITING);
    }
}

/// When nothing was written for a while: begins to write out what is worth it.
pub(super) fn rest(opened: &Opened) {
    write_out(opened, |_| SMALL);
}

/// Writes all tables out, and waits until the engine has removed its older journals.
pub(super) fn write_all_out(opened: &Opened) {
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
pub(super) fn end(opened: &Opened) {
    rest(opened);
    wait(opened, 0);
}

/// Begins to write out each table that holds more than this; says whether there was one.
fn write_out(opened: &Opened, limit: impl Fn(Table) -> u64) -> bool {
    let mut began = false;
    for table in Table::ALL {
        let keyspace = opened.tables.of(table);
        if keyspace.tree.active_memtable().size() > limit(table) {
            // What cannot be written out stays in the journal, and the next write says why.
            if let Err(error) = keyspace.rotate_memtable() {
                tracing::error!(%error, "what was written stays in the journal only");
            }
            began = true;
        }
    }
    began
}

fn wait(opened: &Opened, waiting: usize) {
    let of = |table: &Table| opened.tables.of(*table).sealed_memtable_count();
    let is_waiting = || Table::ALL.iter().map(of).sum::<usize>() > waiting;
    // An engine that failed writes nothing out any more, and says so when it is asked.
    while is_waiting() && opened.db.persist(PersistMode::Buffer).is_ok() {
        thread::sleep(LOOK);
    }
}
