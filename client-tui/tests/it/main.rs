//! The client from outside: rules of the model, screens as pictures, the wire against small servers,
//! and a whole journey through the loop. The keys in `keys/` were made for these tests and open nothing.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests, too")]

mod headless;
mod journey;
mod key;
mod server;
mod support;
mod update;
mod view;
mod wire;
