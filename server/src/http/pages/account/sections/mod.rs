//! The sections of the page. The changes that their forms ask for are in the modules of the same names above.

mod agent;
mod apps;
mod links;
mod passkeys;
mod password;
mod sessions;

use maud::Markup;
use store::StoreError;

use super::visit::AccountVisit;
use crate::http::extract::RequestContext;

/// The sections of the page, in order. `wrong` is the field that an error is about.
pub(super) async fn all_sections(
    context: &RequestContext,
    visit: &AccountVisit,
    wrong: Option<&str>,
) -> Result<Vec<Markup>, StoreError> {
    let mut sections = vec![
        sessions::section(context, visit).await?,
        passkeys::section(context, visit).await?,
        passkeys::recovery_section(context, visit).await?,
        password::section(visit, context.app.settings().passwords.min_length, wrong),
    ];
    sections.extend(apps::section(context, visit).await?);
    sections.extend(links::section(context, visit).await?);
    Ok(sections)
}
