//! HTTP over the simulated network.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use trefoil_server::node::outbound::{AnswerFuture, CallError, HttpCaller};
use turmoil::net::TcpStream;

/// Port of all servers.
pub const PORT: u16 = 443;
/// Time after which a client gives up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a request to a host on a new connection. If its target is a URL, the authority is the `Host` of the
/// request.
///
/// # Errors
/// [`CallError`] if there is no complete answer.
pub async fn send(host: &str, request: Request<Bytes>) -> Result<Response<Bytes>, CallError> {
    let (mut parts, body) = request.into_parts();
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    if let Some(authority) = authority.and_then(|text| text.parse().ok()) {
        parts.headers.insert(header::HOST, authority);
    }
    parts.uri = parts.uri.path_and_query().map_or("/", |path| path.as_str()).parse().unwrap_or_default();
    let no_connection = |error: std::io::Error| CallError::NoConnection(error.to_string());
    let stream = TcpStream::connect((host, PORT)).await.map_err(no_connection)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|_| CallError::Reset)?;
    let connection = tokio::spawn(connection);
    let exchange = async {
        let response = sender.send_request(Request::from_parts(parts, Full::new(body))).await;
        let (head, body) = response.map_err(|_| CallError::Reset)?.into_parts();
        let body = body.collect().await.map_err(|_| CallError::Reset)?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    let response = exchange.await;
    connection.abort();
    response
}

/// Sends a request, and gives up after [`PATIENCE`].
///
/// # Errors
/// See [`send`].
pub async fn send_patiently(host: &str, request: Request<Bytes>) -> Result<Response<Bytes>, CallError> {
    tokio::time::timeout(PATIENCE, send(host, request)).await.unwrap_or(Err(CallError::TimedOut))
}

/// The requests of a node to other servers, whose simulated hosts have the first label of their name.
pub struct SimulatedCaller;

impl HttpCaller for SimulatedCaller {
    fn send(&self, request: Request<Bytes>) -> AnswerFuture<'_> {
        Box::pin(async move {
            let host =
                request.uri().host().and_then(|host| host.split('.').next()).unwrap_or_default().to_owned();
            let response = send(&host, request).await?;
            Ok(response.map(|body| futures_util::stream::once(async { Ok(body) }).boxed()))
        })
    }
}

/// A response of a simulated server.
pub fn respond(status: StatusCode, kind: &str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    if let Ok(kind) = kind.parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
