//! Continues an authorization request after a page.

use http::StatusCode;
use identity::authorize::interaction::InteractionState;
use identity::authorize::reply::AuthorizationError;
use identity::authorize::request::AuthorizationRequest;

use super::authorization_answer::redirect_error;
use crate::http::extract::RequestContext;
use crate::http::pages::page_request;
use crate::http::problem::Problem;

/// Verifies a continuation and checks its authorization request again.
///
/// # Errors
/// An error page, or the redirect to the client with the error.
pub async fn open_continuation(
    context: &RequestContext,
    continuation: &str,
) -> Result<(AuthorizationRequest, InteractionState), Problem> {
    let browser = context.cookies.browser.as_deref().unwrap_or_default();
    let Some(interaction) =
        context.app.identity.authorization.verify_continuation(continuation, browser, context.now)
    else {
        return Err(Problem::page(
            StatusCode::BAD_REQUEST,
            "This sign-in was not started in this browser, or has expired. Return to the application and start again.",
        ));
    };
    let checked = context.app.identity.authorization.check_interaction(&interaction, context.now).await;
    let request = checked.map_err(|error| request_problem(context, error))?;
    page_request::use_locales(request.ui_locales.as_deref());
    Ok((request, interaction))
}

pub(super) fn request_problem(context: &RequestContext, error: AuthorizationError) -> Problem {
    match error {
        AuthorizationError::Show(error) => error.into(),
        AuthorizationError::Redirect { client_id, reply, refusal } => {
            context.app.logs.refusals.record(&client_id, &refusal, context.now);
            redirect_error(&reply, refusal.error, None).into()
        }
    }
}
