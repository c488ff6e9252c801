//! Tests of the rules of identity on an in-memory store, with a clock and random bytes that the tests
//! control.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod administration;
mod authorize;
mod client_auth;
mod counted_rights;
mod declared_claims;
mod device;
mod dpop;
mod grants;
mod growth;
mod keys;
mod lifetimes;
mod links;
mod one_time_links;
mod passkeys;
mod provider_sign_in;
mod sessions;
mod sign_in_methods;
mod support;
mod throttle;
