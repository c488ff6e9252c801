//! GET {base}/: describes the server, with links, an example, the signed-in user and, for a demo, its users.
//! `[pages] home` can switch it off or redirect it.

use std::path::PathBuf;

use command_line::text::shell_word;
use http::StatusCode;
use maud::{Markup, html};

use super::frame::page;
use super::texts::{phrase, t};
use crate::config::brand::HomePage;
use crate::demo::guide::GUIDE_FILE;
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Shows the page.
pub async fn show_home(context: &RequestContext) -> Result<Response, Problem> {
    match &context.app.settings().brand.home {
        HomePage::Shown => {}
        HomePage::Off => return Err(Problem::page(StatusCode::NOT_FOUND, "This server has no home page.")),
        HomePage::Redirected(to) => return Ok(reply::redirect(StatusCode::FOUND, to)),
    }
    let fhir = &context.app.address.fhir_base;
    let signed_in = signed_in(context).await?;
    let links = [
        (t("Your account"), "/account", t("your sign-in methods, sessions and applications")),
        (t("Device"), "/device", t("connect a device that shows a code")),
        ("OpenID Connect", "/.well-known/openid-configuration", t("endpoints and what they can do")),
        (t("Keys"), "/.well-known/jwks.json", t("to check our tokens")),
        ("SMART", "/fhir/R4/.well-known/smart-configuration", t("the same for health apps")),
        ("FHIR", "/fhir/R4/metadata", t("resources and operations")),
        (t("Health"), "/health/ready", t("for load balancers")),
    ];
    let content = html! {
        p { (t("A small server for health apps: OpenID Connect sign-in, FHIR R4 terminology, and Bulk FHIR export.")) }
        p {
            @match &signed_in {
                Some((_, user)) => {
                    @let name = user.claims.name.as_deref().unwrap_or(&user.username);
                    (phrase("You are signed in as {}.", &[html! { strong { (name) } }]))
                }
                None => { (t("You are not signed in.")) " " a href="/sign-in" { (t("Sign in")) } }
            }
        }
        table {
            @for (name, address, text) in &links {
                tr { th scope="row" { (name) } td { a href=(address) { code { (address) } } div.quiet { (text) } } }
            }
        }
        h2 { (t("Try it")) }
        (command("example", &format!("curl {}{fhir}/metadata", ca_option(context))))
        @if let Some(data) = development_ca(context) {
            p { (t("A browser warns about the certificate until the development CA of this server is trusted:")) }
            (command("trust", &format!("trefoil trust --data {}", shell_word(&data))))
        }
        (refused_requests(context))
        (demo_users(context).await?)
        p.quiet {
            "Trefoil " (env!("CARGO_PKG_VERSION"))
            @if let Some(address) = &context.app.settings().brand.documentation {
                " · " a href=(address) { (t("Documentation")) }
            }
        }
    };
    Ok(reply::no_store(reply::html(StatusCode::OK, page(t("A server with three leaves"), &content))))
}

/// A command with a button that copies it.
fn command(id: &str, text: &str) -> Markup {
    html! {
        div.command {
            pre { code #(id) { (text) } }
            button.second type="button" hidden data-copies=(id) data-done=(t("Copied")) { (t("Copy")) }
        }
    }
}

/// The absolute data folder if the client is on this machine and the server uses its development CA. Others
/// do not learn paths of this machine.
fn development_ca(context: &RequestContext) -> Option<PathBuf> {
    let app = &context.app;
    let is_shown = app.address.is_loopback && app.config.has_development_ca && is_on_this_machine(context);
    std::path::absolute(&app.config.data).ok().filter(|_| is_shown)
}

fn is_on_this_machine(context: &RequestContext) -> bool {
    context.client_address.is_some_and(|address| address.to_canonical().is_loopback())
}

fn ca_option(context: &RequestContext) -> String {
    let ca = development_ca(context).map(|data| data.join("tls/ca.pem"));
    ca.map(|ca| format!("--cacert {} ", shell_word(&ca))).unwrap_or_default()
}

/// The last refused authorization requests, for developers on this machine: applications receive an error
/// code only.
fn refused_requests(context: &RequestContext) -> Markup {
    let app = &context.app;
    let is_shown = app.address.is_loopback && (app.config.flags.demo || is_on_this_machine(context));
    let mut recent = app.logs.refusals.recent.list();
    recent.retain(|refusal| !refusal.names_person);
    html! {
        @if is_shown && !recent.is_empty() {
            h2 { (t("Refused requests")) }
            ul {
                @for refusal in &recent {
                    li {
                        code { (refusal.client_id) } " " (refusal.text)
                        div.quiet { (fhir::instant::format(refusal.time)) }
                    }
                }
            }
        }
    }
}

/// The users of the demo. Their passwords are only in files that their owner can read.
async fn demo_users(context: &RequestContext) -> Result<Markup, Problem> {
    let app = &context.app;
    if !app.config.flags.demo {
        return Ok(html! {});
    }
    let mut users = app.identity.users.all_users(context.now).await?;
    users.sort_by(|a, b| a.username.cmp(&b.username));
    let guide = app.config.data.join(GUIDE_FILE);
    let guide = std::path::absolute(&guide).unwrap_or(guide);
    Ok(html! {
        h2 { (t("Demo users")) }
        ul {
            @for user in users.iter().filter(|user| user.demo) {
                li { code { (user.username) } @if let Some(name) = &user.claims.name { " (" (name) ")" } }
            }
        }
        @if is_on_this_machine(context) {
            p { (phrase("Their passwords are in {}.", &[html! { code { (guide.display()) } }])) }
        }
    })
}
