//! Passwords: argon2id with 19 MiB, two passes, one lane (OWASP's floor), kept as PHC strings.
//!
//! Hashing is slow on purpose and takes 19 MiB; the caller bounds how many run at once and keeps
//! them off the async threads.

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};

use crate::random::Random;

/// Longest password that is hashed, in bytes; longer ones are refused before any work is done.
pub const LONGEST: usize = 128;

/// Words that people who must change a password again and again put before a year.
const CALENDAR: [&str; 24] = [
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

/// Why a new password was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordError {
    /// Fewer characters than the policy wants.
    #[error("the password has {0} characters and needs {1} or more; choose a longer one")]
    TooShort(usize, usize),
    /// Too long.
    #[error("the password has {0} bytes and may have {LONGEST}; choose a shorter one")]
    TooLong(usize),
    /// It can be guessed with few attempts.
    #[error(
        "the password is easy to guess: it is a well-known one, or made from a name, a word, a date or a row of keys; \
         choose a few words that do not belong together, or let a password manager make one"
    )]
    Weak,
}

/// What a new password must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswordPolicy {
    /// Minimum number of characters.
    pub min_length: usize,
    /// Minimum score of zxcvbn, 0 to 4: 3 is 10^8 guesses, 4 is 10^10.
    pub min_strength: u8,
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self { min_length: 8, min_strength: 3 }
    }
}

impl PasswordPolicy {
    /// Checks a new password of the user with this name. The parts of the name count as well-known words, and so do
    /// the parts of `service`, the server's address.
    ///
    /// # Errors
    /// [`PasswordError`]: what to change.
    pub fn check(&self, password: &str, username: &str, service: &str) -> Result<(), PasswordError> {
        if password.len() > LONGEST {
            return Err(PasswordError::TooLong(password.len()));
        }
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
            .chain(CALENDAR)
            .collect();
        let strength = |text: &str| u8::from(zxcvbn::zxcvbn(text, &words).score());
        // The user name is known to everybody, so that the rest of the password must be strong enough without it.
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

/// What the parameters above write at the head of a PHC string.
const HEAD: &str = "$argon2id$v=19$m=19456,t=2,p=1$";

/// Was this hash made with other parameters than today's?
pub fn is_outdated(phc: &str) -> bool {
    !phc.starts_with(HEAD)
}

/// Hashes a password into a PHC string. [`PasswordPolicy::check`] comes before that for a new one.
pub fn hash(password: &str, random: &dyn Random) -> String {
    let mut salt = [0; 16];
    random.fill(&mut salt);
    let phc = argon2()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .expect("a password and a salt of legal length hash");
    phc.to_string()
}

/// Is this the password of the hash? Without a hash (an unknown user) the same work is done and the
/// answer is no, so that time does not tell who exists.
pub fn verify(password: &str, phc: Option<&str>) -> bool {
    // A hash of nothing in particular, with the same cost.
    const NOBODY: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    if password.len() > LONGEST {
        return false;
    }
    argon2().verify_password(password.as_bytes(), phc.unwrap_or(NOBODY)).is_ok() && phc.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    const WELL_KNOWN: &str = include_str!("well_known_passwords.txt");

    fn check(password: &str, username: &str) -> Result<(), PasswordError> {
        PasswordPolicy::default().check(password, username, "https://id.meadow.example")
    }

    #[test]
    fn a_password_is_known_again_and_no_other() {
        let phc = hash("correct horse battery", &SystemRandom);
        assert!(!is_outdated(&phc), "{phc}");
        assert!(is_outdated("$argon2id$v=19$m=4096,t=3,p=1$c2FsdHNhbHQ$aGFzaA"));
        assert!(verify("correct horse battery", Some(&phc)));
        assert!(!verify("correct horse batterz", Some(&phc)));
        assert!(!verify("correct horse battery", None));
        assert_ne!(phc, hash("correct horse battery", &SystemRandom));
    }

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(check("short", "ada"), Err(PasswordError::TooShort(5, 8)));
        assert_eq!(check(&"x".repeat(129), "ada"), Err(PasswordError::TooLong(129)));
        let long = PasswordPolicy { min_length: 15, ..PasswordPolicy::default() };
        assert_eq!(long.check("kq7-vv2-xbt", "ada", ""), Err(PasswordError::TooShort(11, 15)));
    }

    #[test]
    fn no_well_known_password_is_accepted() {
        let tried: Vec<&str> = WELL_KNOWN.lines().collect();
        assert_eq!(tried.len(), 145);
        // The length is not what refuses them.
        let policy = PasswordPolicy { min_length: 1, ..PasswordPolicy::default() };
        let accepted: Vec<_> = tried.iter().filter(|tried| policy.check(tried, "ada", "").is_ok()).collect();
        assert_eq!(accepted, [&""; 0]);
        let any = PasswordPolicy { min_length: 8, min_strength: 0 };
        assert_eq!(any.check("password", "ada", ""), Ok(()));
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
    fn names_of_the_user_and_of_the_service_do_not_help() {
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
