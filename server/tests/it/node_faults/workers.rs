//! The clients of a run. Each repeats its work until the run is over.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::world::World;
use crate::sign_in::parameter;
use node_history::{Action, Event};

/// Time between two uses of a revoked token.
const PROBE_PAUSE: Duration = Duration::from_millis(30);
/// Time for which a revoked token is used, which is longer than a revocation may take.
const PROBE_TIME: Duration = Duration::from_millis(1_500);

/// Returns two or three nodes, in random order. The balancer can take the place of one.
fn several_nodes(random: &mut fastrand::Rng) -> Vec<Option<usize>> {
    let mut nodes = vec![Some(0), Some(1), Some(2), None];
    random.shuffle(&mut nodes);
    nodes.truncate(random.usize(2..=3));
    nodes
}

/// Sends each client assertion to several nodes at once.
pub async fn use_assertions(world: &World, mut random: fastrand::Rng) {
    while !world.is_over() {
        let (assertion, nodes) = (world.assertion(), several_nodes(&mut random));
        use_everywhere(world, &assertion, &nodes).await;
        // A later use, at a node that may have been restarted since.
        let pause = Duration::from_millis(random.u64(0..300));
        tokio::time::sleep(pause).await;
        use_everywhere(world, &assertion, &[Some(random.usize(0..3))]).await;
    }
}

async fn use_everywhere(world: &World, assertion: &str, nodes: &[Option<usize>]) {
    let name = format!("assertion {}", assertion.rsplit('.').next().unwrap());
    join_all(
        nodes.iter().map(|node| world.request_token(*node, Action::UseOnce(name.clone()), assertion, None)),
    )
    .await;
}

/// Sends each DPoP proof to several nodes at once, with an assertion for each.
pub async fn use_proofs(world: &World, mut random: fastrand::Rng) {
    while !world.is_over() {
        let proof = world.proof();
        let name = format!("proof {}", proof.rsplit('.').next().unwrap());
        join_all(several_nodes(&mut random).into_iter().map(async |node| {
            let assertion = world.assertion();
            world.request_token(node, Action::UseOnce(name.clone()), &assertion, Some(&proof)).await
        }))
        .await;
    }
}

/// Revokes tokens that all nodes know, and uses them afterwards.
pub async fn revoke_tokens(world: &World, mut random: fastrand::Rng) {
    while !world.is_over() {
        let token = world.token().await;
        let name = token.rsplit('.').next().unwrap().to_owned();
        for turn in 0..6 {
            world.use_token(Some(turn % 3), &name, &token, turn).await;
        }
        if world.revoke(random.usize(0..3), &name, &token).await {
            let until = world.now() + PROBE_TIME;
            join_all((0..3).map(async |node| {
                let mut turn = 0;
                while world.now() < until {
                    world.use_token(Some(node), &name, &token, turn).await;
                    turn += 1;
                    tokio::time::sleep(PROBE_PAUSE).await;
                }
            }))
            .await;
        }
    }
}

/// Gets a code by the session of a browser, and redeems it and its refresh tokens. Finally one of them is redeemed at
/// several nodes at once, which must end all tokens of the family.
pub async fn refresh_tokens(world: &World, mut random: fastrand::Rng, cookies: String) {
    while !world.is_over() {
        one_family(world, &mut random, &cookies).await;
    }
}

/// Returns `None` when a request failed, so that it is unknown which member of the family is valid.
async fn one_family(world: &World, random: &mut fastrand::Rng, cookies: &str) -> Option<()> {
    let client = &world.demo["confidential"];
    let (id, redirect_uri) = (client["client_id"].as_str()?, client["redirect_uris"][0].as_str()?);
    let query = [
        ("response_type", "code"),
        ("client_id", id),
        ("redirect_uri", redirect_uri),
        ("scope", "openid profile"),
    ];
    let request =
        world.client.get(world.url(None, "/oauth2/authorize")).query(&query).header("cookie", cookies);
    let answer = world.ask(None, Action::Other("authorization"), &[302], request).await;
    let code = parameter(answer.headers.get("location")?.to_str().ok()?, "code")?;
    let family = format!("family {code}");
    let mut access = Vec::new();
    let mut form =
        vec![("grant_type", "authorization_code".to_owned()), ("redirect_uri", redirect_uri.to_owned())];
    form.push(("code", code.clone()));
    let mut credential = format!("code {code}");
    let mut refresh = None;
    for rotation in 0..4 {
        let is_race = rotation == 3 || random.u8(0..4) == 0;
        let nodes = if is_race { several_nodes(random) } else { vec![Some(random.usize(0..3))] };
        let answers = join_all(nodes.iter().map(async |node| {
            let request = world.client.post(world.url(*node, "/oauth2/token")).form(&form);
            let request = request.basic_auth(id, client["client_secret"].as_str());
            (*node, world.ask(*node, Action::UseOnce(credential.clone()), &[200, 400], request).await)
        }))
        .await;
        for (_, answer) in &answers {
            access.extend(answer.text("access_token"));
            refresh = answer.text("refresh_token").or(refresh);
        }
        let rejections: Vec<_> = answers.iter().filter(|(_, answer)| answer.is(400)).collect();
        if !rejections.is_empty() {
            for (node, answer) in rejections {
                // The reuse was detected, and the family was revoked before the answer.
                let ended = answer.ended;
                let revoked = Action::Revoke(family.clone());
                world.record(|history| {
                    history.events.push(Event {
                        node: *node,
                        action: revoked,
                        begun: ended,
                        ended,
                        status: Some(200),
                        version: None,
                    });
                });
            }
            use_revoked_family(world, &family, &access, refresh.as_deref()).await;
            return Some(());
        }
        // A use whose answer was lost may have been the second one, which ends the family.
        if !answers.iter().all(|(_, answer)| answer.is(200)) {
            return None;
        }
        let token = refresh.clone()?;
        credential = format!("refresh {token}");
        form = vec![("grant_type", "refresh_token".to_owned()), ("refresh_token", token)];
    }
    Some(())
}

