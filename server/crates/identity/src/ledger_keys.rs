//! The keys of all records that this crate stores in the ledger.
//!
//! | key | record | written |
//! |---|---|---|
//! | `client/{client_id}` | registered client | at registration |
//! | `user/{sub}` | user | by administration |
//! | `username/{mapped name}` | subject of the user of this name | with the user |
//! | `user-email/{digest of address}/{sub}` | a user with this e-mail address; empty | with the user |
//! | `index/user-email` | all users are in the index of addresses; empty | once |
//! | `index/user-mapped-rights` | the rights of mappings have the time from which they count; empty | once |
//! | `factors/{sub}` | passkeys and recovery codes of a user | by compare-and-set |
//! | `link/{digest of issuer and subject}` | user who is or was linked to an external account | with `link-of` |
//! | `link-of/{sub}/{digest of issuer and subject}` | one account that is or was linked to a user | with `link` |
//! | `one-time-link/{digest of secret}` | user of a one-time link | until it expires |
//! | `one-time-link-of/{sub}` | the only live one-time link of a user | until it is used or expires |
//! | `pending-link/{digest of id}` | external account that is not linked yet | until it is linked |
//! | `flow/{digest of state}` | sign-in at an external provider | taken once |
//! | `ceremony/{digest of id}` | passkey ceremony | taken once |
//! | `session/{digest of cookie}` | browser session | about once a minute |
//! | `session-id/{digest of cookie}` | ids of a session and its user, also after the session has expired | when a session begins or ends |
//! | `sign-out/{digest of id}` | parameters of a sign-out request that arrived by POST | taken once |
//! | `session-of/{sub}/{sid}` | digest of the cookie of a user's session | when a session begins or ends |
//! | `consent/{sub}/{client_id}` | scopes that a user has allowed a client | by compare-and-set |
//! | `large-request/{id}` | parameters of an authorization request that is too large for an address | until it is answered |
//! | `code/{digest of code}` | authorization code | live, then spent |
//! | `refresh/{digest of token}` | refresh token | live, then spent |
//! | `device/{digest of device_code}` | device authorization | pending, answered, spent |
//! | `device-user/{MAC of user_code}` | key of the device authorization of a user code | until it is answered |
//! | `launch/{digest of id}` | launch context of a portal | once |
//! | `par/{digest of reference}` | pushed authorization request | once |
//! | `par-used/{digest of reference}` | pushed request that was granted | once |
//! | `jti/{client_id}/{digest of jti}` | used client assertion | once |
//! | `jti/dpop/{digest of key and jti}` | used DPoP proof | once |
//! | `revoked/{kind}/{id}` | revoked token, family or session | once |
//! | `revoked/consent/{sub}/{client_id}` | time at which a consent was withdrawn | at each withdrawal |
//! | `revoked/before-restore` | time at which the database was found to have gone back in time | each time |
//! | `lifetimes/longest` | longest lifetimes that were ever in effect | when one is raised |
//! | `throttle/{counter}/{digest}` | failed attempts | at each attempt |
//! | `configuration/edition` | number of the configuration whose clients are declared | when it rises |
//! | `marker/{records}` | shows other nodes that records were written | with each such record |
//! | `secret/keys` | signing keys, encrypted at rest | at each rotation |
//! | `secret/server` | server secret, encrypted at rest | at each rotation |

use crate::encoding::sha256_base64url;

pub(crate) fn large_request(id: &str) -> String {
    format!("large-request/{id}")
}

/// Beginnings of the keys of one-time links, which neither a restore nor a copy brings back: they may have
/// been used after the backup, or are used in the other store.
pub const NEVER_COPIED: &[&str] = &["one-time-link/", "one-time-link-of/"];

/// Beginnings of the keys of what a restore ends: the records of a backup would live again although they were
/// spent or revoked after it. What was spent, revoked or withdrawn before the backup stays.
pub const ENDED_BY_RESTORE: &[&str] = &[
    "ceremony/",
    "code/",
    "device/",
    "device-user/",
    "flow/",
    "large-request/",
    "launch/",
    NEVER_COPIED[0],
    NEVER_COPIED[1],
    "par/",
    "pending-link/",
    "refresh/",
    "session/",
    "session-id/",
    "session-of/",
    "sign-out/",
];

