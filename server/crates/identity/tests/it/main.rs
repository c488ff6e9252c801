//! The rules of identity on a memory store, with a clock and a chance that the tests turn: grants are
//! spent once, tokens end when they should, requests are judged in SPEC's order.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod administration;
mod authorize;
mod client_auth;
mod device;
mod grants;
mod keys;
mod links;
mod passkeys;
mod sessions;
mod sign_in_methods;
mod support;
mod throttle;
