//! `private_key_jwt`: client assertions (RFC 7523 section 3; SMART Backend Services).

use jiff::Timestamp;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::Value;
use store::{Expect, StoreError};

use crate::client_auth::authenticator::ClientAuthenticator;
use crate::client_auth::error::{BadAssertion, ClientAuthError};
use crate::jose::{self, JwsParts};
use crate::ledger_keys;
use crate::model::client::{AssertionAudiencePolicy, AuthMethod, Client};
use crate::storage::records;

/// Maximum distance of `exp` from now in seconds.
const MAX_EXPIRY_S: i64 = 300;
/// Tolerated time in seconds after `exp`.
const EXPIRY_LEEWAY_S: i64 = 10;
/// Tolerated time in seconds before `iat` and `nbf` (FAPI 2.0 Security Profile section 5.3.2.1): clocks of
/// clients are ahead more often than behind.
const FUTURE_LEEWAY_S: i64 = 60;

#[derive(Deserialize)]
struct AssertionClaims {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<AssertionAudience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    jti: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AssertionAudience {
    One(String),
    Many(Vec<String>),
}

impl AssertionClaims {
    /// Checks `aud` against the policy of the client.
    fn check_audience(&self, policy: AssertionAudiencePolicy, issuer: &str) -> Result<(), BadAssertion> {
        let aud = match (&self.aud, policy) {
            (Some(AssertionAudience::One(one)), AssertionAudiencePolicy::Issuer) if one == issuer => {
                return Ok(());
            }
            (_, AssertionAudiencePolicy::Issuer) => return Err(BadAssertion::AudienceNotIssuer),
            (Some(AssertionAudience::One(one)), _) => one,
            (Some(AssertionAudience::Many(many)), _) if many.len() == 1 => &many[0],
            _ => return Err(BadAssertion::Audience),
        };
        let is_token_endpoint = aud.strip_prefix(issuer) == Some("/oauth2/token");
        if aud == issuer || is_token_endpoint { Ok(()) } else { Err(BadAssertion::Audience) }
    }

    /// `true` if the assertion was issued before this time, at which the ledger lost used assertions. One
    /// without `iat` is accepted: a rejection would also affect clients that never send `iat`, until the last
    /// assertion issued before that time has expired. So is one whose `iat` was ahead of the clock.
    fn was_issued_before(&self, restored: Timestamp) -> bool {
        self.iat.is_some_and(|iat| iat < restored.as_second() as f64)
    }

