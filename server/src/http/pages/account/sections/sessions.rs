//! The section about sessions, one group for each browser and operating system.

use identity::sign_in::session::Session;
use maud::{Markup, html};
use store::StoreError;

use super::agent;
use crate::http::extract::RequestContext;
use crate::http::pages::account::visit::{AccountVisit, date_time};
use crate::http::pages::texts::{fill, phrase, t};

pub(super) async fn section(context: &RequestContext, visit: &AccountVisit) -> Result<Markup, StoreError> {
    let sessions = context.app.identity.sessions.user_sessions(&visit.user, context.now).await?;
    let groups = group_by_browser(&sessions, &visit.session.sid);
    Ok(html! {
        h2 { (t("Where you are signed in")) }
        ul.rows {
            @for (name, group) in &groups {
                @if let [session] = group[..] {
                    li { (row(visit, name, session)) }
                } @else {
                    li.group {
                        details {
                            summary { strong { (name) } " " span.tag { (fill("{} sessions", &[&group.len()])) } }
                            ul.rows { @for session in group { li { (row(visit, name, session)) } } }
                        }
                    }
                }
            }
        }
        @if sessions.len() > 1 {
            (visit.button("/account/sessions/end-others", &[], t("Sign out all other sessions"), None))
        }
        (visit.button("/account", &[], t("Sign out everywhere"), None))
        p.quiet { (t("Everywhere means: all browsers, and all apps that you signed in to with this account.")) }
    })
}

/// The sessions by the names of their browsers, in their order. The session of this browser is a group of its
/// own, which comes first, so that users do not end it by mistake.
fn group_by_browser<'s>(sessions: &'s [Session], own_sid: &str) -> Vec<(String, Vec<&'s Session>)> {
    let (own, others): (Vec<_>, Vec<_>) = sessions.iter().partition(|session| session.sid == own_sid);
    let mut groups: Vec<(String, Vec<&Session>)> =
        own.into_iter().map(|session| (agent::describe(&session.origin.agent), vec![session])).collect();
    let first_other = groups.len();
    for session in others {
        let name = agent::describe(&session.origin.agent);
        match groups[first_other..].iter_mut().find(|(other, _)| *other == name) {
            Some((_, group)) => group.push(session),
            None => groups.push((name, vec![session])),
        }
    }
    groups
}

fn row(visit: &AccountVisit, name: &str, session: &Session) -> Markup {
    let here = session.sid == visit.session.sid;
    html! {
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
