//! The section about sessions.

use maud::{Markup, html};
use store::StoreError;

use super::agent;
use crate::http::extract::RequestContext;
use crate::http::pages::account::visit::{AccountVisit, date_time};
use crate::http::pages::texts::{fill, phrase, t};

pub(super) async fn section(context: &RequestContext, visit: &AccountVisit) -> Result<Markup, StoreError> {
    let sessions = context.app.identity.sessions.user_sessions(&visit.user, context.now).await?;
    Ok(html! {
        h2 { (t("Where you are signed in")) }
        ul.rows {
            @for session in &sessions {
                @let name = agent::describe(&session.origin.agent);
                @let here = session.sid == visit.session.sid;
                li {
                    div {
                        strong { (name) } @if here { " " span.tag { (t("this browser")) } }
                        div.quiet {
                            @if !session.origin.address.is_empty() { (fill("from {}", &[&session.origin.address])) ", " }
                            (phrase("since {}", &[date_time(session.started)]))
                            @if let Some(provider) = &session.provider { ", " (fill("by {}", &[provider])) }
                            br; (phrase("last used {}", &[date_time(session.last_seen)]))
                        }
                    }
                    @if !here {
                        (visit.button("/account/sessions/end", &[("sid", &session.sid)], t("End"),
                            Some(&fill("End the session in {}", &[&name]))))
                    }
                }
            }
        }
        (visit.button("/account", &[], t("Sign out everywhere"), None))
        p.quiet { (t("Everywhere means: all browsers, and all apps that you signed in to with this account.")) }
    })
}
