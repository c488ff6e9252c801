//! User names (RFC 8265, profile UsernameCaseMapped; UTS 39, section 5.2).
//!
//! A new name must not look like another one: invisible characters, characters that change the direction of
//! text, and letters of mixed scripts are rejected. Names are compared in their mapped form, in which upper
//! case and full-width letters are mapped and the text is in NFC. Users whose names are older than these
//! rules can still sign in.

use precis_core::profile::PrecisFastInvocation as _;
use precis_profiles::{UsernameCaseMapped, UsernameCasePreserved};
use unicode_normalization::char::is_combining_mark;
use unicode_security::{GeneralSecurityProfile as _, RestrictionLevel, RestrictionLevelDetection as _};

/// Maximum length of a user name in characters.
const MAX_LENGTH: usize = 100;

/// A rule that a user name violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserNameDefect {
    /// The name is empty or too long.
    #[error("it must have 1 to 100 characters")]
    Length,
    /// The name contains `/`, which separates the segments of addresses.
    #[error("it must not contain '/'")]
    Slash,
    /// RFC 8265 does not allow a character, or the directions of the characters conflict.
    #[error(
        "spaces, control characters, invisible characters, symbols and conflicting text directions are not allowed (RFC 8265)"
    )]
    Precis,
    /// The name mixes scripts, for example Latin and Cyrillic letters that look the same.
    #[error(
        "it must not mix letters of several scripts, such as Latin and Cyrillic (UTS 39, highly restrictive)"
    )]
    MixedScripts,
}

/// Returns a new user name in the form in which it is shown: without white space around it, in NFC, with its
/// case.
///
/// # Errors
/// Returns the rule that the name violates.
pub fn check_new_name(name: &str) -> Result<String, UserNameDefect> {
    let name = name.trim();
    if name.contains('/') {
        return Err(UserNameDefect::Slash);
    }
    let display = UsernameCasePreserved::enforce(name);
    let too_long = |name: &str| name.is_empty() || name.chars().count() > MAX_LENGTH;
    if too_long(name) || display.as_ref().is_ok_and(|display_name| too_long(display_name)) {
        return Err(UserNameDefect::Length);
    }
    let display = display.map_err(|_| UserNameDefect::Precis)?.into_owned();
    let mapped = mapped_name(&display).ok_or(UserNameDefect::Precis)?;
    // Punctuation such as the `@` of e-mail addresses belongs to no script, but UTS 39 does not allow it in
    // identifiers.
    let letters: String = mapped.chars().filter(|c| !c.is_ascii() || c.is_ascii_alphanumeric()).collect();
    let is_allowed = letters.chars().all(|c| c.identifier_allowed());
    // A combining mark at the beginning would change the text before the name.
    if !is_allowed || mapped.chars().next().is_some_and(is_combining_mark) {
        return Err(UserNameDefect::Precis);
    }
    match letters.check_restriction_level(RestrictionLevel::HighlyRestrictive) {
        true => Ok(display),
        false => Err(UserNameDefect::MixedScripts),
    }
}

/// Returns the form in which a name is compared, or `None` if RFC 8265 does not allow the name. White space
/// around the name is ignored.
pub fn mapped_name(name: &str) -> Option<String> {
    UsernameCaseMapped::enforce(name.trim()).ok().map(std::borrow::Cow::into_owned)
}

/// Returns the form by which attempts to sign in with a name are counted, so that other spellings of a name
/// are not further names.
pub fn counted_name(name: &str) -> String {
    let name = name.trim();
    mapped_name(name).unwrap_or_else(|| name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn new_names_must_not_look_like_others() {
        #[track_caller]
        fn check(name: &str, expected: Result<&str, UserNameDefect>) {
            assert_eq!(check_new_name(name).as_deref(), expected.as_ref().map(|name| *name), "{name:?}");
        }
        for name in
            ["ada", "Ada", "ada.lovelace+test@mail.example", "jörg", "李雷", "たろう", "иван", "o'neil", "x"]
        {
            check(name, Ok(name));
        }
        check("ＡＤＡ", Ok("ADA"));
        check("jo\u{308}rg", Ok("jörg"));
        for spaces in [" ada", "ada ", "\tada\n", "\u{3000}ada\u{a0}"] {
            check(spaces, Ok("ada"));
        }
        check("", Err(UserNameDefect::Length));
        check("  ", Err(UserNameDefect::Length));
        check(&"a".repeat(101), Err(UserNameDefect::Length));
        check("a/b", Err(UserNameDefect::Slash));
        for invisible in [
            "ad\u{200b}a",
            "ad\u{ad}a",
            "\u{202e}ada",
            "ada\u{2066}",
            "ad\u{feff}a",
            "ad\u{180e}a",
            "a\u{34f}da",
        ] {
            check(invisible, Err(UserNameDefect::Precis));
        }
        for name in
            ["ada lovelace", "ada\u{a0}l", "a\tb", "ada\u{0}", "\u{301}", "ada☺", "אada", "ad\u{1d5ba}"]
        {
            check(name, Err(UserNameDefect::Precis));
        }
        // Cyrillic а, Greek ο, Armenian օ.
        for mixed in ["аda", "adа", "jοe", "jօe", "иvan"] {
            check(mixed, Err(UserNameDefect::MixedScripts));
        }
        check("東京tower", Ok("東京tower"));
    }

    #[test]
    fn names_are_compared_without_case_and_width() {
        assert_eq!(mapped_name("ＡDA").as_deref(), Some("ada"));
        assert_eq!(mapped_name("ada\u{200b}"), None);
        assert_eq!(counted_name("ADA\u{200b}"), "ada\u{200b}");
    }

    proptest! {
        #[test]
        fn names_of_one_script_are_accepted_and_have_one_mapped_form(
            name in "[a-z][a-z0-9._+-]{0,11}|[а-я]{1,12}|[α-ρτ-ω]{1,12}|[あ-ん]{1,12}",
        ) {
            prop_assert_eq!(check_new_name(&name), Ok(name.clone()));
            prop_assert_eq!(mapped_name(&name), Some(name.clone()));
            prop_assert_eq!(mapped_name(&name.to_uppercase()), Some(name));
        }

        #[test]
        fn an_accepted_name_is_accepted_unchanged_and_its_mapped_form_is_stable(name in "\\PC{1,12}") {
            if let Ok(display) = check_new_name(&name) {
                prop_assert_eq!(check_new_name(&display), Ok(display.clone()));
                let mapped = mapped_name(&display).unwrap();
                prop_assert_eq!(mapped_name(&mapped), Some(mapped.clone()));
                prop_assert_eq!(mapped_name(&name), Some(mapped));
            }
        }
    }
}
