//! GET {base}/: for people, the signed-in user, their ways and whether the server works; for developers, the
//! metadata and an example; for a demo, its users.
//! `[pages] home` can switch it off or redirect it.

use std::path::PathBuf;

use command_line::text::shell_word;
use http::StatusCode;
use identity::model::user::User;
use maud::{Markup, html};

use super::frame::page;
use super::health::find_trouble;
use super::page_request::language;
use super::texts::{fill, phrase, t};
use crate::config::brand::HomePage;
use crate::demo::guide::GUIDE_FILE;
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Purpose of the server, if the operator states none.
const ABOUT: &str =
    "A small server for health apps: OpenID Connect sign-in, FHIR R4 terminology, and Bulk FHIR export.";

/// Shows the page.
pub async fn show_home(context: &RequestContext) -> Result<Response, Problem> {
    match &context.app.settings().brand.home {
        HomePage::Shown => {}
        HomePage::Off => return Err(Problem::page(StatusCode::NOT_FOUND, "This server has no home page.")),
        HomePage::Redirected(to) => return Ok(reply::redirect(StatusCode::FOUND, to)),
    }
    let brand = &context.app.settings().brand;
    let about = brand.description.in_language(language().tag()).unwrap_or_else(|| t(ABOUT));
    let content = html! {
        p { (about) }
        div.columns {
            div {
                (for_people(context, signed_in(context).await?.as_ref().map(|(_, user)| user)))
                (status(context).await)
                (demo_users(context).await?)
            }
            section aria-labelledby="developers" {
                h2 #developers { (t("For developers")) }
                (for_developers(context))
            }
        }
        p.quiet { "Trefoil " (env!("CARGO_PKG_VERSION")) }
    };
    let title = fill("Welcome to {}", &[&brand.name]);
    Ok(reply::no_store(reply::html(StatusCode::OK, page(&title, &content))))
}

/// The ways of a person who uses an app of this server.
fn for_people(context: &RequestContext, user: Option<&User>) -> Markup {
    let brand = &context.app.settings().brand;
    html! {
        @match user {
            Some(user) => {
                @let name = user.claims.name.as_deref().unwrap_or(&user.username);
                p { (phrase("You are signed in as {}.", &[html! { strong { (name) } }])) }
                p { a.button href="/account" { (t("Your account")) } }
            }
            None => {
                p { (t("You are not signed in.")) }
                p { a.button href="/sign-in" { (t("Sign in")) } }
            }
        }
        ul.links {
            @if user.is_none() { li { a href="/account" { (t("Your account")) } } }
            @if user.is_some_and(|user| user.administrator) {
                li { a href="/console" { (t("Console of this server")) } }
            }
            li { a href="/device" { (t("Connect a device")) } }
            @if let Some(address) = &brand.documentation { li { a href=(address) { (t("Documentation")) } } }
        }
    }
}

/// Whether the server works, in words for people. The cause is in the log, and at `/health/ready`.
async fn status(context: &RequestContext) -> Markup {
    match find_trouble(context).await {
        None => html! { p.done { (t("This server is working.")) } },
        Some(_) => html! {
            p.error { (t("This server cannot store anything at the moment. Its operator finds the reason in the log.")) }
        },
    }
}

/// Addresses of the metadata, and commands.
fn for_developers(context: &RequestContext) -> Markup {
    let fhir = &context.app.address.fhir_base;
    let links = [
        ("OpenID Connect", "/.well-known/openid-configuration"),
        ("SMART App Launch", "/fhir/R4/.well-known/smart-configuration"),
        ("FHIR R4", "/fhir/R4/metadata"),
        (t("Keys"), "/.well-known/jwks.json"),
        (t("Health"), "/health/ready"),
    ];
    html! {
        dl {
            @for (name, address) in &links { dt { (name) } dd { a href=(address) { code { (address) } } } }
        }
        h3 { (t("Try it")) }
        (command("example", &format!("curl {}{fhir}/metadata", ca_option(context))))
        @if let Some(data) = development_ca(context) {
            p { (t("A browser warns about the certificate until the development CA of this server is trusted:")) }
            (command("trust", &format!("trefoil trust --data {}", shell_word(&data))))
        }
        (refused_requests(context))
    }
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
            h3 { (t("Refused requests")) }
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
