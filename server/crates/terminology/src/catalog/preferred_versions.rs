//! Versions that the operator prefers if a request names none.

use std::collections::HashMap;

use crate::model::canonical;

/// Preferred versions by canonical URL.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PreferredVersions(HashMap<String, String>);

impl PreferredVersions {
    /// Adds a preference, as `url|version`. The version may be a pattern such as `4.x`. Returns whether the
    /// text has a version.
    pub fn add(&mut self, canonical: &str) -> bool {
        let (url, version) = canonical::split(canonical);
        let version = version.filter(|_| !url.is_empty());
        version.map(|version| self.0.insert(url.to_owned(), version.to_owned())).is_some()
    }

    /// The preferred version or pattern of a URL.
    pub(crate) fn version_of(&self, url: &str) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(url).map(String::as_str)
    }
}
