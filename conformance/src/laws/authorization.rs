//! Laws of the authorization server.

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use url::Url;

use super::law_test::{Broken, LawTest, failure};
use crate::environment::applications::member;
use crate::environment::cookies::CookieJar;
use crate::wire::build::build_request;

/// A change of a redirect URI.
#[derive(Debug, Clone)]
enum Change {
    /// A character is added at a place.
    Add(Index, char),
    Remove(Index),
    Append(String),
    Host(String),
}

impl Change {
    fn apply(&self, uri: &str) -> String {
        let mut text: Vec<char> = uri.chars().collect();
        match self {
            Self::Add(at, c) => text.insert(at.index(text.len() + 1), *c),
            Self::Remove(at) => {
                text.remove(at.index(text.len()));
            }
            Self::Append(more) => text.extend(more.chars()),
            Self::Host(host) => {
                if let Ok(mut url) = Url::parse(uri)
                    && url.set_host(Some(host)).is_ok()
                {
                    return url.to_string();
                }
            }
        }
        text.into_iter().collect()
    }
}

fn changes() -> impl Strategy<Value = Change> {
    let character = prop::sample::select(vec!['a', '/', '.', '?', '#', '%', '@', ':', '&', '\\']);
    prop_oneof![
        (any::<Index>(), character).prop_map(|(index, c)| Change::Add(index, c)),
        any::<Index>().prop_map(Change::Remove),
        prop::sample::select(vec!["/", "?x=1", "/../evil", "%2F..", ".evil.example", "#f"])
            .prop_map(|text| Change::Append(text.to_owned())),
        prop::sample::select(vec!["evil.example", "localhost.evil.example", "127.0.0.2"])
            .prop_map(|host| Change::Host(host.to_owned())),
    ]
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn redirect_exact(test: &LawTest<'_>) -> Result<(), Broken> {
    let mut context = test.given(&["signed-in"])?;
    let client_id = member(&context.vars, "public.client_id")?.to_owned();
    let registered: Vec<String> = context
        .vars
        .get("public.redirect_uris")
        .and_then(|uris| serde_json::from_value(uris.clone()).ok())
        .unwrap_or_default();
    let first = registered.first().cloned().unwrap_or_default();
    test.for_all(&changes(), 1, |change| {
        let other = change.apply(&first);
        if registered.contains(&other) {
            return Ok(None);
        }
        let query = json!({
            "response_type": "code", "client_id": client_id, "redirect_uri": other.replace('$', "%24"),
            "scope": "openid", "state": "law", "code_challenge": "$pkce.challenge", "code_challenge_method": "S256",
        });
        let (answer, shown) = test.ask(&mut context, json!({ "get": "authorize", "query": query }))?;
        let Some(location) = answer.header("location") else { return Ok(None) };
        // A redirect to a page of the server is an error page or a sign-in, and the client must not be
        // reached.
        let base = &test.environment.target.addresses.base_url;
        let own = Url::parse(base).ok().and_then(|base| base.join(&location).ok());
        let is_own = own.is_some_and(|to| Url::parse(base).is_ok_and(|base| to.origin() == base.origin()));
        let difference = format!("a redirect URI that is not registered is used: {other} leads to {location}");
        Ok((!is_own).then(|| failure(vec![shown], difference)))
    })
}

/// See [`super::LAWS`].
///
/// # Errors
/// [`Broken`] if the law does not hold or cannot be tested.
pub fn code_once(test: &LawTest<'_>) -> Result<(), Broken> {
    test.for_all(&(2_usize..10), 10, |at_once| {
        let mut context = test.given(&["code"])?;
        let form = json!({
            "grant_type": "authorization_code", "client_id": "$public.client_id", "redirect_uri": "$redirect_uri",
            "code": "$code", "code_verifier": "$verifier",
        });
        let request = serde_json::from_value(json!({ "post": "token", "form": form }))
            .map_err(|error: serde_json::Error| Broken::Inconclusive(error.to_string()))?;
        let sent_request = build_request(&request, &context.vars).map_err(|error| Broken::Lacking(error.to_string()))?;
        let target = &test.environment.target;
        let redeem = async || Ok(target.send(&sent_request, &mut CookieJar::new()).await?.status.as_u16());
        let statuses: Result<Vec<u16>, crate::environment::SetupError> =
            test.wait(join_all((0..at_once).map(|_| redeem()))).into_iter().collect();
        let statuses = statuses?;
        if statuses.iter().filter(|status| **status == 200).count() <= 1 {
            return Ok(None);
        }
        let (_, shown) = test.ask(&mut context, json!({ "post": "token", "form": form }))?;
        Ok(Some(failure(vec![shown], format!("{at_once} concurrent requests with one code: {statuses:?}"))))
    })
}
