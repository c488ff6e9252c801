//! Cross-origin resource sharing: which scripts may read a response.

use http::{StatusCode, header};
use jiff::Timestamp;

use super::reply::{self, Response};
use crate::node::app::App;

/// The origins whose scripts may read a response. Credentials of the browser are never allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorsPolicy {
    /// Only the origin of this server.
    SameOrigin,
    /// The origins of the clients' redirect URIs.
    ClientOrigins,
    /// Every origin.
    AnyOrigin,
}

/// Headers that scripts may send, beside those that they may always send. The last ones are those of tracing
/// and of HTTP libraries, which add them to each request; the server ignores them.
const ALLOWED_HEADERS: &str = "Authorization, Content-Type, Accept, DPoP, If-Match, If-None-Match, If-None-Exist, Prefer, Range, If-Range, X-Security-Context, traceparent, tracestate, baggage, sentry-trace, X-Requested-With";

/// The response to a preflight request.
pub fn preflight(allow: &str) -> Response {
    let response = reply::empty(StatusCode::NO_CONTENT);
    let response = reply::with(response, header::ACCESS_CONTROL_ALLOW_METHODS, allow);
    let response = reply::with(response, header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS);
    reply::with(response, header::ACCESS_CONTROL_MAX_AGE, "600")
}

/// Headers that scripts may read, beside those that they may always read.
const EXPOSED_HEADERS: &str = "ETag, Location, Content-Location, Retry-After, X-Progress, WWW-Authenticate, X-Request-Id, Accept-Ranges, Content-Range, Content-Disposition, X-Security-Context";

/// Lets scripts read the response as the policy says. `Vary` is also sent without an origin, because a cache
/// must not return that response to a script.
pub async fn with_cors(
    app: &App,
    response: Response,
    policy: CorsPolicy,
    origin: Option<&str>,
    now: Timestamp,
) -> Response {
    let response = match policy {
        CorsPolicy::SameOrigin => return response,
        CorsPolicy::AnyOrigin => reply::with_static(response, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        CorsPolicy::ClientOrigins => {
            let response = reply::with_static(response, header::VARY, "Origin");
            let Some(origin) = origin else { return response };
            match app.client_overview.has_origin(origin, &app.identity, now).await {
                Ok(true) => reply::with(response, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
                Ok(false) => return response,
                Err(error) => {
                    tracing::error!(%error, "failed to read the clients for a cross-origin request");
                    return response;
                }
            }
        }
    };
    reply::with_static(response, header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS)
}
