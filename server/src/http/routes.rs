//! All routes of the server, one line each.
//!
//! The first segment of a path selects the table and the dialect of errors; the table selects the handler by path and
//! method. Unknown paths get 404, and unknown methods 405 with `Allow`. CORS preflights are answered here. A panic of
//! a handler becomes an error response, so that the connection stays open.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Method, StatusCode, header};
use hyper::body::Body as _;
use jiff::Timestamp;
use warp::Filter;
use warp::filters::BoxedFilter;

use super::extract::{self, RequestBody, RequestContext};
use super::listen::PeerAddress;
use super::peer::caller_address;
use super::problem::Dialect;
use super::reply::{self, Response};
use super::{admin, fhir, oauth, pages};
use crate::node::app::App;
use crate::records::audit::AuditCaller;

/// A boxed filter that answers every request.
pub type Routes = BoxedFilter<(Response,)>;

/// Maximum length of path and query, in bytes.
const LONGEST_TARGET: usize = 16 * 1024;

type HandlerFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A row of a table of routes.
pub struct Route {
    method: Method,
    /// The path; `{}` is a placeholder for one segment.
    path: &'static str,
    /// Number of segments.
    depth: usize,
    /// Scripts on the origins of clients may read the response.
    cors: bool,
    handler: fn(RequestContext) -> HandlerFuture,
}

macro_rules! routes {
    ($($method:ident $path:literal $($cors:ident)? => $handler:path;)*) => {
        &[$(Route {
            method: Method::$method,
            path: $path,
            depth: depth($path),
            cors: routes!(@cors $($cors)?),
            handler: |context| Box::pin($handler(context)),
        },)*]
    };
    (@cors) => { false };
    (@cors cors) => { true };
}

/// Returns the number of segments of a path.
const fn depth(path: &str) -> usize {
    let bytes = path.as_bytes();
    let (mut at, mut depth) = (0, 1);
    while at < bytes.len() {
        depth += (bytes[at] == b'/') as usize;
        at += 1;
    }
    depth
}

static OAUTH: &[Route] = routes! {
    GET  "oauth2/authorize" => oauth::authorize::authorize;
    GET  "oauth2/resume" => oauth::authorize::resume_request;
    POST "oauth2/par" => oauth::par::push_request;
    POST "oauth2/token" cors => oauth::token::issue_tokens;
    GET  "oauth2/userinfo" cors => oauth::userinfo::user_info;
    POST "oauth2/userinfo" cors => oauth::userinfo::user_info;
    GET  "oauth2/userInfo" cors => oauth::userinfo::user_info;
    POST "oauth2/userInfo" cors => oauth::userinfo::user_info;
    POST "oauth2/introspect" => oauth::introspect::introspect_token;
    POST "oauth2/revoke" => oauth::revoke::revoke_token;
    POST "oauth2/device_authorization" cors => oauth::device_authorization::authorize_device;
    GET  "oauth2/idpresponse/{}" => oauth::federation::provider_callback;
};

static WELL_KNOWN: &[Route] = routes! {
    GET ".well-known/openid-configuration" cors => oauth::discovery::openid_configuration;
    GET ".well-known/oauth-authorization-server" cors => oauth::discovery::openid_configuration;
    GET ".well-known/jwks.json" cors => oauth::discovery::key_set;
    GET ".well-known/oauth-protected-resource/fhir/R4" cors => oauth::discovery::protected_resource;
};

static ADMIN: &[Route] = routes! {
    GET    "admin/users" => admin::users::list_users;
    POST   "admin/users" => admin::users::create_user;
    GET    "admin/users/{}" => admin::users::read_user;
    PATCH  "admin/users/{}" => admin::users::change_user;
    DELETE "admin/users/{}" => admin::users::delete_user;
    PUT    "admin/users/{}/password" => admin::users::set_password;
    POST   "admin/users/{}/sign-out" => admin::users::sign_out_user;
    GET    "admin/users/{}/sessions" => admin::users::list_sessions;
    DELETE "admin/users/{}/sessions/{}" => admin::users::end_session;
    GET    "admin/users/{}/sign-in-methods" => admin::sign_in_methods::list_methods;
    DELETE "admin/users/{}/sign-in-methods" => admin::sign_in_methods::remove_all_methods;
    DELETE "admin/users/{}/passkeys/{}" => admin::sign_in_methods::remove_passkey;
    DELETE "admin/users/{}/recovery-codes" => admin::sign_in_methods::remove_recovery_codes;
    DELETE "admin/users/{}/linked-accounts/{}" => admin::sign_in_methods::remove_linked_account;
    GET    "admin/users/{}/consents" => admin::users::list_consents;
    DELETE "admin/users/{}/consents/{}" => admin::users::withdraw_consent;
    GET    "admin/clients" => admin::clients::list_clients;
    GET    "admin/clients/{}" => admin::clients::read_client;
};

