//! Parameters that affect the results of a search (FHIR R4, search): `_summary`, `_elements`, `_sort`,
//! `_include`, `_revinclude` and `_total`.

use fhir::IssueCode;
use http::StatusCode;
use resources::StoredResource;
use resources::result::elements::{ElementProjection, Summary, check_element};
use resources::result::include::{Include, ReverseInclude};
use resources::result::sort::SortKey;

use crate::http::problem::Problem;

/// Maximum number of values of `_include`.
const MAX_INCLUDES: usize = 20;

/// The names of the parameters of this module. They are not search parameters of a type.
const NAMES: [&str; 6] = ["_summary", "_elements", "_sort", "_include", "_revinclude", "_total"];

/// `true` for a parameter that affects only the results.
pub fn is_result_parameter(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The requested results of a search.
#[derive(Debug, Default)]
pub struct SearchResultOptions {
    /// The elements of matches. `None` means all.
    projection: Option<ElementProjection>,
    /// `true` if only the number of matches is returned.
    pub is_count: bool,
    /// `true` if each page must contain the number of all matches.
    pub has_total: bool,
    /// The order of matches. Empty for the order of the server.
    pub sort: Vec<SortKey>,
    /// The values of `_include`.
    pub includes: Vec<Include>,
    /// The values of `_revinclude`.
    pub reverse_includes: Vec<ReverseInclude>,
}

impl SearchResultOptions {
    /// Parses the parameters of a request for resources of a type. Other parameters are ignored.
    pub fn read<'q>(
        kind: &str,
        query: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Self, Problem> {
        let mut options = Self::default();
        let mut elements = Vec::new();
        let mut summary = None;
        for (name, value) in query {
            let not_supported =
                |reason| Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::NotSupported, reason);
            match name {
                "_summary" => match value {
                    "true" => summary = Some(Summary::Summary),
                    "text" => summary = Some(Summary::Text),
                    "data" => summary = Some(Summary::Data),
                    "count" => options.is_count = true,
                    "false" => {}
                    _ => {
                        return Err(bad_parameter("_summary", "it must be true, text, data, count or false"));
                    }
                },
                "_elements" => {
                    for element in value.split(',').filter(|element| !element.is_empty()) {
                        check_element(element).map_err(|reason| bad_parameter("_elements", &reason))?;
                        elements.push(element.to_owned());
                    }
                }
                "_total" => match value {
                    "accurate" => options.has_total = true,
                    // An estimate may be left out.
                    "none" | "estimate" => {}
                    _ => return Err(bad_parameter("_total", "it must be accurate, estimate or none")),
                },
                "_sort" => options.sort.extend(SortKey::list(kind, value).map_err(not_supported)?),
                "_include" => options.includes.push(Include::read(kind, value).map_err(not_supported)?),
                "_revinclude" => {
                    let include = ReverseInclude::read(kind, value).map_err(not_supported)?;
                    options.reverse_includes.push(include);
                }
                _ => {}
            }
        }
        for (name, count) in
            [("_include", options.includes.len()), ("_revinclude", options.reverse_includes.len())]
        {
            if count > MAX_INCLUDES {
                return Err(bad_parameter(name, "at most 20 values are accepted"));
            }
        }
        if summary.is_some() && !elements.is_empty() {
            return Err(bad_parameter("_elements", "it cannot be combined with _summary"));
        }
        options.projection = match summary {
            Some(summary) => Some(ElementProjection::summary(kind, summary)),
            None => (!elements.is_empty()).then(|| ElementProjection::new(kind, &elements)),
        };
        Ok(options)
    }

    /// Reduces a resource to the requested elements.
    pub fn project(&self, resource: &mut StoredResource) {
        let Some(projection) = &self.projection else { return };
        // Stored resources are valid JSON, so an error is impossible; the complete resource is correct too.
        if let Ok(Some(projected)) = projection.apply(&resource.bytes) {
            resource.bytes = projected.into();
        }
    }
}

pub(super) fn bad_parameter(parameter: &str, reason: &str) -> Problem {
    Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, format!("parameter '{parameter}': {reason}"))
}
