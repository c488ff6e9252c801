//! The crypto library of TLS.

/// Installs the crypto library for all TLS connections of the process.
pub fn install_crypto() {
    // An error means that the library is already installed.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}
