//! Descriptions of scopes, for pages that ask for consent.

use identity::model::scope::{NamedScope, ScopeContext, ScopePermissions, Scopes, SmartScope};
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
    Some(match NamedScope::named(scope)? {
        NamedScope::Openid => "know that it is you",
        NamedScope::Profile => "see your name",
        NamedScope::Email => "see your e-mail address",
        NamedScope::Phone => "see your phone number",
        NamedScope::FhirUser => "know which health record is yours",
        NamedScope::Launch => "know what you are working on in the application that opened it",
        NamedScope::LaunchEncounter => "know which visit you are working on",
        NamedScope::CreateLaunch => "open other applications for a patient",
        NamedScope::LaunchPatient => "know which patient you are working with",
        NamedScope::OfflineAccess => "keep access while you are away",
        NamedScope::OnlineAccess => "keep access while you are signed in",
        NamedScope::Metrics => "read the metrics of this server",
        NamedScope::Admin => "administer this server",
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
