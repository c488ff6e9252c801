//! Applications that the user has allowed something, and taking that back.

use http::StatusCode;
use maud::{Markup, html};
use store::StoreError;

use super::{Visit, begin as begin_form, done, when, wrong};
use crate::http::extract::Call;
use crate::http::pages::scopes;
use crate::http::problem::{self, Dialect};
use crate::http::reply::Response;

/// The section, where anything was allowed.
pub(super) async fn section(call: &Call, visit: &Visit) -> Result<Option<Markup>, StoreError> {
    let identity = &call.app.identity;
    let mut apps = Vec::new();
    for consent in identity.consents(&visit.user.sub, call.now).await? {
        let client = identity.client(&consent.client_id, call.now).await?;
        apps.push((client.map_or_else(|| consent.client_id.clone(), |client| client.name), consent));
    }
    if apps.is_empty() {
        return Ok(None);
    }
    Ok(Some(html! {
        h2 { "Applications" }
        p.quiet { "What you allowed applications to do. Taking it back signs you out of them." }
        ul.rows {
            @for (name, consent) in &apps {
                li {
                    div {
                        strong { (name) }
                        div.quiet { "allowed " (when(consent.at)) " to" }
                        (scopes::list(call, &consent.scopes))
                    }
                    (visit.button("/account/apps/remove", &[("client_id", &consent.client_id)], "Take back",
                        Some(&format!("Take back what {name} was allowed"))))
                }
            }
        }
    }))
}

/// POST {base}/account/apps/remove
pub async fn remove(mut call: Call) -> Response {
    let (visit, sent) = match begin_form(&mut call).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let client_id = sent.get("client_id").unwrap_or_default();
    match call.app.identity.consent(&visit.user.sub, client_id, call.now).await {
        Ok(Some(_)) => {}
        Ok(None) => {
            return wrong(&call, &visit, StatusCode::NOT_FOUND, "This was taken back already.").await;
        }
        Err(error) => return problem::store(Dialect::Page, &error),
    }
    match call.app.identity.withdraw(&visit.user.sub, client_id, call.now).await {
        Ok(()) => done(&call, "withdrawn"),
        Err(error) => problem::store(Dialect::Page, &error),
    }
}
