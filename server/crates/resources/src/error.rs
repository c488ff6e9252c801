//! Reasons why a resource cannot be read or written.

use store::StoreError;

/// Fault of a text that should be a resource, with its place if known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceBodyError {
    /// Not JSON (RFC 8259).
    #[error("not JSON at line {line}, column {column}: {what}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
        /// The fault.
        what: &'static str,
    },
    /// JSON, but not an object.
    #[error("a resource is a JSON object, this is {found}")]
    NotObject {
        /// The actual JSON type, such as `an array`.
        found: &'static str,
    },
    /// Two members of one object have the same name.
    #[error("member '{name}' is repeated: the member names of a JSON object must be unique")]
    DuplicateMember {
        /// The name.
        name: String,
    },
    /// `resourceType` is missing or not a string.
    #[error("'resourceType' is missing or not a string")]
    NoType,
    /// A type that FHIR R4 does not have.
    #[error("'{0}' is not a resource type of FHIR R4")]
    UnknownType(String),
    /// Another type than the address says.
    #[error("'resourceType' is '{found}', but '{expected}' belongs here")]
    WrongType {
        /// Type in the address.
        expected: String,
        /// Type in the body.
        found: String,
    },
    /// No `id` where one is needed.
    #[error("'id' is missing")]
    NoId,
    /// An `id` against the rules.
    #[error("'{0}' is not an id: 1 to 64 letters, digits, '-' and '.'")]
    BadId(String),
    /// Another id than the address says.
    #[error("'id' is '{found}', but the URL has '{expected}'")]
    WrongId {
        /// Id in the address.
        expected: String,
        /// Id in the body.
        found: String,
    },
    /// `meta` is not an object.
    #[error("'meta' is not an object")]
    BadMeta,
    /// More bytes than the limit.
    #[error("the resource has more than {limit} bytes")]
    TooBig {
        /// The limit in bytes.
        limit: usize,
    },
    /// Objects and arrays within each other beyond the limit.
    #[error("objects and arrays are nested more than {limit} levels deep at line {line}")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
        /// Counted from 1.
        line: usize,
    },
    /// A Bundle that cannot be taken apart.
    #[error("not a Bundle: {0}")]
    BadBundle(String),
    /// A request of a Bundle that cannot be carried out.
    #[error("{0}")]
    Entry(&'static str),
    /// A search in a request of a Bundle that is not understood.
    #[error("{0}")]
    Search(String),
    /// An entry of a Bundle that is wrong.
    #[error("Bundle.entry[{entry}]: {reason}")]
    BadEntry {
        /// Counted from 0, as in `ParsedBundle.entry[0]`.
        entry: usize,
        /// The fault.
        reason: String,
    },
    /// A Bundle of a type that cannot be carried out or imported.
    #[error("a Bundle of type '{0}' cannot be used here")]
    BundleType(String),
}

impl ResourceBodyError {
    /// Says that the text was a line of a file.
    #[must_use]
    pub fn at_line(self, number: u64) -> Self {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        match self {
            Self::Json { column, what, .. } => Self::Json { line: number, column, what },
            Self::TooDeep { limit, .. } => Self::TooDeep { limit, line: number },
            other => other,
        }
    }

    /// Says that the text was an entry of a Bundle, counted from 0.
    #[must_use]
    pub fn in_entry(self, entry: usize) -> Self {
        Self::BadEntry { entry, reason: self.to_string() }
    }
}

/// A request on resources that could not be carried out. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// The body is not a resource that can be stored.
    #[error(transparent)]
    Body(#[from] ResourceBodyError),
    /// The resource, or this version of it, never existed.
    #[error("{kind}/{id} is not known")]
    NotFound {
        /// The type.
        kind: String,
        /// The id, with `/_history/n` if a version was requested.
        id: String,
    },
    /// The resource, or this version of it, is deleted.
    #[error("{kind}/{id} was deleted")]
    Gone {
        /// The type.
        kind: String,
        /// The id.
        id: String,
    },
    /// The resource is outside the compartments that the caller may access.
    #[error("{kind}/{id} is not, or not only, in the compartment of a Patient that the token is for")]
    Outside {
        /// The type.
        kind: String,
        /// The id.
        id: String,
    },
    /// The version in `If-Match` is not the newest one, or someone else was faster.
    #[error("{key} has changed: read it again and repeat the change")]
    VersionConflict {
        /// `Type/id`.
        key: String,
    },
    /// A conditional request whose search is met by more than one resource.
    #[error("more than one {kind} meets the search; name one of them by its id")]
    Several {
        /// The type.
        kind: String,
    },
    /// A place in a search that no page of it gave.
    #[error("this page of the search is unknown; start the search again")]
    Page,
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ResourceError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { key } => Self::VersionConflict { key },
            other => Self::Store(other),
        }
    }
}
