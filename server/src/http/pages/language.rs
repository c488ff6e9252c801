//! The languages of the pages.

use jiff::Timestamp;

/// A language of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// German.
    German,
}

impl Language {
    /// All languages, the default first.
    pub const ALL: [Self; 2] = [Self::English, Self::German];

    /// The language that `Accept-Language` prefers (RFC 9110 section 12.5.4), or English.
    pub fn negotiate(header: &str) -> Self {
        let mut best = (Self::English, 0.0);
        for range in header.split(',').take(20) {
            let (tag, rest) = range.split_once(';').unwrap_or((range, ""));
            let weight = match rest.trim().strip_prefix("q=") {
                Some(weight) => weight.trim().parse().unwrap_or(0.0),
                None => 1.0,
            };
            let Some(language) = Self::of_tag(tag.trim()) else { continue };
            if weight > best.1 {
                best = (language, weight);
            }
        }
        best.0
    }

    /// The first language of a list of tags separated by spaces that the pages have.
    pub fn of_locales(tags: &str) -> Option<Self> {
        tags.split(' ').take(20).find_map(Self::of_tag)
    }

    /// The language with this tag, without a region.
    pub fn with_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.tag() == tag)
    }

    /// The language of a tag, also with a region (BCP 47).
    fn of_tag(tag: &str) -> Option<Self> {
        let primary = tag.split('-').next().unwrap_or_default();
        Self::ALL.into_iter().find(|language| language.tag().eq_ignore_ascii_case(primary))
    }

    /// The tag for `lang`.
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
        }
    }

    /// Its name in itself.
    pub fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::German => "Deutsch",
        }
    }

    /// The text after a subordinate clause inside of a sentence: German ends it with a comma.
    pub fn clause_end(self) -> &'static str {
        match self {
            Self::English => "",
            Self::German => ",",
        }
    }

    /// A day and a time in UTC.
    pub fn date_time(self, time: Timestamp) -> String {
        match self {
            Self::English => time.strftime("%-d %b %Y, %H:%M UTC").to_string(),
            Self::German => {
                let month = GERMAN_MONTHS
                    [usize::from(time.to_zoned(jiff::tz::TimeZone::UTC).month().unsigned_abs()) - 1];
                time.strftime(&format!("%-d. {month} %Y, %H:%M UTC")).to_string()
            }
        }
    }
}

/// The months as German texts shorten them.
const GERMAN_MONTHS: [&str; 12] =
    ["Jan.", "Feb.", "März", "April", "Mai", "Juni", "Juli", "Aug.", "Sept.", "Okt.", "Nov.", "Dez."];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_the_language_does() {
        let time: Timestamp = "2026-03-07T09:05:00Z".parse().unwrap();
        assert_eq!(Language::English.date_time(time), "7 Mar 2026, 09:05 UTC");
        assert_eq!(Language::German.date_time(time), "7. März 2026, 09:05 UTC");
    }
}