static PAGES: &[Route] = routes! {
    GET  "" => pages::home::show_home;
    GET  "sign-in" => pages::sign_in::show_form;
    POST "sign-in" => pages::sign_in::submit_form;
    GET  "sign-in/with/{}" => oauth::federation::start_sign_in;
    GET  "consent" => pages::consent::show_question;
    POST "consent" => pages::consent::submit_answer;
    GET  "patient" => pages::patient::show_patients;
    POST "patient" => pages::patient::submit_choice;
    GET  "sign-out" => pages::sign_out::sign_out;
    POST "sign-out" => pages::sign_out::submit_form;
    GET  "logout" => pages::sign_out::sign_out;
    POST "logout" => pages::sign_out::submit_form;
    POST "passkey" => pages::passkey::complete_sign_in;
    POST "passkey/options" => pages::passkey::begin_sign_in;
    GET  "recovery" => pages::recovery::show_form;
    POST "recovery" => pages::recovery::submit_form;
    GET  "device" => pages::device::show_form;
    POST "device" => pages::device::submit_form;
    GET  "account" => pages::account::show_account;
    POST "account" => pages::account::sessions::sign_out_everywhere;
    POST "account/sessions/end" => pages::account::sessions::end_session;
    POST "account/passkeys" => pages::account::passkeys::add_passkey;
    POST "account/passkeys/options" => pages::account::passkeys::begin_registration;
    POST "account/passkeys/remove" => pages::account::passkeys::remove_passkey;
    POST "account/passkeys/ask" => pages::account::passkeys::require_passkey;
    POST "account/recovery-codes" => pages::account::passkeys::replace_recovery_codes;
    POST "account/password" => pages::account::password::change_password;
    POST "account/apps/remove" => pages::account::apps::withdraw_consent;
    POST "account/links" => pages::account::links::begin_link;
    POST "account/links/remove" => pages::account::links::remove_link;
    GET  "style.css" => pages::style_sheet;
    GET  "passkey.js" => pages::passkey::passkey_script;
    GET  "health/live" => pages::health::is_live;
    GET  "health/ready" => pages::health::is_ready;
};

