//! Connections to the database: pool, TLS, time limits, and the meaning of errors.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Hook, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use percent_encoding::percent_decode_str;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{chain, failure, too_late, unavailable};
use super::presence::Presence;
use super::write_fault::WriteFault;
use crate::{DatabaseUsage, StoreError};

/// A parameter of a statement with its type. Statements are sent unnamed with their types, in one round trip,
/// because a pooler in transaction mode has no prepared statements.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The URL of a database: `postgres://user:password@host:port/name?sslmode=…`. Shown without its password.
///
/// TLS is used if the server offers it, and required with `sslmode=require`, `verify-ca` or `verify-full`. A
/// certificate is always checked, with the roots of this machine or those in the PEM file `sslrootcert`.
/// Without `sslmode`, a server on this machine is asked without TLS.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    text: String,
    password: Option<String>,
}

impl DatabaseUrl {
    /// Returns whether a text has the form of such a URL.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Creates a URL. `password` is used if the URL contains none.
    pub fn new(text: impl Into<String>, password: Option<String>) -> Self {
        Self { text: text.into(), password }
    }

    /// Returns whether the URL contains a password.
    pub fn has_password(&self) -> bool {
        let parsed = self.config(&DatabaseLimits::default());
        Self::is_url(&self.text) && parsed.is_ok_and(|(config, _)| config.get_password().is_some())
    }

