//! Every route of the server, one line each. No bodies of handlers.
//!
//! The first segment of a path picks the table and the dialect of errors; the table picks the handler by path and
//! method. What is missing there is answered 404, or 405 with `Allow`; CORS preflights are answered here, and a
//! panic becomes an error in the table's dialect, so that no connection is ever dropped.

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

use super::extract::{self, Body, Call};
use super::listen::Peer;
use super::problem::Dialect;
use super::reply::{self, Response};
use super::{admin, fhir, oauth, pages};
use crate::app::App;
use crate::audit::Caller;

/// The whole tree: a boxed filter that extracts one response.
pub type Routes = BoxedFilter<(Response,)>;

/// Longest request target that is looked at, in bytes.
const LONGEST_TARGET: usize = 16 * 1024;

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// One line of a table.
pub struct Route {
    method: Method,
    /// Segments; `{}` stands for any one.
    path: &'static str,
    /// How many segments.
    depth: usize,
    /// May scripts of the clients' own origins read the answer?
    cors: bool,
    handler: fn(Call) -> Answer,
}

macro_rules! routes {
    ($($method:ident $path:literal $($cors:ident)? => $handler:path;)*) => {
        &[$(Route {
            method: Method::$method,
            path: $path,
            depth: depth($path),
            cors: routes!(@cors $($cors)?),
            handler: |call| Box::pin($handler(call)),
        },)*]
    };
    (@cors) => { false };
    (@cors cors) => { true };
}

/// Number of segments of a path.
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
    GET  "oauth2/authorize" => oauth::authorize::get;
    GET  "oauth2/resume" => oauth::authorize::resume;
    POST "oauth2/par" => oauth::par::post;
    POST "oauth2/token" cors => oauth::token::post;
    GET  "oauth2/userinfo" cors => oauth::userinfo::answer;
    POST "oauth2/userinfo" cors => oauth::userinfo::answer;
    GET  "oauth2/userInfo" cors => oauth::userinfo::answer;
    POST "oauth2/userInfo" cors => oauth::userinfo::answer;
    POST "oauth2/introspect" => oauth::introspect::post;
    POST "oauth2/revoke" => oauth::revoke::post;
    POST "oauth2/device_authorization" cors => oauth::device_authorization::post;
    GET  "oauth2/idpresponse/{}" => oauth::federation::callback;
};

static WELL_KNOWN: &[Route] = routes! {
    GET ".well-known/openid-configuration" cors => oauth::discovery::openid_configuration;
    GET ".well-known/oauth-authorization-server" cors => oauth::discovery::openid_configuration;
    GET ".well-known/jwks.json" cors => oauth::discovery::jwks;
    GET ".well-known/oauth-protected-resource/fhir/R4" cors => oauth::discovery::protected_resource;
};

static ADMIN: &[Route] = routes! {
    GET    "admin/users" => admin::users::list;
    POST   "admin/users" => admin::users::create;
    GET    "admin/users/{}" => admin::users::read;
    PATCH  "admin/users/{}" => admin::users::change;
    DELETE "admin/users/{}" => admin::users::delete;
    PUT    "admin/users/{}/password" => admin::users::set_password;
    POST   "admin/users/{}/sign-out" => admin::users::sign_out;
    GET    "admin/users/{}/sessions" => admin::users::sessions;
    DELETE "admin/users/{}/sessions/{}" => admin::users::end_session;
    GET    "admin/users/{}/sign-in-methods" => admin::sign_in_methods::list;
    DELETE "admin/users/{}/sign-in-methods" => admin::sign_in_methods::remove_all;
    DELETE "admin/users/{}/passkeys/{}" => admin::sign_in_methods::remove_passkey;
    DELETE "admin/users/{}/recovery-codes" => admin::sign_in_methods::remove_recovery_codes;
    DELETE "admin/users/{}/linked-accounts/{}" => admin::sign_in_methods::remove_linked_account;
    GET    "admin/users/{}/consents" => admin::users::consents;
    DELETE "admin/users/{}/consents/{}" => admin::users::withdraw;
    GET    "admin/clients" => admin::clients::list;
    GET    "admin/clients/{}" => admin::clients::read;
};

static PAGES: &[Route] = routes! {
    GET  "" => pages::home::get;
    GET  "sign-in" => pages::sign_in::get;
    POST "sign-in" => pages::sign_in::post;
    GET  "sign-in/with/{}" => oauth::federation::start;
    GET  "consent" => pages::consent::get;
    POST "consent" => pages::consent::post;
    GET  "patient" => pages::patient::get;
    POST "patient" => pages::patient::post;
    GET  "sign-out" => pages::sign_out::get;
    POST "sign-out" => pages::sign_out::post;
    GET  "logout" => pages::sign_out::get;
    POST "logout" => pages::sign_out::post;
    POST "passkey" => pages::passkey::post;
    POST "passkey/options" => pages::passkey::options;
    GET  "recovery" => pages::recovery::get;
    POST "recovery" => pages::recovery::post;
    GET  "device" => pages::device::get;
    POST "device" => pages::device::post;
    GET  "account" => pages::account::get;
    POST "account" => pages::account::sessions::everywhere;
    POST "account/sessions/end" => pages::account::sessions::end;
    POST "account/passkeys" => pages::account::passkeys::add;
    POST "account/passkeys/options" => pages::account::passkeys::options;
    POST "account/passkeys/remove" => pages::account::passkeys::remove;
    POST "account/passkeys/ask" => pages::account::passkeys::ask;
    POST "account/recovery-codes" => pages::account::passkeys::recovery_codes;
    POST "account/password" => pages::account::password::change;
    POST "account/apps/remove" => pages::account::apps::remove;
    POST "account/links" => pages::account::links::begin;
    POST "account/links/remove" => pages::account::links::remove;
    GET  "style.css" => pages::style;
    GET  "passkey.js" => pages::passkey::script;
    GET  "health/live" => pages::health::live;
    GET  "health/ready" => pages::health::ready;
};

