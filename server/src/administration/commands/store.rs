//! Commands on the whole store: what they read and write is in files, or they erase and replace. They are run
//! on the machine of the server only.

use std::fs;
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context as _, ensure};
use backup::{StorePurpose, Succession};
use bulk::serve::operator;
use clap::Args;
use resources::assign_stored::assign_all;
use resources::{ImportOptions, ResourceRules};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use terminology_import::{StatedEncoding, StatedRelease, TableOptions};

use crate::administration::command::{Answer, Call, Command, CommandError, Doors, ProgramInput, StoreNeed};
use crate::administration::copy::{StoreCopy, copy_running};
use crate::administration::events::{CommandEvent, EventSink};
use crate::administration::feed::{DownloadFolder, FeedOptions, fetch_items};
use crate::administration::import::run_import;
use crate::administration::package_cache::resolve_packages;
use crate::administration::{accept_restored, backups, check, export, purge};
use crate::config::backup::is_bucket;

/// Completes the assignment of stored resources to Patients, on which exports and erasures depend. A
/// running server does so itself.
async fn complete_assignment(call: &Call<'_>, events: EventSink<'_>) -> anyhow::Result<()> {
    let services = call.services;
    let (store, base) = (services.resources.store(), services.resources.fhir_base());
    match services.app {
        Some(app) => ensure!(
            app.patient_assignment.is_complete(),
            "after an upgrade, the server still determines to which patients stored resources belong; repeat the command \
             when `trefoil status` no longer names it"
        ),
        None => {
            let progress = |count| {
                let text = format!("{count} resources assigned to their patients");
                events(CommandEvent::Progress(text));
            };
            assign_all(store, base, services.clock.now(), progress).await?;
        }
    }
    Ok(())
}

/// Import resources and releases of code systems.
///
/// Resources: NDJSON, JSON, Bundles, FHIR packages (.tgz), other .tar.gz and folders, each also as .gz. The
/// requests of batch and transaction Bundles are applied. In the folder of an export, the deletions that its
/// manifest.json lists are applied, too. Releases, as a folder or .zip: SNOMED CT RF2, LOINC, RxNorm, OMOP,
/// ICD-11, MedDRA, NDC, ICD-10-CM, ClaML, CSV, spreadsheets (.xlsx, .ods).
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  trefoil import hl7.fhir.r4.core.tgz patients/\n  trefoil import SnomedCT_International.zip SnomedCT_Extension.zip\n  trefoil import hl7.fhir.us.core#6.1.0\n  trefoil import --feed https://mlds.ihtsdotools.org/api/feed --feed-user NAME --feed-password-file FILE"
)]
pub struct Import {
    /// Module of a SNOMED CT edition, such as 900000000000207008, if the files do not suggest the right one
    #[arg(long, value_name = "MODULE")]
    edition: Option<String>,
    /// Date of a release of SNOMED CT or of the NDC directory as YYYYMMDD, if no file contains it
    #[arg(long, value_name = "DATE")]
    version: Option<String>,
    /// State that a SNOMED CT release is not published: its version is a URI of the namespace xsct
    #[arg(long)]
    unpublished: bool,
    /// Encoding of a CSV file that is not UTF-8: latin1
    #[arg(long, value_name = "NAME", value_parser = StatedEncoding::named)]
    encoding: Option<StatedEncoding>,
    /// Sheet of a workbook, instead of the first one
    #[arg(long, value_name = "NAME")]
    sheet: Option<String>,
    /// Store batch and transaction Bundles as resources instead of applying their requests
    #[arg(long)]
    keep_bundles: bool,
    /// Also replace resources that were imported from a newer file (by meta.lastUpdated)
    #[arg(long)]
    #[serde(default)]
    overwrite: bool,
    /// Files and folders to import, and FHIR packages as NAME#VERSION from the package cache, with the
    /// packages on which they depend
    #[arg(required_unless_present = "feed")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    feed: FeedOptions,
    /// Package cache [default: ~/.fhir/packages]
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip)]
    package_cache: Option<PathBuf>,
}

impl Command for Import {
    const DOORS: Doors = Doors::COMMAND_LINE;
    const STORE: StoreNeed = StoreNeed::Created;
    const ENDS_EARLY: bool = true;

