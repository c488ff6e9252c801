//! `trefoil upgrade-check`: what this version of the program will change in the data of an earlier one, and
//! how long that takes. It reads the numbers of formats only and changes nothing, so that the server of the
//! earlier version may run meanwhile.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use store::{DatabaseLimits, FolderFormat, Store, TablesVersion};
use terminology::CodeSystemIndex;

use crate::administration::Console;
use crate::administration::arguments::DataArgs;
use crate::administration::events::CommandEvent;
use crate::config::{Config, ServeFlags, StoreEngine};
use crate::node::backups::BackupSources;
use crate::node::saved_indexes::SavedIndexes;

/// Bytes of indexes whose words are indexed again and that are written in a second, on a slow machine.
const INDEX_BYTES_PER_S: u64 = 20_000_000;

/// Options of `upgrade-check`.
#[derive(Debug, clap::Args)]
pub struct UpgradeCheckArgs {
    /// The data of the earlier version.
    #[command(flatten)]
    pub data: DataArgs,
}

/// The effect of an upgrade on a part of the data.
#[derive(Debug, Serialize)]
struct UpgradedPart {
    part: &'static str,
    /// Whether this version can use it.
    is_readable: bool,
    /// The effect, how long it takes, and the remedy if this version cannot use the part.
    result: String,
}

impl UpgradedPart {
    fn readable(part: &'static str, result: impl Into<String>) -> Self {
        Self { part, is_readable: true, result: result.into() }
    }

    fn refused(part: &'static str, result: impl Into<String>) -> Self {
        Self { part, is_readable: false, result: result.into() }
    }
}

