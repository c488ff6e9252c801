//! `trefoil status`: the facts about a server that an operator asks for first.

use std::path::Path;

use anyhow::Result;
use backup::Succession;
use bulk::OpenExport;
use indicatif::HumanBytes;
use resources::assign_stored::{AssignmentRecord, read_record};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use store::blocking::run_blocking;
use store::space::free_bytes;
use store::{NodePresence, Seq, Versions as _};

use super::command::RecordAnswer;
use super::import::default_edition;
use super::services::AdminServices;
use crate::node::backup_schedule::undecided;
use crate::node::releases::Releases;
use crate::node::saved_indexes::SavedIndexes;
use crate::records::recent_errors::{RECENT_ERRORS, RecentError};
use crate::records::refusal_log::RecentRefusal;

/// Maximum number of reasons of refusals that are shown.
const SHOWN_REFUSALS: usize = 5;

/// The state of a server. Members that only a running server has are `None` while it is stopped.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ServerStatus {
    version: &'static str,
    is_running: bool,
    base_url: Option<String>,
    store: StoreStatus,
    users: usize,
    clients: usize,
    releases: usize,
    /// Which of several editions of SNOMED CT answers a request without a version.
    default_edition: Option<String>,
    /// Remaining work after an upgrade: stored resources are assigned to Patients. `None` if
    /// nothing is.
    upgrade: Option<String>,
    /// Exports that are waiting or running, of all nodes.
    #[schemars(with = "Option<Vec<Map<String, Value>>>")]
    exports: Option<Vec<OpenExport>>,
    /// The nodes that share the store; empty if it belongs to one server.
    #[schemars(with = "Vec<Map<String, Value>>")]
    nodes: Vec<NodePresence>,
    certificate_until: Option<String>,
    time: String,
    /// Parts that do not work, each with the reason.
    faults: Vec<String>,
    /// The most frequent refusals since the start: kind, reason and number.
    refusals: Vec<(&'static str, &'static str, u64)>,
    /// The last refused authorization requests, with reason and remedy.
    #[schemars(with = "Vec<Map<String, Value>>")]
    last_refusals: Vec<RecentRefusal>,
    /// The last errors of the log.
    #[schemars(with = "Vec<Map<String, Value>>")]
    last_errors: Vec<RecentError>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct StoreStatus {
    /// `database` if several nodes share the store, or else `local`.
    kind: &'static str,
    id: String,
    /// Sequence number of the last commit.
    sequence: u64,
    data: String,
    data_bytes: u64,
    free_bytes: Option<u64>,
}

/// The state of a running or a stopped server. The exit code is 1 if a part does not work.
///
/// # Errors
/// The error of the store if it cannot be read.
pub async fn show_status(services: &AdminServices<'_>) -> Result<RecordAnswer> {
    let status = read_status(services).await?;
    let exit = u8::from(!status.faults.is_empty());
    Ok(RecordAnswer { exit, ..RecordAnswer::new(status.lines().join("\n"), status) })
}

async fn read_status(services: &AdminServices<'_>) -> Result<ServerStatus> {
    let (app, now, store) = (services.app, services.clock.now(), services.resources.store());
    // A stopped server has no certificate in memory and no refusals: both belong to the process.
    let releases = Releases { indexes: SavedIndexes::open(services.data)?, resources: services.resources };
    let data = services.data.to_owned();
    let mut faults = Vec::new();
    if let Err(error) = store.check_writable().await {
        faults.push(format!("the store cannot be written: {error}"));
    }
    faults.extend(services.audit.fault().map(str::to_owned));
    faults.extend(services.audit.queue().and_then(|queue| queue.fault()));
    faults.extend(backup_fault(services).await?);
    if let Some(bucket) = services.backups.bucket()
        && let Err(reason) = bucket.check().await
    {
        faults.push(format!("the bucket of [files] cannot be used: {reason}"));
    }
    let mut refusals = app.map(|app| app.logs.audit.counts().refusals()).unwrap_or_default();
    refusals.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
    refusals.truncate(SHOWN_REFUSALS);
    let certificate = app.and_then(|app| app.certificate.get()).map(|certificate| certificate.valid_until());
    if certificate.is_some_and(|until| until <= now) {
        faults.push("the certificate has expired".to_owned());
    }
    let exports = match app {
        Some(app) => Some(app.bulk.open_exports(now).await?),
        None => None,
    };
    Ok(ServerStatus {
        version: env!("CARGO_PKG_VERSION"),
        is_running: app.is_some(),
        base_url: app.map(|app| app.address.base_url.clone()),
        store: StoreStatus {
            kind: if store.is_shared() { "database" } else { "local" },
            id: store.id(),
            sequence: store.last_seq().await?.0,
            data: services.data.display().to_string(),
            data_bytes: run_blocking(move || folder_bytes(&data)).await?,
            free_bytes: free_bytes(services.data),
        },
        users: services.identity.users.all_users(now).await?.len(),
        clients: services.identity.clients.all_clients(now).await?.len(),
        releases: releases.list().await?.len(),
        default_edition: default_edition(services).await?,
        upgrade: describe_assignment(read_record(store).await?.as_ref(), store.last_seq().await?),
        exports,
        nodes: store.nodes().await?,
        certificate_until: certificate.map(fhir::instant::format),
        time: fhir::instant::format(now),
        faults,
        refusals,
        last_refusals: app.map(|app| app.logs.refusals.recent.list()).unwrap_or_default(),
        last_errors: app.map(|_| RECENT_ERRORS.list()).unwrap_or_default(),
    })
}

