//! `trefoil copy`: moves the content of a store to another one, of a stopped server or of this one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use backup::{BackupError, CopiedStore, Progress, copy_store};
use bulk::serve::archive::fail_open_jobs;
use clap::Args;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::Store;

use super::backups::progress_text;
use super::events::{CommandEvent, EventSink};
use super::services::AdminServices;
use crate::clock::Clock;
use crate::config::{Config, ServeFlags, StoreEngine};
use crate::node::backups::BackupSources;
use crate::node::data_folder::{lock_data_folder, make_data_folder};

/// A copy of the store.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct StoreCopy {
    /// Store to copy to: the URL of an empty PostgreSQL database, or file:FOLDER for a new data folder
    #[arg(long, value_name = "STORE")]
    pub to: String,
    /// New data folder of the first server on a database, for releases and files of exports [default: the
    /// data folder of the source]
    #[arg(long, value_name = "FOLDER")]
    pub to_data: Option<PathBuf>,
    /// Leave the source usable; what is written to it later is not in the copy
    #[arg(long)]
    pub keep_source: bool,
}

/// Time for which clients are told why their export has ended.
pub const FAILURE_SHOWN: SignedDuration = SignedDuration::from_hours(24);
/// The failure of an export that was running when the store was moved.
const EXPORT_MOVED: &str =
    "the server was moved to another store while this export was running; start it again";
/// Time between two looks whether the last writes have ended, and maximum number of looks.
const LOOK: Duration = Duration::from_millis(100);
const MAX_LOOKS: usize = 50;

/// Copies the store of this server while it runs. Unless the source is kept, the server refuses writes for
/// the last part, and stops after it.
///
/// # Errors
/// An error if the store cannot be copied. The server then serves as before.
pub async fn copy_running(
    services: &AdminServices<'_>,
    copy: &StoreCopy,
    events: EventSink<'_>,
) -> Result<()> {
    let app = services.app.context("no server runs on this folder")?;
    let flags = &app.config.flags;
    let config = Config::load(flags)?;
    let target = CopyTarget::of(copy, &config, flags)?;
    // The mark of the move is the last write, when all others are refused.
    let store = app.store.without_gate();
    let source = CopySource { store: &store, config: &config, files: &app.backups, is_running: true };
    let (keeps_source, to) = (target.keeps_source, target.name.clone());
    let drain = async || {
        if !keeps_source {
            app.drain.begin(&to);
            wait_for_writers(&store).await?;
        }
        Ok(())
    };
    let _guard = app.drain.guard();
    Box::pin(copy_between(source, target, drain, services.clock, events)).await?;
    if !keeps_source {
        app.drain.complete();
    }
    Ok(())
}

/// Waits until the writes that were accepted before the gate was closed are in the store.
async fn wait_for_writers(store: &Store) -> Result<(), BackupError> {
    let mut before = store.moment().await?.at();
    for _ in 0..MAX_LOOKS {
        tokio::time::sleep(LOOK).await;
        let now = store.moment().await?.at();
        if now == before {
            break;
        }
        before = now;
    }
    Ok(())
}

/// The store to copy, with its files.
pub struct CopySource<'a> {
    /// The store.
    pub store: &'a Store,
    /// The configuration of its server.
    pub config: &'a Config,
    /// Its releases and files of exports.
    pub files: &'a BackupSources,
    /// Whether this process serves the store, and therefore has locked its folder.
    pub is_running: bool,
}

/// The store to copy to.
pub struct CopyTarget {
    config: Config,
    flags: ServeFlags,
    /// Name of the store without its password.
    name: String,
    keeps_source: bool,
}

