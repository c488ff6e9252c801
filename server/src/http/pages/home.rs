//! GET {base}/: describes the server, with links and an example.

use http::StatusCode;
use maud::html;

use super::page;
use crate::http::extract::RequestContext;
use crate::http::problem::Problem;
use crate::http::reply::{self, Response};

/// Shows the page.
pub async fn show_home(context: &RequestContext) -> Result<Response, Problem> {
    let (base, fhir) = (&context.app.base_url, &context.app.fhir_base);
    let links = [
        ("Sign in", format!("{base}/sign-in"), "your account and its sessions"),
        (
            "OpenID Connect",
            format!("{base}/.well-known/openid-configuration"),
            "endpoints and what they can do",
        ),
        ("Keys", format!("{base}/.well-known/jwks.json"), "to check our tokens"),
        ("SMART", format!("{fhir}/.well-known/smart-configuration"), "the same for health apps"),
        ("FHIR", format!("{fhir}/metadata"), "resources and operations"),
        ("Health", format!("{base}/health/ready"), "for load balancers"),
    ];
    let content = html! {
        p { "A small server for health apps: OpenID Connect sign-in, FHIR R4 terminology, and Bulk FHIR export." }
        table {
            @for (name, address, text) in &links {
                tr { th scope="row" { (name) } td { a href=(address) { code { (address) } } div.quiet { (text) } } }
            }
        }
        h2 { "Try it" }
        pre { code { "curl " @if context.app.is_loopback && context.app.is_https { "--insecure " } (fhir) "/metadata" } }
        p.quiet { "Trefoil " (env!("CARGO_PKG_VERSION")) }
    };
    Ok(reply::no_store(reply::html(StatusCode::OK, page("A server with three leaves", &content))))
}
