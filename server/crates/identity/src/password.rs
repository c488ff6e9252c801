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
    /// Among the first that anybody tries.
    #[error("the password is among the first that anybody would try; choose another one")]
    Common,
    /// It is the user name.
    #[error("the password is made from the user name; choose another one")]
    UserName,
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

/// Words that common passwords are made from; digits and signs around them, and digits in the place of
/// letters, do not help.
const COMMON_WORDS: &[&str] = &[
    "abcabc",
    "abcdefg",
    "access",
    "admin",
    "administrator",
    "adminadmin",
    "alexander",
    "amanda",
    "andrea",
    "angel",
    "arsenal",
    "asdasd",
    "ashley",
    "banana",
    "barcelona",
    "baseball",
    "basketball",
    "batman",
    "blink",
    "butterfly",
    "changeme",
    "charlie",
    "cheese",
    "chelsea",
    "chocolate",
    "computer",
    "cookie",
    "corvette",
    "daniel",
    "default",
    "dragon",
    "family",
    "flower",
    "football",
    "freedom",
    "garfield",
    "ginger",
    "guest",
    "hallo",
    "hannah",
    "hello",
    "helloworld",
    "hockey",
    "hunter",
    "iloveyou",
    "internet",
    "jennifer",
    "jessica",
    "jonathan",
    "jordan",
    "joshua",
    "killer",
    "letmein",
    "liverpool",
    "login",
    "lovely",
    "loveme",
    "maggie",
    "manchester",
    "master",
    "matthew",
    "maverick",
    "mercedes",
    "michael",
    "michelle",
    "midnight",
    "monkey",
    "mustang",
    "nicole",
    "passw",
    "passwd",
    "passwort",
    "password",
    "passwordpassword",
    "patrick",
    "pepper",
    "phoenix",
    "pokemon",
    "princess",
    "purple",
    "rainbow",
    "robert",
    "samantha",
    "scooter",
    "secret",
    "shadow",
    "silver",
    "snoopy",
    "soccer",
    "spiderman",
    "starwars",
    "summer",
    "sunshine",
    "superman",
    "test",
    "testing",
    "testtest",
    "thomas",
    "thunder",
    "tigger",
    "trefoil",
    "trustno",
    "user",
    "victoria",
    "welcome",
    "whatever",
    "william",
    "winter",
    "yankees",
];

/// Rows of keys, forth and back, that fingers walk along.
const ROWS: &[&str] = &[
    "01234567890123456789",
    "abcdefghijklmnopqrstuvwxyz",
    "qwertyuiopasdfghjklzxcvbnm",
    "qwertzuiopasdfghjklyxcvbnm",
    "azertyuiopqsdfghjklmwxcvbn",
    "1q2w3e4r5t6z7u8i9o0p",
    "1q2w3e4r5t6y7u8i9o0p",
    "1qaz2wsx3edc4rfv5tgb",
    "qazwsxedcrfvtgbyhnujm",
];

/// Is it among the first that anybody would try?
fn is_common(password: &str) -> bool {
    let plain: String = password.to_lowercase();
    let letters: Vec<char> = plain.chars().collect();
    // One to four characters over and over: aaaaaaaa, 12121212, abcdabcd.
    let repeats = |period: usize| letters.iter().zip(&letters[period..]).all(|(a, b)| a == b);
    if (1..=4).any(|period| period < letters.len() && repeats(period)) {
        return true;
    }
    let in_a_row = |text: &str| {
        let back: String = text.chars().rev().collect();
        ROWS.iter().any(|row| row.contains(text) || row.contains(&back))
    };
    let word = plain.trim_matches(|c: char| !c.is_alphabetic());
    let unmasked: String = plain
        .trim_end_matches(|c: char| c.is_ascii_digit() || c.is_ascii_punctuation())
        .chars()
        .map(|c| match c {
            '0' => 'o',
            '1' | '!' => 'i',
            '3' => 'e',
            '4' | '@' => 'a',
            '5' | '$' => 's',
            '7' => 't',
            other => other,
        })
        .collect();
    in_a_row(&plain)
        || (word.len() >= 4 && in_a_row(word))
        || COMMON_WORDS.iter().any(|common| *common == word || *common == unmasked)
}

/// Refuses a password that is made from the user name: the name itself, forth or back, with nothing but
/// digits and signs around it.
///
/// # Errors
/// [`PasswordError::UserName`].
pub fn check_against_name(password: &str, username: &str) -> Result<(), PasswordError> {
    let (password, name) = (password.to_lowercase(), username.to_lowercase());
    let back: String = name.chars().rev().collect();
    let rest = |name: &str| password.split_once(name).map(|(before, after)| format!("{before}{after}"));
    let rest = rest(&name).or_else(|| rest(&back));
    match rest {
        Some(rest) if rest == name || !rest.chars().any(char::is_alphabetic) => Err(PasswordError::UserName),
        _ => Ok(()),
    }
}

/// Hashes a new password into a PHC string.
///
/// # Errors
/// [`PasswordError`] when it is too short, too long or among the first that anybody would try.
pub fn hash(password: &str, random: &dyn Random) -> Result<String, PasswordError> {
    if password.chars().count() < SHORTEST {
        return Err(PasswordError::TooShort);
    }
    if password.len() > LONGEST {
        return Err(PasswordError::TooLong);
    }
    if is_common(password) {
        return Err(PasswordError::Common);
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
        assert!(!is_outdated(&phc), "{phc}");
        assert!(is_outdated("$argon2id$v=19$m=4096,t=3,p=1$c2FsdHNhbHQ$aGFzaA"));
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

    #[test]
    fn what_anybody_would_try_is_refused() {
        let tried = [
            "password",
            "Password1",
            "P@ssw0rd",
            "passw0rd!",
            "12345678",
            "123456789",
            "1234567890",
            "87654321",
            "11111111",
            "aaaaaaaa",
            "abababab",
            "abcdabcd",
            "qwertyui",
            "QWERTY12",
            "qwertzuiop",
            "asdfghjkl",
            "1q2w3e4r",
            "1qaz2wsx",
            "iloveyou",
            "sunshine1",
            "letmein!!",
            "welcome123",
            "admin123",
            "football",
            "trustno1",
            "monkey123",
            "Trefoil2024!",
            "zyxwvuts",
        ];
        for password in tried {
            assert_eq!(hash(password, &SystemRandom), Err(PasswordError::Common), "{password}");
        }
        for password in ["correct horse battery", "Sommerregen-am-See", "kq7-vv2-xbt", "passwordless-garden"]
        {
            assert!(!is_common(password), "{password}");
        }
    }

    #[test]
    fn the_user_name_is_no_password() {
        for password in
            ["willow.marsh", "WILLOW.MARSH1", "12willow.marsh!!", "hsram.wolliw", "willow.marshwillow.marsh"]
        {
            assert_eq!(
                check_against_name(password, "Willow.Marsh"),
                Err(PasswordError::UserName),
                "{password}"
            );
        }
        assert_eq!(check_against_name("the willow by the marsh", "willow"), Ok(()));
    }
}
