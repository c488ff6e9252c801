//! Audit events as messages of syslog (RFC 5424) over TCP (RFC 6587) or TLS (RFC 5425), each with its
//! length in front (octet counting).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::outcome::{Delivered, DeliveryError};

/// Longest time for a connection, and for the lines of one batch.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Facility "log audit" (RFC 5424 section 6.2.1).
const FACILITY: u8 = 13;
/// Severities of events that succeeded and failed: notice and warning.
const NOTICE: u8 = 5;
const WARNING: u8 = 4;
/// Greatest lengths of the name of the machine and of the id of a message (RFC 5424 section 6).
const MAX_HOST: usize = 255;
const MAX_MESSAGE_ID: usize = 32;

/// A syslog server.
pub(super) struct SyslogServer {
    host: String,
    port: u16,
    tls: bool,
    node: String,
    /// The connection, once there was one.
    connection: Option<Box<dyn Connection>>,
}

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl SyslogServer {
    pub(super) fn new(host: String, port: u16, tls: bool, node: String) -> Self {
        Self { host, port, tls, node, connection: None }
    }

    /// Sends lines over the connection, which is made if it is missing or was closed. Nobody acknowledges
    /// them: they count as sent once the operating system has them.
    pub(super) async fn send(&mut self, lines: &[String]) -> Result<Delivered, DeliveryError> {
        let messages: String = lines.iter().map(|line| frame(&message(&self.node, line))).collect();
        let write_result = tokio::time::timeout(TIMEOUT, self.write(messages.as_bytes())).await;
        let late = || DeliveryError::failed(format!("no progress within {} s", TIMEOUT.as_secs()));
        write_result.map_err(|_| late())?.map_err(DeliveryError::failed)?;
        Ok(Delivered::default())
    }

    /// Writes to the connection. It is used again only if that succeeds.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut connection = match self.connection.take().and_then(unless_closed) {
            Some(open) => open,
            None => self.connect().await?,
        };
        connection.write_all(bytes).await?;
        connection.flush().await?;
        self.connection = Some(connection);
        Ok(())
    }

    async fn connect(&mut self) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        if !self.tls {
            return Ok(Box::new(stream));
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_platform_verifier())
            .map_err(io::Error::other)?
            .with_no_client_auth();
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }
}

/// The connection, unless the server has closed it.
fn unless_closed(mut connection: Box<dyn Connection>) -> Option<Box<dyn Connection>> {
    // A syslog server sends nothing of use.
    let is_open = match connection.read(&mut [0; 256]).now_or_never() {
        None => true,
        Some(read) => read.is_ok_and(|length| length > 0),
    };
    is_open.then_some(connection)
}

/// A message with its length in bytes.
fn frame(message: &str) -> String {
    format!("{} {message}", message.len())
}

/// An event as a message. Its text is the AuditEvent, without the mark of UTF-8 that many receivers would
/// show.
fn message(node: &str, line: &str) -> String {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let severity = if matches!(event["outcome"].as_str(), Some("0") | None) { NOTICE } else { WARNING };
    let priority = FACILITY * 8 + severity;
    let time = event["recorded"].as_str().unwrap_or("-");
    let host = header_value(node, MAX_HOST);
    let id = header_value(event["type"]["code"].as_str().unwrap_or_default(), MAX_MESSAGE_ID);
    let process = std::process::id();
    format!("<{priority}>1 {time} {host} trefoil {process} {id} - {line}")
}

/// A value of the header: printable characters of ASCII; `-` if there is none.
fn header_value(text: &str, most: usize) -> String {
    let printable = text.chars().filter(char::is_ascii_graphic).take(most);
    let value: String = printable.collect();
    if value.is_empty() { "-".to_owned() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_header_of_rfc_5424() {
        let line =
            r#"{"type":{"code":"110114"},"recorded":"2026-03-01T02:30:00.250Z","outcome":"8","x":"ä"}"#;
        let process = std::process::id();
        let expected = format!("<108>1 2026-03-01T02:30:00.250Z node1 trefoil {process} 110114 - {line}");
        assert_eq!(message("node 1", line), expected);
        assert_eq!(message("", "cut off"), format!("<109>1 - - trefoil {process} - - cut off"));
        assert_eq!(frame("ä1"), "3 ä1");
    }
}
