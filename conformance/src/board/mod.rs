//! The board: several servers in one run, as one page that compares them.
//!
//! | module | contents |
//! |---|---|
//! | `config` | the servers: how each is started, its profile, its judged failures |
//! | `history` | the failures of earlier runs, one line for each run of a server |
//! | `page` | the HTML page |
//! | here | the runs, one after the other |

mod config;
mod history;
mod page;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use jiff::Timestamp;

pub use self::config::{BoardConfig, BoardServer};
pub use self::history::{BoardHistory, HistoryLine};
pub use self::page::page;
use crate::environment::TestEnvironment;
use crate::environment::probe;
use crate::environment::target::{TIMEOUT, TargetKind, TestTarget};
use crate::report::record::RunRecord;
use crate::run::selection::Selection;
use crate::run::{self, RunEvent, RunListener, RunOptions};
use crate::spec::Specification;

/// The result of one server.
#[derive(Debug)]
pub struct BoardColumn {
    /// Its name.
    pub name: String,
    /// The run; the text says why there is none.
    pub record: Result<RunRecord, String>,
    /// The judged causes of failures, by case.
    pub judged: BTreeMap<String, String>,
    /// Since when each failing case fails, by the history.
    pub since: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Default)]
struct SharedRecord(Arc<Mutex<RunRecord>>);

impl RunListener for SharedRecord {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        self.0.lock().expect("no thread panics while it holds the lock").add(event);
    }
}

/// Tests all servers, one after the other, and adds the results to the history. A server that cannot be
/// tested does not stop the others. `progress` gets a line for each server.
///
/// # Errors
/// An error if a file of judged failures cannot be read.
pub async fn run_board(
    spec: &Specification,
    config: &BoardConfig,
    history: &mut BoardHistory,
    progress: impl Fn(&str),
) -> Result<Vec<BoardColumn>> {
    let mut columns = Vec::new();
    for server in &config.servers {
        let judged = server.judged()?;
        let record = test_server(spec, server).await.map_err(|error| format!("{error:#}"));
        let mut since = BTreeMap::new();
        match &record {
            Ok(record) => {
                let line = HistoryLine::of(&server.name, record);
                progress(&format!("{}: {} passed, {} failed", server.name, line.passed, line.failing.len()));
                history.add(line);
                since = history.failing_since(&server.name);
            }
            Err(error) => progress(&format!("{}: not tested: {error}", server.name)),
        }
        columns.push(BoardColumn { name: server.name.clone(), record, judged, since });
    }
    Ok(columns)
}

/// Starts a server if the configuration says how, tests it, and stops it.
async fn test_server(spec: &Specification, server: &BoardServer) -> Result<RunRecord> {
    let running = server.start()?;
    let url = server.address(running.as_ref())?;
    let mut target = TestTarget::connect(&url, server.profile()?, TargetKind::Other, TIMEOUT).await?;
    let members = probe::probe(&target).await;
    target.profile.extend(members);
    let record = SharedRecord::default();
    let mut listeners: Vec<Box<dyn RunListener>> = vec![Box::new(record.clone())];
    let options = RunOptions {
        selection: Selection { level: server.level, write: server.write, ..Selection::default() },
        ..RunOptions::default()
    };
    run::run(&TestEnvironment::of(target), spec, &options, &AtomicBool::new(false), &mut listeners).await;
    let record = std::mem::take(&mut *record.0.lock().expect("no thread panics while it holds the lock"));
    Ok(record)
}