/// Uses the members of a revoked family at all nodes, for longer than the revocation may take.
async fn use_revoked_family(world: &World, family: &str, access: &[String], refresh: Option<&str>) {
    let client = &world.demo["confidential"];
    let until = world.now() + PROBE_TIME;
    join_all((0..3).map(async |node| {
        for turn in 0.. {
            if let Some(refresh) = refresh.filter(|_| turn < 2) {
                let form = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
                let request = world.client.post(world.url(Some(node), "/oauth2/token")).form(&form);
                let request = request
                    .basic_auth(client["client_id"].as_str().unwrap(), client["client_secret"].as_str());
                world.ask(Some(node), Action::UseRefreshToken(family.to_owned()), &[200, 400], request).await;
            }
            if let Some(token) = access.get(turn % access.len().max(1)) {
                let request = world.client.get(world.url(Some(node), "/oauth2/userinfo")).bearer_auth(token);
                world.ask(Some(node), Action::UseToken(family.to_owned()), &[200, 401], request).await;
            }
            if world.now() > until {
                break;
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }))
    .await;
}

/// Writes versions of a resource at random nodes, and reads each acknowledged version at the other nodes.
pub async fn write_resource(world: &World, mut random: fastrand::Rng, id: String) {
    let token = world.token().await;
    for number in 0.. {
        if world.is_over() {
            break;
        }
        let node = random.usize(0..3);
        let body = group(&id, &format!("{id} {number}"));
        let request = world.client.put(world.url(Some(node), &format!("/fhir/R4/Group/{id}")));
        let request = request.bearer_auth(&token).json(&body);
        world.ask(Some(node), Action::Write(id.clone()), &[200, 201], request).await;
        join_all([(node + 1) % 3, (node + 2) % 3].map(|node| read(world, node, &token, &id))).await;
    }
}

/// Writes versions of a resource that other workers write too, on the condition that it was not changed since it was
/// read.
pub async fn write_contested(world: &World, mut random: fastrand::Rng, worker: usize) {
    let (token, id) = (world.token().await, "contested");
    for number in 0.. {
        if world.is_over() {
            break;
        }
        let Some(version) = read(world, random.usize(0..3), &token, id).await else { continue };
        let node = random.usize(0..3);
        let request = world.client.put(world.url(Some(node), &format!("/fhir/R4/Group/{id}")));
        let request = if version == 0 {
            request.header("if-none-match", "*")
        } else {
            request.header("if-match", format!("W/\"{version}\""))
        };
        let request = request.bearer_auth(&token).json(&group(id, &format!("{worker} {number}")));
        world.ask(Some(node), Action::Write(id.to_owned()), &[200, 201, 412], request).await;
    }
}

/// Creates resources at several nodes at once, each only if none with its identifier exists.
pub async fn create_once(world: &World, mut random: fastrand::Rng) {
    let token = world.token().await;
    for number in 0.. {
        if world.is_over() {
            break;
        }
        let identifier = format!("once-{number}");
        let mut body = group("", &identifier);
        body["identifier"] = json!([{ "system": "urn:faults", "value": identifier }]);
        body.as_object_mut().unwrap().remove("id");
        join_all(several_nodes(&mut random).into_iter().map(async |node| {
            let request = world.client.post(world.url(node, "/fhir/R4/Group"));
            let request = request.header("if-none-exist", format!("identifier=urn:faults|{identifier}"));
            let request = request.bearer_auth(&token).json(&body);
            world.ask(node, Action::CreateOnce(identifier.clone()), &[200, 201], request).await;
        }))
        .await;
    }
}

fn group(id: &str, name: &str) -> serde_json::Value {
    json!({ "resourceType": "Group", "id": id, "type": "person", "actual": true, "name": name })
}

/// Reads the newest version of a resource and returns its number; 0 if it does not exist.
async fn read(world: &World, node: usize, token: &str, id: &str) -> Option<u64> {
    let request = world.client.get(world.url(Some(node), &format!("/fhir/R4/Group/{id}"))).bearer_auth(token);
    let answer = world.ask(Some(node), Action::Read(id.to_owned()), &[200, 404], request).await;
    match answer.status? {
        404 => Some(0),
        _ => answer.body["meta"]["versionId"].as_str()?.parse().ok(),
    }
}
