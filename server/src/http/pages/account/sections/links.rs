//! The section about linked accounts.

use maud::{Markup, html};
use store::StoreError;

use crate::http::extract::RequestContext;
use crate::http::pages::account::visit::{AccountVisit, date_time};
use crate::http::pages::texts::{fill, phrase, t};

/// The section, which is empty without a provider and a link.
pub(super) async fn section(
    context: &RequestContext,
    visit: &AccountVisit,
) -> Result<Option<Markup>, StoreError> {
    let links = context.app.identity.sign_in.linked_accounts(&visit.user.sub, context.now).await?;
    let settings = context.app.settings();
    let providers = &settings.providers;
    if providers.is_empty() && links.is_empty() {
        return Ok(None);
    }
    Ok(Some(html! {
        h2 { (t("Linked accounts")) }
        p.quiet { (t("You can sign in here with an account at another provider.")) }
        @if !links.is_empty() {
            ul.rows {
                @for link in &links {
                    li {
                        div {
                            strong { (link.provider) } " " (link.label)
                            div.quiet { (phrase("linked {}", &[date_time(link.since)])) }
                        }
                        (visit.button("/account/links/remove", &[("id", &link.id)], t("Unlink"),
                            Some(&fill("Unlink {} {}", &[&link.provider, &link.label]))))
                    }
                }
            }
        }
        div.choice {
            @for provider in providers {
                @let name = &provider.provider.name;
                (visit.button("/account/links", &[("provider", name)], &fill("Link {}", &[name]), None))
            }
        }
    }))
}