    fn read_input(&mut self, _: &mut dyn ProgramInput) -> anyhow::Result<()> {
        self.paths = resolve_packages(std::mem::take(&mut self.paths), self.package_cache.take())?;
        self.feed.read_input()
    }

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        let Self {
            edition, version, unpublished, encoding, sheet, keep_bundles, overwrite, paths, feed, ..
        } = self;
        let table = TableOptions { encoding, sheet };
        let stated = StatedRelease { edition, version, is_unpublished: unpublished, table };
        let defaults = ImportOptions::default();
        let rules = ResourceRules { bytes: defaults.rules.bytes, ..call.services.resources.rules() };
        let options = ImportOptions { keep_bundles, overwrite, rules, ..defaults };
        let Some(address) = &feed.feed else {
            return Ok(Answer::Told(run_import(call.services, paths, stated, options, events).await?));
        };
        let folder = DownloadFolder::make(call.services.data)?;
        match fetch_items(call.services, address, &feed, folder.path(), events).await? {
            Some(paths) => Ok(Answer::Told(run_import(call.services, paths, stated, options, events).await?)),
            None => Ok(Answer::Told(0)),
        }
    }
}

/// Export resources to a folder as NDJSON.
///
/// Writes one file per type, with all resources or those of the members of a Group.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil export --out ./today --type Patient,Observation")]
pub struct Export {
    /// Folder to write to; must be new or empty
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Export only the members of the Group with this id
    #[arg(long, value_name = "ID")]
    group: Option<String>,
    /// Export only resources changed or deleted after this instant, such as 2026-01-31T00:00:00Z, or after
    /// the export in this folder
    #[arg(long, value_name = "INSTANT|FOLDER")]
    since: Option<String>,
    /// Export only these resource types, separated by commas
    #[arg(long = "type", value_name = "TYPES")]
    types: Option<String>,
}

/// The value of `--since`: an instant, or the folder of an earlier export, which is replaced by its time.
fn instant_or_folder(since: String) -> anyhow::Result<String> {
    if !Path::new(&since).is_dir() {
        ensure!(
            fhir::instant::parse(&since).is_ok(),
            "'{since}' is not an instant, such as 2026-01-31T00:00:00Z, and no folder has this name; name an instant or the folder of an earlier export"
        );
        return Ok(since);
    }
    let path = Path::new(&since).join("manifest.json");
    let manifest = fs::read(&path)
        .with_context(|| format!("{since} is not a complete export: no {}", path.display()))?;
    let manifest: Value = serde_json::from_slice(&manifest).with_context(|| path.display().to_string())?;
    let time = manifest["transactionTime"].as_str();
    Ok(time.with_context(|| format!("{} has no transactionTime", path.display()))?.to_owned())
}

impl Command for Export {
    const DOORS: Doors = Doors::COMMAND_LINE;

    fn read_input(&mut self, _: &mut dyn ProgramInput) -> anyhow::Result<()> {
        self.out = absolute(&self.out)?;
        self.since = self.since.take().map(instant_or_folder).transpose()?;
        Ok(())
    }

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        complete_assignment(call, events).await?;
        let Self { out, group, since, types } = self;
        let request = operator::request(group, since, types);
        export::run_export(call.services, &out, request, events).await?;
        Ok(Answer::Told(0))
    }
}

/// Back up the store, while the server runs or not.
///
/// A backup is one moment: all versions of resources, users, clients, keys, and the files of releases and
/// exports. It contains what was written since the last one, unless that is missing. Keep the configuration
/// and the files that it names apart from it.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(
    after_help = "Examples:\n  trefoil backup --to ./backups\n  trefoil backup --to s3://bucket/trefoil --full"
)]
pub struct Backup {
    /// Folder for the backups, or s3://BUCKET/PREFIX [default: that of `[backup] to`]
    #[arg(long, value_name = "LOCATION")]
    to: Option<PathBuf>,
    /// Contain everything again
    #[arg(long)]
    full: bool,
}

impl Command for Backup {
    const DOORS: Doors = Doors::COMMAND_LINE;

    fn read_input(&mut self, _: &mut dyn ProgramInput) -> anyhow::Result<()> {
        if let Some(to) = self.to.as_mut().filter(|to| !is_bucket(&to.to_string_lossy())) {
            *to = absolute(&to)?;
        }
        Ok(())
    }

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        let to = self.to.map(|to| to.to_string_lossy().into_owned());
        Ok(Answer::Told(backups::run_backup(call.services, to, self.full, events).await?))
    }
}

