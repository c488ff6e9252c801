//! Answers each request with the handler of its route.
//!
//! Unknown paths get 404, and unknown methods 405 with `Allow`. CORS preflights are answered here. A
//! [`Problem`](super::problem::Problem) of a handler is rendered in the dialect of the route. A panic of a
//! handler becomes an error response, so that the connection stays open. A request that may write is
//! completed even if its client disconnects.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use hyper::body::Body as _;
use percent_encoding::percent_decode_str;
use store::CpuBudget;
use warp::Filter;
use warp::filters::BoxedFilter;

use super::browser_cookies::BrowserCookies;
use super::cors::{self, CorsPolicy};
use super::extract::{self, RequestBody, RequestContext};
use super::pages;
use super::pages::page_request::PageRequest;
use super::path_parameters::PathParameters;
use super::peer::{RequestHead, caller_address};
use super::problem::Dialect;
use super::reply::{self, Response};
use super::routes::{self, Route, RouteFlag, RoutedRequest};
use crate::clock::thread_cpu_time;
use crate::node::app::App;
use crate::node::byte_budget::BudgetOwner;
use crate::records::audit::{self, AuditCaller};
use crate::records::request_log::RequestLine;
use crate::records::traces::EndedRequest;

/// A boxed filter that answers every request.
pub type Routes = BoxedFilter<(Response,)>;

/// The header of pages that share no window with other origins (HTML, cross-origin opener policies).
const COOP: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Maximum length of path and query, in bytes.
const LONGEST_TARGET: usize = 16 * 1024;

