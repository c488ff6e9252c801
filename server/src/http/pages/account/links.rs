//! The section about accounts at external providers.

use http::StatusCode;
use identity::sign_in::linked_account::LinkError;
use identity::sign_in::provider_sign_in::ProviderSignInStart;

use super::page::show_error;
use super::visit::{read_fresh_form, redirect_done};
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::oauth::federation::{self, RedirectError};
use crate::http::pages::texts::as_sentence;
use crate::http::pages::texts::t;
use crate::http::problem::Problem;
use crate::http::reply::Response;

/// POST {base}/account/links: redirects to the provider to link an account.
pub async fn begin_link(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_fresh_form(context, body).await?;
    let name = form.get("provider").unwrap_or_default();
    let settings = context.app.settings();
    let Some(provider) = settings.providers.iter().find(|candidate| candidate.provider.name == name) else {
        return show_error(context, &visit, StatusCode::BAD_REQUEST, t("This provider does not exist."))
            .await;
    };
    let start = ProviderSignInStart {
        link_to: Some(&visit.session.sid),
        browser: &visit.browser,
        ..ProviderSignInStart::default()
    };
    match federation::redirect_to_provider(context, provider, start).await {
        Ok(response) => Ok(response),
        Err(RedirectError::Store(error)) => Err(error.into()),
        Err(RedirectError::Discovery) => {
            let text = t("The provider cannot be reached. Please try again later.");
            show_error(context, &visit, StatusCode::BAD_GATEWAY, text).await
        }
    }
}

/// POST {base}/account/links/remove
pub async fn remove_link(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let (visit, form) = read_fresh_form(context, body).await?;
    let id = form.get("id").unwrap_or_default();
    match context.app.identity.sign_in.unlink_account(&visit.user, id, context.now).await {
        Ok(true) => Ok(redirect_done(context, "unlinked")),
        Ok(false) => {
            show_error(context, &visit, StatusCode::NOT_FOUND, t("This link was removed already.")).await
        }
        Err(LinkError::Store(error)) => Err(error.into()),
        Err(error @ (LinkError::OnlyWay | LinkError::Taken)) => {
            show_error(context, &visit, StatusCode::CONFLICT, &as_sentence(&error.to_string())).await
        }
    }
}
