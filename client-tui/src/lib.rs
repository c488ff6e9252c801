//! A terminal client for Trefoil and other servers that implement the same standards: sign-in, userinfo,
//! `$validate-code`, `$subsumes` and Bulk Data export.
//!
//! Every function of a screen is also available to scripts as a subcommand; both use [`api`]. The client
//! depends only on the interface of the server and shares no code with it.

#![allow(missing_docs, reason = "the library serves only the binary and its tests")]

pub mod api;
pub mod args;
pub mod batch;
pub mod browser;
pub mod clock;
pub mod commands;
pub mod compare;
pub mod display;
pub mod doctor;
pub mod exact_json;
pub mod export;
pub mod failure;
pub mod form;
pub mod fuzzy;
pub mod har;
pub mod headless;
pub mod history;
pub mod journey;
pub mod json_path;
pub mod key;
pub mod keys;
pub mod last_screens;
pub mod loopback;
pub mod model;
pub mod msg;
pub mod ndjson;
pub mod other_server;
pub mod output;
pub mod private_files;
pub mod profile;
pub mod runtime;
pub mod screen;
pub mod settings;
pub mod setup;
pub mod sign_in_method;
pub mod state_file;
pub mod terminal;
pub mod update;
pub mod user_programs;
pub mod view;
pub mod viewer_files;

/// Selects aws-lc-rs as the TLS implementation. Every `main` and every test calls this function before the
/// first request.
pub fn install_crypto() {
    // An error means that an implementation is already selected.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