    /// Takes the password from a file in PostgreSQL's format, if there is no other password. Each line of the
    /// file is `host:port:database:user:password`; `*` matches anything, and `\` escapes `:` and `\`.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if the file cannot be read, or others may read it.
    pub fn with_password_file(mut self, file: &Path) -> Result<Self, StoreError> {
        let (config, _) = self.config(&DatabaseLimits::default())?;
        if config.get_password().is_some() {
            return Ok(self);
        }
        let failed = |reason: String| StoreError::Engine {
            action: "use the file with the password of the database",
            reason: format!("{}: {reason}", file.display()),
        };
        let mode = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(failed("other users may read it; run chmod 600".to_owned()));
        }
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(_)) | None => "localhost".to_owned(),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        let attributes = [host.as_str(), &port, database, user];
        self.password = text.lines().find_map(|line| password_of_line(line, attributes));
        Ok(self)
    }

    /// Checks the URL, without connecting.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] with the part that is wrong.
    pub fn check(&self) -> Result<(), StoreError> {
        self.config(&DatabaseLimits::default()).map(drop)
    }

    /// The settings of a connection, and the file with the roots for TLS.
    fn config(&self, limits: &DatabaseLimits) -> Result<(Config, Option<String>), StoreError> {
        let (url, roots) = split_roots(&self.text);
        // The error does not contain the URL, whose password must not be shown.
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| bad_url(&chain(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(bad_url("it names no host"));
        }
        if !self.text.contains("sslmode=") && config.get_hosts().iter().all(is_here) {
            config.ssl_mode(SslMode::Disable);
        }
        if let (None, Some(password)) = (config.get_password(), &self.password) {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("trefoil");
        }
        // After a failover, an address can lead to the former primary, which is a standby then.
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.connect_timeout(limits.connect).keepalives_idle(Duration::from_secs(10));
        config.tcp_user_timeout(Duration::from_secs(10));
        Ok((config, roots))
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.text.split_once("://").unwrap_or_default();
        let address = rest.split('?').next().unwrap_or_default();
        match address.rsplit_once('@') {
            Some((user, address)) => {
                let user = user.split(':').next().unwrap_or_default();
                write!(f, "{scheme}://{user}@{address}")
            }
            None => write!(f, "{scheme}://{address}"),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Time limits and sizes.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseLimits {
    /// Maximum number of connections of this process.
    pub connections: usize,
    /// Time to wait for a connection.
    pub connect: Duration,
    /// Time that a read of a request may wait for the database before it fails. A link that has stalled is
    /// noticed by it.
    pub read: Duration,
    /// Time that one attempt to write may take, besides [`write_mib`](Self::write_mib). It is longer than
    /// [`idle_transaction`](Self::idle_transaction), so that a write succeeds which has waited for a node
    /// that fell silent.
    pub write: Duration,
    /// Additional time for each MiB that is written at once.
    pub write_mib: Duration,
    /// Time that a page of an export and maintenance may wait for the database, because nobody waits for
    /// their answer.
    pub background: Duration,
    /// Time after which the database ends a transaction whose node is silent. Its locks stop the writes of
    /// all nodes.
    pub idle_transaction: Duration,
    /// Time for which a write is repeated after its arrival while the database is away. Writes that arrive
    /// after the first one has failed end with it, and later ones fail at once.
    pub retry: Duration,
}

impl Default for DatabaseLimits {
    fn default() -> Self {
        Self {
            connections: 16,
            connect: Duration::from_secs(2),
            read: Duration::from_secs(5),
            write: Duration::from_secs(6),
            write_mib: Duration::from_secs(1),
            background: Duration::from_secs(30),
            idle_transaction: Duration::from_secs(4),
            retry: Duration::from_secs(4),
        }
    }
}

/// Time between two attempts to get a connection when the database has none left.
const USED_UP_PAUSE: Duration = Duration::from_millis(20);
/// Number of times that a read is repeated whose connection turns out to be broken.
pub(super) const REPEATED_READS: usize = 3;

/// The database of a store: a pool of connections.
pub(super) struct Database {
    pool: Pool,
    tls: MakeRustlsConnect,
    pub limits: DatabaseLimits,
    pub presence: Presence,
    /// The number of connections that were opened, and of those before the last check (see [`Presence`]).
    opened: Arc<AtomicU64>,
    checked: AtomicU64,
    checking: tokio::sync::Mutex<()>,
    /// How often a connection was used.
    round_trips: AtomicU64,
    pub write_fault: WriteFault,
}

impl Database {
    /// Prepares the connections to a database. Opens none yet.
    pub fn at(url: &DatabaseUrl, limits: DatabaseLimits) -> Result<Self, StoreError> {
        let (config, roots) = url.config(&limits)?;
        let tls = MakeRustlsConnect::new(tls(roots.as_deref().map(Path::new))?);
        let manager = Manager::from_config(
            config,
            tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let opened = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&opened);
        let counted = Hook::sync_fn(move |_, _| {
            count.fetch_add(1, Ordering::AcqRel);
            Ok(())
        });
        let pool = Pool::builder(manager)
            .post_create(counted)
            .max_size(limits.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(limits.connect))
            .create_timeout(Some(limits.connect))
            .build()
            .map_err(|error| bad_url(&error.to_string()))?;
        let (presence, checked) = (Presence::default(), AtomicU64::new(0));
        let (checking, round_trips, write_fault) = Default::default();
        Ok(Self { pool, tls, limits, presence, opened, checked, checking, round_trips, write_fault })
    }

    /// The connections that are open now, and the number of times that one was used.
    pub fn usage(&self) -> DatabaseUsage {
        let status = self.pool.status();
        DatabaseUsage {
            open: status.size,
            idle: status.available,
            waiting: status.waiting,
            round_trips: self.round_trips.load(Ordering::Relaxed),
        }
    }

    /// A connection. After a new connection was opened, the database may be another one: it is checked first.
    pub async fn connection(&self) -> Result<Object, StoreError> {
        self.presence.check()?;
        let connection = self.unchecked_connection().await?;
        let opened = self.opened.load(Ordering::Acquire);
        if self.presence.is_announced() && self.checked.load(Ordering::Acquire) < opened {
            // One check for all requests of a burst.
            let _turn = self.checking.lock().await;
            if self.checked.load(Ordering::Acquire) < opened {
                match tokio::time::timeout(self.limits.read, self.beat_on(&connection)).await {
                    Ok(checked) => checked?,
                    Err(_) => {
                        self.abandon(connection);
                        return Err(too_late());
                    }
                }
                self.checked.fetch_max(opened, Ordering::AcqRel);
            }
        }
        Ok(connection)
    }

    /// A connection without a check. If the database has no connection left for this node, waits for one that
    /// another request returns.
    pub async fn unchecked_connection(&self) -> Result<Object, StoreError> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let until = Instant::now() + self.limits.connect;
        loop {
            let error = match self.pool.get().await {
                Ok(connection) => return Ok(connection),
                Err(PoolError::Backend(error)) => error,
                Err(PoolError::Timeout(_)) => return Err(unavailable("no connection was free in time")),
                Err(other) => return Err(unavailable(&other.to_string())),
            };
            let is_used_up = error.code() == Some(&SqlState::TOO_MANY_CONNECTIONS);
            if !is_used_up || Instant::now() + USED_UP_PAUSE >= until {
                return Err(failure("connect to the database", &error));
            }
            tokio::time::sleep(USED_UP_PAUSE).await;
        }
    }

    /// Closes a connection that has not answered in time, and cancels its statement. Closes the unused
    /// connections too, because the link has probably stalled: the next request notices sooner that a new
    /// connection fails.
    pub fn abandon(&self, connection: Object) {
        self.discard(connection);
        drop(self.pool.retain(|_, _| false));
    }

    /// Closes a connection whose statement is still running, and cancels the statement.
    pub fn discard(&self, connection: Object) {
        let (cancel, tls) = (Object::take(connection).cancel_token(), self.tls.clone());
        let limit = self.limits.connect;
        // The statement may have ended meanwhile, and the request to cancel it may fail as well.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { tokio::time::timeout(limit, cancel.cancel_query(tls)).await });
        }
    }

    /// Runs a query that only reads, within the time limit of requests, and returns all its rows. Repeats it
    /// if its connection turns out to be broken, for example because the database was restarted or has ended
    /// the connection.
    pub async fn query(
        &self,
        action: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.query_within(self.limits.read, action, sql, parameters).await
    }

    /// Runs a query as [`query`](Self::query) does, with another time limit.
    pub async fn query_within(
        &self,
        limit: Duration,
        action: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let until = Instant::now() + limit;
        let mut repeated = 0;
        loop {
            let connection = self.connection().await?;
            match tokio::time::timeout_at(until, connection.query_typed(sql, parameters)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) if is_ended(&connection, &error) && repeated < REPEATED_READS => {
                    repeated += 1;
                    // It may not be known as closed yet.
                    drop(Object::take(connection));
                }
                Ok(Err(error)) => return Err(failure(action, &error)),
                Err(_) => {
                    self.abandon(connection);
                    return Err(too_late());
                }
            }
        }
    }
}

