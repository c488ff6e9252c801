//! Laws of several nodes that share a store: every follower sees each commit once and in order, a snapshot
//! divides all commits into earlier and later ones, and nothing is lost or doubled when connections break.
//! The engines that belong to one process take part with several handles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use trefoil_store::{
    ChangeRecord, DatabaseLimits, DatabaseUrl, Erasure, Expect, ExpectVersion, Ledger as _, LedgerWrite,
    PageLimit, ResourceKey, ScanOptions, Seq, Store, StoreError, StoreSnapshot, Versions as _,
};

use crate::{StoreEngine, YieldingLink, at, put};

const NODES: usize = 3;
const WRITERS: usize = 6;
const COMMITS: usize = 40;

/// Returns the handles of several nodes on the same store.
async fn nodes(engine: &StoreEngine) -> Vec<Store> {
    let mut nodes = vec![engine.store.clone()];
    while nodes.len() < NODES {
        nodes.push(match &engine.url {
            Some(url) => Store::postgres(url, DatabaseLimits::default()).await.unwrap(),
            None => match &engine.shared {
                Some(shared) => Store::shared_memory(shared, Arc::new(YieldingLink)),
                None => engine.store.clone(),
            },
        });
    }
    nodes
}

/// Knowledge of a writer about one of its commits.
struct WrittenCommit {
    /// Number of acknowledged commits before this one began, in the order of a shared counter.
    begun: u64,
    /// The counter when it was acknowledged, and the last sequence number. `None` if the result is unknown.
    acknowledged: Option<(u64, Seq)>,
    ids: Vec<String>,
}

/// A snapshot, and the counter before and after it.
struct TakenSnapshot {
    begun: u64,
    ended: u64,
    snapshot: StoreSnapshot,
}

