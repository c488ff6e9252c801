//! Hosts to which tokens of exports are sent.
//!
//! A manifest and the header `Content-Location` can name any address. A token that is sent to another host
//! than the server's is lost to that host, so that the user must allow it first (`--file-host`).

use std::sync::PoisonError;

use url::Url;

use super::discovery::check_safe;
use super::{Api, ApiError, Bearer};

impl Api {
    /// Allows a host, such as `files.example` or `files.example:8443`, to receive the tokens of exports.
    pub fn allow_file_host(&self, host: &str) {
        self.0.file_hosts.lock().unwrap_or_else(PoisonError::into_inner).push(host.to_owned());
    }

    /// Checks that the token of an export may be sent to an address of a manifest or of `Content-Location`:
    /// the origin is that of the FHIR base, the issuer or a token endpoint, or the user has allowed the host.
    ///
    /// # Errors
    /// [`ApiError::ForeignHost`], or [`ApiError::Unexpected`] if the address is not safe.
    pub(crate) fn check_token_host(&self, address: &str, bearer: &Bearer) -> Result<(), ApiError> {
        if *bearer == Bearer::Anonymous {
            return Ok(());
        }
        check_safe(address)?;
        // It was parsed by the check.
        let Ok(url) = Url::parse(address) else { return Ok(()) };
        let own = [
            Some(self.profile().fhir_base.as_str()),
            Some(self.profile().base_url.as_str()),
            self.0.openid.get().map(|openid| openid.token_endpoint.as_str()),
            self.0.smart.get().map(|smart| smart.token_endpoint.as_str()),
        ];
        let mut own = own.into_iter().flatten().filter_map(|base| Url::parse(base).ok());
        if own.any(|base| base.origin() == url.origin()) {
            return Ok(());
        }
        let name = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let allowed = self.0.file_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed.contains(&host) {
            return Ok(());
        }
        Err(ApiError::ForeignHost { host })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ClientClock;
    use crate::profile::Profile;

    #[test]
    fn a_token_is_sent_to_the_server_and_to_allowed_hosts_only() {
        crate::install_crypto();
        let profile = Profile {
            fhir_base: "https://fhir.example/r4".to_owned(),
            file_hosts: vec!["files.example".to_owned()],
            ..Profile::at("https://t.example").unwrap()
        };
        let api = Api::new(profile, ClientClock::SYSTEM, Box::new(drop)).unwrap();
        let host = |url: &str| match api.check_token_host(url, &Bearer::Backend) {
            Ok(()) => None,
            Err(ApiError::ForeignHost { host }) => Some(host),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(host("https://fhir.example/jobs/1"), None);
        assert_eq!(host("https://t.example/jobs/1"), None);
        assert_eq!(host("https://files.example/1"), None);
        assert_eq!(host("https://files.example:8443/1").as_deref(), Some("files.example:8443"));
        assert_eq!(host("https://fhir.example.evil.example/1").as_deref(), Some("fhir.example.evil.example"));
        assert_eq!(host("https://fhir.example:444/1").as_deref(), Some("fhir.example:444"));
        assert!(api.check_token_host("http://fhir.example/1", &Bearer::Backend).is_err(), "without TLS");
        assert!(
            api.check_token_host("https://evil.example/1", &Bearer::Anonymous).is_ok(),
            "without a token"
        );
        api.allow_file_host("files.example:8443");
        assert_eq!(host("https://files.example:8443/1"), None);
    }
}
