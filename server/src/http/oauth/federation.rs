//! Federated sign-in: the redirect to an external provider, and the callback. Nothing that a provider sends
//! is passed on to the client. The requests to providers are in [`crate::node::provider_calls`].

use http::StatusCode;
use identity::audit::AuditEvent;
use identity::authorize::reply::AuthorizationReply;
use identity::directory::user_directory::UserError;
use identity::model::error_code::ErrorCode;
use identity::model::provider::{ExternalSignIn, ExternalUser, ProviderFailure};
use identity::params::Params;
use identity::sign_in::linked_account::{AccountRefusal, LinkedUser};
use identity::sign_in::pending_quota::PendingKind;
use identity::sign_in::provider_id_token::LackingClaims;
use identity::sign_in::provider_sign_in::{ProviderSignIn, ProviderSignInStart, RequiredFreshness};
use identity::sign_in::session::SignInProof;
use resources::{ResourceError, references};
use store::StoreError;

use super::authorization_answer::redirect_error;
use crate::config::ConfiguredProvider;
use crate::http::extract::RequestContext;
use crate::http::pages::browser_session::signed_in;
use crate::http::pages::sign_in::completion::complete_sign_in;
use crate::http::pages::sign_in::destination::SignInDestination;
use crate::http::pages::{self, cookie};
use crate::http::problem::Problem;
use crate::http::problem::log_store_error;
use crate::http::reply::{self, Response};
use crate::records::refusal_log::RefusedUser;

const PROVIDER_FAILED: &str = "The provider did not respond correctly. Please try again later.";
const USER_DISABLED: &str =
    "Your account here is disabled, or may no longer sign in this way. An administrator can change it.";

/// Reasons why the browser cannot be redirected to a provider.
#[derive(Debug, thiserror::Error)]
pub enum RedirectError {
    /// The endpoints of the provider are unknown. The reason was logged.
    #[error("the discovery document of the provider cannot be read")]
    Discovery,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Redirects the browser to the provider. `start.back` is the destination after the sign-in (see
/// [`pages::resume`]); `start.link_to` is the session of a user who links the account.
///
/// # Errors
/// [`RedirectError`] if the endpoints are unknown or the sign-in cannot be stored.
pub async fn redirect_to_provider(
    context: &RequestContext,
    provider: &ConfiguredProvider,
    start: ProviderSignInStart<'_>,
) -> Result<Response, RedirectError> {
    let app = &context.app;
    let discovered = app.providers.endpoints(provider, context.now).await;
    let endpoints = discovered.map_err(|failure| {
        log_failure(&provider.provider.name, &failure);
        RedirectError::Discovery
    })?;
    let sign_ins = &app.identity.provider_sign_ins;
    let to = sign_ins.begin_provider_sign_in(&provider.provider, &endpoints, start, context.now).await?;
    // After a form, 303 turns the POST into a GET.
    let status = if start.link_to.is_some() { StatusCode::SEE_OTHER } else { StatusCode::FOUND };
    Ok(reply::no_store(reply::redirect(status, &to)))
}

/// GET {base}/sign-in/with/{provider}: starts a sign-in at a provider that was selected on the sign-in page.
pub async fn start_sign_in(context: &RequestContext, provider: String) -> Result<Response, Problem> {
    let settings = context.app.settings();
    let Some(provider) = settings.providers.iter().find(|candidate| candidate.provider.name == provider)
    else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "This sign-in method is not available."));
    };
    context.add_pending(PendingKind::ProviderSignIn, None)?;
    let back = pages::resume::read_destination(&context.params());
    let (browser, set_cookie) = cookie::browser(context);
    let waiting = match pages::resume::is_request(&back) {
        true => super::continuation::open_continuation(context, &back).await.ok().map(|(request, _)| request),
        false => None,
    };
    // Changes on the account page and the console need a recent authentication.
    let own_page = RequiredFreshness { login: pages::resume::is_own_page(&back), ..Default::default() };
    let freshness = waiting.as_ref().map_or(own_page, |request| request.required_freshness());
    let start = ProviderSignInStart { back: &back, browser: &browser, freshness, link_to: None };
    let response = match redirect_to_provider(context, provider, start).await {
        Ok(response) => response,
        Err(RedirectError::Store(error)) => return Err(error.into()),
        Err(RedirectError::Discovery) => {
            let reply = waiting.map(|request| request.reply);
            return Err(failure_problem(reply.as_ref(), ErrorCode::ServerError, None));
        }
    };
    Ok(cookie::set(response, set_cookie))
}

