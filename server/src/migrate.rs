//! `trefoil migrate`: creates or updates the tables of a database, and ends.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use store::{DatabaseLimits, Store};

use crate::config::{Config, ServeFlags, StoreEngine, exit_code};

/// Command-line options of `migrate`.
#[derive(Debug, clap::Args)]
pub struct MigrateArgs {
    /// URL of a PostgreSQL database, with a user who may change its tables
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Configuration file with the URL in `[store] engine`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Migrates the database and returns the exit code.
pub async fn run_migrate(args: MigrateArgs) -> ExitCode {
    match migrate(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            exit_code(&error)
        }
    }
}

async fn migrate(args: MigrateArgs) -> Result<()> {
    let flags = ServeFlags { config: args.config, store: args.store, ..ServeFlags::default() };
    let StoreEngine::Postgres { url, .. } = Config::load(&flags)?.engine else {
        bail!("only a database has tables; name it with --store postgres://USER@HOST/NAME");
    };
    let result = Store::migrate_postgres(&url, DatabaseLimits::default()).await;
    let count = result.with_context(|| format!("failed to migrate {url}"))?;
    match count {
        0 => println!("the tables of {url} are up to date"),
        1 => println!("1 migration of {url} is done"),
        count => println!("{count} migrations of {url} are done"),
    }
    Ok(())
}
