//! Passkeys: they are added, used and removed at different nodes.

use futures_util::future::join_all;
use serde_json::Value;
use test_parties::Authenticator;
use test_parties::base64url;

use crate::browser::Browser;
use crate::history::Action;
use crate::nodes::NODES;
use crate::workload::Workload;

/// Path at which a credential for a new passkey is sent.
const ADD: &str = "/account/passkeys";
/// Path at which a credential for a sign-in is sent.
const SIGN_IN: &str = "/passkey";
/// Number of attempts to remove a passkey, with pauses in which faults end.
const ATTEMPTS: usize = 200;

/// Adds a passkey, signs in with it, and removes it. Each credential is sent to several nodes at once, of
/// which one may accept it. All nodes must know a passkey that was added, and none may accept one that was
/// removed.
pub async fn use_passkeys(workload: &Workload) {
    while !workload.is_over() {
        // Changes of passkeys require a recent sign-in.
        let (mut browser, verifier) = (Browser::default(), format!("{0}{0}{0}", workload.id()));
        if browser.authorize(workload, &verifier, None).await.is_some() {
            one_passkey(workload, &mut browser).await;
        }
        workload.rest(1_000).await;
    }
}

/// `None` if a request failed.
async fn one_passkey(workload: &Workload, browser: &mut Browser) -> Option<()> {
    let mut passkey = Authenticator::new(&workload.base, workload.draw(|random| random.u64(..)));
    // The counter would detect a second use of a credential.
    passkey.counts = workload.draw(|random| random.u8(..4)) == 0;
    let name = format!("passkey {}", base64url(passkey.id));
    let nodes = workload.several_nodes();
    let (ceremony, options) = begin(workload, browser, nodes[0], "/account", ADD).await?;
    let credential = passkey.create(&options);
    let is_added = finish(workload, browser, &nodes, ADD, &ceremony, &credential).await;
    let uses = if is_added { workload.draw(|random| random.u8(1..4)) } else { 0 };
    for _ in 0..uses {
        let (mut other, nodes) = (Browser::default(), workload.several_nodes());
        let Some((ceremony, options)) = begin(workload, &mut other, nodes[0], "/sign-in", SIGN_IN).await
        else {
            continue;
        };
        finish(workload, &mut other, &nodes, SIGN_IN, &ceremony, &passkey.get(&options)).await;
    }
    remove(workload, browser, &passkey, &name).await?;
    if !is_added {
        // The request may still be in progress, and add the passkey after its removal.
        return None;
    }
    for node in 0..NODES {
        let mut other = Browser::default();
        let (ceremony, options) = begin(workload, &mut other, Some(node), "/sign-in", SIGN_IN).await?;
        let request = other.form(SIGN_IN, &[("ceremony", &ceremony), ("credential", &passkey.get(&options))]);
        let action = Action::UseUncached(name.clone());
        other.send(workload, Some(node), action, &[303, 401], request).await;
    }
    Some(())
}

/// Begins a ceremony on a page. Returns its id, and the options for the authenticator.
async fn begin(
    workload: &Workload,
    browser: &mut Browser,
    node: Option<usize>,
    page: &str,
    path: &str,
) -> Option<(String, Value)> {
    browser.open(workload, node, page).await?;
    let request = browser.form(&format!("{path}/options"), &[]);
    let response = browser.send(workload, node, Action::Other("begin of a passkey"), &[200], request).await;
    Some((response.member("ceremony")?, response.body["options"].clone()))
}

/// Sends the credential of a ceremony to these nodes at once. Returns whether one of them accepted it.
async fn finish(
    workload: &Workload,
    browser: &mut Browser,
    nodes: &[Option<usize>],
    path: &str,
    ceremony: &str,
    credential: &str,
) -> bool {
    let action = Action::UseOnce(format!("ceremony at {path} {ceremony}"));
    let requests = nodes.iter().map(|node| {
        let request = browser.form(path, &[("ceremony", ceremony), ("credential", credential)]);
        browser.request(workload, *node, action.clone(), &[303, 400, 401, 409], request)
    });
    let answers = join_all(requests).await;
    answers.iter().any(|response| response.is(303))
}

/// Removes a passkey, if it was added.
async fn remove(
    workload: &Workload,
    browser: &mut Browser,
    passkey: &Authenticator,
    name: &str,
) -> Option<()> {
    for _ in 0..ATTEMPTS {
        let request = browser.form(&format!("{ADD}/remove"), &[("id", &base64url(passkey.id))]);
        let action = Action::Revoke(name.to_owned());
        if browser.send(workload, workload.any_target(), action, &[303], request).await.is(303) {
            return Some(());
        }
    }
    None
}