impl CopyTarget {
    /// The target of a copy, with the configuration of the source.
    ///
    /// # Errors
    /// An error if the configuration does not fit, or the target is the source.
    pub fn of(copy: &StoreCopy, source: &Config, flags: &ServeFlags) -> Result<Self> {
        let (to, data) = match copy.to.strip_prefix("file:") {
            Some(folder) => ("file", PathBuf::from(folder)),
            None => (copy.to.as_str(), copy.to_data.clone().unwrap_or_else(|| source.data.clone())),
        };
        let flags = ServeFlags { data: Some(data.clone()), store: Some(to.to_owned()), ..flags.clone() };
        let config = Config::load(&flags)?;
        if config.engine == source.engine && (to != "file" || same_folder(&data, &source.data)) {
            bail!("the source and the target are the same store; name another one with --to");
        }
        Ok(Self { name: store_name(&config), config, flags, keeps_source: copy.keep_source })
    }
}

/// The name of a store without its password.
fn store_name(config: &Config) -> String {
    match &config.engine {
        StoreEngine::Postgres { url, .. } => url.to_string(),
        _ => format!("file:{}", config.data.display()),
    }
}

/// Copies a store with its files. `drain` ends the writes to the source, once nearly everything is copied.
///
/// # Errors
/// An error if the target is not empty, or a store fails.
pub async fn copy_between(
    source: CopySource<'_>,
    target: CopyTarget,
    drain: impl AsyncFnOnce() -> Result<(), BackupError>,
    clock: &Clock,
    events: EventSink<'_>,
) -> Result<()> {
    let CopySource { store, config, files: from_files, is_running } = source;
    let CopyTarget { config: to, flags, name, keeps_source } = target;
    let is_same_folder = same_folder(&to.data, &config.data);
    let (copied, _lock) = open_target(&to.engine, &to.data, is_running && is_same_folder).await?;
    let mut progress = |so_far| events(CommandEvent::Progress(progress_text(so_far)));
    let to_files = BackupSources::new(&to, &flags);
    let (mut files, mut ended) = (0, 0);
    let finish = async || {
        let mut targets =
            to_files.targets(&copied.id()).map_err(|error| BackupError::Refused(error.to_string()))?;
        files = from_files.copy_to(&store.id(), is_same_folder, &mut targets).await?;
        ended = fail_open_jobs(&copied, EXPORT_MOVED, FAILURE_SHOWN, clock.now()).await?;
        Ok(())
    };
    let from_name = store_name(config);
    let fhir_base = format!("{}/fhir/R4", config.base_url.as_deref().unwrap_or("https://localhost:8443"));
    let (from, into) = (
        CopiedStore { store, name: &from_name, fhir_base: &fhir_base, left_out: identity::NEVER_COPIED },
        (&copied, name.as_str()),
    );
    let total = copy_store(from, into, keeps_source, drain, finish, clock.now(), &mut progress).await?;
    let total = Progress { files, ..total };
    let mut text = format!("copied        {}\nto            {name}", progress_text(total));
    if ended > 0 {
        text.push_str(&format!("\nexports       {ended} were running and have ended"));
    }
    if !keeps_source {
        text.push_str("\nsource        marked as moved; it is not used any more and can be removed");
    }
    if !keeps_source && is_running {
        text.push_str("\nserver        stops; start it with the new store");
    }
    let json = json!({ "versions": total.versions, "records": total.records, "files": files, "to": name });
    events(CommandEvent::Record { text, json });
    Ok(())
}

/// Opens an empty store. Its data folder is locked too, unless this process has done so.
///
/// # Errors
/// An error if the store cannot be opened.
pub async fn open_target(
    engine: &StoreEngine,
    data: &Path,
    is_locked: bool,
) -> Result<(Store, Option<std::fs::File>)> {
    if *engine == StoreEngine::Memory {
        bail!("a store in memory ends with this command; choose a folder or a database");
    }
    make_data_folder(data)?;
    let store = engine.open(data).await.context("failed to open the target")?;
    let lock = (store.is_shared() && !is_locked).then(|| lock_data_folder(data)).transpose()?;
    Ok((store, lock))
}

fn same_folder(a: &Path, b: &Path) -> bool {
    let resolved = |path: &Path| std::fs::canonicalize(path).ok();
    resolved(a).is_some_and(|a| resolved(b) == Some(a))
}
