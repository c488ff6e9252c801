//! Rounds of writes to a database that refuses, delays or forgets them.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use trefoil_store::{
    DatabaseLimits, DatabaseUrl, Expect, ExpectVersion, Ledger as _, LedgerWrite, PageLimit, ScanOptions,
    Seq, Store, StoreError, Versions as _,
};

use super::connect;
use crate::{StoreEngine, at, put};

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

#[tokio::test]
async fn the_time_for_which_a_write_is_repeated_begins_with_its_arrival() {
    let Some(engine) = StoreEngine::postgres().await else { return };
    let hours = |count: u64| Duration::from_secs(count * 3_600);
    let limits = DatabaseLimits { write: hours(100), retry: hours(1), ..DatabaseLimits::default() };
    let store = Store::postgres(engine.url.as_ref().unwrap(), limits).await.unwrap();
    let client = connect(&engine).await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN
            RAISE EXCEPTION 'refused' USING ERRCODE = '40001';
        END $$ LANGUAGE plpgsql;
        CREATE TRIGGER refuse BEFORE INSERT ON ledger FOR EACH ROW
            WHEN (NEW.key = 'jti/second') EXECUTE FUNCTION refuse();
        BEGIN; LOCK TABLE ledger";
    client.batch_execute(refuse).await.unwrap();
    let write = async |id: &str| {
        store.write(vec![LedgerWrite::put(format!("jti/{id}"), "used", Expect::Absent)], at(0)).await
    };
    let mut first = pin!(write("first"));
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ledger'::regclass";
    while client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(poll!(&mut first).is_pending());
    }
    // The second request waits behind the round of the first one, for longer than it would be repeated.
    let mut second = pin!(write("second"));
    assert!(poll!(&mut second).is_pending());
    tokio::time::pause();
    tokio::time::advance(hours(2)).await;
    tokio::time::resume();
    client.batch_execute("COMMIT").await.unwrap();
    first.await.unwrap();
    assert!(matches!(second.await, Err(StoreError::Unavailable { .. })));
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
    let failed = writes.iter().chain(&reads).filter(|result| result.is_err()).count();
    assert_eq!(failed, 0, "{:?}", writes.iter().chain(&reads).find(|result| result.is_err()));

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