/// GET {base}/oauth2/idpresponse/{provider}: the callback from the provider.
pub async fn provider_callback(context: &RequestContext, provider: String) -> Result<Response, Problem> {
    let params = context.params();
    let expired = || {
        Problem::page(
            StatusCode::BAD_REQUEST,
            "This sign-in was not started in this browser, or has expired. Return to the application and start again.",
        )
    };
    let (Some(state), Some(browser)) = (params.get("state"), context.cookies.browser.as_deref()) else {
        return Err(expired());
    };
    let sign_in = context.app.identity.provider_sign_ins.take_provider_sign_in(state, browser, context.now);
    let flow = sign_in.await?.ok_or_else(expired)?;
    if flow.provider != provider {
        tracing::warn!(begun = flow.provider, answered = provider, "a sign-in ended at another provider");
        return Err(expired());
    }
    if flow.link_to.is_some() {
        return link_account(context, &params, &flow).await;
    }
    // If an application is waiting, errors are sent to it.
    let waiting = match pages::resume::is_request(&flow.back) {
        true => Some(super::continuation::open_continuation(context, &flow.back).await?.0.reply),
        false => None,
    };
    let settings = context.app.settings();
    let configured = settings.providers.iter().find(|configured| configured.provider.name == flow.provider);
    let Some(provider) = configured else {
        return Err(failure_problem(waiting.as_ref(), ErrorCode::ServerError, None));
    };
    let external = match external_user(context, &params, provider, &flow).await {
        Ok(external) => external,
        Err(failure) => {
            let reason = "the external provider refused or failed";
            context.app.identity.audit.record(AuditEvent::SignInFailed { sub: None, reason });
            let (error, description) = provider.provider.describe_failure(&failure);
            return Err(failure_problem(waiting.as_ref(), error, description.as_deref()));
        }
    };
    match sign_in_external(context, provider, external, &flow, browser).await {
        Ok(Admission::Answered(response)) => Ok(response),
        Ok(Admission::Refused(AccountRefusal { reason, sub })) => {
            context.app.identity.audit.record(AuditEvent::SignInFailed { sub: Some(sub), reason });
            Err(match &waiting {
                Some(reply) => redirect_error(reply, ErrorCode::AccessDenied, None).into(),
                None => Problem::page(StatusCode::FORBIDDEN, USER_DISABLED),
            })
        }
        Err(UserError::Store(error)) => Err(match &waiting {
            Some(reply) => {
                log_store_error(&error, "federated sign-in");
                redirect_error(reply, ErrorCode::from(&error), None).into()
            }
            None => error.into(),
        }),
        Err(error) => {
            tracing::error!(%error, "federated sign-in");
            Err(failure_problem(waiting.as_ref(), ErrorCode::ServerError, None))
        }
    }
}

fn log_failure(provider: &str, failure: &ProviderFailure) {
    tracing::warn!(provider, ?failure, "federated sign-in failed");
}

/// Reports an error to the waiting application, or on a page if there is none.
fn failure_problem(
    waiting: Option<&AuthorizationReply>,
    error: ErrorCode,
    description: Option<&str>,
) -> Problem {
    match waiting {
        Some(reply) => redirect_error(reply, error, description).into(),
        None => Problem::page(StatusCode::BAD_GATEWAY, PROVIDER_FAILED),
    }
}

/// The user who signed in at the provider.
async fn external_user(
    context: &RequestContext,
    params: &Params,
    provider: &ConfiguredProvider,
    flow: &ProviderSignIn,
) -> Result<ExternalSignIn, ProviderFailure> {
    let outcome = async {
        let app = &context.app;
        let endpoints = app.providers.endpoints(provider, context.now).await?;
        let is_issuer = match params.get("iss") {
            Some(issuer) => issuer == provider.provider.issuer,
            None => !endpoints.sends_issuer,
        };
        match (params.get("error"), params.get("code")) {
            _ if !is_issuer => {
                Err(ProviderFailure::Other("the response does not name the issuer (RFC 9207)"))
            }
            (Some("access_denied"), _) => Err(ProviderFailure::Denied),
            (None, Some(code)) => {
                let sign_ins = &app.identity.provider_sign_ins;
                let request = sign_ins.token_request(&provider.provider, &endpoints, flow, code, context.now);
                let request = request.await.map_err(|error| {
                    tracing::error!(%error, "the key for a request to a provider cannot be read");
                    ProviderFailure::Other("the key that signs the token request cannot be read")
                })?;
                let (tokens, keys) = app.providers.exchange_code(provider, &endpoints, request).await?;
                let mut verified = flow.verify_id_token(&provider.provider, &tokens, &keys, context.now)?;
                let lacking = verified.lacking(&provider.provider);
                if lacking != LackingClaims::None
                    && let (Some(endpoint), Some(token)) =
                        (&endpoints.userinfo_endpoint, &tokens.access_token)
                {
                    match app.providers.userinfo(provider, endpoint, token).await {
                        Ok(userinfo) => verified.add_userinfo(userinfo)?,
                        // A user without a name can sign in; rights must not be lost by a failed request.
                        Err(failure) if lacking == LackingClaims::Names => {
                            let provider = &flow.provider;
                            tracing::warn!(
                                provider,
                                ?failure,
                                "the userinfo endpoint of the provider failed, so that the name of the user is missing"
                            );
                        }
                        Err(failure) => return Err(failure),
                    }
                }
                verified.into_sign_in(&provider.provider)
            }
            _ => Err(ProviderFailure::Other("the provider answered with an error or without a code")),
        }
    };
    outcome.await.inspect_err(|failure| log_failure(&flow.provider, failure))
}

