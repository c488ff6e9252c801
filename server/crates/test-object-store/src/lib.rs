//! A private S3 server for tests: on a free port of the loopback address, with its objects in a temporary
//! folder, removed when it is dropped. It checks signatures and checksums as S3 does, and can fail on demand.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Name of the only bucket. It is short, because the server keeps keys in names of files, which have a
/// maximum length.
pub const BUCKET: &str = "test";
/// Id of the only access key.
pub const ACCESS_KEY_ID: &str = "TESTACCESSKEY";
/// Its secret.
pub const SECRET_ACCESS_KEY: &str = "test-secret-access-key-for-loopback";
/// The region of the bucket.
pub const REGION: &str = "us-east-1";

/// How the server answers. Only with the last fault does it perform the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 503 with the code `SlowDown`.
    SlowDown,
    /// 500 with the code `InternalError`.
    InternalError,
    /// Closes the connection without an answer.
    Disconnect,
    /// 403 with the code `AccessDenied`.
    AccessDenied,
    /// Completes a multipart upload, and closes the connection without an answer. Other requests are
    /// answered.
    LostCompletion,
}

/// A private server.
pub struct TestObjectStore {
    address: SocketAddr,
    folder: TempDir,
    state: Arc<Mutex<ServerState>>,
    /// Stops the server when it is dropped.
    _stop: oneshot::Sender<Infallible>,
}

#[derive(Default)]
struct ServerState {
    /// The fault, and the number of requests that it is the answer to.
    fault: Option<(Fault, usize)>,
    /// Time before a file or part is stored, or an upload in parts begins.
    delay: Duration,
    requests: Vec<String>,
    /// The folder with a file for each open upload.
    folder: PathBuf,
}

impl TestObjectStore {
    /// Starts a server, on a thread of its own.
    ///
    /// # Errors
    /// An error if the folder or the listener cannot be created.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(BUCKET))?;
        let files = FileSystem::new(folder.path()).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY_ID, SECRET_ACCESS_KEY));
        let service = builder.build();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = ServerState { folder: folder.path().to_owned(), ..ServerState::default() };
        let state = Arc::new(Mutex::new(state));
        let (stop, stopped) = oneshot::channel();
        let (started, starting) = mpsc::channel();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener);
                let serve = listener.map(|listener| accept(listener, service, shared));
                drop(
                    started.send(
                        serve.as_ref().map(|_| ()).map_err(|error| io::Error::other(error.to_string())),
                    ),
                );
                let Ok(serve) = serve else { return };
                tokio::select! { () = serve => {}, _ = stopped => {} }
            });
            runtime.shutdown_background();
        });
        starting.recv().map_err(io::Error::other)??;
        Ok(Self { address, folder, state, _stop: stop })
    }

    /// Returns the URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the folder that contains the objects, under their keys.
    pub fn objects(&self) -> PathBuf {
        self.folder.path().join(BUCKET)
    }

    /// Answers the next `count` requests with a fault, if it applies to them.
    pub fn fail(&self, fault: Fault, count: usize) {
        self.state().fault = Some((fault, count));
    }

    /// Delays the storing of each file or part, and the begin of each upload in parts.
    pub fn delay_uploads(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// Ends a fault.
    pub fn recover(&self) {
        self.state().fault = None;
    }

    /// Returns the requests since the last call: method, path and query.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }

    /// Returns the number of uploads that are neither complete nor aborted.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub fn open_uploads(&self) -> io::Result<usize> {
        let mut count = 0;
        for entry in std::fs::read_dir(self.folder.path())? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            count += usize::from(name.starts_with(".upload-") && name.ends_with(".json"));
        }
        Ok(count)
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<ServerState>) -> MutexGuard<'_, ServerState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: tokio::net::TcpListener, service: S3Service, state: Arc<Mutex<ServerState>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let (service, state) = (service.clone(), Arc::clone(&state));
        let response = service_fn(move |request| answer(service.clone(), Arc::clone(&state), request));
        let mut http = hyper::server::conn::http1::Builder::new();
        let connection = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), response);
        tokio::spawn(async move { drop(connection.await) });
    }
}

async fn answer(
    service: S3Service,
    state: Arc<Mutex<ServerState>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, HttpError> {
    let (fault, delay) = {
        let mut state = lock(&state);
        state.requests.push(format!("{} {}", request.method(), request.uri()));
        let mut parameters = request.uri().query().unwrap_or_default().split('&');
        let upload = parameters.find_map(|parameter| parameter.strip_prefix("uploadId="));
        // S3 does not know an upload any more after it was completed or aborted.
        if upload.is_some_and(|upload| !state.folder.join(format!(".upload-{upload}.json")).exists()) {
            return Ok(refuse(StatusCode::NOT_FOUND, "NoSuchUpload"));
        }
        let is_completion = request.method() == Method::POST && upload.is_some();
        let due = state.fault.as_mut().filter(|(_, left)| *left > 0);
        let due = due.filter(|(fault, _)| *fault != Fault::LostCompletion || is_completion);
        let fault = due.map(|(fault, left)| {
            *left -= 1;
            *fault
        });
        let begins_upload = request.uri().query().is_some_and(|query| query.starts_with("uploads"));
        let is_upload = request.method() == Method::PUT || begins_upload && request.method() == Method::POST;
        (fault, if is_upload { state.delay } else { Duration::ZERO })
    };
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let (status, code) = match fault {
        None => return service.call(request.map(Body::from)).await,
        Some(Fault::SlowDown) => (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
        Some(Fault::InternalError) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        Some(Fault::AccessDenied) => (StatusCode::FORBIDDEN, "AccessDenied"),
        Some(Fault::LostCompletion) => {
            // The object exists, but the client cannot know: it must look before it sends again.
            drop(service.call(request.map(Body::from)).await);
            return Err(HttpError::new("the answer is lost".into()));
        }
        Some(Fault::Disconnect) => return Err(HttpError::new("disconnected".into())),
    };
    Ok(refuse(status, code))
}

fn refuse(status: StatusCode, code: &str) -> Response<Body> {
    let text = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>a fault of the test</Message></Error>"
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
