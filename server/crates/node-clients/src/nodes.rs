//! The nodes as clients reach them; requests and answers.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use http::{HeaderMap, Request, Response};
use jiff::Timestamp;
use serde_json::Value;

use crate::history::is_unknown;

/// Number of nodes.
pub const NODES: usize = 3;

/// The nodes of a run.
pub trait Nodes: Send + Sync {
    /// The time since the start of the run.
    fn now(&self) -> Duration;

    /// The time of the node.
    fn time(&self) -> Timestamp;

    /// Returns whether there is a balancer, which forwards each connection to one of the nodes.
    fn has_balancer(&self) -> bool {
        false
    }

    /// Sends a request to a node, or to the balancer. Its target is a path. `name` is the kind of the
    /// request.
    ///
    /// # Errors
    /// A description of the failure if there is no complete answer.
    fn send(
        &self,
        node: Option<usize>,
        name: &'static str,
        request: Request<Bytes>,
    ) -> BoxFuture<'_, Result<Response<Bytes>, String>>;

    /// Sends a browser to another server. Returns the address to which this redirects it.
    fn visit(&self, _address: &str) -> BoxFuture<'_, Option<String>> {
        ready(None).boxed()
    }

    /// Writes a line to the log of the run, if there is one.
    fn log(&self, _line: &str) {}
}

/// A request of a client.
pub struct ClientRequest(http::request::Builder, Bytes);

impl ClientRequest {
    /// A request without a body.
    pub fn get(path: &str) -> Self {
        Self(Request::get(path), Bytes::new())
    }

    /// A request with a form.
    pub fn form(path: &str, form: &[(&str, &str)]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = Request::post(path).header("content-type", "application/x-www-form-urlencoded");
        Self(request, body.into())
    }

    /// A request with a resource.
    pub fn json(method: &str, path: &str, body: &Value) -> Self {
        let request = Request::builder().method(method).uri(path);
        Self(request.header("content-type", "application/fhir+json"), body.to_string().into())
    }

    /// Adds a header.
    #[must_use]
    pub fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }

    /// Adds an access token.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// The request.
    ///
    /// # Panics
    /// Panics if its path or a header is malformed.
    pub fn build(self) -> Request<Bytes> {
        self.0.body(self.1).expect("paths and headers of clients are well-formed")
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status; `None` if there was no complete answer.
    pub status: Option<u16>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it was received.
    pub bytes: Bytes,
    /// The body: JSON, or a text.
    pub body: Value,
    /// The time at which it had arrived.
    pub ended: Duration,
}

impl Answer {
    /// Returns whether the status is this one.
    pub fn is(&self, status: u16) -> bool {
        self.status == Some(status)
    }

    /// Returns whether the server has failed, so that it is unknown what the request did.
    pub fn is_failure(&self) -> bool {
        is_unknown(self.status)
    }

    /// A member of the body that is a text.
    pub fn member(&self, name: &str) -> Option<String> {
        self.body[name].as_str().map(str::to_owned)
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }
}
