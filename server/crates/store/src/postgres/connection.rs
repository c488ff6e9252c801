//! One connection to the database, and how the pool makes it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deadpool::managed::{Manager, Metrics, Object, RecycleError, RecycleResult};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::database_url::{DatabaseUrl, TlsFiles};
use super::failure::{failure, is_connection_end};
use super::hosts::{DatabaseHost, HostChoice, HostError, hosts};
use super::limits::DatabaseLimits;
use super::tls;
use crate::StoreError;

/// A connection that returns to the pool when it is dropped.
pub(super) type PooledConnection = Object<ConnectionManager>;

/// A connection.
pub(super) struct Connection {
    client: Client,
    /// Name and port of the host.
    pub host: Arc<str>,
    /// The settings of its TLS, with which a statement is cancelled.
    pub tls: MakeRustlsConnect,
    /// Whether its database is the one that this node knows.
    is_checked: AtomicBool,
}

impl Connection {
    /// Returns whether the database was compared with what this node knows.
    pub fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Acquire)
    }

    /// Records that the database has everything that this node knows.
    pub fn set_checked(&self) {
        self.is_checked.store(true, Ordering::Release);
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Why a connection could not be made.
pub(super) enum ConnectError {
    Postgres(tokio_postgres::Error),
    Store(StoreError),
}

impl ConnectError {
    /// Returns whether the database has no connection left for this node.
    pub fn is_used_up(&self) -> bool {
        matches!(self, Self::Postgres(error) if error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS))
    }

    /// Returns whether the database has ended the connection at once, so that the next one may work.
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_connection_end(error))
    }
}

impl From<StoreError> for ConnectError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Makes connections. The files with the password and for TLS are read for each one, so that they can change.
pub(super) struct ConnectionManager {
    url: DatabaseUrl,
    limits: DatabaseLimits,
    /// The settings of TLS if the URL names no files.
    tls: MakeRustlsConnect,
    choice: HostChoice,
    /// The host of the last connection.
    host: Mutex<Option<Arc<str>>>,
    /// Whether the store is open: a refused password may be one that is being rotated.
    is_in_use: AtomicBool,
}

impl ConnectionManager {
    pub fn new(url: DatabaseUrl, limits: DatabaseLimits) -> Result<Self, StoreError> {
        let (_, files) = url.config(&limits)?;
        let tls = MakeRustlsConnect::new(tls::settings(&files)?);
        let (choice, host, is_in_use) = Default::default();
        Ok(Self { url, limits, tls, choice, host, is_in_use })
    }

    pub fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// States that the store is open. From now on, a connection that cannot be made is tried again.
    pub fn set_in_use(&self) {
        self.is_in_use.store(true, Ordering::Release);
    }

    /// Returns whether a connection leads to the host that is used.
    pub fn is_to_current_host(&self, connection: &Connection) -> bool {
        self.current_host().is_some_and(|host| host == connection.host)
    }

    fn current_host(&self) -> Option<Arc<str>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The settings of TLS, with the present content of the files.
    fn tls(&self, files: &TlsFiles) -> Result<MakeRustlsConnect, StoreError> {
        match *files == TlsFiles::default() {
            true => Ok(self.tls.clone()),
            false => Ok(MakeRustlsConnect::new(tls::settings(files)?)),
        }
    }

    /// Chooses the host again, and returns whether it is another one than that of the last connection.
    ///
    /// # Errors
    /// Returns the reason if two hosts accept writes that cannot be distinguished.
    pub async fn has_other_host(&self) -> Result<bool, String> {
        // The open connections still work while a file cannot be read.
        let Ok((config, files)) = self.url.config(&self.limits) else { return Ok(false) };
        let Ok(tls) = self.tls(&files) else { return Ok(false) };
        let hosts = hosts(&config);
        if hosts.is_empty() {
            return Ok(false);
        }
        match self.choice.choose(&hosts, &tls).await {
            Ok(best) => Ok(self.current_host().is_some_and(|host| host != best.name)),
            // Requests fail when they need a connection.
            Err(HostError::NoPrimary(_)) => Ok(false),
            Err(HostError::Rivals(reason)) => Err(reason),
        }
    }

    async fn host(&self, config: Config, tls: &MakeRustlsConnect) -> Result<DatabaseHost, StoreError> {
        let hosts = hosts(&config);
        if hosts.is_empty() {
            return Ok(DatabaseHost { name: host_name(&config).into(), config });
        }
        Ok(self.choice.choose(&hosts, tls).await?)
    }

    /// The error of a connection that could not be made.
    pub fn failure(&self, error: ConnectError) -> StoreError {
        let error = match error {
            ConnectError::Postgres(error) => failure("connect to the database", &error),
            ConnectError::Store(error) => error,
        };
        match error {
            StoreError::Engine { reason, .. } if self.is_in_use.load(Ordering::Acquire) => {
                StoreError::Unavailable { reason }
            }
            other => other,
        }
    }
}

/// The first host of a URL.
fn host_name(config: &Config) -> String {
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(Host::Tcp(name)) => format!("{name}:{port}"),
        Some(Host::Unix(path)) => format!("{}:{port}", path.display()),
        None => "localhost".to_owned(),
    }
}

impl Manager for ConnectionManager {
    type Type = Connection;
    type Error = ConnectError;

    async fn create(&self) -> Result<Connection, ConnectError> {
        let (config, files) = self.url.config(&self.limits)?;
        let tls = self.tls(&files)?;
        let DatabaseHost { name, config } = Box::pin(self.host(config, &tls)).await?;
        let (client, connection) =
            Box::pin(config.connect(tls.clone())).await.map_err(ConnectError::Postgres)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&name));
        Ok(Connection { client, host: name, tls, is_checked: AtomicBool::new(false) })
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<ConnectError> {
        match connection.is_closed() {
            true => Err(RecycleError::message("the connection is closed")),
            false => Ok(()),
        }
    }
}
