//! The section about applications with a consent.

use maud::{Markup, html};
use store::StoreError;

use crate::http::extract::RequestContext;
use crate::http::pages::account::visit::{AccountVisit, date_time};
use crate::http::pages::scopes;
use crate::http::pages::texts::{fill, phrase, t};

/// The section, which is empty without a consent.
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
