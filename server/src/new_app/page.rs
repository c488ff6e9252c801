//! `trefoil new-app --page`: the questions as a page of the browser, on a port of this machine that exists
//! until the app is made.
//!
//! Any website can send requests to a port of this machine. Therefore the page opens only by an address that
//! the terminal shows and that works once; every request must name this machine in `Host`; and the form is
//! accepted only from the page itself: `Origin`, the cookie of the visit, and a token in the form.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use command_line::text::shell_word;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Response, StatusCode, header};
use identity::random::{Random as _, SystemRandom};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;
use warp::{Filter as _, Reply as _};

use super::examples::{AppKind, EXAMPLES, value_name};
use crate::config::{ConnectionLimits, PlainHttp};
use crate::http::extract::{BodyStream, body_stream};
use crate::http::listen::admission::Admission;
use crate::http::listen::{ConnectionTimers, HttpServer, ServingPhase, Transport, bind_listeners};
use crate::http::peer::RequestHead;

/// Time after which the page is closed.
const OPEN: Duration = Duration::from_secs(600);
/// Name of the cookie of the visit.
const COOKIE: &str = "new-app";
const STYLE: &str = include_str!("../http/pages/style.css");
/// Maximum size of the form.
const FORM_BYTES: usize = 16 * 1024;
/// Maximum number of connections.
const CONNECTIONS: usize = 32;
/// Time for which the last answer is sent after the app was made.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs `trefoil new-app` with these words, and returns what to do next.
pub(super) type MakeApp = Box<dyn Fn(Vec<String>) -> BoxFuture<'static, Result<String>> + Send + Sync>;

/// The page while it is open.
struct OpenPage {
    make_app: MakeApp,
    /// `127.0.0.1` and the port.
    host: String,
    /// The secret of the address; `None` once it was used.
    link: Mutex<Option<String>>,
    /// The value of the cookie, and the token of the form.
    visit: String,
    csrf: String,
    /// Ends the page once an app is made.
    phase: watch::Sender<ServingPhase>,
}

/// The fields of the form.
#[derive(Default)]
struct AppForm {
    csrf: String,
    name: String,
    /// Kind and language.
    example: String,
    port: String,
}

/// A request, as far as the page reads it.
struct PageRequest {
    method: Method,
    query: String,
    headers: Arc<HeaderMap>,
    body: Vec<u8>,
}

/// Serves the page until an app is made.
///
/// # Errors
/// An error if no port is free, or the page was not used in time.
pub(super) async fn ask_on_page(make_app: MakeApp) -> Result<()> {
    let listeners = bind_listeners(SocketAddr::from(([127, 0, 0, 1], 0))).await;
    let listeners = listeners.context("no port of this machine is free")?;
    let host =
        listeners.sockets.first().context("no port of this machine is free")?.local_addr()?.to_string();
    let random = SystemRandom;
    let link = random.secret();
    let (phase, phases) = watch::channel(ServingPhase::Serving);
    let page = Arc::new(OpenPage {
        make_app,
        host: host.clone(),
        link: Mutex::new(Some(link.clone())),
        visit: random.secret(),
        csrf: random.secret(),
        phase,
    });
    let routes = warp::path::end()
        .and(warp::ext::get::<RequestHead>())
        .and(warp::body::stream())
        .then(move |head: RequestHead, stream| {
            let page = Arc::clone(&page);
            async move {
                let RequestHead { method, uri, headers, .. } = head;
                let query = uri.query().unwrap_or_default().to_owned();
                let body = form_body(body_stream(stream)).await;
                page.answer(&PageRequest { method, query, headers, body }).await.into_response()
            }
        })
        .or(warp::any().map(|| {
            refused("This address has no page. Open the one that the terminal shows.").into_response()
        }))
        .unify()
        .boxed();
    let server = HttpServer {
        routes,
        transport: Transport::Plain(Arc::new(PlainHttp::Loopback)),
        admission: Admission::new(ConnectionLimits { total: CONNECTIONS, per_address: CONNECTIONS }),
        is_proxy: Box::new(|_| false),
        proxy_protocol_from: Arc::default(),
        timers: ConnectionTimers { drain: DRAIN, ..ConnectionTimers::default() },
    };
    println!("open this address, which works once:\n\n  http://{host}/?link={link}\n");
    match tokio::time::timeout(OPEN, server.serve(listeners, phases)).await {
        Ok(()) => Ok(()),
        Err(_) => {
            bail!("the page was not used within {} minutes; run the command again", OPEN.as_secs() / 60)
        }
    }
}

/// The body of a form; nothing if it is larger than a form of the page.
async fn form_body(mut stream: BodyStream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(Ok(piece)) = stream.next().await {
        body.extend_from_slice(&piece);
        if body.len() > FORM_BYTES {
            return Vec::new();
        }
    }
    body
}

