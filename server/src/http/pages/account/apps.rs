//! The section about applications with a consent, and the withdrawal of a consent.

use http::StatusCode;
use maud::{Markup, html};
use store::StoreError;

use super::{AccountVisit, date_time, read_form, redirect_done, show_error};
use crate::http::extract::RequestContext;
use crate::http::pages::scopes;
use crate::http::problem::{self, Dialect};
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
        h2 { "Applications" }
        p.quiet { "Applications with your permission. Withdrawing it signs you out of the application." }
        ul.rows {
            @for (name, consent) in &apps {
                li {
                    div {
                        strong { (name) }
                        div.quiet { "allowed " (date_time(consent.at)) " to" }
                        (scopes::list(context, &consent.scopes))
                    }
                    (visit.button("/account/apps/remove", &[("client_id", &consent.client_id)], "Withdraw",
                        Some(&format!("Withdraw the permission of {name}"))))
                }
            }
        }
    }))
}

/// POST {base}/account/apps/remove
pub async fn withdraw_consent(mut context: RequestContext) -> Response {
    let (visit, sent) = match read_form(&mut context).await {
        Ok(begun) => begun,
        Err(response) => return response,
    };
    let client_id = sent.get("client_id").unwrap_or_default();
    match context.app.identity.consents.user_consent(&visit.user.sub, client_id, context.now).await {
        Ok(Some(_)) => {}
        Ok(None) => {
            return show_error(
                &context,
                &visit,
                StatusCode::NOT_FOUND,
                "This permission was already withdrawn.",
            )
            .await;
        }
        Err(error) => return problem::store_error(Dialect::Page, &error),
    }
    match context.app.identity.consents.withdraw_consent(&visit.user.sub, client_id, context.now).await {
        Ok(()) => redirect_done(&context, "withdrawn"),
        Err(error) => problem::store_error(Dialect::Page, &error),
    }
}
