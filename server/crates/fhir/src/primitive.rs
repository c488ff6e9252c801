//! The primitive data types of FHIR R4 and the formats of their values (FHIR R4, data types).

use jiff::civil;

use crate::IdLength;

#[expect(missing_docs, reason = "the names are those of FHIR's primitive data types")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Primitive {
    Base64Binary,
    Boolean,
    Canonical,
    Code,
    Date,
    DateTime,
    Decimal,
    Id,
    Instant,
    Integer,
    Markdown,
    Oid,
    PositiveInt,
    String,
    Time,
    UnsignedInt,
    Uri,
    Url,
    Uuid,
    Xhtml,
}

/// The form of a primitive value in JSON (FHIR R4, JSON representation of resources).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonForm {
    /// `true` or `false`.
    Boolean,
    /// A number without quotes.
    Number,
    /// A text in quotes.
    String,
}

/// A value that does not have the format of its data type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatDefect {
    /// The format that is expected.
    pub expected: &'static str,
    /// `true` if typed readers cannot represent the value at all, because it is not a date or not an integer.
    pub is_unreadable: bool,
}

const DATE: &str = "a date such as 2026, 2026-01 or 2026-01-31";
const DATE_TIME: &str = "a date, or a time such as 2026-01-31T08:00:00+01:00";
const INSTANT: &str = "an instant such as 2026-01-31T08:00:00+01:00";
const TIME: &str = "a time of day such as 08:00:00";
const INTEGER: &str = "a whole number from -2147483648 to 2147483647, without exponent";

impl Primitive {
    /// The data type with this name.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "base64Binary" => Self::Base64Binary,
            "boolean" => Self::Boolean,
            "canonical" => Self::Canonical,
            "code" => Self::Code,
            "date" => Self::Date,
            "dateTime" => Self::DateTime,
            "decimal" => Self::Decimal,
            "id" => Self::Id,
            "instant" => Self::Instant,
            "integer" => Self::Integer,
            "markdown" => Self::Markdown,
            "oid" => Self::Oid,
            "positiveInt" => Self::PositiveInt,
            "string" => Self::String,
            "time" => Self::Time,
            "unsignedInt" => Self::UnsignedInt,
            "uri" => Self::Uri,
            "url" => Self::Url,
            "uuid" => Self::Uuid,
            "xhtml" => Self::Xhtml,
            _ => return None,
        })
    }

    /// The form of the values in JSON.
    pub fn json_form(self) -> JsonForm {
        match self {
            Self::Boolean => JsonForm::Boolean,
            Self::Decimal | Self::Integer | Self::PositiveInt | Self::UnsignedInt => JsonForm::Number,
            _ => JsonForm::String,
        }
    }

    /// Checks a value in the form of [`json_form`](Self::json_form): the text of a string, or a number as it
    /// is written.
    ///
    /// ```
    /// use trefoil_fhir::primitive::Primitive;
    ///
    /// assert!(Primitive::Date.check("2024-02-29").is_ok());
    /// assert!(Primitive::Date.check("2023-02-29").unwrap_err().is_unreadable);
    /// ```
    ///
    /// # Errors
    /// The format that the value does not have.
    pub fn check(self, value: &str) -> Result<(), FormatDefect> {
        match self {
            Self::Boolean | Self::Decimal => Ok(()),
            Self::Integer | Self::PositiveInt | Self::UnsignedInt => self.check_integer(value),
            Self::Date => readable(is_date(value), DATE),
            Self::DateTime => check_date_time(value),
            Self::Instant => readable(is_instant(value), INSTANT),
            Self::Time => readable(after_time(value).is_some_and(|time| time.is_all()), TIME),
            _ => self.check_text(value),
        }
    }

    fn check_integer(self, value: &str) -> Result<(), FormatDefect> {
        let number: i32 =
            value.parse().map_err(|_| FormatDefect { expected: INTEGER, is_unreadable: true })?;
        match self {
            Self::PositiveInt => regular(number > 0, "a whole number of at least 1"),
            Self::UnsignedInt => regular(number >= 0, "a whole number of at least 0"),
            _ => Ok(()),
        }
    }

    /// Checks a text that every reader can represent, whatever it contains.
    fn check_text(self, value: &str) -> Result<(), FormatDefect> {
        let has_space = || value.contains(|c: char| c.is_ascii_whitespace());
        match self {
            Self::Base64Binary => regular(is_base64(value), "base64 of RFC 4648"),
            Self::Code => {
                let is_code = value.split(' ').all(|word| !word.is_empty())
                    && !value.contains(|c: char| c.is_ascii_whitespace() && c != ' ');
                regular(is_code, "a code without whitespace, except single spaces between words")
            }
            // The ids `.` and `..` are refused only for resources.
            Self::Id => regular(IdLength::R4.permits(value), "1 to 64 letters, digits, '-' and '.'"),
            Self::Oid => regular(is_oid(value), "an OID such as urn:oid:1.2.3"),
            Self::Uuid => {
                let uuid = value.strip_prefix("urn:uuid:").unwrap_or_default();
                regular(is_uuid(uuid), "a UUID such as urn:uuid:c757873d-ec9a-4326-a141-556f43239520")
            }
            Self::Canonical | Self::Uri | Self::Url => regular(!has_space(), "a URI without whitespace"),
            Self::Xhtml => regular(value.trim_start().starts_with("<div"), "XHTML that begins with <div"),
            _ => {
                let is_control = |c: char| c < ' ' && !matches!(c, '\t' | '\n' | '\r');
                regular(!value.contains(is_control), "a text without control characters")
            }
        }
    }
}

