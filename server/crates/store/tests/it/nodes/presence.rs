//! Nodes that see each other in a database, and a database that went back in time or whose content moves.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use trefoil_store::{
    DatabaseLimits, Erasure, Expect, Ledger as _, LedgerWrite, ResourceKey, Seq, Store, StoreError,
    Versions as _,
};

use super::{connect, nodes};
use crate::{StoreEngine, at, put};

/// Time after which a writer that is never refused fails the test.
const PATIENCE: Duration = Duration::from_secs(180);

/// All tables with data, in an order in which they can be filled.
const TABLES: [&str; 9] =
    ["clock", "writer", "current", "history", "member", "change", "kind", "term", "ledger"];

/// Saves all tables in a schema, as a backup does.
async fn save_tables(client: &tokio_postgres::Client, schema: &str) {
    let tables = TABLES.into_iter().chain(["node"]);
    let copies: String =
        tables.map(|table| format!("CREATE TABLE {schema}.{table} AS TABLE public.{table};")).collect();
    client.batch_execute(&format!("CREATE SCHEMA {schema}; {copies}")).await.unwrap();
}

/// Restores all tables while the connections of the nodes stay open, as behind a pooler.
async fn restore_tables(client: &tokio_postgres::Client, schema: &str) {
    let tables = TABLES.into_iter().chain(["node"]);
    let copies: String = tables
        .map(|table| {
            format!("DELETE FROM public.{table}; INSERT INTO public.{table} SELECT * FROM {schema}.{table};")
        })
        .collect();
    client.batch_execute(&format!("BEGIN; {copies} COMMIT")).await.unwrap();
}

/// Waits until a node refuses its database, and returns why.
async fn refusal(store: &Store) -> String {
    timeout(PATIENCE, async {
        loop {
            match store.refusal() {
                Some(reason) => return reason,
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await
    .expect("the node refuses the database")
}

/// Waits until a node uses its database.
async fn until_used(store: &Store) {
    let used = async {
        while store.refusal().is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, used).await.expect("the node uses the database");
}

/// Waits until the node has increased its number twice.
async fn until_beaten(client: &tokio_postgres::Client) {
    let beat = async || -> i64 { client.query_one("SELECT max(beat) FROM node", &[]).await.unwrap().get(0) };
    let before = beat().await;
    while beat().await < before + 2 {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_went_back_in_time_is_refused_until_the_operator_accepts_it() {
    // Only records are lost, or writes whose numbers were assigned again since.
    for only_records in [true, false] {
        let Some(engine) = StoreEngine::postgres().await else { return };
        let client = connect(&engine).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.json");
        let store = &engine.store;
        let announced = store.announce("https://health.example", &file).await.unwrap();
        assert_eq!((announced.is_newly_accepted, announced.earlier_base_url), (false, None));
        let write = async |id: &str| store.commit(vec![put("Basic", id, "", &[])], at(0)).await.map(drop);
        write("before").await.unwrap();
        save_tables(&client, "saved").await;
        if only_records {
            store.write(vec![LedgerWrite::put("code/spent", "", Expect::Absent)], at(0)).await.unwrap();
        } else {
            write("lost").await.unwrap();
        }
        until_beaten(&client).await;
        save_tables(&client, "complete").await;
        // The node may increment its number again before the tables are restored.
        client.batch_execute("UPDATE complete.node SET beat = beat + 1000").await.unwrap();
        restore_tables(&client, "saved").await;
        let other = Store::postgres(engine.url.as_ref().unwrap(), DatabaseLimits::default()).await.unwrap();
        if !only_records {
            // Another node writes, so that the number of the lost write is passed again, and the number of
            // the node too.
            for id in ["other", "another"] {
                other.commit(vec![put("Basic", id, "", &[])], at(0)).await.unwrap();
            }
            client.batch_execute("UPDATE node SET beat = beat + 1000").await.unwrap();
        }
        let reason = refusal(store).await;
        assert!(reason.contains("went back in time"), "{reason}");
        let error = store.get("k", at(0)).await.unwrap_err();
        assert!(error.to_string().contains("went back in time"), "{error}");
        assert!(write("refused").await.is_err());
        assert!(store.check_writable().await.is_err());

        // The complete database is back.
        restore_tables(&client, "complete").await;
        until_used(store).await;
        write("after").await.unwrap();

        // A node that starts again waits, and so does one that runs.
        store.depart().await;
        restore_tables(&client, "saved").await;
        let reopen =
            async || Store::postgres(engine.url.as_ref().unwrap(), DatabaseLimits::default()).await.unwrap();
        let again = reopen().await;
        let error = again.announce("https://health.example", &file).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("accept-restored"), "{error}");
        other.accept(&file).await.unwrap();
        assert!(again.announce("https://health.example", &file).await.unwrap().is_newly_accepted);
        again.commit(vec![put("Basic", "again", "", &[])], at(0)).await.unwrap();
        again.depart().await;

        // The node knows the decision, and refuses a database without it.
        let again = reopen().await;
        assert!(!again.announce("https://health.example", &file).await.unwrap().is_newly_accepted);
        restore_tables(&client, "complete").await;
        let reason = refusal(&again).await;
        assert!(reason.contains("last decision of the operator"), "{reason}");
        let apart = again.unannounced().await.unwrap().unwrap();
        apart.accept(&file).await.unwrap();
        timeout(PATIENCE, again.accepted()).await.expect("the node learns of the decision");
        assert!(again.get("k", at(0)).await.is_err(), "the services start again first");
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
    assert!(!again.announce("https://health.example", &file).await.unwrap().is_newly_accepted);
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
                    if let (Err(error), _) | (_, Err(error)) = (written, committed) {
                        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
                        return (number, count);
                    }
                }
                unreachable!("the database is closed at some time")
            });
        }
        tokio::task::yield_now().await;
        let closed_store = nodes[0].close().await.unwrap();
        let reached = content(&nodes[0]).await;
        assert!(nodes[2].close().await.is_err(), "one program moves the content");
        let results =
            timeout(PATIENCE, writers.join_all()).await.expect("a write is refused after the close");
        for (number, count) in results {
            for count in 0..count {
                let record = nodes[0].get(&format!("{attempt}/{number}/{count}"), at(0)).await.unwrap();
                assert!(record.is_some(), "{attempt}/{number}/{count}");
            }
        }
        assert_eq!(content(&nodes[0]).await, reached, "nothing was written after the close");
        drop(closed_store);
        let key = format!("open/{attempt}");
        // The database is opened by another task.
        while nodes[1].write(vec![LedgerWrite::put(&*key, "x", Expect::Any)], at(0)).await.is_err() {}
    }
    let closed_store = nodes[0].close().await.unwrap();
    closed_store.complete("moved", b"to another store".to_vec(), at(0)).await.unwrap();
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