static FHIR: &[Route] = routes! {
    GET    "fhir/R4/metadata" cors => fhir::metadata::get;
    GET    "fhir/R4/.well-known/smart-configuration" cors => oauth::discovery::smart_configuration;
    GET    "fhir/R4/$export" => fhir::export::system;
    POST   "fhir/R4/$export" => fhir::export::system;
    GET    "fhir/R4/Patient/$export" => fhir::export::patient;
    POST   "fhir/R4/Patient/$export" => fhir::export::patient;
    GET    "fhir/R4/Group/{}/$export" => fhir::export::group;
    POST   "fhir/R4/Group/{}/$export" => fhir::export::group;
    GET    "fhir/R4/bulk/{}" => fhir::export::status;
    DELETE "fhir/R4/bulk/{}" => fhir::export::delete;
    GET    "fhir/R4/bulk/{}/{}" => fhir::download::get;
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
    POST   "fhir/R4" => fhir::bundle::post;
    GET    "fhir/R4/{}" => fhir::search::get;
    POST   "fhir/R4/{}" => fhir::resource::create;
    PUT    "fhir/R4/{}" => fhir::resource::conditional_update;
    DELETE "fhir/R4/{}" => fhir::resource::conditional_delete;
    POST   "fhir/R4/{}/_search" => fhir::search::post;
    GET    "fhir/R4/{}/{}" => fhir::resource::read;
    PUT    "fhir/R4/{}/{}" => fhir::resource::update;
    DELETE "fhir/R4/{}/{}" => fhir::resource::delete;
    GET    "fhir/R4/{}/{}/_history" => fhir::search::history;
    GET    "fhir/R4/{}/{}/_history/{}" => fhir::resource::read_version;
};

/// The table that a path belongs to, by its first segment, and the dialect of its errors.
fn table(path: &str) -> (&'static [Route], Dialect) {
    match path.strip_prefix('/').and_then(|path| path.split('/').next()) {
        Some("oauth2") => (OAUTH, Dialect::OAuth),
        Some("fhir") => (FHIR, Dialect::Fhir),
        Some(".well-known") => (WELL_KNOWN, Dialect::OAuth),
        Some("admin") => (ADMIN, Dialect::OAuth),
        _ => (PAGES, Dialect::Page),
    }
}

/// The dialect of errors at a path.
pub fn dialect(path: &str) -> Dialect {
    table(path).1
}

/// Builds the tree: one filter that takes in everything, since each filter that has to pass a request on costs
/// more than a look into a table.
pub fn routes(app: Arc<App>) -> Routes {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::header::headers_cloned())
        .and(warp::ext::optional::<Peer>())
        .and(warp::body::stream())
        .then(
            move |method, path: warp::path::FullPath, query, headers: HeaderMap, peer: Option<Peer>, body| {
                let settings = app.settings();
                let client_ip = peer.map(|peer| settings.trusted_proxies.client_ip(peer.0.ip(), &headers));
                let body_bytes = app.bodies.reservation(client_ip);
                let body = Mutex::new(Body::new(&headers, extract::body_stream(body)));
                let call = Call {
                    now: app.clock.now(),
                    app: app.clone(),
                    method,
                    path: path.as_str().to_owned(),
                    args: Vec::new(),
                    query,
                    headers,
                    body,
                    body_bytes,
                    client_ip,
                    request_id: app.request_ids.next(),
                };
                let (table, dialect) = table(path.as_str());
                answer(call, table, dialect)
            },
        )
        .boxed()
}

