//! [`StatedVersion`]: what the caller of an import states about a SNOMED CT release.

/// Edition and version of a SNOMED CT release that its files only suggest. A stated part takes precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatedVersion {
    /// Id of the module of the edition, such as `900000000000207008`.
    pub edition: Option<String>,
    /// Date of the release as `YYYYMMDD`.
    pub version: Option<String>,
    /// Whether the release is not published, so that its version is a URI of `http://snomed.info/xsct`.
    pub is_unpublished: bool,
}
