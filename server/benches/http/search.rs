//! Searches of a million resources, run by `cargo xtask bench search`: the time of one request after the
//! other, beside PostgreSQL with an index for each search on the same data in the same run.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use test_database::{Durability, TestDatabase};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::connection::{Connector, Transport, status};
use crate::server::Server;
use crate::{Bench, identity};

/// Default number of Observations.
const OBSERVATIONS: u64 = 1_000_000;
/// Number of requests of one kind in a round.
const REQUESTS: usize = 20;
const PATIENTS: u64 = 10_000;

/// A search, and the query that PostgreSQL answers from an index.
struct Row {
    search: &'static str,
    sql: &'static str,
    goal: &'static str,
}

/// The elements that the queries use.
const TABLE: &str = "
    CREATE TABLE observation (id text COLLATE \"C\" PRIMARY KEY, updated bigserial, body jsonb NOT NULL);
    CREATE INDEX ON observation ((body->>'effectiveDateTime'), id);
    CREATE INDEX ON observation ((body #>> '{category,0,coding,0,code}'), (body->>'effectiveDateTime'), id);
    CREATE INDEX ON observation ((body->>'status'), (body->>'effectiveDateTime'), id);
    CREATE INDEX ON observation ((body #>> '{code,coding,0,code}'), (body->>'effectiveDateTime'), id);
    CREATE INDEX ON observation ((body #>> '{subject,reference}'), (body->>'effectiveDateTime'), id);
    CREATE INDEX ON observation (updated);";

const ROWS: [Row; 9] = [
    Row {
        search: "_sort=-date&_count=10",
        sql: "ORDER BY body->>'effectiveDateTime' DESC, id DESC LIMIT 10",
        goal: "10 ms",
    },
    Row {
        search: "category=laboratory&_sort=-date&_count=10",
        sql: "WHERE body #>> '{category,0,coding,0,code}' = 'laboratory'
              ORDER BY body->>'effectiveDateTime' DESC, id DESC LIMIT 10",
        goal: "10 ms",
    },
    Row {
        search: "status=final&_sort=-date&_count=10",
        sql: "WHERE body->>'status' = 'final' ORDER BY body->>'effectiveDateTime' DESC, id DESC LIMIT 10",
        goal: "10 ms",
    },
    Row {
        search: "code=1234&_sort=-date&_count=10",
        sql: "WHERE body #>> '{code,coding,0,code}' = '1234'
              ORDER BY body->>'effectiveDateTime' DESC, id DESC LIMIT 10",
        goal: "10 ms",
    },
    Row {
        search: "patient=p77&_sort=-date&_count=10",
        sql: "WHERE body #>> '{subject,reference}' = 'Patient/p77'
              ORDER BY body->>'effectiveDateTime' DESC, id DESC LIMIT 10",
        goal: "10 ms",
    },
    Row { search: "_sort=_id&_count=10", sql: "ORDER BY id LIMIT 10", goal: "10 ms" },
    Row { search: "_sort=_lastUpdated&_count=10", sql: "ORDER BY updated LIMIT 10", goal: "10 ms" },
    Row {
        search: "_sort=_lastUpdated&_lastUpdated=gt{last}&_count=10",
        sql: "WHERE updated > {rows} - 2 ORDER BY updated LIMIT 10",
        goal: "10 ms",
    },
    Row { search: "_summary=count", sql: "", goal: "10 ms" },
];

/// Measures all searches.
pub(crate) fn run(args: &[String]) {
    let count =
        args.iter().find_map(|arg| arg.strip_prefix("--resources=")?.parse().ok()).unwrap_or(OBSERVATIONS);
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let file = folder.path().join("Observation.ndjson");
    write(&file, count);
    let data = folder.path().join("data");
    let server = serve(&data);
    let bench = Bench::new(Arc::new(server), crate::demo(&data));
    let started = Instant::now();
    let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    import.args(["import", "--data"]).arg(&data).arg(&file).stdout(Stdio::null());
    assert!(import.status().expect("the import can be started").success(), "the import failed");
    println!("{count} Observations; import {:.1} s", started.elapsed().as_secs_f64());
    // Two more after a time that the client remembers.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let last = Timestamp::now();
    let newer = folder.path().join("newer.ndjson");
    write(&newer, 2);
    let text = std::fs::read_to_string(&newer)
        .expect("the file was written")
        .replace(r#""id":"o"#, r#""id":"newer"#);
    std::fs::write(&newer, text).expect("the file can be written");
    let mut import = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    import.args(["import", "--data"]).arg(&data).arg(&newer).stdout(Stdio::null());
    assert!(import.status().expect("the import can be started").success(), "the import failed");

    let database = TestDatabase::start(Durability::Synced).expect("PostgreSQL is installed and starts");
    let url = database.create().expect("a database can be created");
    let runtime = Runtime::new().expect("the runtime can start its threads");
    let client = runtime.block_on(copy(&url, &[&file, &newer]));
    println!("{:<56} {:>10} {:>12} {:>8}", "search", "median", "PostgreSQL", "goal");
    for row in ROWS {
        let search = row.search.replace("{last}", &format!("{last:.3}"));
        let sql = row.sql.replace("{rows}", &(count + 2).to_string());
        let ours = measure_search(&bench, &search);
        let theirs = runtime.block_on(measure_query(&client, &sql));
        println!("{:<56} {ours:>7.2} ms {theirs:>9.2} ms {:>8}", row.search, row.goal);
    }
}

fn serve(data: &Path) -> Server {
    std::fs::create_dir_all(data).expect("the folder can be created");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_trefoil"));
    serve.args(["serve", "--demo", "--insecure-http", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    let log = std::fs::File::create(data.join("server.log")).expect("the log can be created");
    serve.stderr(log);
    Server::start(&mut serve, "ready http://", || Arc::new(Connector::new(Transport::Plain, data)))
}

/// Writes Observations, whose dates are in another order than their ids.
fn write(path: &Path, count: u64) {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path).expect("the file can be created"));
    let mut random = fastrand::Rng::with_seed(count);
    for number in 0..count {
        let seconds = i64::try_from(random.u64(..600_000_000)).unwrap_or_default();
        let date = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_400_000_000 + seconds);
        let category = if random.bool() { "laboratory" } else { "vital-signs" };
        let status = if random.u8(..10) == 0 { "amended" } else { "final" };
        writeln!(
            out,
            r#"{{"resourceType":"Observation","id":"o{number}","status":"{status}","category":[{{"coding":[{{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"{category}"}}]}}],"code":{{"coding":[{{"system":"http://population.example/observations","code":"{}"}}]}},"subject":{{"reference":"Patient/p{}"}},"effectiveDateTime":"{date}","valueQuantity":{{"value":{}}}}}"#,
            random.u32(..5_000),
            random.u64(..PATIENTS),
            random.u32(..300),
        )
        .expect("the file can be written");
    }
    out.flush().expect("the file can be written");
}

async fn copy(url: &str, files: &[&Path]) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the database accepts");
    tokio::spawn(connection);
    client.batch_execute(TABLE).await.expect("the table can be created");
    for file in files {
        let text = std::fs::read_to_string(file).expect("the file was written");
        let lines: Vec<&str> = text.lines().collect();
        for lines in lines.chunks(5_000) {
            let sql = "INSERT INTO observation (id, body)
                       SELECT body->>'id', body FROM unnest($1::text[]) WITH ORDINALITY line(text, number),
                       LATERAL (SELECT text::jsonb AS body) parsed ORDER BY number";
            client.execute(sql, &[&lines]).await.expect("the rows can be inserted");
        }
    }
    client.batch_execute("VACUUM ANALYZE observation").await.expect("the table can be analyzed");
    client
}

/// The median time of a search in milliseconds.
fn measure_search(bench: &Bench, search: &str) -> f64 {
    let token = bench.backend_token(identity::READ);
    let request = format!(
        "GET /fhir/R4/Observation?{search} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let mut connection = bench.trefoil.connect();
    // The first request fills the caches, in both systems.
    let mut times: Vec<f64> = (0..=REQUESTS)
        .map(|_| {
            let started = Instant::now();
            let (head, body) = connection.call(&request);
            let time = started.elapsed().as_secs_f64() * 1e3;
            assert_eq!(status(&head), "200", "{search}: {head}{body}");
            time
        })
        .skip(1)
        .collect();
    median(&mut times)
}

/// The median time of a query in milliseconds.
async fn measure_query(client: &Client, condition: &str) -> f64 {
    let sql = match condition {
        "" => "SELECT count(*)::text FROM observation".to_owned(),
        _ => format!("SELECT body::text FROM observation {condition}"),
    };
    let statement = client.prepare(&sql).await.expect("the query is valid");
    let mut times = Vec::new();
    for _ in 0..=REQUESTS {
        let started = Instant::now();
        let rows = client.query(&statement, &[]).await.expect("the query succeeds");
        times.push(started.elapsed().as_secs_f64() * 1e3);
        assert!(!rows.is_empty(), "{sql}");
    }
    median(&mut times[1..])
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
