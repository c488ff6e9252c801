//! Import beside PostgreSQL, which copies the same lines into a column of type `jsonb` and then builds a GIN
//! index, as servers on PostgreSQL have it. Rounds alternate, because the speed of a machine changes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_database::{Durability, TestDatabase};
use tokio_postgres::NoTls;

use crate::{cpu_seconds_of_children, median, runtime, step, text, told};

/// Number of resources.
const RESOURCES: u64 = 100_000;

/// Measures imports of the same files.
pub fn measure(rounds: u64) {
    println!("import of {RESOURCES} resources");
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    // The database runs as another user.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
        .expect("the permissions can be changed");
    let files = folder.path().join("in");
    crate::write_population(&files, RESOURCES / trefoil_fixtures::population::EACH);
    let Ok(database) = TestDatabase::start(Durability::Synced) else {
        return println!("left out: PostgreSQL is not installed");
    };
    let (mut ours, mut plain, mut indexed, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut disk = (0, 0);
    for round in 1..=rounds {
        let data = folder.path().join(format!("data-{round}"));
        let before = cpu_seconds_of_children();
        step(&["--ingest", text(&data), text(&files)]);
        // The rest of the compaction is part of the cost.
        step(&["--settle", text(&data)]);
        let cpu = cpu_seconds_of_children() - before;
        let url = database.create().expect("a database can be created");
        let (copied, with_index, bytes) = runtime().block_on(copy(&database, &url, &files));
        disk = (size(&data), bytes);
        std::fs::remove_dir_all(&data).expect("the folder was created by this function");
        ratios.push(cpu / with_index);
        ours.push(cpu);
        plain.push(copied);
        indexed.push(with_index);
    }
    let seconds = |figures: &mut Vec<f64>| format!("{:.2} s", median(figures));
    told("import with compaction, CPU", seconds(&mut ours), "");
    told("PostgreSQL, COPY into jsonb, CPU", seconds(&mut plain), "");
    told("PostgreSQL, COPY and GIN index, CPU", seconds(&mut indexed), "");
    told("import, cost relative to PostgreSQL with the index", format!("{:.2}", median(&mut ratios)), "1.0");
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    told("disk after the import", mib(disk.0), "");
    told("disk of PostgreSQL with the index", mib(disk.1), "");
}

/// The CPU seconds of a copy, those of a copy with its index, and the size of both on disk.
async fn copy(database: &TestDatabase, url: &str, files: &Path) -> (f64, f64, u64) {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the database accepts");
    tokio::spawn(connection);
    let sql = "CREATE TABLE resource (id bigserial PRIMARY KEY, body jsonb NOT NULL)";
    client.batch_execute(sql).await.expect("the table can be created");
    let cpu = || database.cpu_seconds().expect("the CPU time of the database is known");
    let before = cpu();
    for file in paths(files) {
        // Bytes that JSON does not contain separate and quote nothing, so that each line is a value.
        let program = format!(
            "COPY resource (body) FROM '{}' WITH (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01')",
            text(&file)
        );
        client.batch_execute(&program).await.expect("the lines can be copied");
    }
    client.batch_execute("CHECKPOINT").await.expect("the database writes its pages");
    let copied = cpu() - before;
    let index = "CREATE INDEX ON resource USING gin (body jsonb_path_ops); CHECKPOINT";
    client.batch_execute(index).await.expect("the index can be created");
    let with_index = cpu() - before;
    let row = client.query_one("SELECT pg_total_relation_size('resource')", &[]).await;
    let bytes: i64 = row.expect("the size is known").get(0);
    (copied, with_index, u64::try_from(bytes).unwrap_or_default())
}

fn paths(files: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(files).expect("the folder of the input files exists").flatten();
    let mut paths: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|it| it == "ndjson"))
        .collect();
    paths.sort();
    paths
}

/// The size of a folder on disk in bytes.
fn size(folder: &Path) -> u64 {
    let output = Command::new("du").args(["-s", "-B1"]).arg(folder).output().expect("du is installed");
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}