async fn answer(call: Call, table: &'static [Route], dialect: Dialect) -> Response {
    // The clock is read only for a log that is written.
    let started = tracing::enabled!(tracing::Level::INFO).then(Instant::now);
    let (app, now) = (call.app.clone(), call.now);
    let (method, path, request_id) = (call.method.clone(), call.path.clone(), call.request_id.clone());
    let is_head = method == Method::HEAD;
    let origin = call.header(header::ORIGIN).map(str::to_owned);
    let caller = Caller::of_request(call.client_ip, call.request_id.clone());
    let ((mut response, cors), recorded) = app.audit.on_behalf(caller, dispatch(call, table, dialect)).await;
    if let Err(error) = recorded {
        response = dialect.plain(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
    }
    // The query is left out: it carries codes, tokens and states.
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

/// The answer to HEAD: the length is told, the body stays here. Over HTTP/2 hyper would send it, and
/// clients break the connection off.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(length @ 1..) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Bytes::new().into())
}

async fn dispatch(mut call: Call, table: &'static [Route], dialect: Dialect) -> (Response, bool) {
    if call.path.len() + call.query.len() > LONGEST_TARGET {
        let text = format!("the address is longer than {LONGEST_TARGET} bytes");
        return (dialect.plain(StatusCode::URI_TOO_LONG, &text), false);
    }
    let first = match find(table, &call.path) {
        Ok((first, args)) => {
            call.args = args;
            first
        }
        Err(NotFound::NotUtf8) => {
            let text = "the path is not UTF-8 after percent-decoding";
            return (dialect.plain(StatusCode::BAD_REQUEST, text), false);
        }
        Err(NotFound::Nothing) => {
            let text = format!("there is nothing at {}", printable(&call.path));
            return (dialect.plain(StatusCode::NOT_FOUND, &text), false);
        }
    };
    let same_path = || table.iter().filter(|route| route.depth == first.depth && route.path == first.path);
    if first.cors && call.method == Method::OPTIONS {
        return (preflight(same_path()), true);
    }
    // HEAD is GET whose body is left out of the answer.
    let as_get = call.method == Method::HEAD && may_head(first);
    let wanted = if as_get { &Method::GET } else { &call.method };
    let Some(route) = same_path().find(|route| route.method == *wanted) else {
        let allow = allow(same_path());
        let text = format!("{} is not possible here; use {allow}", printable(call.method.as_str()));
        let response = dialect.plain(StatusCode::METHOD_NOT_ALLOWED, &text);
        return (reply::with(response, header::ALLOW, &allow), false);
    };
    let answered = AssertUnwindSafe((route.handler)(call)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| {
        tracing::error!(path = route.path, "a handler panicked");
        dialect.plain(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why")
    });
    (response, route.cors)
}

/// Why a path leads nowhere.
enum NotFound {
    NotUtf8,
    Nothing,
}

/// The first route whose pattern fits a path names the resource, and the values of its placeholders. Literals stand
/// before placeholders.
fn find<'r>(table: &'r [Route], path: &str) -> Result<(&'r Route, Vec<String>), NotFound> {
    // Most paths are written as the table has them, which costs less to see than their segments.
    let literal = path.strip_prefix('/').filter(|path| !path.contains('{'));
    if let Some(route) = literal.and_then(|path| table.iter().find(|route| route.path == path)) {
        return Ok((route, Vec::new()));
    }
    let segments = extract::segments(path).ok_or(NotFound::NotUtf8)?;
    let route = table.iter().find(|route| route.fits(&segments)).ok_or(NotFound::Nothing)?;
    Ok((route, route.args(&segments)))
}

impl Route {
    /// Does the pattern fit a path? The last segment first, since it differs most; an operation is never taken for
    /// an id.
    fn fits(&self, segments: &[Cow<'_, str>]) -> bool {
        self.depth == segments.len()
            // Most patterns are out by their end, which costs less to see than their parts.
            && (self.path.ends_with('}') || segments.last().is_some_and(|last| self.path.ends_with(&**last)))
            && self.path.rsplit('/').zip(segments.iter().rev()).all(|(part, segment)| match part {
                "{}" => !segment.is_empty() && !segment.starts_with('$'),
                part => part == segment,
            })
    }

    /// The values of the placeholders, where the pattern fits.
    fn args(&self, segments: &[Cow<'_, str>]) -> Vec<String> {
        let parts = self.path.split('/').zip(segments);
        parts.filter(|(part, _)| *part == "{}").map(|(_, segment)| segment.to_string()).collect()
    }
}

/// HEAD must change nothing (RFC 9110 9.2.1); these begin something by GET: a code, an export.
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

/// Lets scripts of the clients' own origins read the answer; never with credentials. `Vary` stands there
/// without an origin too: a cache must not give that answer to a script.
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

/// Headers of every answer.
fn finish(app: &App, response: Response, request_id: &str, dialect: Dialect) -> Response {
    let response = reply::with(response, http::HeaderName::from_static("x-request-id"), request_id);
    let response = reply::with_static(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    let response = if app.is_loopback {
        response
    } else {
        reply::with_static(response, header::STRICT_TRANSPORT_SECURITY, "max-age=31536000")
    };
    // The OAuth endpoints show pages too.
    let is_page = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == reply::HTML);
    if is_page || dialect == Dialect::Page { pages::with_page_headers(response) } else { response }
}

/// Text of the request that is repeated in an answer: short and without control characters.
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
    fn no_route_stands_twice() {
        for table in [OAUTH, WELL_KNOWN, ADMIN, PAGES, FHIR] {
            for (at, route) in table.iter().enumerate() {
                assert!(
                    table[..at].iter().all(|other| other.path != route.path || other.method != route.method)
                );
            }
        }
    }
}
