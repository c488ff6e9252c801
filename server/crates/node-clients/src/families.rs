//! Families of refresh tokens.

use futures_util::future::join_all;

use crate::browser::Browser;
use crate::history::{Action, Event};
use crate::nodes::{Answer, ClientRequest, NODES};
use crate::registration::{APP, REDIRECT};
use crate::workload::{Form, PROBE_TIME, Workload, lock};

/// Number of times that the credentials of a family are redeemed.
const ROTATIONS: usize = 4;

/// Signs in by password or at a provider, and redeems codes and refresh tokens. Finally one of them is
/// redeemed at several nodes at once, which must end all tokens of the family.
pub async fn use_families(workload: &Workload, provider: Option<&str>) {
    let mut browser = Browser::default();
    while !workload.is_over() {
        let verifier = format!("{0}{0}{0}", workload.id());
        match browser.authorize(workload, &verifier, provider).await {
            Some(code) => _ = one_family(workload, provider, code, verifier).await,
            None => browser.clear(),
        }
        if workload.draw(|random| random.u8(..3)) == 0 {
            browser.clear();
        }
        workload.rest(1_000).await;
    }
}

#[derive(Default)]
struct Family {
    name: String,
    access: Vec<String>,
    refresh: Option<String>,
}

/// Redeems a code and its refresh tokens, until one is rejected. Returns `None` if a request failed, because
/// it is then unknown which credential is valid.
async fn one_family(
    workload: &Workload,
    provider: Option<&str>,
    code: String,
    verifier: String,
) -> Option<()> {
    let mut family = Family { name: format!("family {code}"), ..Family::default() };
    let mut credential =
        provider.map_or_else(|| format!("code {code}"), |name| format!("code of {name} {code}"));
    let mut form: Form = vec![
        ("grant_type", "authorization_code".to_owned()),
        ("client_id", APP.to_owned()),
        ("redirect_uri", REDIRECT.to_owned()),
        ("code_verifier", verifier),
        ("code", code),
    ];
    for rotation in 1..=ROTATIONS {
        let is_race = rotation == ROTATIONS || workload.draw(|random| random.u8(0..4)) == 0;
        let nodes = if is_race { workload.several_nodes() } else { vec![Some(workload.any_node())] };
        let answers = join_all(
            nodes.iter().map(async |node| (*node, redeem(workload, *node, &credential, &form).await)),
        )
        .await;
        for (_, answer) in &answers {
            family.access.extend(answer.member("access_token"));
            family.refresh = answer.member("refresh_token").or(family.refresh);
        }
        if answers.iter().any(|(_, answer)| answer.is(200)) {
            lock(&workload.spent).push((credential, form));
        }
        let rejections: Vec<_> = answers.iter().filter(|(_, answer)| answer.is(400)).collect();
        if !rejections.is_empty() {
            for (node, answer) in rejections {
                record_revocation(workload, *node, &family, answer);
            }
            use_revoked_family(workload, &family).await;
            return Some(());
        }
        // A use whose answer was lost may have been the second one, which ends the family.
        if !answers.iter().all(|(_, answer)| answer.is(200)) {
            return None;
        }
        let token = family.refresh.clone()?;
        credential = format!("refresh {token}");
        form = refresh_form(token);
    }
    Some(())
}

fn refresh_form(token: String) -> Form {
    vec![("grant_type", "refresh_token".to_owned()), ("client_id", APP.to_owned()), ("refresh_token", token)]
}

/// Redeems a code or a refresh token, which may succeed once.
pub(crate) async fn redeem(
    workload: &Workload,
    node: Option<usize>,
    credential: &str,
    form: &Form,
) -> Answer {
    let action = Action::UseOnce(credential.to_owned());
    workload.ask(node, action, &[200, 400], token_request(form)).await
}

fn token_request(form: &Form) -> ClientRequest {
    let fields: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
    ClientRequest::form("/oauth2/token", &fields)
}

/// Records that a second use was detected, which revokes the family before the answer.
fn record_revocation(workload: &Workload, node: Option<usize>, family: &Family, response: &Answer) {
    let event = Event {
        node,
        action: Action::Revoke(family.name.clone()),
        asks_provider: false,
        begun: response.ended,
        ended: response.ended,
        status: Some(200),
        version: None,
    };
    workload.record(|history| history.events.push(event));
}

/// Uses the members of a revoked family at all nodes, for longer than the revocation may take.
async fn use_revoked_family(workload: &Workload, family: &Family) {
    let until = workload.now() + PROBE_TIME;
    join_all((0..NODES).map(async |node| {
        for turn in 0.. {
            if let Some(refresh) = family.refresh.as_ref().filter(|_| turn < 2) {
                let request = token_request(&refresh_form(refresh.clone()));
                workload.ask(node, Action::UseUncached(family.name.clone()), &[200, 400], request).await;
            }
            if let Some(token) = family.access.get(turn % family.access.len().max(1)) {
                let request = ClientRequest::get("/oauth2/userinfo").bearer(token);
                workload.ask(node, Action::UseToken(family.name.clone()), &[200, 401], request).await;
            }
            if workload.now() > until {
                break;
            }
            tokio::time::sleep(workload.pace.probe).await;
        }
    }))
    .await;
}