static FHIR: &[Route] = routes! {
    GET    "fhir/R4/metadata" cors => fhir::metadata::read_metadata;
    GET    "fhir/R4/.well-known/smart-configuration" cors => oauth::discovery::smart_configuration;
    GET    "fhir/R4/$export" => fhir::export::export_system;
    POST   "fhir/R4/$export" => fhir::export::export_system;
    GET    "fhir/R4/Patient/$export" => fhir::export::export_patients;
    POST   "fhir/R4/Patient/$export" => fhir::export::export_patients;
    GET    "fhir/R4/Group/{}/$export" => fhir::export::export_group;
    POST   "fhir/R4/Group/{}/$export" => fhir::export::export_group;
    GET    "fhir/R4/bulk/{}" => fhir::export::export_status;
    DELETE "fhir/R4/bulk/{}" => fhir::export::delete_export;
    GET    "fhir/R4/bulk/{}/{}" => fhir::download::download_file;
    GET    "fhir/R4/ValueSet/$validate-code" => fhir::terminology::validate_code;
    POST   "fhir/R4/ValueSet/$validate-code" => fhir::terminology::validate_code;
    GET    "fhir/R4/ValueSet/{}/$validate-code" => fhir::terminology::validate_code;
    POST   "fhir/R4/ValueSet/{}/$validate-code" => fhir::terminology::validate_code;
    POST   "fhir/R4/ValueSet/$batch-validate-code" => fhir::terminology::batch_validate_code;
    GET    "fhir/R4/CodeSystem/$validate-code" => fhir::terminology::validate_code_in_system;
    POST   "fhir/R4/CodeSystem/$validate-code" => fhir::terminology::validate_code_in_system;
    GET    "fhir/R4/CodeSystem/{}/$validate-code" => fhir::terminology::validate_code_in_system;
    POST   "fhir/R4/CodeSystem/{}/$validate-code" => fhir::terminology::validate_code_in_system;
    GET    "fhir/R4/ValueSet/$expand" => fhir::terminology::expand;
    POST   "fhir/R4/ValueSet/$expand" => fhir::terminology::expand;
    GET    "fhir/R4/ValueSet/{}/$expand" => fhir::terminology::expand;
    POST   "fhir/R4/ValueSet/{}/$expand" => fhir::terminology::expand;
    GET    "fhir/R4/CodeSystem/$lookup" => fhir::terminology::lookup;
    POST   "fhir/R4/CodeSystem/$lookup" => fhir::terminology::lookup;
    GET    "fhir/R4/CodeSystem/$subsumes" => fhir::terminology::subsumes;
    POST   "fhir/R4/CodeSystem/$subsumes" => fhir::terminology::subsumes;
    GET    "fhir/R4/CodeSystem/{}/$subsumes" => fhir::terminology::subsumes;
    POST   "fhir/R4/CodeSystem/{}/$subsumes" => fhir::terminology::subsumes;
    POST   "fhir/R4" => fhir::bundle::execute_bundle;
    GET    "fhir/R4/{}" => fhir::search::search_by_get;
    POST   "fhir/R4/{}" => fhir::resource::create_resource;
    PUT    "fhir/R4/{}" => fhir::resource::conditional_update;
    DELETE "fhir/R4/{}" => fhir::resource::conditional_delete;
    POST   "fhir/R4/{}/_search" => fhir::search::search_by_post;
    GET    "fhir/R4/{}/{}" => fhir::resource::read_resource;
    PUT    "fhir/R4/{}/{}" => fhir::resource::update_resource;
    DELETE "fhir/R4/{}/{}" => fhir::resource::delete_resource;
    GET    "fhir/R4/{}/{}/_history" => fhir::search::instance_history;
    GET    "fhir/R4/{}/{}/_history/{}" => fhir::resource::read_version;
};

/// Returns the table of a path, by its first segment, and the dialect of its errors.
fn table(path: &str) -> (&'static [Route], Dialect) {
    match path.strip_prefix('/').and_then(|path| path.split('/').next()) {
        Some("oauth2") => (OAUTH, Dialect::OAuth),
        Some("fhir") => (FHIR, Dialect::Fhir),
        Some(".well-known") => (WELL_KNOWN, Dialect::OAuth),
        Some("admin") => (ADMIN, Dialect::OAuth),
        _ => (PAGES, Dialect::Page),
    }
}

/// Returns the dialect of errors at a path.
pub fn dialect(path: &str) -> Dialect {
    table(path).1
}

/// Builds a single filter that accepts everything and looks the path up in a table: a chain of filters would be
/// slower.
pub fn routes(app: Arc<App>) -> Routes {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned())
        .and(warp::ext::optional::<PeerAddress>())
        .and(warp::body::stream())
        .then(
            move |method,
                  path: warp::path::FullPath,
                  query,
                  headers: HeaderMap,
                  peer: Option<PeerAddress>,
                  body| {
                let settings = app.settings();
                let client_address =
                    peer.map(|peer| caller_address(&settings.trusted_proxies, peer.0.ip(), &headers));
                let body_bytes = app.bodies.reservation(client_address);
                let body = Mutex::new(RequestBody::new(&headers, extract::body_stream(body)));
                let context = RequestContext {
                    now: app.clock.now(),
                    app: app.clone(),
                    method,
                    path: path.as_str().to_owned(),
                    args: Vec::new(),
                    query,
                    headers,
                    body,
                    body_bytes,
                    client_address,
                    request_id: app.request_ids.next(),
                };
                let (table, dialect) = table(path.as_str());
                answer(context, table, dialect)
            },
        )
        .boxed()
}

