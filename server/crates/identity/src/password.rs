//! Passwords: argon2id with 19 MiB, two passes, one lane (OWASP's floor), kept as PHC strings.
//!
//! Hashing is slow on purpose and takes 19 MiB; the caller bounds how many run at once and keeps
//! them off the async threads.

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};

use crate::random::Random;

/// Longest password that is hashed, in bytes; longer ones are refused before any work is done.
pub const LONGEST: usize = 128;
/// Shortest password that is accepted for a new one, in characters.
pub const SHORTEST: usize = 8;

/// Why a new password was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordError {
    /// Too short.
    #[error("the password has fewer than {SHORTEST} characters; choose a longer one")]
    TooShort,
    /// Too long.
    #[error("the password has more than {LONGEST} bytes; choose a shorter one")]
    TooLong,
}

fn argon2() -> Argon2<'static> {
    let params = Params::new(19 * 1024, 2, 1, None).expect("the parameters are within argon2's limits");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

/// Hashes a new password into a PHC string.
///
/// # Errors
/// [`PasswordError`] when it is too short or too long.
pub fn hash(password: &str, random: &dyn Random) -> Result<String, PasswordError> {
    if password.chars().count() < SHORTEST {
        return Err(PasswordError::TooShort);
    }
    if password.len() > LONGEST {
        return Err(PasswordError::TooLong);
    }
    let mut salt = [0; 16];
    random.fill(&mut salt);
    let phc = argon2()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .expect("a password and a salt of legal length hash");
    Ok(phc.to_string())
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

    #[test]
    fn a_password_is_known_again_and_no_other() {
        let phc = hash("correct horse battery", &SystemRandom).unwrap();
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        assert!(verify("correct horse battery", Some(&phc)));
        assert!(!verify("correct horse batterz", Some(&phc)));
        assert!(!verify("correct horse battery", None));
        assert_ne!(phc, hash("correct horse battery", &SystemRandom).unwrap());
    }

    #[test]
    fn lengths_are_bounded() {
        assert_eq!(hash("short", &SystemRandom), Err(PasswordError::TooShort));
        assert_eq!(hash(&"x".repeat(129), &SystemRandom), Err(PasswordError::TooLong));
    }
}