/// Checks the parts and returns the exit code, which is 1 if this version cannot use one of them.
pub async fn run_upgrade_check(args: UpgradeCheckArgs) -> ExitCode {
    let console = Console::new(args.data.output);
    let parts = check_parts(&args.data).await;
    let is_readable = parts.iter().all(|part| part.is_readable);
    for part in parts {
        let mark = if part.is_readable { "" } else { "FAULT: " };
        let text = format!("{:13} {mark}{}", part.part, part.result);
        console.print_event(CommandEvent::Record { text, json: json!(part) });
    }
    console.clear();
    if is_readable { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn check_parts(args: &DataArgs) -> Vec<UpgradedPart> {
    let flags = args.serve_flags();
    let config = match Config::load(&flags) {
        Ok(config) => config,
        Err(error) => return vec![UpgradedPart::refused("configuration", error.to_string())],
    };
    vec![
        UpgradedPart::readable("configuration", "accepted as it is"),
        check_store(&config.engine, &config.data).await,
        describe_assignment(),
        check_indexes(&config.data),
        check_backup(&config, &flags).await,
    ]
}

async fn check_store(engine: &StoreEngine, data: &Path) -> UpgradedPart {
    const PART: &str = "store";
    match engine {
        StoreEngine::Memory => UpgradedPart::readable(PART, "in memory; nothing is kept"),
        StoreEngine::File => match Store::folder_format(&data.join("store")) {
            Ok(None) => {
                UpgradedPart::readable(PART, format!("none in {}; a new one is made", data.display()))
            }
            Ok(Some(FolderFormat { found, needed })) if found == needed => {
                UpgradedPart::readable(PART, format!("has format {found}, as this version writes it"))
            }
            Ok(Some(FolderFormat { found, needed })) => UpgradedPart::refused(
                PART,
                format!(
                    "has format {found}, and this version reads format {needed}; make a backup with the version that \
                     wrote it, and restore it with this one"
                ),
            ),
            Err(error) => UpgradedPart::refused(PART, error.to_string()),
        },
        StoreEngine::Postgres { url, .. } => {
            match Store::tables_version(url, DatabaseLimits::default()).await {
                Ok(tables) => describe_tables(&tables),
                Err(error) => UpgradedPart::refused(PART, error.to_string()),
            }
        }
    }
}

/// The pass over the stored resources that the first start of this version begins. Whether it ran before is
/// stored in the data, which this command does not open.
fn describe_assignment() -> UpgradedPart {
    UpgradedPart::readable(
        "patients",
        "unless a server of this version ran on these data, the first start assigns stored resources to their patients in the \
         background (Device, Task, Contract and GuidanceResponse join the Patient compartment), which takes about a minute \
         for each 2 GB; until then, clients with groups or patient/ scopes get 503 for these types, and exports of patients \
         and Groups do not start. Servers of the version before may keep running",
    )
}

fn describe_tables(tables: &TablesVersion) -> UpgradedPart {
    const PART: &str = "database";
    let TablesVersion { found, needed, is_usable, pending } = tables;
    if *is_usable {
        let result = format!("has tables of version {found}, which this version ({needed}) can use");
        return UpgradedPart::readable(PART, result);
    }
    if found > needed {
        let result =
            format!("has tables of version {found}, and this version knows {needed}; use a newer one");
        return UpgradedPart::refused(PART, result);
    }
    if pending.is_empty() {
        return UpgradedPart::readable(PART, format!("has tables of version {found}; nothing is migrated"));
    }
    let steps: Vec<_> = pending
        .iter()
        .zip(found + 1..)
        .map(|(summary, number)| format!("\n  migration {number}  {summary}"))
        .collect();
    UpgradedPart::readable(
        PART,
        format!(
            "has tables of version {found}; the first new server, or `trefoil migrate`, changes them to {needed} while \
             servers of the version before keep working:{}",
            steps.concat()
        ),
    )
}

fn check_indexes(data: &Path) -> UpgradedPart {
    const PART: &str = "terminology";
    let (mut present, mut older, mut older_bytes, mut unreadable) = (0, 0, 0, Vec::new());
    let mut editions = BTreeSet::new();
    let paths = match SavedIndexes::paths_in(data) {
        Ok(paths) => paths,
        Err(error) => return UpgradedPart::refused(PART, error.to_string()),
    };
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        editions.extend(
            name.strip_prefix("snomed.info-sct-").and_then(|rest| rest.split('-').next()).map(str::to_owned),
        );
        let read = || -> io::Result<(bool, u64)> {
            let file = File::open(&path)?;
            let bytes = file.metadata()?.len();
            Ok((CodeSystemIndex::has_present_format(file)?, bytes))
        };
        match read() {
            Ok((true, _)) => present += 1,
            Ok((false, bytes)) => {
                older += 1;
                older_bytes += bytes;
            }
            // It is built again from the resource.
            Err(_) if path.starts_with(SavedIndexes::resources_in(data)) => older += 1,
            Err(error) => unreadable.push(format!("\n  {}: {error}", path.display())),
        }
    }
    if !unreadable.is_empty() {
        let count = unreadable.len();
        return UpgradedPart::refused(
            PART,
            format!("{count} releases cannot be read; import them again:{}", unreadable.concat()),
        );
    }
    let mut result = match older {
        0 => format!("{present} indexes have the present format"),
        _ => format!(
            "{older} of {} indexes have an older format; the first start reads or builds them again and rewrites \
                 them, which takes about {} s longer",
            present + older,
            older_bytes.div_ceil(INDEX_BYTES_PER_S)
        ),
    };
    if editions.len() > 1 {
        result.push_str(
            "; the only national edition of SNOMED CT now answers requests without a version if its International base \
             is current (decision 52 in decisions.md)",
        );
    }
    UpgradedPart::readable(PART, result)
}

async fn check_backup(config: &Config, flags: &ServeFlags) -> UpgradedPart {
    const PART: &str = "backup";
    const ADVICE: &str = "make one now: trefoil backup --to FOLDER";
    let Ok(location) = BackupSources::new(config, flags).location(None, false) else {
        return UpgradedPart::readable(PART, format!("no `[backup] to` is configured; {ADVICE}"));
    };
    match location.backups().await {
        Ok(backups) => match backups.last() {
            Some(last) => UpgradedPart::readable(PART, format!("the last one is of {}; {ADVICE}", last.time)),
            None => UpgradedPart::readable(PART, format!("there is none; {ADVICE}")),
        },
        // The data can be used without a backup.
        Err(error) => {
            UpgradedPart::readable(PART, format!("those of before cannot be read: {error}; {ADVICE}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_listed_with_their_numbers() {
        let pending = vec!["adds a column", "adds an index"];
        let tables = TablesVersion { found: 1, needed: 3, is_usable: false, pending };
        let part = describe_tables(&tables);
        assert!(part.is_readable);
        assert!(part.result.contains("changes them to 3"), "{}", part.result);
        assert!(part.result.ends_with("\n  migration 2  adds a column\n  migration 3  adds an index"));
        for is_usable in [true, false] {
            let newer = TablesVersion { found: 4, needed: 3, is_usable, pending: Vec::new() };
            assert_eq!(describe_tables(&newer).is_readable, is_usable);
        }
    }
}
