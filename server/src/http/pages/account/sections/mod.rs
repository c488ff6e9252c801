//! The sections of the page. The changes that their forms ask for are in the modules of the same names above.

mod agent;
mod apps;
mod links;
mod passkeys;
mod password;
mod sessions;

use maud::{Markup, html};
use store::StoreError;

use super::visit::AccountVisit;
use crate::http::extract::RequestContext;
use crate::http::pages::texts::t;

/// The sections of the page, in order. `wrong` is the field that an error is about.
pub(super) async fn all_sections(
    context: &RequestContext,
    visit: &AccountVisit,
    wrong: Option<&str>,
) -> Result<Vec<Markup>, StoreError> {
    let mut sections = vec![sessions::section(context, visit).await?];
    match visit.without_own_methods() {
        None => sections.extend([
            passkeys::section(context, visit).await?,
            passkeys::recovery_section(context, visit).await?,
            password::section(visit, context.app.settings().passwords.min_length, wrong),
        ]),
        Some(text) => sections.push(html! { h2 { (t("How you sign in")) } p { (text) } }),
    }
    sections.extend(apps::section(context, visit).await?);
    sections.extend(links::section(context, visit).await?);
    Ok(sections)
}
