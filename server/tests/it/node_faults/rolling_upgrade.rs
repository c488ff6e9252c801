//! Three nodes are upgraded one after the other under load, and no request fails.
//!
//! `TREFOIL_EARLIER` names the program of an earlier version, whose database is migrated while its nodes run.
//! Without it, the nodes have the present program, and the database is migrated as by a later version: the
//! nodes that run continue, and start again.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use node_clients::NODES;
use test_database::TestDatabase;
use test_object_store::TestObjectStore;

use super::real_nodes::{Clients, end_calmly};
use super::{EXPORTS, check_end, open_exports, start_clients};
use crate::bucket::bucket_settings;
use crate::support::{Server, TREFOIL, have};

/// Time between two restarts.
const PAUSE: Duration = Duration::from_secs(2);
/// A migration of a later version which the present program can work with.
const COMPATIBLE: &str =
    "CREATE TABLE of_a_later_version (id bigint); UPDATE migration SET number = number + 1;";
/// A migration of a later version which it cannot work with.
const INCOMPATIBLE: &str = "UPDATE migration SET number = number + 1, usable_from = number + 1;";

fn run_sql(url: &str, sql: &str) {
    assert!(
        Command::new("psql")
            .args(["-q", "-v", "ON_ERROR_STOP=1", "-c", sql, url])
            .status()
            .unwrap()
            .success()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_fails_while_nodes_are_upgraded() {
    let Some(database) = TestDatabase::shared() else { return };
    if !have("bash", "passing a socket to the server") {
        return;
    }
    let earlier = std::env::var_os("TREFOIL_EARLIER").map(PathBuf::from);
    let mut random = fastrand::Rng::with_seed(1);
    let url = database.create().unwrap();
    let (bucket, secrets) = (TestObjectStore::start().unwrap(), tempfile::tempdir().unwrap());
    let clients = Clients::new(&mut random);
    let settings =
        format!("{EXPORTS}{}{}", bucket_settings(&bucket, secrets.path()), clients.configuration());
    let mut servers: Vec<Server> = Vec::new();
    for _ in 0..NODES {
        let node = Server::in_fresh_folder().over_plain_http();
        let base = servers.first().unwrap_or(&node).base();
        let mut node = node.sharing(&base, &url).holding_its_socket().with_settings(&settings);
        node.set_program(earlier.as_deref().unwrap_or(TREFOIL.as_ref()));
        tokio::task::block_in_place(|| node.start());
        servers.push(node);
    }
    let (_, workload) = clients.open_workload(&servers, servers[0].base(), false).await;
    let mut work = start_clients(workload);
    tokio::time::sleep(PAUSE).await;
    // To open the store migrates the database as `trefoil migrate` does, under the nodes that run.
    let exports = open_exports(url.clone()).await;
    if earlier.is_none() {
        run_sql(&url, COMPATIBLE);
    }
    for _ in 0..2 {
        work.spawn(exports.run(workload));
    }
    for node in &mut servers {
        tokio::time::sleep(PAUSE).await;
        node.set_program(TREFOIL.as_ref());
        tokio::task::block_in_place(|| {
            assert_eq!(node.stop(), Some(0));
            node.start();
        });
    }
    tokio::time::sleep(PAUSE).await;
    end_calmly(workload).await;
    work.join_all().await;

    check_end(workload, exports).await;

    run_sql(&url, INCOMPATIBLE);
    let node = &mut servers[0];
    node.stop();
    assert!(node.try_start(&[]).is_err(), "a program that cannot use the tables has started");
    assert!(node.log().contains("use a newer program"), "{}", node.log());
}