/// Writers, followers and snapshots at the same time on all nodes, and an adversary that breaks connections.
async fn run(engine: &StoreEngine, adversary: bool) {
    let nodes = nodes(engine).await;
    let ticks = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    // The writers and the snapshots.
    let together = Arc::new(Barrier::new(WRITERS + 1));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, ticks, start) =
            (nodes[writer % NODES].clone(), Arc::clone(&ticks), Arc::clone(&together));
        writers.spawn(async move {
            let mut commits = Vec::new();
            start.wait().await;
            for number in 0..COMMITS {
                let ids: Vec<String> =
                    (0..=number % 3).map(|part| format!("{writer}-{number}-{part}")).collect();
                let write = |id: &String| put("Observation", id, id, &["c"]).expecting(ExpectVersion::Absent);
                let begun = ticks.fetch_add(1, Ordering::SeqCst);
                let answer = store.commit(ids.iter().map(write).collect(), at(number as i64)).await;
                let acknowledged = match answer {
                    Ok(commit) => Some((ticks.fetch_add(1, Ordering::SeqCst), commit.seq)),
                    Err(StoreError::Unavailable { .. }) => None,
                    Err(other) => panic!("{other}"),
                };
                commits.push(WrittenCommit { begun, acknowledged, ids });
            }
            commits
        });
    }
    let mut followers = JoinSet::new();
    for store in &nodes {
        let (store, is_over) = (store.clone(), Arc::clone(&is_over));
        followers.spawn(async move {
            let mut seen: Vec<ChangeRecord> = Vec::new();
            loop {
                let was_over = is_over.load(Ordering::SeqCst);
                let after = seen.last().map_or(Seq::ZERO, |change| change.seq);
                match store.changes(after, 7).await {
                    Ok(changes) if changes.is_empty() && was_over => return seen,
                    Ok(changes) => seen.extend(changes),
                    Err(StoreError::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let (store, counter, over) = (nodes[NODES - 1].clone(), Arc::clone(&ticks), Arc::clone(&is_over));
    let start = Arc::clone(&together);
    let snapshots = tokio::spawn(async move {
        let mut taken = Vec::new();
        start.wait().await;
        while taken.is_empty() || !over.load(Ordering::SeqCst) {
            let begun = counter.fetch_add(1, Ordering::SeqCst);
            if let Ok(snapshot) = store.snapshot(at(taken.len() as i64)).await {
                let ended = counter.fetch_add(1, Ordering::SeqCst);
                taken.push(TakenSnapshot { begun, ended, snapshot });
            }
            // An engine in memory never waits, and the writers need a thread.
            tokio::task::yield_now().await;
        }
        taken
    });
    let cutting =
        adversary.then(|| tokio::spawn(break_connections(engine.url.clone(), Arc::clone(&is_over))));

    let commits: Vec<WrittenCommit> = writers.join_all().await.into_iter().flatten().collect();
    is_over.store(true, Ordering::SeqCst);
    let broken = match cutting {
        Some(cutting) => cutting.await.unwrap(),
        None => 0,
    };
    let all = engine.store.changes(Seq::ZERO, usize::MAX).await.unwrap();
    for seen in followers.join_all().await {
        assert_eq!(seen, all, "{}: a follower", engine.name);
    }
    let seqs: Vec<u64> = all.iter().map(|change| change.seq.0).collect();
    assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>(), "{}: no number is missing", engine.name);

    // Each commit is there once, with consecutive numbers; one whose result is unknown is there completely or
    // not at all.
    let by_id: BTreeMap<&str, Seq> = all.iter().map(|change| (change.key.id.as_str(), change.seq)).collect();
    assert_eq!(by_id.len(), all.len(), "{}: nothing is doubled", engine.name);
    for commit in &commits {
        let found: Vec<u64> = commit.ids.iter().filter_map(|id| Some(by_id.get(id.as_str())?.0)).collect();
        if let Some((_, seq)) = commit.acknowledged {
            let first = seq.0 + 1 - commit.ids.len() as u64;
            assert_eq!(found, (first..=seq.0).collect::<Vec<_>>(), "{}: {:?}", engine.name, commit.ids);
        } else {
            assert!(found.is_empty() || found.len() == commit.ids.len(), "{}: {found:?}", engine.name);
        }
    }
    let taken = snapshots.await.unwrap();
    assert!(!taken.is_empty(), "{}", engine.name);
    for TakenSnapshot { begun, ended, snapshot } in taken {
        for commit in &commits {
            let Some((acknowledged, seq)) = commit.acknowledged else { continue };
            assert!(
                acknowledged > begun || seq <= snapshot.seq,
                "{}: an earlier write is missing",
                engine.name
            );
            assert!(commit.begun < ended || seq > snapshot.seq, "{}: a later write is in it", engine.name);
        }
    }
    let unknown = commits.iter().filter(|commit| commit.acknowledged.is_none()).count();
    println!(
        "{}: {} changes, {broken} connections broken, {unknown} results unknown",
        engine.name,
        all.len()
    );
}

/// Breaks random connections to the database until the test is over. Returns their number.
async fn break_connections(url: Option<DatabaseUrl>, is_over: Arc<AtomicBool>) -> usize {
    let url = url.expect("only connections to a database can be broken");
    let (client, connection) =
        tokio_postgres::connect(&format!("{url}?sslmode=disable"), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1";
    let mut broken = 0;
    while !is_over.load(Ordering::SeqCst) {
        broken += client.query(sql, &[]).await.unwrap().len();
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }
    broken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn followers_and_snapshots_agree_on_the_order_of_all_nodes() {
    for engine in StoreEngine::each().await {
        run(&engine, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_or_doubled_when_connections_break() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    run(&engine, true).await;
}

#[tokio::test]
async fn a_node_reads_what_another_one_acknowledged() {
    for engine in StoreEngine::each().await {
        let nodes = nodes(&engine).await;
        for number in 1..=20_u64 {
            let (writer, reader) = (&nodes[number as usize % NODES], &nodes[(number as usize + 1) % NODES]);
            let id = number.to_string();
            writer.commit(vec![put("Patient", &id, "x", &[])], at(0)).await.unwrap();
            assert_eq!(reader.last_seq().await.unwrap(), Seq(number), "{}", engine.name);
            let found = reader.read(&ResourceKey::new("Patient", &id), Seq(number)).await.unwrap();
            assert!(found.is_some(), "{}", engine.name);
            let code = LedgerWrite::put(format!("code/{id}"), "live", Expect::Absent);
            let live = writer.write(vec![code], at(0)).await.unwrap()[0];
            let spent = LedgerWrite::put(format!("code/{id}"), "spent", Expect::Revision(live));
            reader.write(vec![spent.clone()], at(0)).await.unwrap();
            assert!(
                writer.write(vec![spent], at(0)).await.is_err(),
                "{}: it was spent elsewhere",
                engine.name
            );
        }
    }
}

#[tokio::test]
async fn a_code_is_spent_on_one_of_several_nodes() {
    for engine in StoreEngine::each().await {
        let nodes = nodes(&engine).await;
        for round in 0..20 {
            let key = format!("code/{round}");
            let live =
                nodes[0].write(vec![LedgerWrite::put(&*key, "live", Expect::Absent)], at(0)).await.unwrap()
                    [0];
            // Both a change and the creation of a key must succeed once.
            for write in [
                LedgerWrite::put(&*key, "spent", Expect::Revision(live)),
                LedgerWrite::put(format!("jti/{round}"), "used", Expect::Absent),
            ] {
                let mut tasks = JoinSet::new();
                for store in nodes.clone() {
                    let writes = vec![write.clone()];
                    tasks.spawn(async move { store.write(writes, at(0)).await });
                }
                let answers = tasks.join_all().await;
                let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
                assert_eq!(accepted, 1, "{} {answers:?}", engine.name);
            }
        }
    }
}

/// Opens a connection of its own to the database.
async fn connect(engine: &StoreEngine) -> tokio_postgres::Client {
    let url = format!("{}?sslmode=disable", engine.url.as_ref().unwrap());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_writer_whose_row_is_gone_or_changed_continues_with_another_row() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let client = connect(&engine).await;
    let mut version = 0;
    let mut write = async || {
        let expect = if version == 0 { ExpectVersion::Absent } else { ExpectVersion::Version(version) };
        version += 1;
        let write = put("Basic", "counter", "", &[]).expecting(expect);
        assert_eq!(engine.store.commit(vec![write], at(0)).await.unwrap().written[0].version, version);
        let used = LedgerWrite::put(format!("jti/{version}"), "used", Expect::Absent);
        engine.store.write(vec![used], at(0)).await.unwrap();
    };
    write().await;
    for change in [
        // The row was not used for days.
        "DELETE FROM writer",
        // A failover has lost the last rounds.
        "UPDATE writer SET round = round - 1",
        // The number of the next round, as if that had been committed.
        "UPDATE writer SET round = round + 1",
    ] {
        client.batch_execute(change).await.unwrap();
        write().await;
        write().await;
    }
}

#[tokio::test]
async fn the_error_of_a_rejected_write_contains_its_reason() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let client = connect(&engine).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
            RAISE EXCEPTION 'refused' USING ERRCODE = TG_ARGV[0];
        END $$ LANGUAGE plpgsql";
    client.batch_execute(refuse).await.unwrap();
    let writers =
        async || client.query_one("SELECT count(*) FROM writer", &[]).await.unwrap().get::<_, i64>(0);
    let write = async |id: &str| {
        let used = LedgerWrite::put(format!("jti/{id}"), "used", Expect::Absent);
        let created = put("Basic", id, "", &[]).expecting(ExpectVersion::Absent);
        (engine.store.write(vec![used], at(0)).await, engine.store.commit(vec![created], at(0)).await)
    };
    let first = write("first").await;
    assert!(first.0.is_ok() && first.1.is_ok());
    let before = writers().await;
    for (code, is_full) in [("53100", true), ("42501", false)] {
        for table in ["ledger", "current"] {
            let trigger =
                format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} EXECUTE FUNCTION refuse('{code}')");
            client.batch_execute(&trigger).await.unwrap();
        }
        let answers = write("refused").await;
        for error in [answers.0.unwrap_err(), answers.1.unwrap_err()] {
            let is_right = match &error {
                StoreError::ReadOnly { part, .. } => is_full && *part == "disk",
                StoreError::Engine { .. } => !is_full,
                _ => false,
            };
            assert!(is_right, "{code}: {error}");
        }
        for table in ["ledger", "current"] {
            client.batch_execute(&format!("DROP TRIGGER refuse ON {table}")).await.unwrap();
        }
    }
    let last = write("refused").await;
    assert!(last.0.is_ok() && last.1.is_ok(), "nothing was written before");
    assert_eq!(writers().await, before, "the writers continue with their rows");
}

#[tokio::test]
async fn a_scan_that_ends_early_leaves_no_statement_behind() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let client = connect(&engine).await;
    // Longer than what fits between the database and its client.
    let text = "x".repeat(200_000);
    for number in 0..64 {
        let id = number.to_string();
        engine.store.commit(vec![put("Binary", &id, &text, &["c"])], at(0)).await.unwrap();
    }
    let scan = ScanOptions::at(Seq::LATEST).limit(PageLimit { count: 1, bytes: 1 });
    for _ in 0..20 {
        assert_eq!(engine.store.scan_kind("Binary", scan).await.unwrap().versions.len(), 1);
        assert_eq!(engine.store.scan_compartment("c", "Binary", scan).await.unwrap().versions.len(), 1);
    }
    let active = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()";
    // A backend ends when it next writes to its closed connection.
    for _ in 0..500 {
        if client.query_one(active, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("statements of ended scans are still running");
}

#[tokio::test]
async fn serialization_failures_only_delay_writes() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let client = connect(&engine).await;
    // Each table of a round fails with this chance. A database that shards by itself reports such failures
    // often.
    let storm = "CREATE FUNCTION storm() RETURNS trigger AS $$ BEGIN
            IF random() < 0.5 THEN RAISE EXCEPTION 'storm' USING ERRCODE = '40001'; END IF;
            RETURN NULL;
        END $$ LANGUAGE plpgsql;
        CREATE TRIGGER storm AFTER INSERT OR UPDATE ON ledger FOR EACH STATEMENT EXECUTE FUNCTION storm();
        CREATE TRIGGER storm AFTER UPDATE ON clock FOR EACH STATEMENT EXECUTE FUNCTION storm();";
    client.batch_execute(storm).await.unwrap();
    for number in 1..=10_u64 {
        let key = format!("jti/{number}");
        engine.store.write(vec![LedgerWrite::put(&*key, "used", Expect::Absent)], at(0)).await.unwrap();
        let id = number.to_string();
        let write = put("Patient", &id, "x", &["c"]).expecting(ExpectVersion::Absent);
        assert_eq!(engine.store.commit(vec![write], at(0)).await.unwrap().seq, Seq(number));
    }
    let commits: i64 = client.query_one("SELECT max(round) FROM writer", &[]).await.unwrap().get(0);
    assert_eq!(commits, 10, "a round that was rolled back has no number");
}

/// A proxy in front of the database that disturbs a connection once.
struct CuttingProxy {
    port: u16,
    cut: Arc<Cut>,
}

struct Cut {
    /// Number of pieces of data that all connections together forward. The piece after them is lost, and its
    /// connection ends.
    left: AtomicUsize,
    /// Milliseconds for which the next piece with a `COMMIT` is held back; 0 for none.
    silence: AtomicU64,
}

impl CuttingProxy {
    async fn start(database: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(Cut { left: AtomicUsize::new(usize::MAX), silence: AtomicU64::new(0) });
        let shared = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", database)).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(forward(from_client, to_server, Arc::clone(&shared)));
                tokio::spawn(forward(from_server, to_client, Arc::clone(&shared)));
            }
        });
        Self { port, cut }
    }

    /// Opens the store of an engine through the proxy.
    async fn open(&self, engine: &StoreEngine, limits: DatabaseLimits) -> Store {
        let database = test_database::TestDatabase::shared().unwrap();
        let url = format!("{}?sslmode=disable", engine.url.as_ref().unwrap());
        let url = url.replace(&format!(":{}/", database.port()), &format!(":{}/", self.port));
        Store::postgres(&DatabaseUrl::new(url, None), limits).await.unwrap()
    }
}

/// Forwards data of one direction, with the disturbance.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, cut: Arc<Cut>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(size @ 1..) = from.read(&mut buffer).await {
        if buffer[..size].windows(7).any(|text| text == b"COMMIT\0") {
            tokio::time::sleep(Duration::from_millis(cut.silence.swap(0, Ordering::SeqCst))).await;
        }
        let count = |left: usize| Some(if left == 0 { usize::MAX } else { left - 1 });
        if cut.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(0)
            || to.write_all(&buffer[..size]).await.is_err()
        {
            break;
        }
    }
    let _closed = to.shutdown().await;
}

#[tokio::test]
async fn a_node_that_falls_silent_within_a_write_stops_no_other_node() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let proxy = CuttingProxy::start(test_database::TestDatabase::shared().unwrap().port()).await;
    let limits = DatabaseLimits {
        write: Duration::from_secs(1),
        idle_transaction: Duration::from_millis(200),
        ..DatabaseLimits::default()
    };
    let silent = proxy.open(&engine, limits).await;
    silent.commit(vec![put("Basic", "silent", "0", &[])], at(0)).await.unwrap();
    // The commit arrives after the database has given up the transaction, or never.
    for (version, silence) in [(1, 600), (2, 600_000)] {
        proxy.cut.silence.store(silence, Ordering::SeqCst);
        let write = put("Basic", "silent", &silence.to_string(), &[]);
        let write = write.expecting(ExpectVersion::Version(version));
        let store = silent.clone();
        let waiting = tokio::spawn(async move { store.commit(vec![write], at(0)).await });
        while !waiting.is_finished() {
            let other = engine.store.commit(vec![put("Basic", "other", "x", &[])], at(0));
            other.await.expect("the clock is not locked for longer than a write waits");
        }
        assert_eq!(proxy.cut.silence.load(Ordering::SeqCst), 0, "the commit was held back");
        waiting.await.unwrap().unwrap();
        let newest = engine.store.read(&ResourceKey::new("Basic", "silent"), Seq::LATEST).await.unwrap();
        assert_eq!(newest.unwrap().version, version + 1, "silent for {silence} ms");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_at_any_point_of_a_write_loses_and_doubles_nothing() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let database = test_database::TestDatabase::shared().unwrap();
    let proxy = CuttingProxy::start(database.port()).await;
    let store = proxy.open(&engine, DatabaseLimits::default()).await;
    let key = ResourceKey::new("Basic", "counter");
    let mut version = 0;
    for pieces in 0..24 {
        proxy.cut.left.store(pieces, Ordering::SeqCst);
        let expect = if version == 0 { ExpectVersion::Absent } else { ExpectVersion::Version(version) };
        let write = put("Basic", "counter", &pieces.to_string(), &[]).expecting(expect);
        store.commit(vec![write], at(0)).await.unwrap();
        version += 1;
        let newest = engine.store.read(&key, Seq::LATEST).await.unwrap().unwrap();
        assert_eq!(newest.version, version, "cut after {pieces} pieces");

        proxy.cut.left.store(pieces, Ordering::SeqCst);
        let writes = vec![LedgerWrite::put(format!("jti/{pieces}"), "used", Expect::Absent)];
        store.write(writes, at(0)).await.unwrap();
        assert!(engine.store.get(&format!("jti/{pieces}"), at(0)).await.unwrap().is_some());
    }
    proxy.cut.left.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(store.last_seq().await.unwrap(), Seq(version));
}

/// All tables with data, in an order in which they can be filled.
const TABLES: [&str; 9] =
    ["clock", "writer", "current", "history", "member", "change", "kind", "term", "ledger"];

/// Saves all tables, as a backup does.
async fn save_tables(client: &tokio_postgres::Client) {
    let tables = TABLES.into_iter().chain(["node"]);
    let copies: String =
        tables.map(|table| format!("CREATE TABLE saved.{table} AS TABLE public.{table};")).collect();
    client.batch_execute(&format!("CREATE SCHEMA saved; {copies}")).await.unwrap();
}

/// Restores all tables while the connections of the nodes stay open, as behind a pooler.
async fn restore_tables(client: &tokio_postgres::Client) {
    let tables = TABLES.into_iter().chain(["node"]);
    let copies: String = tables
        .map(|table| {
            format!("DELETE FROM public.{table}; INSERT INTO public.{table} SELECT * FROM saved.{table};")
        })
        .collect();
    client.batch_execute(&format!("BEGIN; {copies} COMMIT")).await.unwrap();
}

/// Waits until the node has increased its number twice.
async fn until_beaten(client: &tokio_postgres::Client) {
    let beat = async || -> i64 { client.query_one("SELECT max(beat) FROM node", &[]).await.unwrap().get(0) };
    let before = beat().await;
    while beat().await < before + 2 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_went_back_in_time_is_noticed() {
    // Only records are lost, or writes whose numbers were assigned again since.
    for only_records in [true, false] {
        let Some(engine) = StoreEngine::postgres().await else { return };
        let client = connect(&engine).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.json");
        let store = &engine.store;
        let announced = store.announce("https://health.example", &file).await.unwrap();
        assert_eq!((announced.went_back, announced.earlier_base_url), (false, None));
        let write = async |id: &str| store.commit(vec![put("Basic", id, "", &[])], at(0)).await.map(drop);
        write("before").await.unwrap();
        save_tables(&client).await;
        if only_records {
            store.write(vec![LedgerWrite::put("code/spent", "", Expect::Absent)], at(0)).await.unwrap();
        } else {
            write("lost").await.unwrap();
        }
        until_beaten(&client).await;
        restore_tables(&client).await;
        if !only_records {
            // Another node writes, so that the number of the lost write is passed again, and the number of
            // the node too.
            let other =
                Store::postgres(engine.url.as_ref().unwrap(), DatabaseLimits::default()).await.unwrap();
            for id in ["other", "another"] {
                other.commit(vec![put("Basic", id, "", &[])], at(0)).await.unwrap();
            }
            client.batch_execute("UPDATE node SET beat = beat + 1000").await.unwrap();
        }
        store.went_back().await;
        let refused = store.get("k", at(0)).await.unwrap_err();
        assert!(refused.to_string().contains("went back in time"), "{refused}");
        assert!(write("refused").await.is_err());
        assert!(store.check_writable().await.is_err());

        // The same node starts again, twice.
        let reopen =
            async || Store::postgres(engine.url.as_ref().unwrap(), DatabaseLimits::default()).await.unwrap();
        let again = reopen().await;
        again.announce("https://health.example", &file).await.unwrap();
        again.commit(vec![put("Basic", "again", "", &[])], at(0)).await.unwrap();
        again.depart().await;
        let again = reopen().await;
        assert!(!again.announce("https://health.example", &file).await.unwrap().went_back);
        again.depart().await;
        restore_tables(&client).await;
        assert!(reopen().await.announce("https://health.example", &file).await.unwrap().went_back);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_an_erased_write_did_not_go_back() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let client = connect(&engine).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("node.json");
    let store = &engine.store;
    store.announce("https://health.example", &file).await.unwrap();
    // Once the last write that the node has heard of is erased while it runs, and once while it is stopped.
    for id in ["running", "stopped"] {
        store.commit(vec![put("Basic", id, "", &[])], at(0)).await.unwrap();
        until_beaten(&client).await;
        if id == "stopped" {
            store.depart().await;
        }
        let key = ResourceKey::new("Basic", id);
        store.erase(vec![Erasure { key, newest: 1, terms: Vec::new() }]).await.unwrap();
        if id == "running" {
            until_beaten(&client).await;
            store.commit(vec![put("Basic", "next", "", &[])], at(0)).await.unwrap();
        }
    }
    let again = Store::postgres(engine.url.as_ref().unwrap(), DatabaseLimits::default()).await.unwrap();
    assert!(!again.announce("https://health.example", &file).await.unwrap().went_back);
    again.commit(vec![put("Basic", "again", "", &[])], at(0)).await.unwrap();
}

/// The last sequence number, and the keys of the ledger.
async fn content(store: &Store) -> (Seq, Vec<String>) {
    let mut moment = store.moment().await.unwrap();
    let mut keys = Vec::new();
    loop {
        let page = moment.next_page().await.unwrap();
        if page.is_empty() {
            return (moment.at().seq, keys);
        }
        keys.extend(page.into_iter().map(|entry| entry.key));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_content_moves_is_closed_for_all_nodes() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let nodes = nodes(&engine).await;
    let folder = tempfile::tempdir().unwrap();
    nodes[1].announce("https://one.example", &folder.path().join("node")).await.unwrap();
    // Nodes write as fast as they can; nothing that is acknowledged is missing once the database is closed.
    for attempt in 0..3 {
        let mut writers = JoinSet::new();
        for (number, store) in nodes[1..].iter().enumerate() {
            let store = store.clone();
            writers.spawn(async move {
                for count in 0.. {
                    let key = format!("{attempt}/{number}/{count}");
                    let record = LedgerWrite::put(key, "x", Expect::Absent);
                    let resource = put("Basic", &format!("{attempt}-{number}-{count}"), "", &[]);
                    let (written, committed) =
                        tokio::join!(store.write(vec![record], at(0)), store.commit(vec![resource], at(0)));
                    if let (Err(refused), _) | (_, Err(refused)) = (written, committed) {
                        assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
                        return (number, count);
                    }
                }
                unreachable!("the database is closed at some time")
            });
        }
        tokio::task::yield_now().await;
        let closed = nodes[0].close().await.unwrap();
        let reached = content(&nodes[0]).await;
        assert!(nodes[2].close().await.is_err(), "one program moves the content");
        for (number, count) in writers.join_all().await {
            for count in 0..count {
                let record = nodes[0].get(&format!("{attempt}/{number}/{count}"), at(0)).await.unwrap();
                assert!(record.is_some(), "{attempt}/{number}/{count}");
            }
        }
        assert_eq!(content(&nodes[0]).await, reached, "nothing was written after the close");
        drop(closed);
        let key = format!("open/{attempt}");
        // The database is opened by another task.
        while nodes[1].write(vec![LedgerWrite::put(&*key, "x", Expect::Any)], at(0)).await.is_err() {}
    }
    let closed = nodes[0].close().await.unwrap();
    closed.complete("moved", b"to another store".to_vec(), at(0)).await.unwrap();
    nodes[1].moved().await;
    assert_eq!(nodes[1].get("moved", at(0)).await.unwrap().unwrap().value, &b"to another store"[..]);
    assert!(nodes[2].write(vec![LedgerWrite::put("late", "x", Expect::Any)], at(0)).await.is_err());
    nodes[0].reopen().await.unwrap();
    nodes[2].write(vec![LedgerWrite::put("late", "x", Expect::Any)], at(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn running_nodes_have_the_same_base_url() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let open =
        async || Store::postgres(engine.url.as_ref().unwrap(), DatabaseLimits::default()).await.unwrap();
    let (first, second) = (open().await, open().await);
    first.announce("https://one.example", &file("first")).await.unwrap();
    second.announce("https://one.example", &file("second")).await.unwrap();
    let error = open().await.announce("https://two.example", &file("third")).await.unwrap_err().to_string();
    assert!(error.contains("https://one.example") && error.contains("https://two.example"), "{error}");
    first.depart().await;
    assert!(open().await.announce("https://two.example", &file("third")).await.is_err());
    second.depart().await;
    let moved = open().await.announce("https://two.example", &file("third")).await.unwrap();
    assert_eq!(moved.earlier_base_url.as_deref(), Some("https://one.example"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_fails_writes_is_reported_until_a_probe_succeeds() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let limit = Duration::from_millis(300);
    let limits = DatabaseLimits { write: limit, retry: limit, ..DatabaseLimits::default() };
    let store = Store::postgres(engine.url.as_ref().unwrap(), limits).await.unwrap();
    let write = async || store.commit(vec![put("Basic", "b", "", &[])], at(0)).await;
    write().await.unwrap();
    store.check_writable().await.unwrap();
    let client = connect(&engine).await;
    client.batch_execute("BEGIN; SELECT * FROM clock FOR UPDATE").await.unwrap();
    write().await.unwrap_err();
    store.check_writable().await.unwrap_err();
    assert!(store.get("k", at(0)).await.is_ok(), "reads work");
    client.batch_execute("ROLLBACK").await.unwrap();
    // Without another write.
    while store.check_writable().await.is_err() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_a_connection_and_survive_its_end() {
    let Some(database) = test_database::TestDatabase::shared() else { return };
    let owner = database.create().unwrap();
    let owner_url = DatabaseUrl::new(owner.clone(), None);
    Store::migrate_postgres(&owner_url, DatabaseLimits::default()).await.unwrap();
    let user = database.add_user(&owner, "few").unwrap();
    let (client, connection) = tokio_postgres::connect(&owner, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let name: String = client.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO public; \
                 GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO public";
    client.batch_execute(grant).await.unwrap();
    client.batch_execute(&format!("ALTER DATABASE \"{name}\" CONNECTION LIMIT 4")).await.unwrap();
    let url = DatabaseUrl::new(user, None);
    // The test is about waiting at all; a busy machine may need longer than a request may.
    let minute = Duration::from_secs(60);
    let limits = DatabaseLimits { connect: minute, read: minute, write: minute, ..DatabaseLimits::default() };
    let store = Store::migrated_postgres(&url, limits).await.unwrap();
    let write = async |number: usize| {
        let record = LedgerWrite::put(format!("jti/{number}"), "used", Expect::Absent);
        store.write(vec![record], at(0)).await.map(drop)
    };
    let read = async |number: usize| store.get(&format!("jti/{number}"), at(0)).await.map(drop);
    let (writes, reads) = tokio::join!(
        futures_util::future::join_all((0..240).map(write)),
        futures_util::future::join_all((0..240).map(read))
    );
    let failed = writes.iter().chain(&reads).filter(|done| done.is_err()).count();
    assert_eq!(failed, 0, "{:?}", writes.iter().chain(&reads).find(|done| done.is_err()));

    let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for round in 0..20 {
        let (terminated, reads) =
            tokio::join!(client.batch_execute(terminate), futures_util::future::join_all((0..20).map(read)));
        terminated.unwrap();
        let failed: Vec<_> = reads.iter().filter(|read| read.is_err()).collect();
        assert!(failed.is_empty(), "round {round}: {failed:?}");
    }
}
