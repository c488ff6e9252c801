//! Accounts at external providers.

use http::StatusCode;
use identity::provider::LinkError;
use maud::{Markup, html};
use store::StoreError;

use super::{Visit, begin_fresh, done, when, wrong};
use crate::http::extract::Call;
use crate::http::oauth::federation;
use crate::http::pages::passkey;
use crate::http::problem::{self, Dialect};
use crate::http::reply::Response;

/// The section, where there is any provider or link.
pub(super) async fn section(call: &Call, visit: &Visit) -> Result<Option<Markup>, StoreError> {
    let links = call.app.identity.links_of(&visit.user.sub, call.now).await?;
    let settings = call.app.settings();
    let providers = &settings.providers;
    if providers.is_empty() && links.is_empty() {
        return Ok(None);
    }
    Ok(Some(html! {
        h2 { "Linked accounts" }
        p.quiet { "You can sign in here with an account that you have elsewhere." }
        @if !links.is_empty() {
            ul.rows {
                @for link in &links {
                    li {
                        div {
                            strong { (link.provider) } " " (link.label)
                            div.quiet { "linked " (when(link.since)) }
                        }
                        (visit.button("/account/links/remove", &[("id", &link.id)], "Unlink",
                            Some(&format!("Unlink {} {}", link.provider, link.label))))
                    }
                }
            }
        }
        div.choice {
            @for provider in providers {
                @let name = &provider.provider.name;
                (visit.button("/account/links", &[("provider", name)], &format!("Link {name}"), None))
            }
        }
    }))
}

/// POST {base}/account/links: to the provider, and back to be linked.
pub async fn begin(mut call: Call) -> Response {
    let (visit, sent) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let wanted = sent.get("provider").unwrap_or_default();
    let settings = call.app.settings();
    let Some(provider) = settings.providers.iter().find(|known| known.provider.name == wanted) else {
        return wrong(&call, &visit, StatusCode::BAD_REQUEST, "There is no such provider.").await;
    };
    match federation::begin(&call, provider, &visit.browser, "", Some(&visit.session.sid), None).await {
        Ok(response) => response,
        Err(error) => problem::store(Dialect::Page, &error),
    }
}

/// POST {base}/account/links/remove
pub async fn remove(mut call: Call) -> Response {
    let (visit, sent) = match begin_fresh(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let id = sent.get("id").unwrap_or_default();
    match call.app.identity.unlink(&visit.user, id, call.now).await {
        Ok(true) => done(&call, "unlinked"),
        Ok(false) => wrong(&call, &visit, StatusCode::NOT_FOUND, "This link was removed already.").await,
        Err(LinkError::Store(error)) => problem::store(Dialect::Page, &error),
        Err(error @ (LinkError::OnlyWay | LinkError::Taken)) => {
            wrong(&call, &visit, StatusCode::CONFLICT, &passkey::sentence(&error.to_string())).await
        }
    }
}