/// Result of a sign-in at a provider.
enum Admission {
    /// The person is signed in, or continues on the sign-in page.
    Answered(Response),
    /// The account may not sign in.
    Refused(AccountRefusal),
}

/// Checks the FHIR resource that the claims name, and logs what cannot be used.
async fn check_rights(
    context: &RequestContext,
    provider: &str,
    external: &mut ExternalUser,
) -> Result<(), StoreError> {
    for claim in &external.rights.omitted {
        tracing::warn!(
            provider,
            claim,
            "the provider sent a link in place of this claim, because it has too many values; the user has none of \
             its rights. Use roles, or limit the claim to the groups of this application"
        );
    }
    for claim in &external.rights.unverified {
        tracing::warn!(
            provider,
            claim,
            "a mapping names the value of this claim, but the provider does not say that it has verified it; the user \
             has none of its rights. Map a role or a group instead"
        );
    }
    let Some(reference) = external.rights.fhir_user.take() else { return Ok(()) };
    let local = references::local(&reference, &context.app.address.fhir_base);
    let patient = match local {
        Some((kind, id)) => match context.app.resources.read(kind, id).await {
            Ok(_) => Some(format!("{kind}/{id}")),
            Err(ResourceError::Store(error)) => return Err(error),
            Err(_) => None,
        },
        None => None,
    };
    if patient.is_none() {
        tracing::warn!(
            provider,
            fhir_user = reference,
            "the FHIR resource of a user does not exist here; it is not used"
        );
    }
    external.rights.fhir_user = patient;
    Ok(())
}

/// Signs in the linked user. An account that is not linked, and that the settings of the provider do not
/// admit, is stored until its owner has signed in here once.
async fn sign_in_external(
    context: &RequestContext,
    provider: &ConfiguredProvider,
    external: ExternalSignIn,
    flow: &ProviderSignIn,
    browser: &str,
) -> Result<Admission, UserError> {
    let identity = &context.app.identity;
    let rules = &provider.provider;
    let ExternalSignIn { user: mut external, auth_time } = external;
    check_rights(context, &rules.name, &mut external).await?;
    let onward = SignInDestination { back: flow.back.clone(), link: None };
    match identity.sign_in.admit_external_user(rules, &external, context.now).await? {
        LinkedUser::Active(user) => {
            let proof = SignInProof::provider(&rules.name, auth_time);
            let response = complete_sign_in(context, &user, &proof, &onward).await?;
            return Ok(Admission::Answered(response));
        }
        LinkedUser::Refused(refusal) => {
            let entry = identity.users.versioned_user(&refusal.sub, context.now).await?;
            let username = entry.as_ref().map(|entry| entry.user.username.as_str());
            let refused_user = RefusedUser { username, sub: &refusal.sub, reason: refusal.reason };
            let log = &context.app.logs.refusals;
            log.record_sign_in(&rules.name, &external.label(), &refused_user, context.now);
            return Ok(Admission::Refused(refusal));
        }
        LinkedUser::None => {}
    }
    let link = identity.sign_in.store_pending_link(&rules.name, external, browser, context.now).await?;
    let onward = SignInDestination { link: Some(link), ..onward };
    let to = format!("{}{}", context.app.address.base_url, onward.at("/sign-in"));
    Ok(Admission::Answered(reply::no_store(reply::redirect(StatusCode::FOUND, &to))))
}

/// Links the account to the user who started the linking, in the same session.
async fn link_account(
    context: &RequestContext,
    params: &Params,
    flow: &ProviderSignIn,
) -> Result<Response, Problem> {
    let identity = &context.app.identity;
    let signed_in = signed_in(context).await?;
    let Some((_, user)) = signed_in.filter(|(session, _)| flow.link_to.as_ref() == Some(&session.sid)) else {
        let text = "You have signed out since you started to link this account. Sign in and start again.";
        return Err(Problem::page(StatusCode::FORBIDDEN, text));
    };
    let settings = context.app.settings();
    let configured = settings.providers.iter().find(|configured| configured.provider.name == flow.provider);
    let Some(provider) = configured else {
        return Err(Problem::page(StatusCode::NOT_FOUND, "This provider is no longer available."));
    };
    let external = match external_user(context, params, provider, flow).await {
        Ok(external) => external.user,
        Err(ProviderFailure::Denied) => {
            return Err(Problem::page(
                StatusCode::FORBIDDEN,
                "You denied access at the provider. No account was linked.",
            ));
        }
        Err(_) => {
            let text =
                "The provider did not respond correctly. No account was linked; please try again later.";
            return Err(Problem::page(StatusCode::BAD_GATEWAY, text));
        }
    };
    identity.sign_in.link_account(&user, &provider.provider.name, &external, context.now).await?;
    let to = format!("{}/account?notice=linked", context.app.address.base_url);
    Ok(reply::no_store(reply::redirect(StatusCode::SEE_OTHER, &to)))
}