async fn answer(context: RequestContext, table: &'static [Route], dialect: Dialect) -> Response {
    // The time is measured only if it is logged.
    let started = tracing::enabled!(tracing::Level::INFO).then(Instant::now);
    let (app, now) = (context.app.clone(), context.now);
    let (method, path, request_id) =
        (context.method.clone(), context.path.clone(), context.request_id.clone());
    let is_head = method == Method::HEAD;
    let origin = context.header(header::ORIGIN).map(str::to_owned);
    let caller = AuditCaller::of_request(context.client_address, context.request_id.clone());
    let ((mut response, cors), recorded) =
        app.audit.on_behalf(caller, dispatch(context, table, dialect)).await;
    if let Err(error) = recorded {
        response = dialect.plain_error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
    }
    // The query is not logged, because it contains codes, tokens and states.
    if let Some(started) = started {
        let (status, took_us) = (response.status().as_u16(), started.elapsed().as_micros());
        tracing::info!(%method, path, status, took_us, %request_id, "request");
    }
    if cors {
        response = with_cors(&app, response, origin.as_deref(), now).await;
    }
    let response = if is_head { without_body(response) } else { response };
    finish(&app, response, &request_id, dialect)
}

/// Returns the response to HEAD: with `Content-Length` and without the body. Over HTTP/2 hyper would send the body,
/// and clients would close the connection.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(length @ 1..) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Bytes::new().into())
}

async fn dispatch(
    mut context: RequestContext,
    table: &'static [Route],
    dialect: Dialect,
) -> (Response, bool) {
    if context.path.len() + context.query.len() > LONGEST_TARGET {
        let text = format!("the request target is longer than {LONGEST_TARGET} bytes");
        return (dialect.plain_error(StatusCode::URI_TOO_LONG, &text), false);
    }
    let first = match find(table, &context.path) {
        Ok((first, args)) => {
            context.args = args;
            first
        }
        Err(NotFound::NotUtf8) => {
            let text = "the path is not UTF-8 after percent-decoding";
            return (dialect.plain_error(StatusCode::BAD_REQUEST, text), false);
        }
        Err(NotFound::Nothing) => {
            let text = format!("no resource is served at {}", printable(&context.path));
            return (dialect.plain_error(StatusCode::NOT_FOUND, &text), false);
        }
    };
    let same_path = || table.iter().filter(|route| route.depth == first.depth && route.path == first.path);
    if first.cors && context.method == Method::OPTIONS {
        return (preflight(same_path()), true);
    }
    // HEAD is GET without the body of the response.
    let as_get = context.method == Method::HEAD && may_head(first);
    let wanted = if as_get { &Method::GET } else { &context.method };
    let Some(route) = same_path().find(|route| route.method == *wanted) else {
        let allow = allow(same_path());
        let text = format!("{} is not supported here; use {allow}", printable(context.method.as_str()));
        let response = dialect.plain_error(StatusCode::METHOD_NOT_ALLOWED, &text);
        return (reply::with(response, header::ALLOW, &allow), false);
    };
    let answered = AssertUnwindSafe((route.handler)(context)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| {
        tracing::error!(path = route.path, "a handler panicked");
        dialect.plain_error(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal error; the server's log has the details",
        )
    });
    (response, route.cors)
}

/// An error of a path without a route.
enum NotFound {
    NotUtf8,
    Nothing,
}

/// Returns the first route that matches a path, and the values of its placeholders. Literal segments precede
/// placeholders in the tables.
fn find<'r>(table: &'r [Route], path: &str) -> Result<(&'r Route, Vec<String>), NotFound> {
    // Most paths equal a literal path, and comparing it is faster than comparing segments.
    let literal = path.strip_prefix('/').filter(|path| !path.contains('{'));
    if let Some(route) = literal.and_then(|path| table.iter().find(|route| route.path == path)) {
        return Ok((route, Vec::new()));
    }
    let segments = extract::segments(path).ok_or(NotFound::NotUtf8)?;
    let route = table.iter().find(|route| route.fits(&segments)).ok_or(NotFound::Nothing)?;
    Ok((route, route.args(&segments)))
}

