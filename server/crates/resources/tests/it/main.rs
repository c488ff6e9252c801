//! Tests of the resource service on a store, through its public interface.
//!
//! | module | contents |
//! |---|---|
//! | `service` | single resources |
//! | `transaction` | Bundles of requests |
//! | `conditional` | conditional updates and deletes |
//! | `searches` | searches and a naive evaluator |
//! | `changed` | searches by the change feed |
//! | `ordered` | searches in the order of an index |
//! | `check` | the comparison of a store with its resources |
//! | `import` | files of all kinds, valid and invalid |
//! | `source_time` | files that are imported in any order |
//! | `power_cut` | imports that a power cut interrupts |
//! | `trial` | real data, if available |

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod changed;
mod check;
mod conditional;
mod import;
mod ordered;
mod power_cut;
mod searches;
mod service;
mod source_time;
mod transaction;
mod trial;

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use trefoil_resources::{ImportOptions, ImportProgress, ImportReport, Resources};

fn now() -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000).unwrap()
}

/// Returns a generator of the ids `new-1`, `new-2` and so on.
fn new_ids() -> impl FnMut() -> String + Clone + Send + 'static {
    let last = Arc::new(AtomicUsize::new(0));
    move || format!("new-{}", last.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Imports files and returns the report and all events.
async fn import(
    resources: &Resources,
    paths: Vec<PathBuf>,
    options: ImportOptions,
) -> (ImportReport, Vec<ImportProgress>) {
    let mut events = Vec::new();
    let report = resources
        .import(paths, options, new_ids(), |progress| events.push(progress), now, pending())
        .await
        .unwrap();
    (report, events)
}
