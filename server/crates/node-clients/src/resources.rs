//! Versions of resources.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::history::Action;
use crate::nodes::{ClientRequest, NODES};
use crate::workload::Workload;

/// Writes versions of a resource at random nodes, and reads each acknowledged version at the other nodes.
pub async fn write_resource(workload: &Workload, id: &str) {
    let token = workload.token().await;
    for number in 0.. {
        if workload.is_over() {
            break;
        }
        let node = workload.any_node();
        let request = write(id, &format!("{id} {number}")).bearer(&token);
        workload.ask(node, Action::Write(id.to_owned()), &[200, 201], request).await;
        join_all([(node + 1) % NODES, (node + 2) % NODES].map(|node| read(workload, node, &token, id))).await;
        workload.rest(400).await;
    }
}

/// Writes versions of a resource that other clients write too, on the condition that it was not changed since
/// it was read.
pub async fn write_contested(workload: &Workload, worker: usize) {
    let (token, id) = (workload.token().await, "contested");
    for number in 0.. {
        if workload.is_over() {
            break;
        }
        workload.rest(200).await;
        let Some(version) = read(workload, workload.any_node(), &token, id).await else { continue };
        let request = write(id, &format!("{worker} {number}")).bearer(&token);
        let request = if version == 0 {
            request.header("if-none-match", "*")
        } else {
            request.header("if-match", &format!("W/\"{version}\""))
        };
        workload.ask(workload.any_node(), Action::Write(id.to_owned()), &[200, 201, 412], request).await;
    }
}

/// Creates resources at several nodes at once, each only if a search finds none. Each second search has no
/// indexed parameter.
pub async fn create_once(workload: &Workload) {
    let token = workload.token().await;
    for number in 0.. {
        if workload.is_over() {
            break;
        }
        // No name contains another one.
        let name = format!("once-{number}.");
        let (body, search) = if number % 2 == 0 {
            let mut body = group(&name);
            body["identifier"] = json!([{ "system": "urn:once", "value": name }]);
            (body, format!("Group?identifier=urn:once|{name}"))
        } else {
            (json!({ "resourceType": "Location", "name": name }), format!("Location?name:contains={name}"))
        };
        let (kind, condition) = search.split_once('?').unwrap_or_default();
        join_all(workload.several_nodes().into_iter().map(async |node| {
            let request = ClientRequest::json("POST", &format!("/fhir/R4/{kind}"), &body)
                .header("if-none-exist", condition)
                .bearer(&token);
            workload.ask(node, Action::CreateOnce(search.clone()), &[200, 201], request).await;
        }))
        .await;
        workload.rest(800).await;
    }
}

fn group(name: &str) -> Value {
    json!({ "resourceType": "Group", "type": "person", "actual": true, "name": name })
}

fn write(id: &str, name: &str) -> ClientRequest {
    let mut body = group(name);
    body["id"] = id.into();
    ClientRequest::json("PUT", &path_of(id), &body)
}

pub(crate) fn path_of(id: &str) -> String {
    format!("/fhir/R4/Group/{id}")
}

/// Reads the newest version of a resource and returns its number; 0 if it does not exist.
pub(crate) async fn read(workload: &Workload, node: usize, token: &str, id: &str) -> Option<u64> {
    let request = ClientRequest::get(&path_of(id)).bearer(token);
    let response = workload.ask(node, Action::Read(id.to_owned()), &[200, 404], request).await;
    match response.status? {
        404 => Some(0),
        _ => response.body["meta"]["versionId"].as_str()?.parse().ok(),
    }
}
