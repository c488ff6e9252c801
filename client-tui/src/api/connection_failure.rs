//! Messages for failed connections: the reason, and how to correct it.

use std::error::Error;
use std::io;

use jiff::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// The reason for which an address returned no response.
pub(super) fn connection_failure(url: &str, error: &reqwest::Error) -> String {
    let reason = innermost(error);
    if let Some(error) = tls_error(error) {
        return tls_failure(url, error).unwrap_or(reason);
    }
    let answers_tls = reason.contains("invalid HTTP version") || reason.contains("before message completed");
    match url.strip_prefix("http://") {
        Some(rest) if answers_tls => {
            format!("{reason}; the server probably expects TLS there: https://{}", host_and_port(rest))
        }
        _ => reason,
    }
}

/// The last error of a chain, which names the cause.
pub(super) fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The error of TLS in a chain. It can be inside of errors of the socket, which do not name it as their
/// source.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(cause) = error.downcast_ref() {
        return Some(cause);
    }
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => tls_error(inner),
        None => error.source().and_then(tls_error),
    }
}

fn tls_failure(url: &str, error: &rustls::Error) -> Option<String> {
    let day = |time: &UnixTime| {
        let time = Timestamp::from_second(time.as_secs() as i64).unwrap_or(Timestamp::MAX);
        time.strftime("%Y-%m-%d").to_string()
    };
    match error {
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => {
            Some(format!(
                "the certificate of the server expired on {}, and this machine has the date {}: renew it, or correct the clock",
                day(not_after),
                day(time)
            ))
        }
        rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => {
            Some(format!(
                "the certificate of the server is valid from {} on, and this machine has the date {}: correct one of \
                 the clocks",
                day(not_before),
                day(time)
            ))
        }
        rustls::Error::InvalidCertificate(_) => {
            Some(format!("{error}; if this is your server, name its certificate with --ca FILE"))
        }
        rustls::Error::InvalidMessage(_) => {
            let rest = url.strip_prefix("https://").unwrap_or(url);
            Some(format!("the server does not speak TLS there; try http://{}", host_and_port(rest)))
        }
        _ => None,
    }
}

fn host_and_port(rest: &str) -> &str {
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}
