//! Descriptions of scopes, for pages that ask for consent.

use identity::model::scope::{ScopeContext, ScopePermissions, Scopes, SmartScope};
use maud::{Markup, html};

use super::page_request::language;
use super::texts::{phrase, t};
use crate::http::extract::RequestContext;

/// A list of the requested scopes. The texts of custom scopes are those of `[[scope]]` in `trefoil.toml`.
pub fn list(context: &RequestContext, scopes: &Scopes) -> Markup {
    let settings = context.app.settings();
    html! {
        ul.scopes {
            @for scope in scopes.iter() {
                li {
                    @if let Some(words) = words(scope) { (t(words)) }
                    @else if let Some(smart) = SmartScope::parse(scope) { (smart_words(&smart)) }
                    @else if let Some(own) = settings.describe(scope) { (own) }
                    @else { (phrase("use {}", &[html! { code { (scope) } }])) }
                }
            }
        }
    }
}

fn words(scope: &str) -> Option<&'static str> {
    Some(match scope {
        "openid" => "know that it is you",
        "profile" => "see your name",
        "email" => "see your e-mail address",
        "phone" => "see your phone number",
        "fhirUser" => "know which health record is yours",
        "launch" => "know what you are working on in the application that opened it",
        "launch/encounter" => "know which visit you are working on",
        "trefoil/launch" => "open other applications for a patient",
        "launch/patient" => "know which patient you are working with",
        "offline_access" => "keep access while you are away",
        "online_access" => "keep access while you are signed in",
        "trefoil/admin" => "administer this server",
        _ => return None,
    })
}

fn smart_words(scope: &SmartScope) -> Markup {
    let changes = [ScopePermissions::CREATE, ScopePermissions::UPDATE, ScopePermissions::DELETE]
        .into_iter()
        .any(|permission| scope.permissions.contains_all(permission));
    let records = match scope.kind {
        "*" => html! { (t("all health records")) },
        kind => phrase("{} records", &[html! { strong { (kind) } }]),
    };
    let whose = match scope.context {
        ScopeContext::Patient => t(" of the patient"),
        ScopeContext::User => t(" that you may see"),
        ScopeContext::System => "",
    };
    let records = html! {
        (records) (whose)
        @if let Some(query) = scope.query {
            @for (at, (name, value)) in form_urlencoded::parse(query.as_bytes()).enumerate() {
                (if at == 0 { t(", only those with ") } else { t(" and ") }) (name) " " strong { (value) }
            }
        }
        @if scope.query.is_some() || scope.context == ScopeContext::User { (language().clause_end()) }
    };
    match (scope.permissions.contains_all(ScopePermissions::GET), changes) {
        (true, true) => phrase("read and change {}", &[records]),
        (false, true) => phrase("change {}", &[records]),
        _ => phrase("read {}", &[records]),
    }
}