/// The routes of a path, each with its position in [`routes::all`].
struct PathRoutes(Vec<(usize, &'static Route)>);

impl PathRoutes {
    fn has(&self, flag: RouteFlag) -> bool {
        self.0.iter().any(|(_, route)| route.has(flag))
    }

    /// The route of a method. HEAD is GET without the body of the response.
    fn method(&self, method: &Method) -> Option<&'static Route> {
        self.numbered(method).map(|(_, route)| route)
    }

    /// The route of a method with its position in [`routes::all`].
    fn numbered(&self, method: &Method) -> Option<(usize, &'static Route)> {
        let fits = |(_, route): &&(usize, &'static Route)| {
            route.method == *method || *method == Method::HEAD && route.allows_head()
        };
        self.0.iter().find(fits).copied()
    }

    /// Returns which scripts may read the responses of this path.
    fn cors(&self) -> CorsPolicy {
        if self.has(RouteFlag::AnyOrigin) {
            CorsPolicy::AnyOrigin
        } else if self.has(RouteFlag::Cors) {
            CorsPolicy::ClientOrigins
        } else {
            CorsPolicy::SameOrigin
        }
    }

    fn allow(&self) -> String {
        let mut methods: Vec<_> = self.0.iter().map(|(_, route)| route.method.as_str()).collect();
        if self.0.iter().any(|(_, route)| route.allows_head()) {
            methods.push("HEAD");
        }
        methods.join(", ")
    }
}

/// All paths. A path with a placeholder is matched only if no literal path is.
static PATHS: LazyLock<matchit::Router<PathRoutes>> = LazyLock::new(|| {
    let mut paths: Vec<(&str, PathRoutes)> = Vec::new();
    for numbered in routes::all().enumerate() {
        let (_, route) = numbered;
        match paths.iter_mut().find(|(path, _)| *path == route.path) {
            Some((_, same)) => same.0.push(numbered),
            None => paths.push((&route.path, PathRoutes(vec![numbered]))),
        }
    }
    let mut router = matchit::Router::new();
    for (path, routes) in paths {
        router.insert(format!("/{path}"), routes).expect("no two paths of the tables are ambiguous");
    }
    router
});

static ROUTES: LazyLock<usize> = LazyLock::new(|| routes::all().count());

/// Builds a single filter that accepts everything and looks the path up in the tables: a chain of filters
/// would be slower.
pub fn routes(app: Arc<App>) -> Routes {
    warp::ext::get::<RequestHead>()
        .and(warp::body::stream())
        .then(move |head: RequestHead, stream| {
            let RequestHead { peer, method, uri, headers } = head;
            let client_address = caller_address(&app.settings().trusted_proxies, peer.ip(), &headers);
            let reservation = app.capacity.bodies.reservation(BudgetOwner::Address(Some(client_address)));
            let body = RequestBody::new(&headers, extract::body_stream(stream), reservation);
            let matched = find(uri.path());
            // A write that has begun must not be cancelled halfway because its client disconnects.
            let must_complete = matched
                .as_ref()
                .is_ok_and(|(routes, _)| routes.method(&method).is_some_and(|route| !route.only_reads()));
            let context = Arc::new(RequestContext {
                now: app.clock.now(),
                app: app.clone(),
                method,
                path: uri.path().to_owned(),
                query: uri.query().unwrap_or_default().to_owned(),
                cookies: BrowserCookies::read(&headers, app.address.is_https),
                headers,
                client_address: Some(client_address),
                request_id: app.request_ids.next(),
            });
            let app = app.clone();
            // Boxed, because the filters above copy their futures.
            let answering = Box::pin(answer(context, body, matched));
            async move {
                match must_complete {
                    true => app.capacity.abandoned.run_to_end(answering).await,
                    false => answering.await,
                }
            }
        })
        .boxed()
}

async fn answer(context: Arc<RequestContext>, body: RequestBody, routes: FoundRoutes) -> Response {
    let started = Instant::now();
    let route = routes.as_ref().ok().and_then(|(routes, _)| routes.numbered(&context.method));
    let (app, now, address) = (&context.app, context.now, context.client_address);
    let trace = app.logs.traces.begin(&context.headers, &*app.clock.random);
    let caller = AuditCaller::of_request(address, context.request_id.clone()).traced(trace);
    // Pinned here, because each function that takes a future by value needs its memory again.
    let dispatched = pin!(async {
        let response = dispatch_with_language(context.clone(), body, routes).await;
        (response, audit::is_authenticated(), audit::client_id())
    });
    let ((Answer { mut response, cors, dialect }, is_authenticated, client), recorded) =
        app.logs.audit.on_behalf(caller, dispatched).await;
    if let Err(error) = recorded {
        response = dialect.plain_error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string());
    }
    let (status, took) = (response.status().as_u16(), started.elapsed());
    let series = app.logs.metrics.series(*ROUTES);
    series[route.map_or(*ROUTES, |(index, _)| index)].count(status, took);
    let line = RequestLine {
        method: &context.method,
        path: &context.path,
        status,
        took,
        request_id: &context.request_id,
        address,
        client: client.as_deref(),
        trace,
    };
    app.logs.requests.log(&line, is_authenticated, now);
    if let Some(trace) = trace {
        app.logs.traces.end(&EndedRequest {
            context: trace,
            method: context.method.as_str(),
            route: route.map(|(_, route)| &*route.path),
            status,
            began: now,
            took,
            request_id: &context.request_id,
            address,
            client: client.as_deref(),
        });
    }
    if dialect == Dialect::Fhir && response.status() == StatusCode::UNAUTHORIZED {
        response = with_resource_metadata(response, &app.address.base_url);
    }
    response = cors::with_cors(app, response, cors, context.header(header::ORIGIN), now).await;
    let response = if context.method == Method::HEAD { without_body(response) } else { response };
    finish(app, response, &context.request_id, dialect)
}

/// Adds to a challenge where the authorization server of the FHIR interface is described (RFC 9728 section
/// 5.1).
fn with_resource_metadata(mut response: Response, base_url: &str) -> Response {
    let address = format!("resource_metadata=\"{base_url}/.well-known/oauth-protected-resource/fhir/R4\"");
    let headers = response.headers_mut();
    let challenges: Vec<_> = headers.get_all(header::WWW_AUTHENTICATE).iter().cloned().collect();
    headers.remove(header::WWW_AUTHENTICATE);
    for challenge in challenges {
        let text = challenge.to_str().unwrap_or_default();
        let separator = if text.contains('=') { ", " } else { " " };
        if let Ok(value) = HeaderValue::try_from(format!("{text}{separator}{address}")) {
            headers.append(header::WWW_AUTHENTICATE, value);
        }
    }
    response
}

/// The response to HEAD: with `Content-Length` and without the body. Over HTTP/2 hyper would send the body,
/// and clients would close the connection.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(length @ 1..) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, Bytes::new().into())
}

/// The response to a request, with the properties of its route.
struct Answer {
    response: Response,
    cors: CorsPolicy,
    dialect: Dialect,
}

/// Handles a request. Only the answers below `/oauth2` and of pages depend on the language.
async fn dispatch_with_language(
    context: Arc<RequestContext>,
    body: RequestBody,
    routes: FoundRoutes,
) -> Answer {
    match Dialect::of_path(&context.path) {
        Dialect::Page | Dialect::OAuth => {
            let request = PageRequest::new(&context);
            let dispatched = Box::pin(dispatch(context, body, routes));
            super::pages::page_request::with_request(request, dispatched).await
        }
        Dialect::Fhir | Dialect::Admin => dispatch(context, body, routes).await,
    }
}

