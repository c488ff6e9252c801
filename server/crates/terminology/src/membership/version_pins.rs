//! Versions of code systems and value sets that the caller fixes for one request.

use crate::interface::parameters::{
    CHECK_SYSTEM_VERSION, DEFAULT_SYSTEM_VERSION, DEFAULT_VALUE_SET_VERSION, FORCE_SYSTEM_VERSION,
};
use crate::model::canonical;

/// Fixed versions, as pairs of URL and version.
#[derive(Debug, Default)]
pub(crate) struct VersionPins {
    /// `system-version`: used if the value set states no version.
    pub(crate) default: Vec<(String, String)>,
    /// `check-system-version`: any other version is an error.
    pub(crate) check: Vec<(String, String)>,
    /// `force-system-version`: used instead of the version in the value set.
    pub(crate) force: Vec<(String, String)>,
    /// `default-valueset-version`: for imports without a version.
    pub(crate) value_sets: Vec<(String, String)>,
    /// `date`: day that selects the versions that are not stated anywhere else.
    pub(crate) date: Option<String>,
}

impl VersionPins {
    pub(crate) const NONE: &Self = &Self {
        default: Vec::new(),
        check: Vec::new(),
        force: Vec::new(),
        value_sets: Vec::new(),
        date: None,
    };

    pub(crate) fn is_empty(&self) -> bool {
        let Self { default, check, force, value_sets, date } = self;
        [default, check, force, value_sets].iter().all(|pins| pins.is_empty()) && date.is_none()
    }

    /// The parameter that determines the version of an include of this code system, as name and canonical
    /// URL.
    pub(crate) fn used_by_include(
        &self,
        system: &str,
        stated: Option<&str>,
    ) -> Option<(&'static str, String)> {
        let where_none = || {
            let check = pinned(&self.check, system).map(|pin| (CHECK_SYSTEM_VERSION.row().name, pin));
            check
                .or_else(|| pinned(&self.default, system).map(|pin| (DEFAULT_SYSTEM_VERSION.row().name, pin)))
        };
        let force = pinned(&self.force, system).map(|pin| (FORCE_SYSTEM_VERSION.row().name, pin));
        let (name, pin) = force.or_else(|| stated.is_none().then(where_none).flatten())?;
        Some((name, canonical::join(system, Some(pin))))
    }

    /// The parameter that determines the version of an import, as name and canonical URL.
    pub(crate) fn used_by_import(&self, canonical: &str) -> Option<(&'static str, String)> {
        let (url, version) = canonical::split(canonical);
        let pin = pinned(&self.value_sets, url).filter(|_| version.is_none())?;
        Some((DEFAULT_VALUE_SET_VERSION.row().name, canonical::join(url, Some(pin))))
    }

    /// The version that replaces the one in an include of this code system, if there is any.
    pub(crate) fn replacing(&self, system: &str, stated: Option<&str>) -> Option<&str> {
        let where_none = || pinned(&self.check, system).or_else(|| pinned(&self.default, system));
        let pin = pinned(&self.force, system).or_else(|| stated.is_none().then(where_none).flatten());
        pin.filter(|pin| Some(*pin) != stated)
    }
}

/// The version pinned for a URL.
pub(crate) fn pinned<'p>(pins: &'p [(String, String)], url: &str) -> Option<&'p str> {
    pins.iter().find(|(pinned, _)| pinned == url).map(|(_, version)| version.as_str())
}
