//! warp as a hyper service. It rejects requests with an ambiguous target (RFC 9112 section 3.2), counts
//! running requests, and asks clients to close their connections before a stop.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Method, Request, StatusCode, Version, header};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;

use super::admission::{ConnectionState, RequestGuard};
use super::timers::ServingPhase;
use crate::http::dispatch::Routes;
use crate::http::peer::RequestHead;
use crate::http::problem::Dialect;
use crate::http::reply::{self, Response};

/// Body of a response. The request counts as running until the body is sent or dropped.
pub struct CountedBody<B> {
    body: B,
    _request: RequestGuard,
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Names the body type of a response, for which warp has no public name.
pub trait HasBody {
    type Body;
}

impl<B> HasBody for http::Response<B> {
    type Body = B;
}

type CountedResponse = http::Response<CountedBody<<Response as HasBody>::Body>>;

/// The requests of a connection that are served.
#[derive(Clone)]
pub enum ServedRequests {
    All,
    /// Requests for `/health/`: the client may not use plain HTTP.
    Health,
    /// None: the client is redirected to this base URL.
    Redirected(Arc<str>),
}

/// The service of one connection.
pub fn service(
    routes: Routes,
    peer: SocketAddr,
    served: ServedRequests,
    state: Arc<ConnectionState>,
    phase: watch::Receiver<ServingPhase>,
) -> impl Service<
    Request<Incoming>,
    Response = CountedResponse,
    Error = Infallible,
    Future = impl Future<Output = Result<CountedResponse, Infallible>> + Send,
> {
    let inner = TowerToHyperService::new(warp::service(routes));
    service_fn(move |mut request: Request<Incoming>| {
        let guard = state.begin_request();
        let is_http1 = request.version() < Version::HTTP_2;
        let is_redirected = matches!(served, ServedRequests::Redirected(_));
        let asks_to_close = is_http1 && (is_redirected || *phase.borrow() != ServingPhase::Serving);
        let answered = match refusal(&request, &served) {
            Some(response) => Err(response),
            None => {
                let headers = Arc::new(std::mem::take(request.headers_mut()));
                let (method, uri) = (request.method().clone(), request.uri().clone());
                request.extensions_mut().insert(RequestHead { peer, method, uri, headers });
                Ok(inner.call(request))
            }
        };
        async move {
            let mut response = match answered {
                Ok(answered) => answered.await?,
                Err(refused) => refused,
            };
            if asks_to_close {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| CountedBody { body, _request: guard }))
        }
    })
}

/// The response to a request whose target is ambiguous or not supported, or that is not served.
fn refusal(request: &Request<Incoming>, served: &ServedRequests) -> Option<Response> {
    match served {
        ServedRequests::All => {}
        ServedRequests::Health if request.uri().path().starts_with("/health/") => {}
        ServedRequests::Health => {
            let text = "plain HTTP is accepted from the proxies of [server] plain_http_from only; use the https address";
            return Some(Dialect::of_path(request.uri().path()).plain_error(StatusCode::FORBIDDEN, text));
        }
        ServedRequests::Redirected(base_url) => {
            let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
            let target = if target.starts_with('/') { target } else { "/" };
            return Some(reply::redirect(StatusCode::PERMANENT_REDIRECT, &format!("{base_url}{target}")));
        }
    }
    let dialect = Dialect::of_path(request.uri().path());
    if request.method() == Method::CONNECT {
        let text = "CONNECT is not supported: this server is not a proxy";
        return Some(dialect.plain_error(StatusCode::NOT_IMPLEMENTED, text));
    }
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let is_clear = match request.version() {
        Version::HTTP_11 => hosts == 1,
        // HTTP/2 has `:authority`, HTTP/1.0 neither.
        _ => hosts <= 1,
    };
    (!is_clear).then(|| {
        let text = format!("the request has {hosts} Host headers; HTTP/1.1 requires exactly one");
        dialect.plain_error(StatusCode::BAD_REQUEST, &text)
    })
}