    /// Checks the times and `jti`. Returns the expiry in seconds and the `jti`.
    fn check_times(&self, now: Timestamp) -> Result<(i64, &str), BadAssertion> {
        let now = now.as_second();
        let seconds = |time: f64| (time.abs() < 1e15).then_some(time.floor() as i64);
        let exp = self.exp.and_then(seconds).ok_or(BadAssertion::NoExpiry)?;
        if exp + EXPIRY_LEEWAY_S <= now {
            return Err(BadAssertion::Expired);
        }
        if exp > now + MAX_EXPIRY_S + EXPIRY_LEEWAY_S {
            return Err(BadAssertion::TooLong);
        }
        for time in [self.nbf, self.iat].into_iter().flatten() {
            if seconds(time).is_none_or(|time| time > now + FUTURE_LEEWAY_S) {
                return Err(BadAssertion::Future);
            }
        }
        let jti =
            self.jti.as_deref().filter(|jti| (1..=256).contains(&jti.len())).ok_or(BadAssertion::NoJti)?;
        Ok((exp, jti))
    }
}

/// Algorithms of client assertions for a client that has registered none (SMART Backend Services).
const SMART_ALGORITHMS: [&str; 2] = ["RS384", "ES384"];

/// The algorithm named in the header if it is registered for the client.
fn registered_algorithm(name: &str, client: &Client) -> Result<Algorithm, BadAssertion> {
    let verified = jose::VERIFIED_ALGORITHMS.into_iter().find(|(verified, _)| *verified == name);
    let (alg, algorithm) = verified.ok_or(BadAssertion::UnknownAlgorithm)?;
    // Algorithms are compared, not names: `EdDSA` and `Ed25519` are the same.
    let is_same = |name: &str| jose::verified_algorithm(name) == Some(algorithm);
    let is_registered = match client.assertion_algs.as_slice() {
        [] => SMART_ALGORITHMS.into_iter().any(is_same),
        registered => registered.iter().any(|name| is_same(name)),
    };
    if is_registered {
        return Ok(algorithm);
    }
    let registered = match client.assertion_algs.as_slice() {
        [] => "none".to_owned(),
        registered => registered.join(", "),
    };
    Err(BadAssertion::UnregisteredAlgorithm { alg, registered })
}

/// Checks the signature. The key is selected by `kid`, `kty` and `alg` (SMART Backend Services).
fn check_signature(
    parts: &JwsParts<'_>,
    kid: &str,
    alg: Algorithm,
    keys: &[Value],
) -> Result<(), BadAssertion> {
    let mut candidates = keys.iter().filter(|key| key["kid"] == kid).peekable();
    if candidates.peek().is_none() {
        return Err(BadAssertion::UnknownKid);
    }
    let mut usable = candidates.filter_map(|key| jose::verification_key(key, alg)).peekable();
    if usable.peek().is_none() {
        return Err(BadAssertion::WrongKey);
    }
    if usable.any(|key| parts.has_valid_signature(&key, alg)) { Ok(()) } else { Err(BadAssertion::Signature) }
}

impl ClientAuthenticator {
    /// Verifies a client assertion and marks its `jti` as used.
    pub(crate) async fn verify_assertion(
        &self,
        assertion: &str,
        now: Timestamp,
    ) -> Result<Client, ClientAuthError> {
        let bad = ClientAuthError::BadAssertion;
        let parts = JwsParts::parse(assertion).ok_or(bad(BadAssertion::Malformed))?;
        if !jose::assertion_algorithms().any(|candidate| candidate == parts.header.alg) {
            return Err(bad(BadAssertion::UnknownAlgorithm));
        }
        let types = ["jwt", "client-authentication+jwt"];
        let is_assertion = |typ: &str| types.iter().any(|candidate| candidate.eq_ignore_ascii_case(typ));
        if !parts.header.typ.as_deref().is_none_or(is_assertion) {
            return Err(bad(BadAssertion::Type));
        }
        if parts.header.crit.is_some() {
            return Err(bad(BadAssertion::Critical));
        }
        let kid = parts.header.kid.as_deref().ok_or(bad(BadAssertion::NoKid))?;
        let claims: AssertionClaims = parts.claims().ok_or(bad(BadAssertion::Malformed))?;
        let iss = claims
            .iss
            .as_deref()
            .filter(|iss| claims.sub.as_deref() == Some(iss))
            .ok_or(bad(BadAssertion::Issuer))?;
        let client = self.clients.active_client(iss, now).await?.ok_or(ClientAuthError::InvalidClient)?;
        if !client.auth_methods.contains(&AuthMethod::PrivateKeyJwt) {
            return Err(ClientAuthError::InvalidClient);
        }
        let alg = registered_algorithm(&parts.header.alg, &client).map_err(bad)?;
        if parts.header.jku.is_some() && parts.header.jku != client.jwks_uri {
            return Err(bad(BadAssertion::Jku));
        }
        // These checks need no key. They precede the signature check, so that an invalid assertion does not
        // cause a fetch of a key set.
        claims.check_audience(client.assertion_audience, &self.issuer).map_err(bad)?;
        let (exp, jti) = claims.check_times(now).map_err(bad)?;
        if let Some(restored) = self.revocations.restored_at(now).await?
            && claims.was_issued_before(restored)
        {
            return Err(bad(BadAssertion::BeforeRestore));
        }
        match &client.jwks_uri {
            Some(address) => {
                let keys = self.key_sets.keys_for(address, kid, now).await?;
                check_signature(&parts, kid, alg, &keys).map_err(bad)?;
            }
            None => check_signature(&parts, kid, alg, &client.jwks).map_err(bad)?,
        }
        // The `jti` is marked as used only after the signature check, so that other senders cannot use up the
        // client's `jti` values.
        let expires =
            Timestamp::from_second(exp + EXPIRY_LEEWAY_S + 1).map_err(|_| bad(BadAssertion::NoExpiry))?;
        let key = ledger_keys::used_assertion(&client.client_id, jti);
        match self
            .ledger
            .write(vec![records::put_record(key, &true, Some(expires), Expect::Absent)], now)
            .await
        {
            Ok(_) => Ok(client),
            Err(StoreError::Conflict { .. }) => Err(bad(BadAssertion::Replayed)),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUDIENCES: [&str; 2] = ["https://as.example/oauth2/token", "https://as.example"];

    const ISSUER: &str = AUDIENCES[1];

    #[track_caller]
    fn check(claims: serde_json::Value, expected: Result<(), BadAssertion>) {
        let claims: AssertionClaims = serde_json::from_value(claims).unwrap();
        let now = Timestamp::from_second(1_000_000).unwrap();
        let claims_result = claims
            .check_audience(AssertionAudiencePolicy::default(), ISSUER)
            .and_then(|()| claims.check_times(now).map(drop));
        assert_eq!(claims_result, expected);
    }

    #[test]
    fn an_assertion_that_is_older_than_a_restore_is_recognized() {
        use serde_json::json;
        let restored = Timestamp::from_second(1_000).unwrap();
        for (claims, was_issued_before) in [
            (json!({ "iat": 999, "exp": 1_290 }), true),
            (json!({ "iat": 1_000, "exp": 1_290 }), false),
            (json!({ "exp": 1_100 }), false),
        ] {
            let parsed: AssertionClaims = serde_json::from_value(claims.clone()).unwrap();
            assert_eq!(parsed.was_issued_before(restored), was_issued_before, "{claims}");
        }
    }

    #[test]
    fn the_audience_policy_of_a_client_is_applied() {
        use serde_json::json;
        for (aud, default, issuer_only) in [
            (json!(ISSUER), true, true),
            (json!(AUDIENCES[0]), true, false),
            (json!([ISSUER]), true, false),
            (json!(AUDIENCES), false, false),
            (json!([]), false, false),
            (json!("https://as.example/"), false, false),
            (json!("https://as.example/oauth2/token/"), false, false),
            (json!("https://as.example.evil/oauth2/token"), false, false),
            (json!(null), false, false),
        ] {
            let claims: AssertionClaims = serde_json::from_value(json!({ "aud": aud })).unwrap();
            let accepts = |policy| claims.check_audience(policy, ISSUER).is_ok();
            let audiences = (
                accepts(AssertionAudiencePolicy::TokenEndpointOrIssuer),
                accepts(AssertionAudiencePolicy::Issuer),
            );
            assert_eq!(audiences, (default, issuer_only), "{aud}");
        }
    }

    #[test]
    fn ed25519_and_eddsa_name_the_same_algorithm() {
        let with = |names: &[&str]| Client {
            assertion_algs: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Client::new("c")
        };
        for name in ["EdDSA", "Ed25519"] {
            for registered in ["EdDSA", "Ed25519"] {
                assert!(registered_algorithm(name, &with(&[registered])).is_ok(), "{name} {registered}");
            }
            assert!(registered_algorithm(name, &with(&["ES256"])).is_err(), "{name}");
            assert!(registered_algorithm(name, &with(&[])).is_err(), "{name}");
        }
    }

    #[test]
    fn times_and_audience_are_checked() {
        let good = |exp: i64| serde_json::json!({ "aud": AUDIENCES[0], "exp": exp, "jti": "j" });
        check(good(1_000_300), Ok(()));
        check(good(1_000_310), Ok(()));
        check(good(1_000_311), Err(BadAssertion::TooLong));
        check(good(999_991), Ok(()));
        check(good(999_990), Err(BadAssertion::Expired));
        check(serde_json::json!({ "aud": [AUDIENCES[1]], "exp": 1_000_100, "jti": "j" }), Ok(()));
        check(
            serde_json::json!({ "aud": AUDIENCES, "exp": 1_000_100, "jti": "j" }),
            Err(BadAssertion::Audience),
        );
        check(serde_json::json!({ "aud": [], "exp": 1_000_100, "jti": "j" }), Err(BadAssertion::Audience));
        check(
            serde_json::json!({ "aud": "https://other.example", "exp": 1_000_100, "jti": "j" }),
            Err(BadAssertion::Audience),
        );
        check(serde_json::json!({ "aud": AUDIENCES[0], "jti": "j" }), Err(BadAssertion::NoExpiry));
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1e300, "jti": "j" }),
            Err(BadAssertion::NoExpiry),
        );
        check(serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100 }), Err(BadAssertion::NoJti));
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100, "jti": "j", "iat": 1_000_060 }),
            Ok(()),
        );
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100, "jti": "j", "iat": 1_000_061 }),
            Err(BadAssertion::Future),
        );
        check(
            serde_json::json!({ "aud": AUDIENCES[0], "exp": 1_000_100, "jti": "j", "nbf": 1_000_061 }),
            Err(BadAssertion::Future),
        );
    }
}