impl OpenPage {
    async fn answer(&self, request: &PageRequest) -> Response<String> {
        if text(&request.headers, header::HOST) != self.host {
            return refused(
                "The name of this machine in the request is not the one of the address in the terminal. Open that address.",
            );
        }
        if request.method == Method::POST {
            return self.make(request).await;
        }
        let link_value = form_urlencoded::parse(request.query.as_bytes()).find(|(name, _)| name == "link");
        if let Some((_, link)) = link_value {
            let mut expected = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            return match expected.take_if(|own_link| is_same(own_link, &link)) {
                Some(_) => {
                    redirect_with_cookie(&format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Lax", self.visit))
                }
                None => refused("This address was used before. Run the command again."),
            };
        }
        match self.is_visit(&request.headers) {
            true => page(StatusCode::OK, "A new app", &self.form(None)),
            false => refused("This page opens by the address that the terminal shows."),
        }
    }

    fn is_visit(&self, headers: &HeaderMap) -> bool {
        let cookies = text(headers, header::COOKIE);
        let mut pairs = cookies.split("; ").filter_map(|pair| pair.split_once('='));
        pairs.any(|(name, value)| name == COOKIE && is_same(value, &self.visit))
    }

    /// Makes the app of the form.
    async fn make(&self, request: &PageRequest) -> Response<String> {
        let is_own = text(&request.headers, header::ORIGIN) == format!("http://{}", self.host);
        let form = AppForm::read(&request.body);
        if !is_own || !self.is_visit(&request.headers) || !is_same(&form.csrf, &self.csrf) {
            return refused(
                "The form was not sent by this page. Run the command again, and open the address that it prints.",
            );
        }
        let words = command_words(&form);
        match (self.make_app)(words.clone()).await {
            Ok(steps) => {
                self.phase.send_replace(ServingPhase::Stopping);
                let command: Vec<_> = words.iter().map(|word| shell_word(Path::new(word))).collect();
                let content = html! {
                    p { "The app is registered, and its example is on this machine." }
                    pre { (steps) }
                    p { "The same on the command line:" }
                    pre { "trefoil new-app " (command.join(" ")) }
                    p { "You can close this page." }
                };
                page(StatusCode::OK, "Done", &content)
            }
            Err(error) => page(StatusCode::BAD_REQUEST, "A new app", &self.form(Some(&format!("{error:#}")))),
        }
    }

    fn form(&self, error: Option<&str>) -> Markup {
        html! {
            @if let Some(error) = error { p.error role="alert" { (error) } }
            form method="post" action="/" {
                input type="hidden" name="csrf" value=(self.csrf);
                label for="name" { "Name of the app, which is its client id" }
                input id="name" name="name" required maxlength="60" autofocus autocapitalize="none" spellcheck="false";
                label for="example" { "Where it runs, and the language of the example" }
                select id="example" name="example" {
                    @for kind in AppKind::value_variants() {
                        optgroup label=(help(kind)) {
                            @for example in EXAMPLES.iter().filter(|example| example.kind == *kind) {
                                option value={ (value_name(kind)) " " (value_name(&example.language)) } {
                                    (help(&example.language))
                                }
                            }
                        }
                    }
                }
                label for="port" { "Port of an app with pages" }
                input id="port" name="port" inputmode="numeric" value="3000" required;
                button type="submit" { "Make the app" }
            }
        }
    }
}

impl AppForm {
    fn read(body: &[u8]) -> Self {
        let mut form = Self::default();
        for (name, value) in form_urlencoded::parse(body) {
            let field = match &*name {
                "csrf" => &mut form.csrf,
                "name" => &mut form.name,
                "example" => &mut form.example,
                "port" => &mut form.port,
                _ => continue,
            };
            *field = value.into_owned();
        }
        form
    }
}

/// The command line that a form stands for.
fn command_words(form: &AppForm) -> Vec<String> {
    let (kind, language) = form.example.split_once(' ').unwrap_or_default();
    let options = [("--kind", kind), ("--language", language), ("--port", form.port.trim())];
    let options = options.into_iter().flat_map(|(option, value)| [option.to_owned(), value.to_owned()]);
    // A name that begins with a hyphen is not an option.
    options.chain(["--".to_owned(), form.name.trim().to_owned()]).collect()
}

/// The help of a value on the command line.
fn help(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

fn refused(reason: &str) -> Response<String> {
    page(StatusCode::FORBIDDEN, "Not open", &html! { p { (reason) } })
}

fn redirect_with_cookie(cookie: &str) -> Response<String> {
    let mut response = page(StatusCode::SEE_OTHER, "A new app", &html! {});
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, header::HeaderValue::from_static("/"));
    if let Ok(cookie) = cookie.parse() {
        headers.insert(header::SET_COOKIE, cookie);
    }
    response
}

fn page(status: StatusCode, title: &str, content: &Markup) -> Response<String> {
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Trefoil" }
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { span.brand { span.mark aria-hidden="true" { "☘" } "Trefoil" } }
                main { h1 { (title) } (content) }
            }
        }
    };
    let mut response = Response::new(body.into_string());
    *response.status_mut() = status;
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        // With no-referrer, browsers send the form with `Origin: null`.
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-opener-policy", "same-origin"),
        ("content-security-policy", policy.as_str()),
    ] {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
