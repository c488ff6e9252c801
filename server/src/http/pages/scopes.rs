//! Scopes in words, for pages that ask somebody to grant them.

use identity::scope::{Context, Permissions, Scopes, SmartScope};
use maud::{Markup, html};

use crate::http::extract::Call;

/// A list of what is asked for. The operator's own scopes are worded by `[[scope]]` of `trefoil.toml`.
pub fn list(call: &Call, scopes: &Scopes) -> Markup {
    let settings = call.app.settings();
    html! {
        ul.scopes {
            @for scope in scopes.iter() {
                li {
                    @if let Some(words) = words(scope) { (words) }
                    @else if let Some(smart) = SmartScope::parse(scope) { (smart_words(&smart)) }
                    @else if let Some(own) = settings.describe(scope) { (own) }
                    @else { "use " code { (scope) } }
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
        "launch/patient" => "know which patient you are working with",
        "offline_access" => "keep access while you are away",
        "trefoil/admin" => "administer this server",
        _ => return None,
    })
}

fn smart_words(scope: &SmartScope) -> Markup {
    let changes = [Permissions::CREATE, Permissions::UPDATE, Permissions::DELETE]
        .into_iter()
        .any(|permission| scope.permissions.contain(permission));
    let verb = match (scope.permissions.contain(Permissions::GET), changes) {
        (true, true) => "read and change",
        (false, true) => "change",
        _ => "read",
    };
    let whose = match scope.context {
        Context::Patient => " of the patient",
        Context::User => " that you may see",
        Context::System => "",
    };
    html! {
        (verb) " "
        @if scope.kind == "*" { "all health records" } @else { strong { (scope.kind) } " records" }
        (whose)
    }
}
