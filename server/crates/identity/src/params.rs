//! Parameters of OAuth requests, from a query or a form (RFC 6749 sections 3.1 and 3.2). The parser treats an
//! empty value as absent, and records repeated names and bytes that are not UTF-8.

use std::collections::HashSet;

/// Maximum number of parameters in one request. No endpoint uses more than 30.
pub const MAX_PARAMETERS: usize = 100;

/// The parameter that may be repeated (RFC 8707 section 2).
const REPEATABLE: &str = "resource";

/// Decoded parameters in the order of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params {
    pairs: Vec<(String, String)>,
    defects: Vec<ParamsDefect>,
}

/// Reasons why the parameters of a request are ambiguous.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsDefect {
    /// The name was sent more than once.
    #[error("parameter '{0}' was sent more than once")]
    Repeated(String),
    /// The value or the name is not UTF-8 after percent-decoding.
    #[error("parameter '{0}' is not UTF-8 after percent-decoding")]
    NotUtf8(String),
    /// The request has more than [`MAX_PARAMETERS`]; the parameters after the maximum were not read.
    #[error("the request has more than {MAX_PARAMETERS} parameters")]
    TooMany,
}

impl Params {
    /// Parses text in the format `application/x-www-form-urlencoded`.
    pub fn parse(encoded: &[u8]) -> Self {
        let mut params = Self::default();
        let mut names = HashSet::new();
        for (index, part) in encoded.split(|b| *b == b'&').filter(|part| !part.is_empty()).enumerate() {
            if index == MAX_PARAMETERS {
                params.defects.push(ParamsDefect::TooMany);
                break;
            }
            let (name, value) = form_urlencoded::parse(part).next().unwrap_or_default();
            // The decoder replaces invalid bytes with U+FFFD. A valid U+FFFD in the request must not be
            // reported as invalid.
            let replaced = value.contains('\u{fffd}') || name.contains('\u{fffd}');
            if replaced && !part.to_ascii_uppercase().windows(9).any(|w| w == b"%EF%BF%BD") {
                params.defects.push(ParamsDefect::NotUtf8(name.into_owned()));
                continue;
            }
            if !names.insert(name.clone()) && name != REPEATABLE {
                params.defects.push(ParamsDefect::Repeated(name.clone().into_owned()));
            }
            params.pairs.push((name.into_owned(), value.into_owned()));
        }
        params
    }

    /// All parameters with their values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value if the parameter is present and not empty. For a repeated parameter, returns the
    /// first value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// Returns the values of a parameter that may be repeated, without empty ones.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(n, value)| *n == name && !value.is_empty()).map(|(_, value)| value)
    }

    /// Returns `true` if the value of this parameter is ambiguous: the parameter was repeated, its value is
    /// not UTF-8, or it may be among the parameters that were not read.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        self.defects.iter().any(|defect| match defect {
            ParamsDefect::Repeated(n) | ParamsDefect::NotUtf8(n) => n == name,
            ParamsDefect::TooMany => true,
        })
    }

    /// Returns the first defect in the order of the request.
    pub fn defect(&self) -> Option<&ParamsDefect> {
        self.defects.first()
    }

    /// Encodes all parameters except those with these names.
    pub fn without(&self, names: &[&str]) -> String {
        let others = self.pairs.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_names_and_invalid_bytes_are_recorded() {
        let params = Params::parse(b"a=1&b=&c=x%20y+z&a=2&d=%ff&e=%EF%BF%BD");
        assert_eq!(params.get("a"), Some("1"));
        assert!(params.is_ambiguous("a"));
        assert_eq!(params.defect(), Some(&ParamsDefect::Repeated("a".to_owned())));
        assert_eq!(params.get("b"), None);
        assert_eq!(params.get("c"), Some("x y z"));
        assert!(params.is_ambiguous("d"));
        assert!(!params.is_ambiguous("c"));
        assert_eq!(params.get("e"), Some("\u{fffd}"));
        assert_eq!(Params::parse(b"x=1&y=2").defect(), None);
        assert_eq!(params.without(&["a", "c"]), "b=&e=%EF%BF%BD");
    }

    #[test]
    fn only_resource_may_be_repeated() {
        let params = Params::parse(b"resource=a&resource=&x=1&resource=b");
        assert_eq!(params.defect(), None);
        assert_eq!(params.all("resource").collect::<Vec<_>>(), ["a", "b"]);
        let other = Params::parse(b"audience=a&audience=b");
        assert_eq!(other.defect(), Some(&ParamsDefect::Repeated("audience".to_owned())));
    }

    #[test]
    fn no_more_than_the_maximum_is_read() {
        let form = |count: usize| (0..count).map(|n| format!("p{n}=1")).collect::<Vec<_>>().join("&");
        assert_eq!(Params::parse(form(MAX_PARAMETERS).as_bytes()).defect(), None);
        let params = Params::parse(form(17_505).as_bytes());
        assert_eq!(params.pairs.len(), MAX_PARAMETERS);
        assert_eq!(params.defect(), Some(&ParamsDefect::TooMany));
        assert!(params.is_ambiguous("client_id"));
    }
}
