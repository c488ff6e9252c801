//! [`StatedRelease`]: what the caller of an import states about a release.

/// Facts that the files of a release lack, or only suggest. A stated one takes precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatedRelease {
    /// Id of the module of an edition of SNOMED CT, such as `900000000000207008`.
    pub edition: Option<String>,
    /// Date of a release of SNOMED CT or of the NDC directory as `YYYYMMDD`.
    pub version: Option<String>,
    /// Whether a release of SNOMED CT is not published, so that its version is a URI of
    /// `http://snomed.info/xsct`.
    pub is_unpublished: bool,
    /// Encoding and sheet of a table.
    pub table: spreadsheet::ReadOptions,
}

impl StatedRelease {
    /// The options that do not apply to a release that takes the `supported` ones, if there are any.
    pub(crate) fn unfit_options(&self, supported: AcceptedOptions) -> Option<&'static str> {
        let of_snomed = self.edition.is_some() || self.is_unpublished;
        let of_table = self.table != spreadsheet::ReadOptions::default();
        if of_snomed && supported != AcceptedOptions::Edition {
            return Some("--edition and --unpublished apply to SNOMED CT RF2 only");
        }
        if self.version.is_some()
            && ![AcceptedOptions::Edition, AcceptedOptions::Version].contains(&supported)
        {
            return Some("--version applies to SNOMED CT RF2 and the NDC directory only");
        }
        (of_table && supported != AcceptedOptions::Table)
            .then_some("--encoding and --sheet apply to CSV and spreadsheets only")
    }
}

/// The options that a format takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedOptions {
    /// None.
    Nothing,
    /// The version.
    Version,
    /// Edition and version of SNOMED CT, and whether the release is published.
    Edition,
    /// Encoding and sheet of a table.
    Table,
}