fn readable(is_readable: bool, expected: &'static str) -> Result<(), FormatDefect> {
    if is_readable { Ok(()) } else { Err(FormatDefect { expected, is_unreadable: true }) }
}

fn regular(is_regular: bool, expected: &'static str) -> Result<(), FormatDefect> {
    if is_regular { Ok(()) } else { Err(FormatDefect { expected, is_unreadable: false }) }
}

/// The rest of a text after its date, and the number of parts that the date has: year, month and day.
fn after_date(text: &str) -> Option<(&str, usize)> {
    let (year, rest) = after_number(text, 4)?;
    if year == 0 {
        return None;
    }
    let Some(rest) = rest.strip_prefix('-') else { return Some((rest, 1)) };
    let (month, rest) = after_number(rest, 2)?;
    if !(1..=12).contains(&month) {
        return None;
    }
    let Some(rest) = rest.strip_prefix('-') else { return Some((rest, 2)) };
    let (day, rest) = after_number(rest, 2)?;
    // Each number has at most four digits.
    civil::Date::new(year as i16, month as i8, day as i8).ok().map(|_| (rest, 3))
}

fn after_number(text: &str, digits: usize) -> Option<(u16, &str)> {
    let number = text.get(..digits).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((number.parse().ok()?, &text[digits..]))
}

fn is_date(text: &str) -> bool {
    after_date(text).is_some_and(|(rest, _)| rest.is_empty())
}

/// The end of a text after its time of day.
struct TimeEnd<'a> {
    rest: &'a str,
    has_seconds: bool,
}

impl TimeEnd<'_> {
    /// `true` if the text is a time of day, and nothing else.
    fn is_all(&self) -> bool {
        self.has_seconds && self.rest.is_empty()
    }
}

fn after_time(text: &str) -> Option<TimeEnd<'_>> {
    let (hour, rest) = after_number(text, 2)?;
    let (minute, rest) = after_number(rest.strip_prefix(':')?, 2)?;
    if hour > 23 || minute > 59 {
        return None;
    }
    let Some(rest) = rest.strip_prefix(':') else { return Some(TimeEnd { rest, has_seconds: false }) };
    let (second, rest) = after_number(rest, 2)?;
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            (rest.len() < fraction.len()).then_some(rest)?
        }
        None => rest,
    };
    // FHIR permits leap seconds.
    (second <= 60).then_some(TimeEnd { rest, has_seconds: true })
}

fn is_zone(text: &str) -> bool {
    let Some(offset) = text.strip_prefix(['+', '-']) else { return text == "Z" };
    after_time(offset).is_some_and(|end| !end.has_seconds && end.rest.is_empty() && offset <= "14:00")
}

fn is_instant(text: &str) -> bool {
    let Some((rest, 3)) = after_date(text) else { return false };
    let time = rest.strip_prefix('T').and_then(after_time);
    time.is_some_and(|end| end.has_seconds && is_zone(end.rest))
}

/// A date and time without seconds or zone is irregular, but readers accept it.
fn check_date_time(text: &str) -> Result<(), FormatDefect> {
    let unreadable = FormatDefect { expected: DATE_TIME, is_unreadable: true };
    let (rest, parts) = after_date(text).ok_or(unreadable)?;
    if rest.is_empty() {
        return Ok(());
    }
    let time = rest.strip_prefix('T').filter(|_| parts == 3).and_then(after_time).ok_or(unreadable)?;
    let has_zone = !time.rest.is_empty();
    readable(!has_zone || is_zone(time.rest), DATE_TIME)?;
    regular(time.has_seconds && has_zone, "a time with seconds and a zone, such as 2026-01-31T08:00:00+01:00")
}

/// Returns whether all bytes are digits of base64 (RFC 4648, section 4), without padding. Contents have
/// megabytes, so they are checked in blocks, for which the compiler uses vector instructions.
///
/// ```
/// use trefoil_fhir::primitive::are_base64_digits;
///
/// assert!(are_base64_digits(b"a9+/"));
/// assert!(!are_base64_digits(b"a9+/ "));
/// ```
pub fn are_base64_digits(bytes: &[u8]) -> bool {
    let is_digit = |byte: u8| {
        (byte.wrapping_sub(b'a') < 26)
            | (byte.wrapping_sub(b'A') < 26)
            | (byte.wrapping_sub(b'0') < 10)
            | (byte == b'+')
            | (byte == b'/')
    };
    let mut blocks = bytes.chunks(1 << 10);
    blocks.all(|block| block.iter().fold(true, |all, &byte| all & is_digit(byte)))
}

