//! The state after a run: spent credentials are still spent, and all that was acknowledged is stored.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream::iter;

use crate::families::redeem;
use crate::history::Action;
use crate::nodes::{ClientRequest, NODES};
use crate::resources::{path_of, read};
use crate::workload::{Workload, lock};

/// Maximum number of requests at a time.
const CONCURRENT: usize = 8;

/// Uses spent credentials again, and reads all resources that clients have written. The history has the
/// results.
pub async fn check_final_state(workload: &Workload) {
    redeem_again(workload).await;
    let token = workload.token().await;
    read_versions(workload, &token).await;
    count_created(workload, &token).await;
}

/// Redeems the spent codes and refresh tokens of the run again, at all nodes.
async fn redeem_again(workload: &Workload) {
    let spent = std::mem::take(&mut *lock(&workload.spent));
    let attempts = spent.iter().flat_map(|spent| (0..NODES).map(move |node| (node, spent)));
    iter(attempts)
        .for_each_concurrent(CONCURRENT, async |(node, (credential, form))| {
            redeem(workload, Some(node), credential, form).await;
        })
        .await;
}

/// Reads all versions of the written resources, and their newest version at all nodes.
async fn read_versions(workload: &Workload, token: &str) {
    let ids: BTreeSet<String> = workload.record(|history| {
        let ids = history.events.iter().filter_map(|event| match &event.action {
            Action::Write(id) => Some(id.clone()),
            _ => None,
        });
        ids.collect()
    });
    for id in ids {
        let mut newest = 0;
        for node in 0..NODES {
            newest = read(workload, node, token, &id).await.unwrap_or(newest);
        }
        let versions = iter(1..=newest).map(|version| read_version(workload, token, &id, version));
        let versions = versions.buffered(CONCURRENT).collect().await;
        workload.record(|history| history.versions.insert(id, versions));
    }
}

async fn read_version(workload: &Workload, token: &str, id: &str, version: u64) -> (u64, String) {
    let request = ClientRequest::get(&format!("{}/_history/{version}", path_of(id))).bearer(token);
    let node = version as usize % NODES;
    let response = workload.ask(node, Action::Other("version"), &[200], request).await;
    (version, response.member("name").unwrap_or_else(|| format!("missing {version}")))
}

/// Counts the resources that were created once.
async fn count_created(workload: &Workload, token: &str) {
    let created: BTreeMap<String, bool> = workload.record(|history| {
        let mut created = BTreeMap::new();
        for event in &history.events {
            if let Action::CreateOnce(search) = &event.action {
                *created.entry(search.clone()).or_default() |= event.is_accepted();
            }
        }
        created
    });
    iter(created.into_iter().enumerate())
        .for_each_concurrent(CONCURRENT, async |(turn, (search, is_acknowledged))| {
            let request = ClientRequest::get(&format!("/fhir/R4/{search}")).bearer(token);
            let response = workload.ask(turn % NODES, Action::Other("search"), &[200], request).await;
            let total = response.body["total"].as_u64();
            if total > Some(1) || (is_acknowledged && total != Some(1)) {
                workload.violation(format!("{search}: {total:?} resources"));
            }
        })
        .await;
}
