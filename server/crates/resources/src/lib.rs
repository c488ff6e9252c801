//! FHIR resources in the store: validation, ids, versions, compartments, searches and import. Without HTTP.
//!
//! | module | contents |
//! |---|---|
//! | [`body`] | the JSON of a resource, its references, and the content of a Binary |
//! | [`search`] | the parameters of a search, and their terms in the search index |
//! | [`write`](mod@write) | [`Resources`]: from a text to a stored version |
//! | [`view`] | resources as a caller may see them: compartments, pages of a search, results |
//! | [`request`] | conditional requests and Bundles |
//! | [`import`] | import of files |
//! | [`error`] | [`ResourceError`] and [`ResourceBodyError`] |

pub mod body;
pub mod error;
pub mod import;
pub mod request;
pub mod search;
pub mod view;
pub mod write;

pub use body::{binary, json, references};
pub use request::transaction;
pub use search::filter;
pub use view::{compartment_view, referenced, result};
pub use write::{assign_stored, assignment, check, erase, prepare, service, stored};

pub use compartment_view::{CompartmentView, ContextRestrictions, ViewPart};
pub use error::{ResourceBodyError, ResourceError};
pub use import::{
    ImportCount, ImportFault, ImportOptions, ImportProgress, ImportReport, IrregularResources,
    UnresolvedReferences,
};
pub use prepare::{IdSource, PreparedResource, ResourceRules, Validation};
pub use service::{DeleteResult, ExpectedVersion, Resources, StoredResource, Tombstone, WrittenResource};
pub use transaction::{
    BundleOperation, BundleSearch, EntryAction, EntryRead, EntryResult, PlannedEntry, TransactionPlan,
};
pub use view::changed::ChangeOrder;
pub use view::pages::{ResourcePage, SearchLimit};
pub use view::patient_set::PatientSet;
pub use view::restriction::{OtherTypes, Restriction};
