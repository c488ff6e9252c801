//! Comparison and search of texts without regard to case, accents and widths.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;

/// Returns whether two texts are equal without regard to case and to the normal form (Unicode, canonical
/// equivalence).
pub(crate) fn same_folded(a: &str, b: &str) -> bool {
    let lowered = |text: &str| text.nfc().flat_map(char::to_lowercase).nfd().collect::<String>();
    match a.is_ascii() && b.is_ascii() {
        true => a.eq_ignore_ascii_case(b),
        false => lowered(a) == lowered(b),
    }
}

/// The form of a text in which it is searched: in lower case, without accents, and with letters and digits of
/// normal width. Letters that Unicode does not decompose are written as people do who lack them (`Straße` as
/// `strasse`). Folding a folded text changes nothing.
pub(crate) fn fold(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return text.into();
    }
    if text.is_ascii() {
        return text.to_ascii_lowercase().into();
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.nfkd().filter(|letter| !is_accent(*letter)).flat_map(char::to_lowercase) {
        match letter {
            'ß' => out.push_str("ss"),
            'æ' => out.push_str("ae"),
            'œ' => out.push_str("oe"),
            'þ' => out.push_str("th"),
            'ø' => out.push('o'),
            'đ' | 'ð' => out.push('d'),
            'ł' => out.push('l'),
            'ħ' => out.push('h'),
            'ı' => out.push('i'),
            'ς' => out.push('σ'),
            letter => out.push(letter),
        }
    }
    out.into()
}

/// Accents of Latin, Greek, Cyrillic, Hebrew and Arabic. Marks of other scripts distinguish letters, such as
/// those of Japanese syllables.
fn is_accent(letter: char) -> bool {
    matches!(
        letter,
        '\u{300}'..='\u{36f}'
            | '\u{591}'..='\u{5bd}'
            | '\u{5bf}'
            | '\u{5c1}'..='\u{5c2}'
            | '\u{5c4}'..='\u{5c5}'
            | '\u{5c7}'
            | '\u{64b}'..='\u{65f}'
            | '\u{670}'
            | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20f0}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_the_same_in_every_case_and_normal_form() {
        for (a, b, expected) in [
            ("Fièvre", "fie\u{300}vre", true),
            ("FIE\u{300}VRE", "fièvre", true),
            ("Fièvre", "Fievre", false),
            ("İ", "I\u{307}", true),
            ("a\u{323}\u{307}", "a\u{307}\u{323}", true),
            ("가", "\u{1100}\u{1161}", true),
            ("Ångström", "A\u{30a}ngstro\u{308}m", true),
            ("Cold", "cOLD", true),
            ("ß", "ss", false),
        ] {
            assert_eq!(same_folded(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn accents_widths_and_case_are_folded() {
        for (text, expected) in [
            ("Fièvre", "fievre"),
            ("fie\u{300}vre", "fievre"),
            ("１１β", "11β"),
            ("STRASSE", "strasse"),
            ("Straße", "strasse"),
            ("Œdème", "oedeme"),
            ("Ménière’s", "meniere’s"),
            ("Łódź", "lodz"),
            ("ΟΔΟΣ", "οδοσ"),
            ("İstanbul", "istanbul"),
            ("ｶﾞﾝ", "カ\u{3099}ン"),
            ("ガン", "カ\u{3099}ン"),
            ("欠損症", "欠損症"),
            ("Привет", "привет"),
            ("plain", "plain"),
        ] {
            assert_eq!(fold(text), expected, "{text}");
        }
    }

    /// Returns the text with accents after the letters.
    fn accented(text: &str, accents: &[char]) -> String {
        let letters = text.chars().zip(accents.iter().cycle());
        letters
            .flat_map(
                |(letter, accent)| if letter.is_alphabetic() { vec![letter, *accent] } else { vec![letter] },
            )
            .collect()
    }

    proptest! {
        /// The letters have one form in each case, and Unicode decomposes none of them.
        #[test]
        fn only_case_accents_and_normal_form_are_folded(
            text in "[a-zA-Z0-9 .αβγДжя]{1,12}", accents in prop::collection::vec(prop::char::range('\u{300}', '\u{327}'), 1..4),
        ) {
            let expected = text.to_lowercase();
            let accented = accented(&text, &accents);
            let forms = [
                text.clone(), text.to_uppercase(), accented.to_uppercase(), accented.nfc().collect(),
                accented.nfd().collect(), accented.clone(),
            ];
            for form in forms {
                prop_assert_eq!(fold(&form), expected.as_str(), "{}", form);
            }
        }

        #[test]
        fn texts_are_the_same_exactly_if_only_case_and_normal_form_differ(
            text in "[a-zA-Z0-9 .αβγДжя]{1,8}", other in "[a-zA-Z0-9 .αβγДжя]{1,8}", is_other: bool,
            accents in prop::collection::vec(prop::char::range('\u{300}', '\u{304}'), 1..4),
        ) {
            let base = if is_other { other } else { text.to_uppercase() };
            let is_same = base.to_lowercase() == text.to_lowercase();
            prop_assert_eq!(same_folded(&text, &base), is_same);
            let [one, two] = [accented(&text, &accents), accented(&base, &accents)];
            prop_assert_eq!(same_folded(&one.nfc().collect::<String>(), &two.nfd().collect::<String>()), is_same);
            // An accent distinguishes, because none of the two texts is searched.
            prop_assert_eq!(same_folded(&one, &text), one == text);
        }

        #[test]
        fn a_folded_text_stays_the_same(text in "\\PC{0,12}") {
            let folded = fold(&text).into_owned();
            prop_assert_eq!(fold(&folded), folded.as_str(), "{}", text);
        }
    }
}
