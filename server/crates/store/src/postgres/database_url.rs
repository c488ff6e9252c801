//! The URL of a database, with its password and the files of its TLS.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::failure::chain;
use super::limits::DatabaseLimits;
use crate::StoreError;

/// Source of the password of a database whose URL contains none. A file is read for each new
/// connection, so that a rotated password needs no restart.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabasePassword {
    /// The password.
    Text(String),
    /// A file that contains the password alone.
    File(PathBuf),
    /// A file in PostgreSQL's format. Each line is `host:port:database:user:password`; `*` matches anything,
    /// and `\` escapes `:` and `\`.
    PasswordFile(PathBuf),
}

/// The URL of a database: `postgres://user:password@host:port/name?sslmode=…`. Shown without its password.
///
/// TLS is used if the server offers it, and required with `sslmode=require`, `verify-ca` or `verify-full`. A
/// certificate is always checked, with the roots of this machine or those in the PEM file `sslrootcert`.
/// Without `sslmode`, a server on this machine is asked without TLS. `sslcert` and `sslkey` name the PEM
/// files of a client certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    text: String,
    password: Option<DatabasePassword>,
}

/// The PEM files for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Certificates of the CAs of the database; `None` means those of this machine.
    pub roots: Option<PathBuf>,
    /// Certificate of this client, with its chain, and its private key.
    pub client: Option<(PathBuf, PathBuf)>,
}

impl DatabaseUrl {
    /// Returns whether a text has the form of such a URL.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Creates a URL. `password` is used if the URL contains none.
    pub fn new(text: impl Into<String>, password: Option<DatabasePassword>) -> Self {
        Self { text: text.into(), password }
    }

    /// Returns whether the URL contains a password.
    pub fn has_password(&self) -> bool {
        Self::is_url(&self.text) && self.parse().is_ok_and(|(config, _)| config.get_password().is_some())
    }

    /// Checks the URL and the files that it names, without connecting.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] with the part that is wrong.
    pub fn check(&self) -> Result<(), StoreError> {
        self.config(&DatabaseLimits::default()).map(drop)
    }

