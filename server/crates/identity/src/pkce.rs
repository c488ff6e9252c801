//! Proof Key for Code Exchange (RFC 7636), method S256 only.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A code challenge of method S256: 43 characters of base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeChallenge(String);

impl CodeChallenge {
    /// Takes a challenge when it has the form that S256 gives (RFC 7636 4.2).
    pub fn parse(text: &str) -> Option<Self> {
        let shaped =
            text.len() == 43 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        shaped.then(|| Self(text.to_owned()))
    }

    /// The challenge of a verifier.
    pub fn of(verifier: &str) -> Self {
        Self(crate::jose::b64(&Sha256::digest(verifier.as_bytes())))
    }

    /// The challenge as it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Does the verifier answer this challenge (RFC 7636 4.6)? Compared in constant time.
    pub fn is_answered_by(&self, verifier: &str) -> bool {
        is_verifier(verifier) && bool::from(Self::of(verifier).0.as_bytes().ct_eq(self.0.as_bytes()))
    }
}

/// Is this a code verifier: 43 to 128 unreserved characters (RFC 7636 4.1)?
pub fn is_verifier(text: &str) -> bool {
    (43..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_7636_appendix_b() {
        let challenge = CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap();
        assert!(challenge.is_answered_by("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// PKCE: a challenge is answered by its verifier and by no other.
        #[test]
        fn one_verifier_answers(verifier in "[A-Za-z0-9._~-]{43,128}", other in "[A-Za-z0-9._~-]{43,128}") {
            let challenge = CodeChallenge::of(&verifier);
            prop_assert_eq!(CodeChallenge::parse(challenge.as_str()), Some(challenge.clone()));
            prop_assert!(challenge.is_answered_by(&verifier));
            prop_assert_eq!(challenge.is_answered_by(&other), verifier == other);
        }

        #[test]
        fn verifiers_of_a_wrong_form_answer_nothing(text in "\\PC{0,50}|[a-z]{1,42}|[a-z]{129,140}") {
            prop_assume!(!is_verifier(&text));
            prop_assert!(!CodeChallenge::of(&text).is_answered_by(&text));
        }
    }
}
