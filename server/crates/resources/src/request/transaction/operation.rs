//! Operations and searches as entries of a batch (FHIR R4, `POST CodeSystem/$lookup`, `GET Patient?name=…`).
//! This crate only separates them from the entries that read or write a resource; the caller performs them.

use bytes::Bytes;

use crate::write::bundle::BundleEntry;

/// Returns whether the URL of an entry names an operation.
pub(super) fn is_operation(url: &str) -> bool {
    let path = url.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    name.starts_with('$') || name.starts_with("%24")
}

/// An entry of a batch that calls an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleOperation {
    /// Position of the entry in the Bundle, from 0.
    pub position: usize,
    /// Path without the query, as in `ValueSet/$expand`.
    pub path: String,
    /// Query of the URL. A POST sends its parameters in the body, or a resource in the body and the other
    /// parameters in the query.
    pub query: String,
    /// The resource of the entry, for a POST.
    pub body: Option<Bytes>,
}

/// An entry of a batch that searches a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleSearch {
    /// Position of the entry in the Bundle, from 0.
    pub position: usize,
    /// The resource type.
    pub kind: &'static str,
    /// The parameters, as in a URL.
    pub query: String,
}

impl BundleSearch {
    /// The search that an entry asks for; `None` if it asks for none.
    pub(crate) fn of(position: usize, entry: &BundleEntry<'_>) -> Option<Self> {
        let request = entry.request.as_ref().filter(|request| request.method == "GET")?;
        let url = request.relative_url();
        let (kind, query) = url.split_once('?').unwrap_or((url, ""));
        Some(Self { position, kind: fhir::resource_type(kind)?, query: query.to_owned() })
    }
}

impl BundleOperation {
    /// The operation that an entry calls; `None` if it calls none.
    pub(crate) fn of(position: usize, entry: &BundleEntry<'_>) -> Option<Self> {
        let request = entry.request.as_ref()?;
        let url = request.relative_url();
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let body = match &*request.method {
            "GET" => None,
            "POST" => Some(entry.resource.map_or_else(Bytes::new, |json| json.get().to_owned().into())),
            _ => return None,
        };
        is_operation(&request.url).then(|| Self {
            position,
            path: path.to_owned(),
            query: query.to_owned(),
            body,
        })
    }
}
