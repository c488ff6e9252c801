//! The section about applications with a consent, and the withdrawal of a consent.

use http::StatusCode;

use super::page::show_error;
use super::visit::{read_form, redirect_done};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::pages::texts::t;
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// POST {base}/account/apps/remove
pub async fn withdraw_consent(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_form(context, body).await?;
    let client_id = form.get("client_id").unwrap_or_default();
    let consents = &context.app.identity.consents;
    if consents.user_consent(&visit.user.sub, client_id, context.now).await?.is_none() {
        let text = t("This permission was already withdrawn.");
        return show_error(context, &visit, StatusCode::NOT_FOUND, text).await;
    }
    consents.withdraw_consent(&visit.user.sub, client_id, context.now).await?;
    Ok(redirect_done(context, "withdrawn"))
}