/// The copy of a running server to another store. `trefoil copy` sends it.
impl Command for StoreCopy {
    const DOORS: Doors = Doors::COMMAND_LINE;

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        Box::pin(copy_running(call.services, &self, events)).await?;
        Ok(Answer::Told(0))
    }
}

/// Erase a patient with all versions of the whole record, or a deleted resource.
///
/// A Patient is erased with everything that was ever in its compartment, and with the Binaries that this
/// names. Resources that belong to other patients too are kept and listed. All exports end, because their
/// files may contain it. Backups contain it until they are removed. Ends when the files of the store are
/// rewritten.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Examples:\n  trefoil purge Patient/p1\n  trefoil purge Binary/scan-7 --yes")]
pub struct Purge {
    /// Patient/ID, or TYPE/ID of a deleted resource
    #[arg(value_name = "RESOURCE")]
    resource: String,
}

impl Command for Purge {
    const DOORS: Doors = Doors::COMMAND_LINE;

    fn question(&self) -> Option<String> {
        Some(format!(
            "Erase {} with all versions, and end all exports? Nothing but a backup can bring it back.",
            self.resource
        ))
    }

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        complete_assignment(call, events).await?;
        purge::run_purge(call.services, &self.resource, events).await?;
        Ok(Answer::Told(0))
    }
}

/// Rewrite the files of the store, so that they no longer contain what was replaced or deleted in it.
///
/// A secret, password or key that was replaced, and a record that was deleted, stays in the files until the
/// store rewrites them by itself. This command waits until that is done. It does not shorten the history of
/// resources.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil keys rotate --server-secret && trefoil compact")]
pub struct Compact {}

impl Command for Compact {
    const DOORS: Doors = Doors::COMMAND_LINE;

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        purge::run_compact(call.services, events).await?;
        Ok(Answer::Told(0))
    }
}

/// Check configuration, certificate, store, releases and files of exports.
///
/// Reads all versions of all resources, and compares them with the change feed and the search index. Ends
/// with exit code 1 if something is wrong. `trefoil restore --verify` checks a backup.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil check --data ./trefoil-data")]
pub struct Check {}

impl Command for Check {
    const DOORS: Doors = Doors::COMMAND_LINE;

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        Ok(Answer::Told(check::run_check(call.services, events).await?))
    }
}

/// Use a database that went back in time, as after a restore or a failover that lost writes.
///
/// Nodes refuse a database that lacks writes which they know. This command ends all sessions, codes, refresh
/// tokens and access tokens of before, refuses _since of the lost time, and lists what the store cannot know.
/// Run it once, on one node, when the database runs that is to be used.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil store accept-restored --data ./node-1")]
pub struct AcceptRestored {}

impl Command for AcceptRestored {
    const DOORS: Doors = Doors::COMMAND_LINE;

    fn question(&self) -> Option<String> {
        Some("Use the database as it is now? What it lacks is lost, and all users sign in again.".to_owned())
    }

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        accept_restored::accept_restored(call.services, events).await?;
        Ok(Answer::Told(0))
    }
}

/// Decide whether a restored store makes backups by schedule.
///
/// Until then, a store that was restored without --continue or --drill makes none, so that a trial does not
/// write into the location of the store that it was made from.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil store backups --continue")]
pub struct DecideBackups {
    /// The store takes the place of the earlier one: its backups by schedule and their retention
    /// continue
    #[arg(long = "continue", required_unless_present = "drill", conflicts_with = "drill")]
    #[serde(rename = "continue")]
    continues: bool,
    /// The store is a trial: it makes no backups by schedule
    #[arg(long)]
    drill: bool,
}

impl Command for DecideBackups {
    const DOORS: Doors = Doors::COMMAND_LINE;

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let (purpose, text) = match self.continues {
            true => {
                (StorePurpose::Successor, "backups by schedule continue in the place of the earlier store")
            }
            false => (StorePurpose::Drill, "this store is a drill, and makes no backups by schedule"),
        };
        let (store, now) = (call.services.resources.store(), call.services.clock.now());
        Succession::decide(store, purpose, now).await.map_err(anyhow::Error::from)?;
        Ok(Answer::Done(text.to_owned()))
    }
}
