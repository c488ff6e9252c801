//! Passwords, hashed with argon2id and stored as PHC strings. The parameters are the OWASP minimum: 19 MiB,
//! two passes, one lane.
//!
//! A hash takes 19 MiB of memory and tens of milliseconds. The caller limits the number of concurrent hashes
//! and computes them outside of the async threads.

use std::borrow::Cow;

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::random::Random;

/// Maximum length of a password in bytes, enough for 64 characters of any script in any normal form. Longer
/// ones are rejected before they are hashed.
pub const MAX_PASSWORD_BYTES: usize = 1024;

/// Words that people often combine with a year when a password must be changed regularly.
const CALENDAR_WORDS: [&str; 24] = [
    "spring",
    "summer",
    "autumn",
    "fall",
    "winter",
    "january",
    "february",
    "march",
    "april",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
    "season",
];

/// Reasons why a new password is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordError {
    /// The password has fewer characters than the policy requires.
    #[error("the password has {0} characters and must have at least {1}; choose a longer one")]
    TooShort(usize, usize),
    /// The password is longer than [`MAX_PASSWORD_BYTES`].
    #[error("the password has {0} bytes and must have at most {MAX_PASSWORD_BYTES}; choose a shorter one")]
    TooLong(usize),
    /// The password can be guessed with few attempts.
    #[error(
        "the password is easy to guess: it is a well-known one, or consists of a name, a word, a date or a keyboard row; \
         choose several unrelated words, or let a password manager generate one"
    )]
    Weak,
}

/// Requirements for a new password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswordPolicy {
    /// Minimum number of characters.
    pub min_length: usize,
    /// Minimum score of zxcvbn from 0 to 4. A score of 3 means 10^8 guesses, and 4 means 10^10.
    pub min_strength: u8,
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self { min_length: 8, min_strength: 3 }
    }
}

impl PasswordPolicy {
    /// Checks a new password for a user. The parts of the user name and of `service`, the address of the
    /// server, are treated as well-known words.
    ///
    /// # Errors
    /// Returns [`PasswordError`] for the first unmet requirement.
    pub fn check_password(&self, password: &str, username: &str, service: &str) -> Result<(), PasswordError> {
        if password.len() > MAX_PASSWORD_BYTES {
            return Err(PasswordError::TooLong(password.len()));
        }
        let password = &*normalized(password);
        let length = password.chars().count();
        if length < self.min_length {
            return Err(PasswordError::TooShort(length, self.min_length));
        }
        let (username, service) = (username.to_lowercase(), service.to_lowercase());
        let words: Vec<&str> = [username.as_str(), "trefoil"]
            .into_iter()
            .chain(username.split(|c: char| !c.is_alphanumeric()))
            .chain(service.split(|c: char| !c.is_alphanumeric()))
            .filter(|word| word.chars().count() > 2)
            .chain(CALENDAR_WORDS)
            .collect();
        let strength = |text: &str| u8::from(zxcvbn::zxcvbn(text, &words).score());
        // The user name is public, so the rest of the password must be strong enough without the name.
        let backwards: String = username.chars().rev().collect();
        let rest = password.to_lowercase().replace(&username, "").replace(&backwards, "");
        let is_part = username.chars().count() > 2 && rest.len() < password.len();
        if strength(password) < self.min_strength || (is_part && strength(&rest) < self.min_strength) {
            return Err(PasswordError::Weak);
        }
        Ok(())
    }
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(19 * 1024, 2, 1, None).expect("the parameters are within argon2's limits");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Prefix of every PHC string with the parameters of `argon2`.
const PHC_PREFIX: &str = "$argon2id$v=19$m=19456,t=2,p=1$";

/// Returns `true` if the hash was computed with other parameters than the current ones.
pub fn needs_rehash(phc: &str) -> bool {
    !phc.starts_with(PHC_PREFIX)
}

/// The form in which a password is hashed. Keyboards differ in the form in which they send an accented
/// letter (NIST SP 800-63B section 5.1.1.2).
fn normalized(password: &str) -> Cow<'_, str> {
    match is_nfc(password) {
        true => password.into(),
        false => password.nfc().collect(),
    }
}

/// Hashes a password in NFC and returns a PHC string. A new password must first pass
/// [`PasswordPolicy::check_password`].
pub fn hash_password(password: &str, random: &dyn Random) -> String {
    let mut salt = [0; 16];
    random.fill(&mut salt);
    let phc = argon2()
        .hash_password_with_salt(normalized(password).as_bytes(), &salt)
        .expect("the lengths of password and salt are within argon2's limits");
    phc.to_string()
}

