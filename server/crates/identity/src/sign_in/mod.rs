//! Authentication of users: passwords, passkeys, recovery codes, external providers, sessions and throttling.

mod factors;
pub mod large_request_quota;
pub mod linked_account;
pub mod one_time_link;
pub mod passkey;
pub mod passkey_error;
pub mod password;
pub mod pending_quota;
pub mod provider_id_token;
pub mod provider_sign_in;
pub mod recovery_code;
pub mod session;
pub mod sign_in_methods;
pub mod sign_in_service;
pub mod throttle;
