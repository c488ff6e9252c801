//! Continues an authorization request after a page.

use http::StatusCode;
use identity::authorize::authorization_service::AuthorizationService;
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
        let client_id = AuthorizationService::claimed_client_id(continuation);
        find_way_back(context, client_id.as_deref()).await;
        return Err(Problem::page(
            StatusCode::BAD_REQUEST,
            "This sign-in was not started in this browser, or has expired. Return to the application and start again.",
        ));
    };
    let outcome = context.app.identity.authorization.check_interaction(&interaction, context.now).await;
    let request = match outcome {
        Ok(request) => request,
        Err(error) => return Err(request_problem(context, error).await),
    };
    page_request::use_locales(request.ui_locales.as_deref());
    Ok((request, interaction))
}

/// The answer to a rejected authorization request: a page, or the redirect to the client.
pub(super) async fn request_problem(context: &RequestContext, error: AuthorizationError) -> Problem {
    match error {
        AuthorizationError::Show(error) => {
            find_way_back(context, context.params().get("client_id")).await;
            error.into()
        }
        AuthorizationError::Redirect { client_id, reply, refusal } => {
            context.app.logs.refusals.record(&client_id, &refusal, context.now);
            redirect_error(&reply, refusal.error, None).into()
        }
    }
}

/// Lets the error page link to the application. If it cannot be read, the page has no link.
async fn find_way_back(context: &RequestContext, client_id: Option<&str>) {
    if let Some(client_id) = client_id
        && let Ok(Some(client)) = context.app.identity.clients.active_client(client_id, context.now).await
    {
        page_request::set_way_back(&client);
    }
}