impl Route {
    /// Returns whether the pattern matches a path. The last segment is compared first, because it differs most. An
    /// operation never matches a placeholder.
    fn fits(&self, segments: &[Cow<'_, str>]) -> bool {
        self.depth == segments.len()
            // Most patterns differ at the end, and comparing it is faster than comparing segments.
            && (self.path.ends_with('}') || segments.last().is_some_and(|last| self.path.ends_with(&**last)))
            && self.path.rsplit('/').zip(segments.iter().rev()).all(|(part, segment)| match part {
                "{}" => !segment.is_empty() && !segment.starts_with('$'),
                part => part == segment,
            })
    }

    /// Returns the values of the placeholders.
    fn args(&self, segments: &[Cow<'_, str>]) -> Vec<String> {
        let parts = self.path.split('/').zip(segments);
        parts.filter(|(part, _)| *part == "{}").map(|(_, segment)| segment.to_string()).collect()
    }
}

/// Returns whether HEAD is allowed. It must not change anything (RFC 9110 section 9.2.1), and GET of these paths
/// creates a code or an export.
fn may_head(route: &Route) -> bool {
    route.path != "oauth2/authorize" && !route.path.ends_with("$export")
}

fn allow<'a>(routes: impl Iterator<Item = &'a Route>) -> String {
    let mut methods = Vec::new();
    let mut head = false;
    for route in routes {
        methods.push(route.method.as_str());
        head |= route.method == Method::GET && may_head(route);
    }
    if head {
        methods.push("HEAD");
    }
    methods.join(", ")
}

fn preflight<'a>(routes: impl Iterator<Item = &'a Route>) -> Response {
    let response = reply::empty(StatusCode::NO_CONTENT);
    let response = reply::with(response, header::ACCESS_CONTROL_ALLOW_METHODS, &allow(routes));
    let response = reply::with(
        response,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Authorization, Content-Type, Accept, DPoP",
    );
    reply::with(response, header::ACCESS_CONTROL_MAX_AGE, "600")
}

/// Allows scripts on the origins of clients to read the response, never with credentials. `Vary` is also sent without
/// an origin, because a cache must not return that response to a script.
async fn with_cors(app: &App, response: Response, origin: Option<&str>, now: Timestamp) -> Response {
    let response = reply::with_static(response, header::VARY, "Origin");
    let Some(origin) = origin else { return response };
    match app.origins.contains(origin, &app.identity, now).await {
        Ok(true) => reply::with(response, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        Ok(false) => response,
        Err(error) => {
            tracing::error!(%error, "failed to read the clients for a cross-origin request");
            response
        }
    }
}

/// Adds the headers of every response.
fn finish(app: &App, response: Response, request_id: &str, dialect: Dialect) -> Response {
    let response = reply::with(response, http::HeaderName::from_static("x-request-id"), request_id);
    let response = reply::with_static(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    let response = if app.is_loopback {
        response
    } else {
        reply::with_static(response, header::STRICT_TRANSPORT_SECURITY, "max-age=31536000")
    };
    // OAuth endpoints respond with pages, too.
    let is_page = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == reply::HTML);
    if is_page || dialect == Dialect::Page { pages::with_page_headers(response) } else { response }
}

/// Shortens a text of the request for a response, and removes control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &[Route], path: &str, pattern: Option<&str>) {
        assert_eq!(find(table, path).ok().map(|(route, _)| route.path), pattern, "{path}");
    }

    #[test]
    fn operations_are_found_before_ids() {
        check(FHIR, "/fhir/R4/$export", Some("fhir/R4/$export"));
        check(FHIR, "/fhir/R4/%24export", Some("fhir/R4/$export"));
        check(FHIR, "/fhir/R4/ValueSet/$validate-code", Some("fhir/R4/ValueSet/$validate-code"));
        check(FHIR, "/fhir/R4/ValueSet/a/$validate-code", Some("fhir/R4/ValueSet/{}/$validate-code"));
        check(FHIR, "/fhir/R4/ValueSet/$unknown", None);
        check(FHIR, "/fhir/R4/Patient/p1", Some("fhir/R4/{}/{}"));
        check(FHIR, "/fhir/R4/Patient/", None);
        check(FHIR, "/fhir/R4/{}/$export", None);
        check(FHIR, "/fhir/R4/../admin", Some("fhir/R4/{}/{}"));
        check(FHIR, "/fhir/R4/metadata/", None);
        check(PAGES, "/", Some(""));
    }

    #[test]
    fn no_route_is_repeated() {
        for table in [OAUTH, WELL_KNOWN, ADMIN, PAGES, FHIR] {
            for (at, route) in table.iter().enumerate() {
                assert!(
                    table[..at].iter().all(|other| other.path != route.path || other.method != route.method)
                );
            }
        }
    }
}
