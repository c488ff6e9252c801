//! The section about applications with a consent, and the withdrawal of a consent.

use http::StatusCode;
use maud::{Markup, html};
use store::StoreError;

use super::{AccountVisit, date_time, read_form, redirect_done, show_error};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::scopes;
use crate::http::pages::texts::{fill, phrase, t};
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// Returns the section, which is empty without a consent.
pub(super) async fn section(
    context: &RequestContext,
    visit: &AccountVisit,
) -> Result<Option<Markup>, StoreError> {
    let identity = &context.app.identity;
    let mut apps = Vec::new();
    for consent in identity.consents.user_consents(&visit.user.sub, context.now).await? {
        let client = identity.clients.active_client(&consent.client_id, context.now).await?;
        apps.push((client.map_or_else(|| consent.client_id.clone(), |client| client.name), consent));
    }
    if apps.is_empty() {
        return Ok(None);
    }
    Ok(Some(html! {
        h2 { (t("Applications")) }
        p.quiet { (t("Applications with your permission. Withdrawing it signs you out of the application.")) }
        ul.rows {
            @for (name, consent) in &apps {
                li {
                    div {
                        strong { (name) }
                        div.quiet { (phrase("allowed {} to", &[date_time(consent.at)])) }
                        (scopes::list(context, &consent.scopes))
                    }
                    (visit.button("/account/apps/remove", &[("client_id", &consent.client_id)], t("Withdraw"),
                        Some(&fill("Withdraw the permission of {}", &[name]))))
                }
            }
        }
    }))
}

/// POST {base}/account/apps/remove
pub async fn withdraw_consent(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, sent) = read_form(context, body).await?;
    let client_id = sent.get("client_id").unwrap_or_default();
    let consents = &context.app.identity.consents;
    if consents.user_consent(&visit.user.sub, client_id, context.now).await?.is_none() {
        let text = t("This permission was already withdrawn.");
        return show_error(context, &visit, StatusCode::NOT_FOUND, text).await;
    }
    consents.withdraw_consent(&visit.user.sub, client_id, context.now).await?;
    Ok(redirect_done(context, "withdrawn"))
}
