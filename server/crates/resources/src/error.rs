//! Reasons why a resource cannot be read or written.

use fhir::validation::ElementDefects;
use store::{CpuBudgetSpent, StoreError};

/// Describes the first defect, those that no reader can represent before others, and how many more there are.
fn describe(defects: &ElementDefects) -> String {
    let first = defects.first().map(ToString::to_string).unwrap_or_default();
    match defects.total() {
        0 | 1 => first,
        total => format!("{first} (and {} more)", total - 1),
    }
}

/// The defect of a text that is not a valid resource, with its position if it is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceBodyError {
    /// The text is not JSON (RFC 8259).
    #[error("not JSON at line {line}, column {column}: {what}")]
    Json {
        /// Line number, counted from 1.
        line: usize,
        /// Column in bytes, counted from 1.
        column: usize,
        /// Description of the defect.
        what: &'static str,
    },
    /// The text is JSON, but not an object.
    #[error("a resource must be a JSON object, but this is {found}")]
    NotObject {
        /// The actual JSON type, such as `an array`.
        found: &'static str,
    },
    /// Two members of one object have the same name.
    #[error("member '{name}' is repeated: the member names of a JSON object must be unique")]
    DuplicateMember {
        /// The repeated member name.
        name: String,
    },
    /// `resourceType` is missing or not a string.
    #[error("'resourceType' is missing or not a string")]
    NoType,
    /// FHIR R4 does not have this resource type.
    #[error("'{0}' is not a resource type of FHIR R4")]
    UnknownType(String),
    /// The resource is Parameters.
    #[error("Parameters are the input and output of operations, and are not stored; leave them out")]
    Parameters,
    /// The resource is a Subscription.
    #[error(
        "Subscriptions are not supported: this server would never send their notifications; leave the resource out"
    )]
    Subscription,
    /// The type differs from that in the URL.
    #[error("'resourceType' is '{found}', but '{expected}' belongs here")]
    WrongType {
        /// Type in the URL.
        expected: String,
        /// Type in the body.
        found: String,
    },
    /// The `id` is missing but required.
    #[error("'id' is missing")]
    NoId,
    /// The `id` is not valid.
    #[error("'{0}' is not an id: 1 to 64 letters, digits, '-' and '.', but not '.' or '..'")]
    BadId(String),
    /// The `id` is longer than FHIR R4 permits, and the server does not accept such ids.
    #[error(
        "'{0}' is not an id: FHIR R4 permits 64 characters; the setting 'long_ids' of [resources] permits 128"
    )]
    LongId(String),
    /// The id differs from that in the URL.
    #[error("'id' is '{found}', but the URL has '{expected}'")]
    WrongId {
        /// Id in the URL.
        expected: String,
        /// Id in the body.
        found: String,
    },
    /// `meta` is not an object.
    #[error("'meta' is not an object")]
    BadMeta,
    /// The text is longer than the limit.
    #[error("the resource has more than {limit} bytes")]
    TooBig {
        /// The limit in bytes.
        limit: usize,
    },
    /// Objects and arrays are nested deeper than the limit.
    #[error("objects and arrays are nested more than {limit} levels deep at line {line}")]
    TooDeep {
        /// The limit in levels of nesting.
        limit: usize,
        /// Line number, counted from 1.
        line: usize,
    },
    /// The resource is refused because of the defects of its elements.
    #[error("{}", describe(.0))]
    Defects(ElementDefects),
    /// The text is not a valid Bundle.
    #[error("not a Bundle: {0}")]
    BadBundle(String),
    /// The request of a Bundle entry cannot be performed.
    #[error("{0}")]
    Entry(&'static str),
    /// The search in the request of a Bundle entry is not supported.
    #[error("{0}")]
    Search(String),
    /// An entry of a Bundle is not valid.
    #[error("Bundle.entry[{entry}]: {reason}")]
    BadEntry {
        /// Index of the entry, counted from 0.
        entry: usize,
        /// Description of the defect.
        reason: String,
    },
    /// A Bundle of this type cannot be processed or imported.
    #[error("a Bundle of type '{0}' cannot be used here")]
    BundleType(String),
}

impl ResourceBodyError {
    /// The error in a text that begins at this line of a file, counted from 1.
    #[must_use]
    pub fn at_line(self, number: u64) -> Self {
        let before = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
        match self {
            Self::Json { line, column, what } => {
                Self::Json { line: line.saturating_add(before), column, what }
            }
            Self::TooDeep { limit, line } => Self::TooDeep { limit, line: line.saturating_add(before) },
            other => other,
        }
    }