async fn dispatch(context: Arc<RequestContext>, body: RequestBody, routes: FoundRoutes) -> Answer {
    let dialect = Dialect::of_path(&context.path);
    let plain = |status: StatusCode, text: &str| Answer {
        response: dialect.plain_error(status, text),
        cors: CorsPolicy::SameOrigin,
        dialect,
    };
    if context.path.len() + context.query.len() > LONGEST_TARGET {
        let text = format!("the request target is longer than {LONGEST_TARGET} bytes");
        return plain(StatusCode::URI_TOO_LONG, &text);
    }
    let (routes, path) = match routes {
        Ok(routes) => routes,
        Err(NotFound::NotUtf8) => {
            let text = "the path is not UTF-8 after percent-decoding";
            return plain(StatusCode::BAD_REQUEST, text);
        }
        Err(NotFound::Nothing) => {
            let path = printable(&context.path);
            let text = match dialect {
                Dialect::Page => pages::texts::fill("There is no page at {}.", &[&path]),
                _ => format!("no resource is served at {path}"),
            };
            return plain(StatusCode::NOT_FOUND, &text);
        }
    };
    let cors = routes.cors();
    if context.method == Method::OPTIONS && cors != CorsPolicy::SameOrigin {
        return Answer { response: cors::preflight(&routes.allow()), cors, dialect };
    }
    let Some(route) = routes.method(&context.method) else {
        let allow = routes.allow();
        let text = format!("{} is not supported here; use {allow}", printable(context.method.as_str()));
        let response = plain(StatusCode::METHOD_NOT_ALLOWED, &text);
        return Answer { response: reply::with(response.response, header::ALLOW, &allow), cors, ..response };
    };
    // A panic ends only this request. The services hold no locks across handlers.
    let answering =
        AssertUnwindSafe(route.handler.call(RoutedRequest { context, body, path })).catch_unwind();
    let answered = match route.work().cpu_limit() {
        Some(limit) => CpuBudget::new(limit, thread_cpu_time).run(answering).await,
        None => answering.await,
    };
    let response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(problem)) if route.has(RouteFlag::Page) => problem.into_response(Dialect::Page),
        Ok(Err(problem)) => problem.into_response(dialect),
        Err(_) => {
            tracing::error!(path = %route.path, "a handler panicked");
            let text = "internal error; the server's log has the details";
            dialect.plain_error(StatusCode::INTERNAL_SERVER_ERROR, text)
        }
    };
    let response = match route.has(RouteFlag::Isolated) {
        true => reply::with_static(response, COOP, "same-origin"),
        false => response,
    };
    Answer { response, cors, dialect }
}

/// The routes of a path, and the values of its placeholders.
type FoundRoutes = Result<(&'static PathRoutes, PathParameters), NotFound>;

/// An error of a path without a route.
#[derive(Debug)]
enum NotFound {
    NotUtf8,
    Nothing,
}

/// The routes of a path, and the values of the placeholders. An operation never matches a placeholder.
fn find(path: &str) -> FoundRoutes {
    let path = decode_segments(path)?;
    let matched = PATHS.at(&path).map_err(|_| NotFound::Nothing)?;
    let value = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let parameters: Vec<_> = matched.params.iter().map(|(name, text)| (name, value(text))).collect();
    if parameters.iter().any(|(_, value)| value.is_empty() || value.starts_with('$')) {
        return Err(NotFound::Nothing);
    }
    Ok((matched.value, PathParameters(parameters)))
}

/// Decodes the segments of a path after the first one, which selects the dialect and may be filtered by a
/// proxy. `/` and `%` within a segment stay encoded, so that the segments do not change.
fn decode_segments(path: &str) -> Result<Cow<'_, str>, NotFound> {
    if !path.contains('%') {
        return Ok(path.into());
    }
    let decode = |(index, segment)| {
        if index <= 1 {
            return Ok(Cow::Borrowed(segment));
        }
        let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| NotFound::NotUtf8)?;
        Ok(decoded.replace('%', "%25").replace('/', "%2F").into())
    };
    // A path begins with `/`, so the piece at 0 is empty.
    let segments: Result<Vec<Cow<'_, str>>, NotFound> = path.split('/').enumerate().map(decode).collect();
    Ok(segments?.join("/").into())
}

