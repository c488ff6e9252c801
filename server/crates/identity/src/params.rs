//! Parameters of OAuth requests, from a query or a form: decoded once, doubles seen, an empty value
//! is an absent one (RFC 6749 3.1, 3.2).

/// Decoded parameters in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Params {
    pairs: Vec<(String, String)>,
    /// Names whose value is no UTF-8 after percent-decoding.
    garbled: Vec<String>,
}

impl Params {
    /// Reads `application/x-www-form-urlencoded`.
    pub fn parse(encoded: &[u8]) -> Self {
        let mut params = Self::default();
        for part in encoded.split(|b| *b == b'&').filter(|part| !part.is_empty()) {
            let (name, value) = form_urlencoded::parse(part).next().unwrap_or_default();
            // The decoder puts U+FFFD where bytes are no UTF-8; only a sender of that very
            // character may have it.
            let replaced = value.contains('\u{fffd}') || name.contains('\u{fffd}');
            if replaced && !part.to_ascii_uppercase().windows(9).any(|w| w == b"%EF%BF%BD") {
                params.garbled.push(name.into_owned());
            } else {
                params.pairs.push((name.into_owned(), value.into_owned()));
            }
        }
        params
    }

    /// The value, where it is there and not empty. The first one, when it was sent twice.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    /// Was it sent more than once, or with bytes that are no text?
    pub fn is_unclear(&self, name: &str) -> bool {
        self.pairs.iter().filter(|(n, _)| n == name).count() > 1 || self.garbled.iter().any(|n| n == name)
    }

    /// The first parameter that was sent more than once or with bytes that are no text.
    pub fn first_unclear(&self) -> Option<&str> {
        let names = self.garbled.iter().chain(self.pairs.iter().map(|(name, _)| name));
        names.map(String::as_str).find(|name| self.is_unclear(name))
    }

    /// All pairs but those of these names, encoded again.
    pub fn without(&self, names: &[&str]) -> String {
        let kept = self.pairs.iter().filter(|(name, _)| !names.contains(&name.as_str()));
        form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_and_bad_bytes_are_seen() {
        let params = Params::parse(b"a=1&b=&c=x%20y+z&a=2&d=%ff&e=%EF%BF%BD");
        assert_eq!(params.get("a"), Some("1"));
        assert!(params.is_unclear("a"));
        assert_eq!(params.get("b"), None);
        assert_eq!(params.get("c"), Some("x y z"));
        assert!(params.is_unclear("d"));
        assert_eq!(params.get("e"), Some("\u{fffd}"));
        assert_eq!(Params::parse(b"x=1&y=2").first_unclear(), None);
        assert_eq!(params.without(&["a", "c"]), "b=&e=%EF%BF%BD");
    }
}
