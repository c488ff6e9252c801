//! Why a client is not authenticated.

use store::StoreError;

use crate::client_auth::key_set_cache::KeySetUnreachable;

/// Reasons why a client assertion is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BadAssertion {
    #[error("the assertion is not a signed JWT")]
    Malformed,
    #[error("alg must be RS384, ES384, PS256, PS384, ES256, EdDSA, Ed25519 or RS256")]
    UnknownAlgorithm,
    #[error(
        "'{alg}' is not an algorithm registered for this client (registered: {registered}; default: RS384, ES384)"
    )]
    UnregisteredAlgorithm { alg: &'static str, registered: String },
    #[error("typ must be JWT or client-authentication+jwt")]
    Type,
    #[error("crit is not supported")]
    Critical,
    #[error("jku must be the registered jwks_uri")]
    Jku,
    #[error("kid is missing")]
    NoKid,
    #[error("kid does not match a registered key")]
    UnknownKid,
    #[error("the key of this kid does not support the algorithm or is not a signing key")]
    WrongKey,
    #[error("the signature does not match the registered key")]
    Signature,
    #[error("iss and sub must both be the client_id")]
    Issuer,
    #[error("aud must be a single value, the token endpoint or the issuer")]
    Audience,
    #[error(
        "aud must be the issuer as a string, because the client is registered with assertion_audience 'issuer'"
    )]
    AudienceNotIssuer,
    #[error("exp must be a number of seconds")]
    NoExpiry,
    #[error("the assertion has expired")]
    Expired,
    #[error("exp must be at most 5 minutes from now")]
    TooLong,
    #[error("iat or nbf is in the future")]
    Future,
    #[error("jti must have 1 to 256 bytes")]
    NoJti,
    #[error("jti was used before")]
    Replayed,
    #[error("iat is before a restore of the database; send a new assertion")]
    BeforeRestore,
}

/// Reasons why client authentication fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthError {
    /// The request is malformed. The text describes the defect.
    #[error("{0}")]
    InvalidRequest(&'static str),
    /// The client is unknown, the secret is wrong, or the method is not registered. The text is the same for
    /// all, so that it does not reveal which clients exist.
    #[error(
        "the client is unknown, its credentials are wrong, or its authentication method is not registered"
    )]
    InvalidClient,
    /// The secret is right, and the client is not registered for the method by which it was sent.
    #[error(
        "the client is registered for {}, not for {used}; the operator changes it by `trefoil client change ID --auth-method {used}`",
        registered.join(" and ")
    )]
    UnregisteredMethod {
        /// The method of the request.
        used: &'static str,
        /// The registered methods.
        registered: Vec<&'static str>,
    },
    /// The client assertion was rejected. The reason contains only values from the assertion and the
    /// registration.
    #[error("client assertion rejected: {0}")]
    BadAssertion(BadAssertion),
    /// The client's key set could not be fetched.
    #[error(transparent)]
    KeySet(#[from] KeySetUnreachable),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