/// Returns whether a statement failed because its connection has ended.
pub(super) fn is_ended(connection: &Object, error: &tokio_postgres::Error) -> bool {
    let ended = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN];
    connection.is_closed() || error.is_closed() || error.code().is_some_and(|code| ended.contains(code))
}

/// Returns whether a host is this machine.
fn is_here(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => matches!(name.as_str(), "localhost" | "127.0.0.1" | "::1" | "[::1]"),
        Host::Unix(_) => true,
    }
}

/// The password in a line of a password file, if the line is for this connection.
fn password_of_line(line: &str, attributes: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(next) = chars.next() {
        match next {
            // The password is the rest of the line, also if it contains a colon.
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(chars.next()),
            other => fields.last_mut()?.push(other),
        }
    }
    let password = (fields.len() == 5).then(|| fields.pop())??;
    let is_matched =
        fields.iter().zip(attributes).all(|(field, attributes)| field == "*" || field == attributes);
    is_matched.then_some(password)
}

/// Takes `sslrootcert` out of a URL, and writes the values of `sslmode` that libpq has for checked
/// certificates as `require`.
fn split_roots(url: &str) -> (String, Option<String>) {
    let Some((address, query)) = url.split_once('?') else { return (url.to_owned(), None) };
    let (mut roots, mut kept) = (None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslrootcert", file)) => {
                roots = Some(percent_decode_str(file).decode_utf8_lossy().into_owned())
            }
            Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
            _ => kept.push(pair),
        }
    }
    (format!("{address}?{}", kept.join("&")), roots)
}

