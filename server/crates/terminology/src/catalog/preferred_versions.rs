//! Versions that the operator prefers if a request names none.

use std::collections::HashMap;

use crate::model::canonical;

/// Preferred versions by canonical URL.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PreferredVersions {
    by_url: HashMap<String, String>,
    /// Preferences for all URLs with a prefix.
    by_prefix: Vec<(String, String)>,
}

impl PreferredVersions {
    /// Adds a preference, as `url|version`. A URL that ends with `*` is a prefix. The version may be a
    /// pattern such as `4.x`. Returns whether the text has a version.
    pub fn add(&mut self, canonical: &str) -> bool {
        let (url, version) = canonical::split(canonical);
        let Some(version) = version.filter(|_| !url.is_empty()) else { return false };
        match url.strip_suffix('*') {
            Some(prefix) => self.by_prefix.push((prefix.to_owned(), version.to_owned())),
            None => drop(self.by_url.insert(url.to_owned(), version.to_owned())),
        }
        true
    }

    /// The preferred version or pattern of a URL: that of the URL itself, else that of the longest prefix.
    pub(crate) fn version_of(&self, url: &str) -> Option<&str> {
        let by_prefix = || {
            let matching = self.by_prefix.iter().filter(|(prefix, _)| url.starts_with(prefix));
            matching.max_by_key(|(prefix, _)| prefix.len()).map(|(_, version)| version)
        };
        // Most servers have no preferences, so that nothing is hashed.
        let own = if self.by_url.is_empty() { None } else { self.by_url.get(url) };
        own.or_else(by_prefix).map(String::as_str)
    }
}
