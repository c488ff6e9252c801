//! Editions of SNOMED CT, and the one that answers a request without a version.
//!
//! Exactly one published national edition, with all its versions, precedes the International Edition if it
//! builds on a release of it that is not older than the stored one. Otherwise the newest International
//! Edition is the default. An unpublished edition is the default only if no other one is stored.

use super::known_systems::{SNOMED_CT, SNOMED_CT_UNPUBLISHED};
use super::resource_json::ResourceHeader;

/// Prefix of the versions of the International Edition.
const INTERNATIONAL: &str = "http://snomed.info/sct/900000000000207008";

/// A stored release of SNOMED CT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EditionRelease<'h> {
    /// URI of the edition, without a date.
    pub(crate) edition: &'h str,
    /// Date of the release, as `YYYYMMDD`.
    pub(crate) date: &'h str,
    /// Date of the International Edition on which the release builds; empty if it is unknown.
    base: &'h str,
}

impl<'h> EditionRelease<'h> {
    /// `None` if the resource is not a release of SNOMED CT.
    pub(crate) fn of(header: &'h ResourceHeader) -> Option<Self> {
        let version = header.version.as_deref().filter(|_| header.url.as_deref() == Some(SNOMED_CT))?;
        let (edition, date) = version.rsplit_once("/version/")?;
        let base = header.extensions.international_base.as_deref();
        let base = base.and_then(|base| base.rsplit('/').next()).unwrap_or_default();
        Some(Self { edition, date, base })
    }

    pub(crate) fn is_published(&self) -> bool {
        !self.edition.starts_with(SNOMED_CT_UNPUBLISHED)
    }

    fn is_international(&self) -> bool {
        self.edition == INTERNATIONAL
    }
}

/// The edition that answers a request without a version; `None` if the newest release does.
pub(crate) fn default_edition<'h>(
    releases: impl Iterator<Item = EditionRelease<'h>> + Clone,
) -> Option<&'h str> {
    let published = || releases.clone().filter(EditionRelease::is_published);
    let newest = |editions: &dyn Fn(&EditionRelease<'h>) -> bool| {
        published().filter(editions).max_by_key(|release| release.date)
    };
    let international = newest(&EditionRelease::is_international)?;
    let is_national = |release: &EditionRelease<'h>| !release.is_international();
    let national = newest(&is_national).filter(|national| {
        let is_only = published().filter(is_national).all(|other| other.edition == national.edition);
        is_only && national.base >= international.date
    });
    Some(national.unwrap_or(international).edition)
}

/// The setting that makes an edition the default.
pub(crate) fn preference_of(edition: &str) -> String {
    format!("[terminology] preferred_versions = [\"{SNOMED_CT}|{edition}\"]")
}

/// Describes which of several stored editions answers a request without a version, and how to choose another
/// one; `None` if there is at most one edition. `releases` are the stored versions of SNOMED CT, the default
/// one first.
pub(crate) fn describe_default(versions: &[String]) -> Option<String> {
    let edition =
        |version: &'_ String| version.rsplit_once("/version/").map(|(edition, _)| edition.to_owned());
    let (default, others) = versions.split_first()?;
    let own = edition(default)?;
    let mut others: Vec<String> = others.iter().filter_map(edition).filter(|other| *other != own).collect();
    others.sort();
    others.dedup();
    let settings: Vec<String> = others.iter().map(|other| preference_of(other)).collect();
    (!settings.is_empty()).then(|| {
        format!("{default} answers requests without a version; another choice: {}", settings.join(" or "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Releases as `EDITION DATE BASE`, of which `int` is the International Edition.
    fn default_of(releases: &[&str]) -> String {
        let parsed: Vec<(String, String, String)> = releases
            .iter()
            .map(|text| {
                let [edition, date, base] =
                    [0, 1, 2].map(|part| text.split(' ').nth(part).unwrap_or_default());
                let edition = match edition {
                    "int" => INTERNATIONAL.to_owned(),
                    trial if trial.starts_with('x') => format!("{SNOMED_CT_UNPUBLISHED}/{trial}"),
                    other => format!("{SNOMED_CT}/{other}"),
                };
                (edition, date.to_owned(), base.to_owned())
            })
            .collect();
        let releases = parsed.iter().map(|(edition, date, base)| EditionRelease { edition, date, base });
        let default = default_edition(releases).unwrap_or_default();
        default.rsplit('/').next().unwrap_or_default().replace("900000000000207008", "int")
    }

    #[test]
    fn one_national_edition_of_a_current_base_is_the_default() {
        for (releases, expected) in [
            (&["int 20250101"][..], "int"),
            (&["int 20250101", "se 20250531 20250101"], "se"),
            (&["int 20250101", "se 20250531 20250201"], "se"),
            // Versions of one edition count once, and the newest one decides.
            (&["se 20241130 20240901", "int 20250101", "se 20250531 20250101"], "se"),
            (&["int 20240101", "int 20250101", "se 20250531 20250101"], "se"),
            // Its base is older than the stored International Edition, or not known.
            (&["int 20250801", "se 20250531 20250101"], "int"),
            (&["int 20250101", "se 20250531"], "int"),
            // Two national editions.
            (&["int 20250101", "se 20250531 20250101", "dk 20250531 20250101"], "int"),
            // Trials do not count.
            (&["int 20250101", "xse 20260531 20250101"], "int"),
            (&["int 20250101", "xse 20260531 20250101", "dk 20250531 20250101"], "dk"),
            // Without the International Edition the newest release is the default.
            (&["se 20250531 20250101", "dk 20250531 20250101"], ""),
        ] {
            assert_eq!(default_of(releases), expected, "{releases:?}");
            let reversed: Vec<&str> = releases.iter().rev().copied().collect();
            assert_eq!(default_of(&reversed), expected, "{reversed:?}");
        }
    }
}