pub(crate) const CLIENTS: &str = "client/";
pub(crate) const USERS: &str = "user/";
pub(crate) const USER_EMAIL_INDEX: &str = "index/user-email";
pub(crate) const USER_DEFAULT_SCOPES: &str = "index/user-default-scopes";
pub(crate) const USER_MAPPED_RIGHTS: &str = "index/user-mapped-rights";
pub(crate) const REVOCATIONS: &str = "revoked/";
pub(crate) const RESTORED: &str = "revoked/before-restore";
pub(crate) const LONGEST_LIFETIMES: &str = "lifetimes/longest";
pub(crate) const CONFIGURATION_EDITION: &str = "configuration/edition";
pub(crate) const MARKERS: &str = "marker/";
pub(crate) const TOKEN_STATE_MARKER: &str = "marker/token-state";
pub(crate) const CLIENTS_MARKER: &str = "marker/clients";
pub(crate) const SECRETS_MARKER: &str = "marker/secrets";
pub(crate) const SECRETS: &str = "secret/";
pub(crate) const SIGNING_KEYS: &str = "secret/keys";
pub(crate) const SERVER_SECRET: &str = "secret/server";

pub(crate) fn client_record(client_id: &str) -> String {
    format!("{CLIENTS}{client_id}")
}

pub(crate) fn user_record(sub: &str) -> String {
    format!("{USERS}{sub}")
}

/// The key of a user name in its mapped form, or of an older name in lower case.
pub(crate) fn user_name(mapped: &str) -> String {
    format!("username/{mapped}")
}

/// The index key of an e-mail address of a user, or the prefix of all users with this address if `sub` is
/// empty. Addresses are compared without regard to ASCII case.
pub(crate) fn user_email(email: &str, sub: &str) -> String {
    format!("user-email/{}/{sub}", sha256_base64url(&email.to_ascii_lowercase()))
}

pub(crate) fn user_factors(sub: &str) -> String {
    format!("factors/{sub}")
}

pub(crate) fn account_link(account_id: &str) -> String {
    format!("link/{account_id}")
}

/// The key of a linked account, or the prefix of all linked accounts of a user if `account_id` is empty.
pub(crate) fn user_link(sub: &str, account_id: &str) -> String {
    format!("link-of/{sub}/{account_id}")
}

pub(crate) fn one_time_link(digest: &str) -> String {
    format!("one-time-link/{digest}")
}

pub(crate) fn one_time_link_of(sub: &str) -> String {
    format!("one-time-link-of/{sub}")
}

pub(crate) fn pending_link(id: &str) -> String {
    format!("pending-link/{}", sha256_base64url(id))
}

pub(crate) fn provider_flow(state: &str) -> String {
    format!("flow/{}", sha256_base64url(state))
}

pub(crate) fn passkey_ceremony(id: &str) -> String {
    format!("ceremony/{}", sha256_base64url(id))
}

pub(crate) fn session_record(cookie: &str) -> String {
    session_by_digest(&sha256_base64url(cookie))
}

pub(crate) fn session_by_digest(cookie_digest: &str) -> String {
    format!("session/{cookie_digest}")
}

pub(crate) fn session_identity(cookie_digest: &str) -> String {
    format!("session-id/{cookie_digest}")
}

pub(crate) fn sign_out_request(id: &str) -> String {
    format!("sign-out/{}", sha256_base64url(id))
}

/// The key of a session of a user, or the prefix of all sessions of a user if `sid` is empty.
pub(crate) fn user_session(sub: &str, sid: &str) -> String {
    format!("session-of/{sub}/{sid}")
}

/// The key of a consent, or the prefix of all consents of a user if `client_id` is empty.
pub(crate) fn consent_record(sub: &str, client_id: &str) -> String {
    format!("consent/{sub}/{client_id}")
}

pub(crate) fn authorization_code(code: &str) -> String {
    format!("code/{}", sha256_base64url(code))
}

pub(crate) fn refresh_token(token: &str) -> String {
    format!("refresh/{}", sha256_base64url(token))
}

pub(crate) fn device_request(device_code: &str) -> String {
    format!("device/{}", sha256_base64url(device_code))
}

pub(crate) fn device_user_code(mac: &str) -> String {
    format!("device-user/{mac}")
}

pub(crate) fn launch(digest: &str) -> String {
    format!("launch/{digest}")
}

pub(crate) fn pushed_request(reference_digest: &str) -> String {
    format!("par/{reference_digest}")
}

pub(crate) fn used_pushed_request(reference_digest: &str) -> String {
    format!("par-used/{reference_digest}")
}

pub(crate) fn used_assertion(client_id: &str, jti: &str) -> String {
    format!("jti/{client_id}/{}", sha256_base64url(jti))
}

pub(crate) fn used_proof(digest: &str) -> String {
    format!("jti/dpop/{digest}")
}

/// The key of a revocation. `kind` is `jti`, `family` or `sid`.
pub(crate) fn revocation(kind: &str, id: &str) -> String {
    format!("{REVOCATIONS}{kind}/{id}")
}

pub(crate) fn withdrawn_consent(sub: &str, client_id: &str) -> String {
    format!("{REVOCATIONS}consent/{sub}/{client_id}")
}

pub(crate) fn failure_counter(counter: &str, source: &str) -> String {
    format!("throttle/{counter}/{}", sha256_base64url(source))
}
