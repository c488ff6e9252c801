//! Connections to a database that break or fall silent at any point of a write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use trefoil_store::{
    DatabaseLimits, DatabaseUrl, Expect, ExpectVersion, Ledger as _, LedgerWrite, ResourceKey, Seq, Store,
    Versions as _,
};

use crate::{StoreEngine, at, put};

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
        let count = |remaining: usize| Some(if remaining == 0 { usize::MAX } else { remaining - 1 });
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