/// Adds the headers of every response.
fn finish(app: &App, response: Response, request_id: &str, dialect: Dialect) -> Response {
    let response = reply::with(response, http::HeaderName::from_static("x-request-id"), request_id);
    let response = reply::with_static(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    let response = if app.address.is_loopback {
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
    fn check(path: &str, pattern: Option<&str>) {
        assert_eq!(find(path).ok().map(|(routes, _)| &*routes.0[0].1.path), pattern, "{path}");
    }

    #[test]
    fn operations_are_found_before_ids() {
        check("/fhir/R4/$export", Some("fhir/R4/$export"));
        check("/fhir/R4/%24export", Some("fhir/R4/$export"));
        check("/fhir/R4/ValueSet/$validate-code", Some("fhir/R4/ValueSet/$validate-code"));
        check("/fhir/R4/ValueSet/a/$validate-code", Some("fhir/R4/ValueSet/{id}/$validate-code"));
        check("/fhir/R4/ValueSet/$unknown", None);
        check("/fhir/R4/ValueSet/%24unknown", None);
        check("/fhir/R4/Group/g1/_history", Some("fhir/R4/{kind}/{id}/_history"));
        check("/fhir/R4/Patient/p1", Some("fhir/R4/{kind}/{id}"));
        check("/fhir/R4/Patient/", None);
        check("/fhir/R4/{kind}/$export", None);
        check("/fhir/R4/../admin", Some("fhir/R4/{kind}/{id}"));
        check("/fhir/R4/metadata/", None);
        check("/", Some(""));
        check("/%66hir/R4/metadata", None);
        check("/%61dmin/users", None);
        check("//admin/users", None);
    }

    #[test]
    fn placeholders_are_decoded_once() {
        let value = |path: &str| find(path).ok().unwrap().1.0.pop().unwrap().1;
        assert_eq!(value("/sign-in/with/A%20b"), "A b");
        assert_eq!(value("/sign-in/with/A%2Fb"), "A/b");
        assert_eq!(value("/sign-in/with/A%2525b"), "A%25b");
        assert!(matches!(find("/sign-in/with/%FF"), Err(NotFound::NotUtf8)));
    }

    #[test]
    fn requests_that_may_write_run_to_their_end() {
        let is_cancelled = |method: Method, path: &str| {
            let row = find(path).ok().and_then(|(routes, _)| routes.method(&method));
            row.is_some_and(Route::only_reads)
        };
        for path in [
            "/fhir/R4/Patient",
            "/fhir/R4/Patient/p",
            "/fhir/R4/bulk/j/f",
            "/admin/users",
            "/oauth2/userinfo",
        ] {
            assert!(is_cancelled(Method::GET, path), "GET {path}");
            assert!(is_cancelled(Method::HEAD, path), "HEAD {path}");
        }
        for path in ["/fhir/R4/ValueSet/$validate-code", "/fhir/R4/Patient/_search", "/oauth2/introspect"] {
            assert!(is_cancelled(Method::POST, path), "POST {path}");
        }
        for path in
            ["/oauth2/authorize", "/oauth2/resume", "/oauth2/idpresponse/p", "/device", "/fhir/R4/$export"]
        {
            assert!(!is_cancelled(Method::GET, path), "GET {path}");
        }
        let changes = routes::all().filter(|route| route.method != Method::GET);
        for route in changes.filter(|route| !route.has(RouteFlag::Reads)) {
            assert!(!route.only_reads(), "{} {}", route.method, route.path);
        }
    }

    #[test]
    fn every_fhir_route_serves_scripts() {
        for route in routes::of_fhir() {
            assert!(route.has(RouteFlag::Cors) || route.has(RouteFlag::AnyOrigin), "{}", route.path);
        }
    }

    #[test]
    fn every_parameter_is_a_placeholder_of_its_path() {
        let all: Vec<_> = routes::all().collect();
        for (index, route) in all.iter().enumerate() {
            let is_repeated = |other: &&Route| other.path == route.path && other.method == route.method;
            assert!(!all[..index].iter().any(is_repeated), "{} {}", route.method, route.path);
            for name in route.parameters.iter().filter(|name| **name != "body") {
                // A handler at type and instance level gets no id at type level.
                let is_optional = *name == "id" && route.path.contains("/$");
                let is_named = route.path.split('/').any(|part| part == format!("{{{name}}}"));
                assert!(is_named || is_optional, "{} has no {{{name}}}", route.path);
            }
        }
    }
}
