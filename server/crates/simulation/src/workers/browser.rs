//! Browsers: sign-in with PKCE, at the server and at the provider, and families of refresh tokens.

use std::time::Duration;

use futures_util::future::join_all;
use http::Request;
use node_history::{Action, Event};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::network;
use crate::outside::base64url;
use crate::workers::credentials::end_of;
use crate::world::{APP, Answer, BASE, ClientRequest, NODES, REDIRECT, USER, World, elapsed};

/// Time between two uses of a revoked token.
const PROBE_PAUSE: Duration = Duration::from_millis(350);
/// Time for which a revoked token is used, which is longer than a revocation may take.
const PROBE_TIME: Duration = Duration::from_millis(1_500);

/// A browser with its cookies.
#[derive(Default)]
struct Browser {
    cookies: Vec<(String, String)>,
}

impl Browser {
    /// Sends a request to any node.
    async fn ask(&mut self, world: &World, name: &'static str, request: ClientRequest) -> Answer {
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = request.header("cookie", &cookies.join("; ")).header("origin", BASE);
        let answer =
            world.ask(world.any_node(), Action::Other(name), &[200, 302, 303, 429, 502, 504], request).await;
        for set in answer.headers.get_all("set-cookie") {
            let set = set.to_str().unwrap_or_default();
            let Some((name, value)) = set.split(';').next().and_then(|pair| pair.split_once('=')) else {
                continue;
            };
            self.cookies.retain(|(known, _)| known != name);
            if !set.contains("Max-Age=0") {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        answer
    }

    /// Signs in, unless the browser has a session. Returns the code.
    async fn authorize(&mut self, world: &World, verifier: &str, provider: bool) -> Option<String> {
        let challenge = base64url(Sha256::digest(verifier));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", APP),
            ("redirect_uri", REDIRECT),
            ("scope", "openid profile offline_access"),
            ("state", "state"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        if provider {
            query.push(("identity_provider", "hospital"));
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        let request = ClientRequest::get(&format!("/oauth2/authorize?{query}"));
        let mut to = self.ask(world, "authorization", request).await.header("location")?;
        for _ in 0..8 {
            if to.starts_with(REDIRECT) {
                return parameter(&to, "code");
            }
            let url = Url::parse(BASE).and_then(|base| base.join(&to)).ok()?;
            if url.host_str() == Some("provider.example") {
                to = self.at_provider(world, &url).await?;
                continue;
            }
            let path = url.as_str().strip_prefix(BASE)?.to_owned();
            let answer = self.ask(world, "page", ClientRequest::get(&path)).await;
            if let Some(next) = answer.header("location") {
                to = next;
                continue;
            }
            if url.path() != "/sign-in" || !answer.is(200) {
                return None;
            }
            let page = answer.body.as_str().unwrap_or_default().to_owned();
            let mut form = hidden_fields(&page);
            form.extend([
                ("username".to_owned(), USER.0.to_owned()),
                ("password".to_owned(), USER.1.to_owned()),
            ]);
            let form: Vec<_> = form.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let answer = self.ask(world, "sign-in", ClientRequest::form("/sign-in", &form)).await;
            to = answer.header("location")?;
        }
        None
    }

    /// Signs in at the provider. Returns the address to which it redirects.
    async fn at_provider(&self, world: &World, url: &Url) -> Option<String> {
        let request = Request::get(url.as_str()).body(Default::default()).ok()?;
        let answer = network::send_patiently("provider", request).await;
        let to =
            answer.ok().and_then(|answer| Some(answer.headers().get("location")?.to_str().ok()?.to_owned()));
        world.log(&format!("client -> provider: {}", if to.is_some() { "302" } else { "lost" }));
        to
    }
}

/// Returns the hidden fields of the first form of a page.
fn hidden_fields(page: &str) -> Vec<(String, String)> {
    let value = |tag: &str, name: &str| {
        let rest = tag.split(&format!("{name}=\"")).nth(1)?;
        Some(rest.split('"').next()?.replace("&amp;", "&"))
    };
    let form = page.split("</form>").next().unwrap_or_default();
    let tags = form.split("<input ").skip(1).filter(|tag| tag.contains("type=\"hidden\""));
    tags.filter_map(|tag| Some((value(tag, "name")?, value(tag, "value")?))).collect()
}

fn parameter(address: &str, name: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// Signs in by password or at the provider, and redeems codes and refresh tokens. Finally one of them is redeemed at
/// several nodes at once, which must end all tokens of the family.
pub async fn use_families(world: &World, provider: bool) {
    let mut browser = Browser::default();
    while !world.is_over() {
        let verifier = format!("{0}{0}{0}", world.id());
        match browser.authorize(world, &verifier, provider).await {
            Some(code) => drop(one_family(world, code, &verifier).await),
            None => browser.cookies.clear(),
        }
        if world.draw(|random| random.u8(..3)) == 0 {
            browser.cookies.clear();
        }
        world.pause(1_000).await;
    }
}

/// Returns `None` when a request failed, so that it is unknown which member of the family is valid.
async fn one_family(world: &World, code: String, verifier: &str) -> Option<()> {
    let family = format!("family {}", end_of(&code));
    let mut access = Vec::new();
    let mut credential = format!("code {}", end_of(&code));
    let mut form = vec![
        ("grant_type", "authorization_code".to_owned()),
        ("client_id", APP.to_owned()),
        ("redirect_uri", REDIRECT.to_owned()),
        ("code_verifier", verifier.to_owned()),
        ("code", code),
    ];
    let mut refresh = None;
    for rotation in 0..4 {
        let is_race = rotation == 3 || world.draw(|random| random.u8(0..4) == 0);
        let nodes = if is_race { world.several_nodes() } else { vec![world.any_node()] };
        let fields: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answers = join_all(nodes.iter().map(async |node| {
            let request = ClientRequest::form("/oauth2/token", &fields);
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
                let event = Event {
                    node: Some(*node),
                    action: Action::Revoke(family.clone()),
                    begun: answer.ended,
                    ended: answer.ended,
                    status: Some(200),
                    version: None,
                };
                world.record(|history| history.events.push(event));
            }
            use_revoked_family(world, &family, &access, refresh.as_deref()).await;
            return Some(());
        }
        // A use whose answer was lost may have been the second one, which ends the family.
        if !answers.iter().all(|(_, answer)| answer.is(200)) {
            return None;
        }
        let token = refresh.clone()?;
        credential = format!("refresh {}", end_of(&token));
        form = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("client_id", APP.to_owned()),
            ("refresh_token", token),
        ];
    }
    Some(())
}

/// Uses the members of a revoked family at all nodes, for longer than the revocation may take.
async fn use_revoked_family(world: &World, family: &str, access: &[String], refresh: Option<&str>) {
    let until = elapsed() + PROBE_TIME;
    join_all((0..NODES).map(async |node| {
        for turn in 0.. {
            if let Some(refresh) = refresh.filter(|_| turn < 2) {
                let form = [("grant_type", "refresh_token"), ("client_id", APP), ("refresh_token", refresh)];
                let request = ClientRequest::form("/oauth2/token", &form);
                world.ask(node, Action::UseRefreshToken(family.to_owned()), &[200, 400], request).await;
            }
            if let Some(token) = access.get(turn % access.len().max(1)) {
                let request = ClientRequest::get("/oauth2/userinfo").bearer(token);
                world.ask(node, Action::UseToken(family.to_owned()), &[200, 401], request).await;
            }
            if elapsed() > until {
                break;
            }
            tokio::time::sleep(PROBE_PAUSE).await;
        }
    }))
    .await;
}