/// Returns `true` if the password matches the hash, in NFC or as typed: older hashes are of what was typed.
/// For an unknown user there is no hash: the function then does the same work and returns `false`, so that
/// the response time does not reveal which users exist.
pub fn verify_password(password: &str, phc: Option<&str>) -> bool {
    // A hash with the same cost, of a password that is not known to anyone.
    const DUMMY_HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    if password.len() > MAX_PASSWORD_BYTES {
        return false;
    }
    let matches = |text: &str| argon2().verify_password(text.as_bytes(), phc.unwrap_or(DUMMY_HASH)).is_ok();
    let normalized = normalized(password);
    (matches(&normalized) || (normalized != password && matches(password))) && phc.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    const WELL_KNOWN: &str = include_str!("well_known_passwords.txt");

    fn check(password: &str, username: &str) -> Result<(), PasswordError> {
        PasswordPolicy::default().check_password(password, username, "https://id.meadow.example")
    }

    #[test]
    fn only_the_same_password_matches_its_hash() {
        let phc = hash_password("correct horse battery", &SystemRandom);
        assert!(!needs_rehash(&phc), "{phc}");
        assert!(needs_rehash("$argon2id$v=19$m=4096,t=3,p=1$c2FsdHNhbHQ$aGFzaA"));
        assert!(verify_password("correct horse battery", Some(&phc)));
        assert!(!verify_password("correct horse batterz", Some(&phc)));
        assert!(!verify_password("correct horse battery", None));
        assert_ne!(phc, hash_password("correct horse battery", &SystemRandom));
    }

    #[test]
    fn other_normal_forms_of_a_password_match() {
        let (composed, decomposed) = ("für Zoë, Nguyễn", "fu\u{308}r Zoe\u{308}, Nguye\u{302}\u{303}n");
        for first in [composed, decomposed] {
            let phc = hash_password(first, &SystemRandom);
            assert!([composed, decomposed].iter().all(|typed| verify_password(typed, Some(&phc))));
            assert!(!verify_password("fur Zoe, Nguyen", Some(&phc)));
        }
        // Earlier versions hashed what was typed.
        let typed = argon2().hash_password_with_salt(decomposed.as_bytes(), &[1; 16]).unwrap().to_string();
        assert!(verify_password(decomposed, Some(&typed)));
        assert!(!verify_password(composed, Some(&typed)));
        // The length counts characters of the composed form.
        assert_eq!(check(&"e\u{301}".repeat(7), "ada"), Err(PasswordError::TooShort(7, 8)));
    }

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(check("short", "ada"), Err(PasswordError::TooShort(5, 8)));
        assert_eq!(check(&"x".repeat(1025), "ada"), Err(PasswordError::TooLong(1025)));
        let any_policy = PasswordPolicy { min_length: 8, min_strength: 0 };
        // Characters of four bytes, and letters with three marks.
        for character in ["\u{20000}", "\u{1f600}", "a\u{302}\u{301}\u{323}"] {
            let password = character.repeat(64);
            assert_eq!(any_policy.check_password(&password, "ada", ""), Ok(()));
            assert!(verify_password(&password, Some(&hash_password(&password, &SystemRandom))));
        }
        let long = PasswordPolicy { min_length: 15, ..PasswordPolicy::default() };
        assert_eq!(long.check_password("kq7-vv2-xbt", "ada", ""), Err(PasswordError::TooShort(11, 15)));
    }

    #[test]
    fn no_well_known_password_is_accepted() {
        let tried: Vec<&str> = WELL_KNOWN.lines().collect();
        assert_eq!(tried.len(), 145);
        // With a minimum length of 1, no password is rejected for its length.
        let policy = PasswordPolicy { min_length: 1, ..PasswordPolicy::default() };
        let passwords: Vec<_> =
            tried.iter().filter(|tried| policy.check_password(tried, "ada", "").is_ok()).collect();
        assert_eq!(passwords, [&""; 0]);
        let any = PasswordPolicy { min_length: 8, min_strength: 0 };
        assert_eq!(any.check_password("password", "ada", ""), Ok(()));
    }

    #[test]
    fn a_few_words_are_accepted() {
        for password in [
            "a long password",
            "a walk in the garden",
            "a password of kTq2P0aZ",
            "correct horse battery",
            "Sommerregen-am-See",
            "kq7-vv2-xbt",
            "passwordless-garden",
        ] {
            assert_eq!(check(password, "ada"), Ok(()), "{password}");
        }
    }

    #[test]
    fn names_of_the_user_and_of_the_service_do_not_count_as_strength() {
        for password in [
            "willow.marsh",
            "WILLOW.MARSH1",
            "12willow.marsh!!",
            "hsram.wolliw",
            "willow.marshwillow.marsh",
            "Marsh2024!",
            "Trefoil2024!",
            "Meadow2024!",
        ] {
            assert_eq!(check(password, "Willow.Marsh"), Err(PasswordError::Weak), "{password}");
        }
        assert_eq!(check("the willow by the marsh", "willow"), Ok(()));
    }
}