    /// The settings of a connection with the present password, and the files for TLS.
    pub(super) fn config(&self, limits: &DatabaseLimits) -> Result<(Config, TlsFiles), StoreError> {
        let (mut config, files) = self.parse()?;
        if !self.text.contains("sslmode=") && config.get_hosts().iter().all(is_here) {
            config.ssl_mode(SslMode::Disable);
        }
        if let (None, Some(password)) = (config.get_password(), &self.password)
            && let Some(password) = password.read(&config)?
        {
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
        Ok((config, files))
    }

    fn parse(&self) -> Result<(Config, TlsFiles), StoreError> {
        let (url, files) = split_files(&self.text)?;
        // The error does not contain the URL, whose password must not be shown.
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| bad_url(&chain(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(bad_url("it names no host"));
        }
        Ok((config, files))
    }
}

impl DatabasePassword {
    /// The password for a connection. `None` if a file in PostgreSQL's format has no line for it.
    fn read(&self, config: &Config) -> Result<Option<String>, StoreError> {
        let read = |file: &Path| {
            std::fs::read_to_string(file).map_err(|error| unusable_file(file, &error.to_string()))
        };
        match self {
            Self::Text(password) => Ok(Some(password.clone())),
            Self::File(file) => Ok(Some(read(file)?.trim().to_owned())),
            Self::PasswordFile(file) => {
                let metadata = std::fs::metadata(file);
                let metadata = metadata.map_err(|error| unusable_file(file, &error.to_string()))?;
                if metadata.permissions().mode() & 0o077 != 0 {
                    return Err(unusable_file(file, "other users may read it; run chmod 600"));
                }
                let host = match config.get_hosts().first() {
                    Some(Host::Tcp(name)) => name.clone(),
                    Some(Host::Unix(_)) | None => "localhost".to_owned(),
                };
                let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
                let user = config.get_user().unwrap_or_default();
                let database = config.get_dbname().unwrap_or(user);
                let attributes = [host.as_str(), &port, database, user];
                Ok(read(file)?.lines().find_map(|line| password_of_line(line, attributes)))
            }
        }
    }
}

fn unusable_file(file: &Path, reason: &str) -> StoreError {
    StoreError::Engine {
        action: "use the file with the password of the database",
        reason: format!("{}: {reason}", file.display()),
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

/// Takes the names of files for TLS out of a URL, and writes the values of `sslmode` that libpq has for
/// checked certificates as `require`.
fn split_files(url: &str) -> Result<(String, TlsFiles), StoreError> {
    let Some((address, query)) = url.split_once('?') else {
        return Ok((url.to_owned(), TlsFiles::default()));
    };
    let decode = |file: &str| PathBuf::from(percent_decode_str(file).decode_utf8_lossy().into_owned());
    let (mut roots, mut certificate, mut key, mut kept) = (None, None, None, Vec::new());
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslrootcert", file)) => roots = Some(decode(file)),
            Some(("sslcert", file)) => certificate = Some(decode(file)),
            Some(("sslkey", file)) => key = Some(decode(file)),
            Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
            _ => kept.push(pair),
        }
    }
    let client = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(bad_url("it needs both sslcert and sslkey, or neither")),
    };
    Ok((format!("{address}?{}", kept.join("&")), TlsFiles { roots, client }))
}

/// The error of a URL that cannot be used.
pub(super) fn bad_url(reason: &str) -> StoreError {
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
            let url = DatabaseUrl::new(url, Some(DatabasePassword::Text("other".to_owned())));
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn tls_is_asked_for_unless_the_database_is_on_this_machine() {
        let mode = |url: &str| {
            let (config, files) = DatabaseUrl::new(url, None).config(&DatabaseLimits::default()).unwrap();
            (config.get_ssl_mode(), files.roots)
        };
        assert_eq!(mode("postgres://u@localhost/n"), (SslMode::Disable, None));
        assert_eq!(mode("postgres://u@127.0.0.1,db.example/n"), (SslMode::Prefer, None));
        assert_eq!(mode("postgres://u@db.example/n"), (SslMode::Prefer, None));
        assert_eq!(mode("postgres://u@localhost/n?sslmode=require"), (SslMode::Require, None));
        let full = "postgres://u@db.example/n?sslrootcert=%2Fetc%2Fca.pem&sslmode=verify-full&application_name=a%20b";
        assert_eq!(mode(full), (SslMode::Require, Some(PathBuf::from("/etc/ca.pem"))));
    }

    #[test]
    fn a_password_comes_from_the_first_matching_line_of_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pgpass");
        let text = "# comment\ndb.example:5433:*:ada:wrong\ndb.example:*:name:ada:se\\:cr:et\n*:*:*:*:last\n";
        std::fs::write(&file, text).unwrap();
        let password = |url: &str| {
            let url = DatabaseUrl::new(url, Some(DatabasePassword::PasswordFile(file.clone())));
            let config = url.config(&DatabaseLimits::default()).map_err(|error| error.to_string())?.0;
            Ok::<_, String>(config.get_password().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()))
        };
        let set_mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o640);
        assert!(password("postgres://ada@db.example/name").unwrap_err().contains("chmod 600"));
        set_mode(0o600);
        assert_eq!(password("postgres://ada@db.example/name").unwrap().as_deref(), Some("se:cr:et"));
        assert_eq!(password("postgres://bob@db.example/name").unwrap().as_deref(), Some("last"));
        assert_eq!(password("postgres://ada:given@db.example/name").unwrap().as_deref(), Some("given"));
        // The file is read for each connection.
        std::fs::write(&file, "*:*:*:*:rotated\n").unwrap();
        assert_eq!(password("postgres://ada@db.example/name").unwrap().as_deref(), Some("rotated"));
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
        for url in [
            "postgres://u:secret@h/n?unknown=1",
            "postgres:///n",
            "postgres://u:secret@h:port/n",
            "postgres://u:secret@h/n?sslcert=a",
        ] {
            let error = DatabaseUrl::new(url, None).check().unwrap_err().to_string();
            assert!(error.starts_with("failed to use the URL of the database: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
