//! The stored form of what a version has besides its body: its source time and its compartments, as one text.
//!
//! The text is the names of the compartments with zero bytes between them. If the version has a source time,
//! `=` and the time precede them: microseconds since 1970 in 16 hexadecimal digits (two's complement), and a
//! zero byte. Versions of earlier programs, which knew no source time, have the same form without it.

use std::fmt::Write as _;

use jiff::Timestamp;

use crate::StoreError;

/// The character before a source time. No compartment begins with it.
pub(crate) const MARK: char = '=';
/// Length of a source time in the text, with the mark and the zero byte.
pub(crate) const MARKED: usize = 18;

/// The stored form.
pub(crate) fn encode(source_time: Option<Timestamp>, compartments: &[String]) -> String {
    let length = compartments.iter().map(|name| name.len() + 1).sum::<usize>();
    let mut text = String::with_capacity(MARKED + length);
    if let Some(time) = source_time {
        write!(text, "{MARK}{:016x}\0", time.as_microsecond()).expect("a String accepts all text");
    }
    for (index, name) in compartments.iter().enumerate() {
        if index > 0 {
            text.push('\0');
        }
        text.push_str(name);
    }
    text
}

/// The compartments in a text of the stored form.
pub(crate) fn compartments(text: &str) -> impl Iterator<Item = &str> {
    text.split('\0').filter(|name| !name.is_empty() && !name.starts_with(MARK))
}

/// The source time in a text of the stored form.
pub(crate) fn source_time(text: &str) -> Result<Option<Timestamp>, StoreError> {
    let Some(marked) = text.strip_prefix(MARK) else { return Ok(None) };
    let digits = marked.split('\0').next().unwrap_or_default();
    let time = u64::from_str_radix(digits, 16).ok().map(u64::cast_signed);
    let time = time.and_then(|microseconds| Timestamp::from_microsecond(microseconds).ok());
    time.map(Some).ok_or_else(|| StoreError::Corrupt { what: format!("the source time '{digits}'") })
}

/// Both parts of a text of the stored form.
pub(crate) fn decode(text: &str) -> Result<(Option<Timestamp>, Vec<String>), StoreError> {
    Ok((source_time(text)?, compartments(text).map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_parts_read_back(
            microseconds in proptest::option::of(-62_135_596_800_000_000i64..253_402_207_200_000_000),
            compartments in proptest::collection::vec("[A-Za-z@/]{1,8}", 0..4),
        ) {
            let time = microseconds.map(|number| Timestamp::from_microsecond(number).unwrap());
            let text = encode(time, &compartments);
            prop_assert_eq!(text.starts_with(MARK).then_some(MARKED), time.map(|_| text.find('\0').unwrap() + 1));
            prop_assert_eq!(decode(&text).unwrap(), (time, compartments));
        }
    }

    #[test]
    fn the_form_without_a_source_time_is_that_of_earlier_programs() {
        let names = ["Patient/a".to_owned(), "@Patient/b".to_owned()];
        assert_eq!(encode(None, &names), "Patient/a\0@Patient/b");
        assert_eq!(encode(None, &[]), "");
        assert!(decode("=x\0Patient/a").is_err());
    }
}
