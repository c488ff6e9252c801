//! Resources on a store, from outside.
//!
//! | module | what it holds |
//! |---|---|
//! | `service` | one resource at a time |
//! | `transaction` | Bundles of requests |
//! | `import` | files of every kind, good and broken |
//! | `trial` | real data, where it is there |

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod import;
mod service;
mod transaction;
mod trial;

use std::path::PathBuf;

use jiff::Timestamp;
use trefoil_resources::{ImportOptions, Progress, Report, Resources};

fn now() -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000).unwrap()
}

/// Ids `new-1`, `new-2` and so on.
fn new_ids() -> impl FnMut() -> String + Send + 'static {
    let mut last = 0;
    move || {
        last += 1;
        format!("new-{last}")
    }
}

/// Imports and gives the report with all that was told on the way.
async fn import(
    resources: &Resources,
    paths: Vec<PathBuf>,
    options: ImportOptions,
) -> (Report, Vec<Progress>) {
    let mut told = Vec::new();
    let report =
        resources.import(paths, options, new_ids(), |progress| told.push(progress), now).await.unwrap();
    (report, told)
}
