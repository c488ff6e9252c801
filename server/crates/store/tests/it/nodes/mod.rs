//! Several nodes that share a store. The engines that belong to one process take part with several handles.
//!
//! | module | contents |
//! |---|---|
//! | [`order`] | laws: every follower sees each commit once and in order, and nothing is lost or doubled |
//! | [`rounds`] | rounds of writes that the database refuses, delays or forgets |
//! | [`links`] | connections that break or fall silent at any point of a write |
//! | [`presence`] | nodes that see each other, and a database that went back in time or moves |

mod links;
mod order;
mod presence;
mod rounds;

use std::sync::Arc;

use trefoil_store::{DatabaseLimits, Store};

use crate::{StoreEngine, YieldingLink};

/// Number of handles on the same store.
const NODES: usize = 3;

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

/// Opens a connection of its own to the database.
async fn connect(engine: &StoreEngine) -> tokio_postgres::Client {
    let url = format!("{}?sslmode=disable", engine.url.as_ref().unwrap());
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