/// FHIR R4 permits whitespace within base64.
fn is_base64(text: &str) -> bool {
    let is_compact = |text: &str| {
        let digits = text.strip_suffix("==").or(text.strip_suffix('=')).unwrap_or(text);
        text.len().is_multiple_of(4) && are_base64_digits(digits.as_bytes())
    };
    is_compact(text) || is_compact(&text.replace([' ', '\t', '\r', '\n'], ""))
}

fn is_oid(text: &str) -> bool {
    let Some(arcs) = text.strip_prefix("urn:oid:") else { return false };
    let is_arc = |arc: &str| {
        !arc.is_empty()
            && arc.bytes().all(|byte| byte.is_ascii_digit())
            && (arc == "0" || !arc.starts_with('0'))
    };
    arcs.starts_with(['0', '1', '2']) && arcs.contains('.') && arcs.split('.').all(is_arc)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks values that are regular, values that are irregular, and values that cannot be read.
    #[track_caller]
    fn check(primitive: Primitive, regular: &[&str], irregular: &[&str], unreadable: &[&str]) {
        for value in regular {
            assert_eq!(primitive.check(value), Ok(()), "{value}");
        }
        for (values, is_unreadable) in [(irregular, false), (unreadable, true)] {
            for value in values {
                let defect = primitive.check(value).expect_err(value);
                assert_eq!(defect.is_unreadable, is_unreadable, "{value}: {defect:?}");
            }
        }
    }

    #[test]
    fn dates_exist_in_the_calendar() {
        let unreadable = [
            "1980-02-30",
            "2023-02-29",
            "1980-13",
            "1980-00",
            "1980-1-1",
            "80",
            "0000",
            "1980-01-01T00:00:00Z",
            "01/02/1980",
            "1980-01-",
            "+980",
            "１９８０",
            "yesterday",
            " 1980",
        ];
        check(Primitive::Date, &["1980", "1980-12", "2024-02-29", "0001"], &[], &unreadable);
    }

    #[test]
    fn a_date_time_has_seconds_and_a_zone() {
        let regular = [
            "2026",
            "2026-01",
            "2026-01-31",
            "2026-01-31T08:00:00Z",
            "2026-01-31T23:59:60.123456789-14:00",
            "2026-01-31T08:00:00+13:59",
        ];
        let irregular = ["2026-01-31T08:00:00", "2026-01-31T08:00Z", "2026-01-31T08:00"];
        let unreadable = [
            "2026-01-31T",
            "2026-01-31T08Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T08:00:00.Z",
            "2026-01T08:00:00Z",
            "2026-01-31 08:00:00Z",
            "2026-01-31T08:00:00z",
            "2026-01-31T08:00:00+14:01",
            "2026-01-31T08:00:00+1",
            "2026-02-30T08:00:00Z",
            "2026-01-31T08:60:00Z",
            "2026-01-31T08:00:61Z",
        ];
        check(Primitive::DateTime, &regular, &irregular, &unreadable);
        let unreadable = ["2026", "2026-01-31T08:00:00", "2026-01-31T08:00Z", "2026-02-30T08:00:00Z"];
        check(Primitive::Instant, &["2026-01-31T08:00:00.5+01:00"], &[], &unreadable);
        check(
            Primitive::Time,
            &["08:00:00", "08:00:00.25"],
            &[],
            &["08:00", "24:00:00", "08:00:00Z", "8:00:00"],
        );
    }

    #[test]
    fn integers_have_32_bits() {
        let unreadable = ["1.0", "1e3", "2147483648", "-2147483649", "1.5"];
        check(Primitive::Integer, &["0", "-2147483648", "2147483647"], &[], &unreadable);
        check(Primitive::PositiveInt, &["1"], &["0", "-1"], &unreadable);
        check(Primitive::UnsignedInt, &["0"], &["-1"], &unreadable);
        check(Primitive::Decimal, &["1.50", "-0", "1E400"], &[], &[]);
    }

    #[test]
    fn texts_have_the_format_of_their_type() {
        check(Primitive::Code, &["final", "two words"], &[" a", "a ", "a  b", "a\tb"], &[]);
        check(Primitive::Id, &["a-1.B", "."], &["a b", "a_b", &"x".repeat(65)], &[]);
        check(Primitive::Uri, &["urn:x", "http://x.example/a|1", "ü"], &["a b", "a\n"], &[]);
        check(
            Primitive::Oid,
            &["urn:oid:1.2.0"],
            &["1.2.3", "urn:oid:3.1", "urn:oid:1.02", "urn:oid:1"],
            &[],
        );
        let uuid = "urn:uuid:c757873d-ec9a-4326-a141-556f43239520";
        check(Primitive::Uuid, &[uuid], &["c757873d-ec9a-4326-a141-556f43239520", "urn:uuid:x"], &[]);
        check(Primitive::Base64Binary, &["YWI=", "YW Jj\n", "YQ=="], &["YWI", "YW=I", "Y===", "YW-_"], &[]);
        check(Primitive::Xhtml, &["<div xmlns=\"x\">a</div>"], &["text", "<p/>"], &[]);
        check(Primitive::String, &[" ", "a\tb\r\n"], &["a\u{0}b"], &[]);
    }
}