fn tls(roots: Option<&Path>) -> Result<rustls::ClientConfig, StoreError> {
    let failed = |reason: String| StoreError::Engine { action: "prepare TLS to the database", reason };
    let provider = rustls::crypto::aws_lc_rs::default_provider().into();
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?;
    let Some(file) = roots else {
        return Ok(builder
            .with_platform_verifier()
            .map_err(|error| failed(error.to_string()))?
            .with_no_client_auth());
    };
    let mut store = rustls::RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(|all| all.collect::<Result<Vec<_>, _>>())
        .map_err(|error| failed(format!("{}: {error}", file.display())))?;
    if certificates.is_empty() {
        return Err(failed(format!("{} contains no certificate", file.display())));
    }
    for certificate in certificates {
        store.add(certificate).map_err(|error| failed(format!("{}: {error}", file.display())))?;
    }
    Ok(builder.with_root_certificates(store).with_no_client_auth())
}

fn bad_url(reason: &str) -> StoreError {
    StoreError::Engine { action: "use the URL of the database", reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            (
                "postgres://user:secret@db.example:5433/name?sslmode=require",
                "postgres://user@db.example:5433/name",
            ),
            ("postgresql://user:a@b@db.example/name", "postgresql://user@db.example/name"),
            ("postgres://db.example/name?password=secret", "postgres://db.example/name"),
        ] {
            let url = DatabaseUrl::new(url, Some("other".to_owned()));
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn tls_is_asked_for_unless_the_database_is_on_this_machine() {
        let mode = |url: &str| {
            let (config, roots) = DatabaseUrl::new(url, None).config(&DatabaseLimits::default()).unwrap();
            (config.get_ssl_mode(), roots)
        };
        assert_eq!(mode("postgres://u@localhost/n"), (SslMode::Disable, None));
        assert_eq!(mode("postgres://u@127.0.0.1,db.example/n"), (SslMode::Prefer, None));
        assert_eq!(mode("postgres://u@db.example/n"), (SslMode::Prefer, None));
        assert_eq!(mode("postgres://u@localhost/n?sslmode=require"), (SslMode::Require, None));
        let full = "postgres://u@db.example/n?sslrootcert=%2Fetc%2Fca.pem&sslmode=verify-full&application_name=a%20b";
        assert_eq!(mode(full), (SslMode::Require, Some("/etc/ca.pem".to_owned())));
    }

    #[test]
    fn a_password_comes_from_the_first_matching_line_of_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pgpass");
        let text = "# comment\ndb.example:5433:*:ada:wrong\ndb.example:*:name:ada:se\\:cr:et\n*:*:*:*:last\n";
        std::fs::write(&file, text).unwrap();
        let password = |url: &str, given: Option<&str>| {
            let url = DatabaseUrl::new(url, given.map(str::to_owned)).with_password_file(&file);
            url.map(|url| url.password).map_err(|error| error.to_string())
        };
        let set_mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o640);
        assert!(password("postgres://ada@db.example/name", None).unwrap_err().contains("chmod 600"));
        set_mode(0o600);
        assert_eq!(password("postgres://ada@db.example/name", None).unwrap().as_deref(), Some("se:cr:et"));
        assert_eq!(password("postgres://bob@db.example/name", None).unwrap().as_deref(), Some("last"));
        assert_eq!(
            password("postgres://ada@db.example/name", Some("given")).unwrap().as_deref(),
            Some("given")
        );
        assert!(DatabaseUrl::new("postgres://ada:secret@db.example/name", None).has_password());
        assert!(DatabaseUrl::new("postgres://ada@db.example/name?password=secret", None).has_password());
        assert!(!DatabaseUrl::new("postgres://ada@db.example/name", None).has_password());
        assert!(!DatabaseUrl::new("file", None).has_password());
    }

    #[test]
    fn a_standby_is_used_only_if_the_url_asks_for_it() {
        let target = |url: &str| {
            let (config, _) = DatabaseUrl::new(url, None).config(&DatabaseLimits::default()).unwrap();
            config.get_target_session_attrs()
        };
        assert_eq!(target("postgres://u@h/n"), TargetSessionAttrs::ReadWrite);
        assert_eq!(target("postgres://u@h/n?target_session_attrs=read-only"), TargetSessionAttrs::ReadOnly);
    }

    #[test]
    fn a_url_that_cannot_be_used_is_rejected_without_its_password() {
        for url in ["postgres://u:secret@h/n?unknown=1", "postgres:///n", "postgres://u:secret@h:port/n"] {
            let error = DatabaseUrl::new(url, None).check().unwrap_err().to_string();
            assert!(error.starts_with("failed to use the URL of the database: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
