//! HTTP requests of this server to other servers: key sets of clients, and external providers.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use store::blocking::run_blocking;

use crate::records::audit;
use crate::records::traces::TRACEPARENT;

/// Sends requests. A redirect is an answer like any other.
pub trait HttpCaller: Send + Sync {
    /// Sends a request and returns the answer when its head has arrived.
    fn send(&self, request: http::Request<Bytes>) -> AnswerFuture<'_>;
}

/// The future of an answer.
pub type AnswerFuture<'a> =
    Pin<Box<dyn Future<Output = Result<http::Response<AnswerBody>, CallError>> + Send + 'a>>;

/// The body of an answer, in pieces.
pub type AnswerBody = BoxStream<'static, Result<Bytes, CallError>>;

/// Reasons why there is no answer, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There was no connection: a refused connection, an unknown name, a failure of TLS.
    #[error("no connection: {0}")]
    NoConnection(String),
    /// The other server was silent for too long.
    #[error("no answer in time")]
    TimedOut,
    /// The connection ended before the answer did.
    #[error("the connection was reset")]
    Reset,
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

/// Sends requests over the network. Its client is made for the first request: reading the roots of the system
/// takes as long as the rest of the start of a server, and many servers never send one.
pub struct NetworkCaller(Arc<LazyClient>);

/// A client, or the reason why it could not be made, and how it is made.
struct LazyClient {
    client: OnceLock<Result<reqwest::Client, CallError>>,
    configure: Box<dyn Fn() -> reqwest::ClientBuilder + Send + Sync>,
}

impl NetworkCaller {
    /// A caller whose client is made from this configuration.
    pub fn new(configure: impl Fn() -> reqwest::ClientBuilder + Send + Sync + 'static) -> Self {
        Self(Arc::new(LazyClient { client: OnceLock::new(), configure: Box::new(configure) }))
    }

    async fn client(&self) -> Result<reqwest::Client, CallError> {
        if let Some(client) = self.0.client.get() {
            return client.clone();
        }
        let lazy = Arc::clone(&self.0);
        let client = run_blocking(move || {
            let make = || (lazy.configure)().build().map_err(|error| classify(&error));
            lazy.client.get_or_init(make).clone()
        });
        client.await.map_err(|error| CallError::Other(error.to_string()))?
    }
}

impl HttpCaller for NetworkCaller {
    fn send(&self, request: http::Request<Bytes>) -> AnswerFuture<'_> {
        Box::pin(async move {
            let client = self.client().await?;
            let mut request = reqwest::Request::try_from(request).map_err(|error| classify(&error))?;
            // The other server continues the trace of the request that causes this one.
            if let Some(parent) = audit::trace().and_then(|trace| trace.traceparent().try_into().ok()) {
                request.headers_mut().insert(TRACEPARENT, parent);
            }
            let mut response = client.execute(request).await.map_err(|error| classify(&error))?;
            let mut head = http::Response::new(());
            *head.status_mut() = response.status();
            *head.headers_mut() = std::mem::take(response.headers_mut());
            let body = response.bytes_stream().map(|piece| piece.map_err(|error| classify(&error)));
            Ok(head.map(|()| body.boxed()))
        })
    }
}

fn classify(error: &reqwest::Error) -> CallError {
    let text = chain(error);
    if error.is_connect() {
        return CallError::NoConnection(text);
    }
    if error.is_timeout() {
        return CallError::TimedOut;
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => {
                    return CallError::Reset;
                }
                io::ErrorKind::TimedOut => return CallError::TimedOut,
                _ => {}
            }
        }
        if error
            .downcast_ref::<hyper::Error>()
            .is_some_and(|error| error.is_incomplete_message() || error.is_closed() || error.is_canceled())
        {
            return CallError::Reset;
        }
        cause = error.source();
    }
    CallError::Other(text)
}

/// The texts of an error and its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

    use super::*;
    use crate::clock::Clock;
    use crate::config::audit::AuditConfig;
    use crate::records::audit::{AuditCaller, AuditLog, AuditSource};
    use crate::records::traces::Traces;

    #[tokio::test]
    async fn a_request_continues_the_trace_of_its_cause() {
        let data = tempfile::tempdir().unwrap();
        let source = AuditSource { observer: String::new(), node: String::new() };
        let clock = Clock::system();
        let audit = AuditLog::open(data.path(), source, AuditConfig::default(), clock.clone()).unwrap();
        let traces = Traces::new(Some("http://collector"), 100, String::new());
        let trace = traces.begin(&http::HeaderMap::new(), &*clock.random).unwrap();
        let other = MockServer::start().await;
        Mock::given(matchers::any()).respond_with(ResponseTemplate::new(200)).mount(&other).await;
        let caller = NetworkCaller::new(reqwest::Client::builder);
        let request = || http::Request::get(other.uri()).body(Bytes::new()).unwrap();
        let cause = AuditCaller::of_request(None, Arc::from("r-1")).traced(Some(trace));
        audit.on_behalf(cause, caller.send(request())).await.0.unwrap();
        caller.send(request()).await.unwrap();
        let received = other.received_requests().await.unwrap();
        assert_eq!(received[0].headers[TRACEPARENT], trace.traceparent());
        assert!(!received[1].headers.contains_key(TRACEPARENT), "nothing caused the second request");
    }
}
