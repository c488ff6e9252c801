//! A terminal client for Trefoil and any server that speaks the same standards: sign-in, userinfo,
//! `$validate-code`, `$subsumes` and Bulk Data export.
//!
//! Everything a person can do on a screen a script can do with a subcommand; both stand on [`api`].
//! The client knows the server only by its interface: it shares no code with it.

pub mod api;
pub mod args;
pub mod browser;
pub mod form;
pub mod headless;
pub mod journey;
pub mod key;
pub mod keys;
pub mod loopback;
pub mod model;
pub mod msg;
pub mod profile;
pub mod runtime;
pub mod update;
pub mod view;

/// Chooses aws-lc-rs for TLS. Every `main` and every test calls it before the first request.
pub fn install_crypto() {
    // An error says that it was chosen before, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
