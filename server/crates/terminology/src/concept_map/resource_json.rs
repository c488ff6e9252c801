//! The JSON of a ConceptMap, with the members that R5 renamed.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConceptMapJson {
    pub(super) url: Option<String>,
    pub(super) version: Option<String>,
    source_uri: Option<String>,
    source_canonical: Option<String>,
    source_scope_uri: Option<String>,
    source_scope_canonical: Option<String>,
    target_uri: Option<String>,
    target_canonical: Option<String>,
    target_scope_uri: Option<String>,
    target_scope_canonical: Option<String>,
    #[serde(default)]
    pub(super) group: Vec<GroupJson>,
}

impl ConceptMapJson {
    pub(super) fn source_scope(&self) -> Option<&str> {
        let all =
            [&self.source_canonical, &self.source_uri, &self.source_scope_canonical, &self.source_scope_uri];
        all.into_iter().flatten().next().map(String::as_str)
    }

    pub(super) fn target_scope(&self) -> Option<&str> {
        let all =
            [&self.target_canonical, &self.target_uri, &self.target_scope_canonical, &self.target_scope_uri];
        all.into_iter().flatten().next().map(String::as_str)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupJson {
    pub(super) source: Option<String>,
    pub(super) source_version: Option<String>,
    pub(super) target: Option<String>,
    pub(super) target_version: Option<String>,
    #[serde(default)]
    pub(super) element: Vec<ElementJson>,
    pub(super) unmapped: Option<UnmappedJson>,
}

#[derive(Deserialize)]
pub(super) struct ElementJson {
    pub(super) code: Option<String>,
    pub(super) display: Option<String>,
    #[serde(default)]
    pub(super) target: Vec<TargetJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TargetJson {
    pub(super) code: Option<String>,
    pub(super) display: Option<String>,
    pub(super) equivalence: Option<String>,
    pub(super) relationship: Option<String>,
    #[serde(default)]
    pub(super) depends_on: Vec<DependencyJson>,
    #[serde(default)]
    pub(super) product: Vec<DependencyJson>,
}

#[derive(Deserialize)]
pub(super) struct DependencyJson {
    pub(super) property: Option<String>,
    pub(super) system: Option<String>,
    pub(super) value: Option<String>,
    pub(super) display: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnmappedJson {
    pub(super) mode: Option<String>,
    pub(super) code: Option<String>,
    pub(super) display: Option<String>,
    /// Canonical URL of another map in R4.
    pub(super) url: Option<String>,
    /// Canonical URL of another map in R5.
    pub(super) other_map: Option<String>,
}
