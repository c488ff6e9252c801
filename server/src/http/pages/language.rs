//! The languages of the pages.

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
    /// The language that `Accept-Language` prefers (RFC 9110 section 12.5.4), or English.
    pub fn negotiate(accepted: &str) -> Self {
        let mut best = (Self::English, 0.0);
        for range in accepted.split(',').take(20) {
            let (tag, rest) = range.split_once(';').unwrap_or((range, ""));
            let weight = match rest.trim().strip_prefix("q=") {
                Some(weight) => weight.trim().parse().unwrap_or(0.0),
                None => 1.0,
            };
            let primary = tag.trim().split('-').next().unwrap_or_default();
            let language = match primary.to_ascii_lowercase().as_str() {
                "en" => Self::English,
                "de" => Self::German,
                _ => continue,
            };
            if weight > best.1 {
                best = (language, weight);
            }
        }
        best.0
    }

    /// The tag for `lang`.
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
        }
    }
}
