//! The parameters of a kick-off, one row each (Bulk Data Access 2.0.0 and 3.0.0, query parameters).

use crate::GuideVersion;

/// A row of the table of parameters.
#[derive(Debug)]
pub struct ExportParameterRow {
    /// Name in the request.
    pub name: &'static str,
    /// Type in FHIR.
    pub fhir_type: &'static str,
    /// Whether the parameter can occur more than once.
    pub repeats: bool,
    /// The first version of the guide that has the parameter.
    pub since: GuideVersion,
    /// The effect of the parameter, as one or more sentences.
    pub meaning: &'static str,
}

/// Declares [`ExportParameter`], with one row of [`ExportParameterRow`] for each parameter.
macro_rules! export_parameters {
    ($($(#[doc = $meaning:literal])+ $parameter:ident { $($column:ident: $value:expr),+ $(,)? })+) => {
        /// A parameter of a kick-off.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum ExportParameter {
            $($(#[doc = $meaning])+ $parameter,)+
        }

        impl ExportParameter {
            /// All parameters, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$parameter),+];

            /// Returns the row of the parameter.
            pub const fn row(self) -> &'static ExportParameterRow {
                match self {
                    $(Self::$parameter => &ExportParameterRow { meaning: concat!($($meaning),+), $($column: $value),+ },)+
                }
            }
        }
    };
}

export_parameters! {
    /// Types to export, separated by commas.
    Type {
        name: "_type",
        fhir_type: "string",
        repeats: true,
        since: GuideVersion::V2,
    }
    /// Only resources that were changed after this time. Deleted ones are listed in Bundles.
    Since {
        name: "_since",
        fhir_type: "instant",
        repeats: false,
        since: GuideVersion::V2,
    }
    /// Only resources that were changed before this time.
    Until {
        name: "_until",
        fhir_type: "instant",
        repeats: false,
        since: GuideVersion::V2,
    }
    /// Format of the files: `application/fhir+ndjson`, `application/ndjson` or `ndjson`.
    OutputFormat {
        name: "_outputFormat",
        fhir_type: "string",
        repeats: false,
        since: GuideVersion::V2,
    }
    /// Top-level elements to export besides the mandatory ones, as `element` or `Type.element`, separated by
    /// commas.
    Elements {
        name: "_elements",
        fhir_type: "string",
        repeats: true,
        since: GuideVersion::V2,
    }
    /// Searches as `Type?query`, separated by commas. Each one restricts the resources of its type; several
    /// of a type are alternatives.
    TypeFilter {
        name: "_typeFilter",
        fhir_type: "string",
        repeats: true,
        since: GuideVersion::V2,
    }
    /// `LatestProvenanceResources`, `RelevantProvenanceResources` or `_supporting` (the Devices, Locations,
    /// Medications, Organizations, Practitioners and PractitionerRoles that exported resources refer to),
    /// separated by commas.
    IncludeAssociatedData {
        name: "includeAssociatedData",
        fhir_type: "string",
        repeats: true,
        since: GuideVersion::V2,
    }
    /// Patients to export, by POST for Patient or Group.
    Patient {
        name: "patient",
        fhir_type: "Reference",
        repeats: true,
        since: GuideVersion::V2,
    }
    /// Format of the answer to this request, as on every FHIR endpoint. It is JSON.
    AnswerFormat {
        name: "_format",
        fhir_type: "string",
        repeats: true,
        since: GuideVersion::V2,
    }
    /// Whether the manifest may have pages that are available before the export is complete.
    AllowPartialManifests {
        name: "allowPartialManifests",
        fhir_type: "boolean",
        repeats: false,
        since: GuideVersion::V3,
    }
}

impl ExportParameter {
    /// Returns the parameter with this name, if the version of the guide has it.
    pub fn named(name: &str, guide: GuideVersion) -> Option<Self> {
        let has_name = |parameter: &&Self| {
            let row = parameter.row();
            row.name == name && (row.since == GuideVersion::V2 || guide == GuideVersion::V3)
        };
        Self::ALL.iter().find(has_name).copied()
    }
}