    /// Adds the index of the Bundle entry that contained the text, counted from 0.
    #[must_use]
    pub fn in_entry(self, entry: usize) -> Self {
        match self {
            Self::Defects(defects) => {
                Self::Defects(defects.below(&format!("Bundle.entry[{entry}].resource")))
            }
            other => Self::BadEntry { entry, reason: other.to_string() },
        }
    }
}

/// Reasons why a request on resources could not be performed. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// The body is not a valid resource.
    #[error(transparent)]
    Body(#[from] ResourceBodyError),
    /// The resource, or this version of it, never existed.
    #[error("{kind}/{id} is not known")]
    NotFound {
        /// The resource type.
        kind: String,
        /// The id, followed by `/_history/n` if a version was requested.
        id: String,
    },
    /// The resource, or this version of it, is deleted.
    #[error("{kind}/{id} was deleted")]
    Gone {
        /// The resource type.
        kind: String,
        /// The id of the resource.
        id: String,
    },
    /// The resource is outside of the compartments that the caller may access.
    #[error("{kind}/{id} is not, or not only, in the compartment of a Patient that the token is for")]
    Outside {
        /// The resource type.
        kind: String,
        /// The id of the resource.
        id: String,
    },
    /// A written resource refers to one that the caller cannot see. The reference would make it visible.
    #[error(
        "{key} refers to {target}, which the token may not read; leave the reference out, or refer to a resource of a permitted Patient"
    )]
    HiddenTarget {
        /// `Type/id` of the written resource.
        key: String,
        /// `Type/id` of the resource to which it refers.
        target: String,
    },
    /// A caller whose reach is patients would change whose data a carer sees.
    #[error(
        "{key} decides whose data a person sees, by {member:?} among others: a token for some Patients cannot change that or delete it; leave the member as it is, or use a token for all Patients"
    )]
    Relation {
        /// `Type/id` of the resource.
        key: String,
        /// The member that would change, or `deleted`.
        member: &'static str,
    },
    /// The version in `If-Match` is not the newest one, or another request has changed the resource.
    #[error("{key} has changed: read it again and repeat the change")]
    VersionConflict {
        /// `Type/id`.
        key: String,
    },
    /// The match of a conditional request does not meet `If-Match` or `If-None-Match`.
    #[error(
        "the precondition is not met: {search} finds {}; read it again and repeat the change",
        found.map_or("nothing".to_owned(), |version| format!("version {version}"))
    )]
    PreconditionFailed {
        /// The search.
        search: String,
        /// Version of the match, if there is one.
        found: Option<u64>,
    },
    /// Another request has added a resource that the search of a conditional request may find.
    #[error(
        "{key} was not written: other requests have added resources that its search may find; repeat the request"
    )]
    SearchChanged {
        /// `Type/id` of the rejected write.
        key: String,
    },
    /// The search of a conditional reference finds no resource.
    #[error(
        "no resource matches the conditional reference '{reference}': a transaction needs exactly one match for each"
    )]
    NoMatch {
        /// The reference.
        reference: String,
    },
    /// The request takes more CPU time than its route permits.
    #[error("{0}; narrow the search, for example by patient or date, or ask for fewer resources with _count")]
    TooCostly(#[from] CpuBudgetSpent),
    /// A search examines too many resources to sort or count them.
    #[error(
        "{costly}: the search of {kind} examines more than about 200,000 resources; narrow the search, or leave out {costly}"
    )]
    TooManyMatches {
        /// The type.
        kind: String,
        /// The parameter for which all matches are read.
        costly: &'static str,
    },
    /// A page of a sorted search is too far from its first match.
    #[error(
        "_sort: the pages of a search of {kind} reach the first {most} matches; narrow the search, for example by date"
    )]
    PageTooDeep {
        /// The type.
        kind: String,
        /// Number of matches that pages can reach.
        most: usize,
    },
    /// More than one resource matches the search of a conditional request.
    #[error("more than one {kind} meets the search; name one of them by its id")]
    Several {
        /// The resource type.
        kind: String,
    },
    /// The cursor in the URL of a search page was not issued by this server.
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
            StoreError::IndexChanged { key } => Self::SearchChanged { key },
            other => Self::Store(other),
        }
    }
}
