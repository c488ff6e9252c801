//! The frame of every page: the name, logo and colours of `[pages]`, the language, and the scripts. They
//! belong to the request in which a page is rendered, and are task-local, so that each error page has them,
//! too.

use maud::{DOCTYPE, Markup, html};

use super::language::Language;
use super::page_request::language;
use super::texts::t;
use crate::http::pages::page_request::REQUEST;

/// A page. All pages have the script `page.js`; `script` is a further one.
pub fn frame(title: &str, content: &Markup, script: Option<&str>) -> Markup {
    let (settings, is_get) =
        REQUEST.try_with(|request| (request.settings.clone(), request.is_get)).unwrap_or_default();
    let brand = &settings.brand;
    // The answer to a form cannot be loaded again in another language.
    let others = Language::ALL.into_iter().filter(|other| is_get && *other != language());
    html! {
        (DOCTYPE)
        html lang=(language().tag()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (brand.name) }
                link rel="icon" href=(if brand.logo.is_some() { "/logo" } else { "data:," });
                link rel="stylesheet" href="/style.css";
                script src="/page.js" defer {}
                @if let Some(script) = script { script src=(script) defer {} }
            }
            body {
                header {
                    a.brand href="/" {
                        @if brand.logo.is_some() { img.logo src="/logo" alt=""; }
                        @else { span.mark aria-hidden="true" { "☘" } }
                        (brand.name)
                    }
                }
                main {
                    h1 { (title) }
                    (content)
                }
                footer {
                    @for other in others {
                        // The choice returns to the page by its address, also of a page that hides it.
                        a href=(format!("/language/{}", other.tag())) referrerpolicy="same-origin" lang=(other.tag()) hreflang=(other.tag()) { (other.name()) }
                    }
                    @for (address, name) in [(&brand.help, "Get help"), (&brand.imprint, "Imprint"), (&brand.privacy, "Privacy")] {
                        @if let Some(address) = address { " " a href=(address) { (t(name)) } }
                    }
                }
            }
        }
    }
}

pub(super) fn page(title: &str, content: &Markup) -> Markup {
    frame(title, content, None)
}

/// A page with the script for passkeys.
pub(super) fn page_with_script(title: &str, content: &Markup) -> Markup {
    frame(title, content, Some("/passkey.js"))
}