/// Why no backups are made by schedule.
async fn backup_fault(services: &AdminServices<'_>) -> Result<Option<String>> {
    if services.backups.schedule.is_none() {
        return Ok(None);
    }
    let succession = Succession::read(services.resources.store(), services.clock.now()).await?;
    Ok(undecided(succession.as_ref()).or_else(|| services.backups.state.facts().fault))
}

/// Describes the remaining work of the assignment of stored resources to Patients.
fn describe_assignment(record: Option<&AssignmentRecord>, last: Seq) -> Option<String> {
    match record {
        None if last == Seq::ZERO => None,
        Some(record) if record.is_complete() && !record.awaits_earlier_nodes => None,
        Some(record) if record.is_complete() => Some(
            "resources that nodes of an earlier version write are assigned to their patients when the last of these nodes \
             has ended"
                .to_owned(),
        ),
        record => Some(format!(
            "stored resources are being assigned to their patients, {} so far; until then, clients with groups or patient/ \
             scopes get 503 for Device, Task, Contract, GuidanceResponse, Binary and the like, and exports of patients and \
             Groups do not start",
            record.map_or(0, |record| record.examined)
        )),
    }
}

/// The size of all files below a folder. Files that disappear meanwhile are left out.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(size).sum()
}

impl ServerStatus {
    fn lines(&self) -> Vec<String> {
        let running =
            self.base_url.as_ref().map_or("stopped".to_owned(), |base_url| format!("running at {base_url}"));
        let store = &self.store;
        let mut rows = vec![
            ("version", self.version.to_owned()),
            ("server", running),
            ("store", format!("{} {}, sequence {}", store.kind, store.id, store.sequence)),
            ("data", format!("{}, {}", store.data, HumanBytes(store.data_bytes))),
        ];
        rows.extend(store.free_bytes.map(|free| ("free", HumanBytes(free).to_string())));
        rows.push(("users", self.users.to_string()));
        rows.push(("clients", self.clients.to_string()));
        rows.push(("releases", self.releases.to_string()));
        rows.extend(self.default_edition.iter().map(|edition| ("SNOMED CT", edition.clone())));
        rows.extend(self.upgrade.iter().map(|upgrade| ("upgrade", upgrade.clone())));
        rows.extend(self.exports.iter().map(|exports| ("open exports", exports.len().to_string())));
        rows.extend(self.exports.iter().flatten().map(|export| {
            let OpenExport { id, client_id, percent, .. } = export;
            ("export", format!("{id}, {percent} %, of {client_id}"))
        }));
        rows.extend(self.nodes.iter().map(|node| {
            let state = if node.is_running { "runs" } else { "ended" };
            ("node", format!("{} {state}, seen {}", node.id, fhir::instant::format(node.seen)))
        }));
        rows.extend(
            self.certificate_until.clone().map(|until| ("certificate", format!("valid until {until}"))),
        );
        rows.push(("time", self.time.clone()));
        let refusals = self.refusals.iter().map(|(kind, reason, count)| format!("{count} {kind}: {reason}"));
        rows.extend(refusals.map(|text| ("refused", text)));
        rows.extend(self.last_refusals.iter().map(|refusal| {
            let RecentRefusal { time, client_id, text, .. } = refusal;
            ("last refusal", format!("{} {client_id}: {text}", fhir::instant::format(*time)))
        }));
        rows.extend(
            self.last_errors
                .iter()
                .map(|error| ("last error", format!("{} {}", fhir::instant::format(error.time), error.text))),
        );
        rows.extend(self.faults.iter().map(|fault| ("FAULT", fault.clone())));
        rows.into_iter().map(|(name, value)| format!("{name:12}  {value}")).collect()
    }
}
