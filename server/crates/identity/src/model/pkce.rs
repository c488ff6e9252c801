//! Proof Key for Code Exchange (RFC 7636), method S256 only.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::encoding;

/// A code challenge of method S256: 43 characters of base64url.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeChallenge(String);

impl CodeChallenge {
    /// Parses a challenge. Returns `None` if the text is not a valid S256 challenge (RFC 7636 section 4.2).
    pub fn parse(text: &str) -> Option<Self> {
        let shaped =
            text.len() == 43 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        shaped.then(|| Self(text.to_owned()))
    }

    /// The challenge of a verifier.
    pub fn from_verifier(verifier: &str) -> Self {
        Self(encoding::encode_base64url(Sha256::digest(verifier.as_bytes())))
    }

    /// The challenge as the client sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` if the verifier matches this challenge (RFC 7636 section 4.6). The comparison takes
    /// constant time.
    pub fn matches_verifier(&self, verifier: &str) -> bool {
        is_code_verifier(verifier)
            && bool::from(Self::from_verifier(verifier).0.as_bytes().ct_eq(self.0.as_bytes()))
    }
}

/// Returns `true` if the text is a valid code verifier: 43 to 128 unreserved characters (RFC 7636 section
/// 4.1).
pub fn is_code_verifier(text: &str) -> bool {
    (43..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::Index;

    #[test]
    fn the_example_of_rfc_7636_appendix_b_is_accepted() {
        let challenge = CodeChallenge::parse("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM").unwrap();
        assert!(challenge.matches_verifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_verifier_matches_its_challenge(verifier in "[A-Za-z0-9._~-]{43,128}") {
            let challenge = CodeChallenge::from_verifier(&verifier);
            prop_assert_eq!(CodeChallenge::parse(challenge.as_str()), Some(challenge.clone()));
            prop_assert!(challenge.matches_verifier(&verifier));
        }

        /// The difference may be at any position, and only in case.
        #[test]
        fn a_verifier_that_differs_in_one_character_does_not_match(
            verifier in "[A-Za-z0-9._~-]{43,128}", index: Index, other in "[A-Za-z0-9._~-]", is_case: bool,
        ) {
            let index = index.index(verifier.len());
            let other_character = match is_case && verifier.as_bytes()[index].is_ascii_alphabetic() {
                true => ((verifier.as_bytes()[index] ^ 0x20) as char).to_string(),
                false => other,
            };
            let other = [&verifier[..index], &other_character, &verifier[index + 1..]].concat();
            prop_assume!(other != verifier);
            let challenge = CodeChallenge::from_verifier(&verifier);
            for other in [&other, &verifier[..index], &[&verifier, &*other_character].concat()] {
                prop_assert!(!challenge.matches_verifier(other), "{}", other);
            }
        }

        #[test]
        fn a_challenge_that_differs_in_one_character_does_not_match(
            verifier in "[A-Za-z0-9._~-]{43,128}", index in 0..43_usize, other in "[A-Za-z0-9_-]",
        ) {
            let challenge = CodeChallenge::from_verifier(&verifier);
            let text = challenge.as_str();
            let other_challenge = CodeChallenge::parse(&[&text[..index], &other, &text[index + 1..]].concat()).unwrap();
            prop_assert_eq!(other_challenge.matches_verifier(&verifier), other_challenge == challenge);
        }

        #[test]
        fn malformed_verifiers_do_not_match(text in "\\PC{0,50}|[a-z]{1,42}|[a-z]{129,140}") {
            prop_assume!(!is_code_verifier(&text));
            prop_assert!(!CodeChallenge::from_verifier(&text).matches_verifier(&text));
        }
    }
}
