//! The addresses of the server.

use anyhow::{Context as _, Result};

/// The addresses of the server, and what follows from them.
pub struct ServerAddress {
    /// Base URL without trailing slash.
    pub base_url: String,
    /// Base URL of the FHIR endpoints.
    pub fhir_base: String,
    /// The host of the base URL is a loopback name.
    pub is_loopback: bool,
    /// The base URL is HTTPS, so cookies are sent over HTTPS only.
    pub is_https: bool,
}

impl ServerAddress {
    /// Reads a base URL without trailing slash.
    ///
    /// # Errors
    /// An error if it is not a URL.
    pub fn new(base_url: String) -> Result<Self> {
        let url = url::Url::parse(&base_url).with_context(|| format!("base URL '{base_url}'"))?;
        let host = url.host_str().unwrap_or_default();
        Ok(Self {
            fhir_base: format!("{base_url}/fhir/R4"),
            is_loopback: matches!(host, "localhost" | "127.0.0.1" | "[::1]"),
            is_https: base_url.starts_with("https://"),
            base_url,
        })
    }
}
