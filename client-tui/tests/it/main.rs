//! Tests of the client: update rules of the model, snapshots of the screens, requests to mock servers, and a
//! complete journey through the event loop. The keys in `keys/` were made for these tests and are not used
//! anywhere else.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod batch;
mod browser;
#[cfg(unix)]
mod bulk_data_server;
mod compare;
#[cfg(unix)]
mod copied_commands;
mod export;
mod faulty_server;
mod headless;
mod history;
mod journey;
mod jump;
mod key;
mod last_screens;
mod other_servers;
#[cfg(unix)]
mod pager;
mod profiles;
#[cfg(unix)]
mod pty;
mod public_server;
#[cfg(unix)]
mod reasons;
mod rude_terminal;
mod server;
mod session;
#[cfg(unix)]
mod signals;
// The conformance suite is tested against the same server.
#[cfg(unix)]
#[path = "../../../conformance/tests/it/bulk_server.rs"]
mod smart_bulk_server;
mod support;
mod tree;
mod update;
mod view;
mod wants;
mod wire;
