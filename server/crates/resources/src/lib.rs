//! FHIR resources in the store: validation, ids, versions, compartments, searches and import. Without HTTP.
//!
//! | module | contents |
//! |---|---|
//! | [`service`] | [`Resources`]: create, update, delete, read, history |
//! | [`prepare`](mod@prepare) | from a text to a resource that can be stored |
//! | [`compartment_view`] | the resources of one Patient compartment, as a caller may see them |
//! | `conditional`, `search_guard` | create, update and delete that depend on a search |
//! | [`referenced`] | the resources outside of compartments that those of a Patient refer to |
//! | [`references`] | the resources that references name |
//! | [`search`] | searches of a type, page by page |
//! | [`result`] | the elements, order and included resources of search results |
//! | [`transaction`] | Bundles of requests: plan, then carry out |
//! | [`import`] | files and folders into the store |
//! | [`filter`] | searches of one type, and which resources meet them |
//! | `index` | the terms of resources and of searches in the store's search index |
//! | [`json`] | looking into a resource without building a tree |
//! | [`error`] | [`ResourceError`] and [`ResourceBodyError`] |
//! | `scan` | the JSON pass under `prepare` |
//! | `bundle` | Bundles, taken apart |

mod bundle;
pub mod compartment_view;
mod conditional;
pub mod error;
pub mod filter;
pub mod import;
mod index;
pub mod json;
pub mod prepare;
pub mod referenced;
pub mod references;
pub mod result;
mod scan;
pub mod search;
mod search_guard;
pub mod service;
pub mod transaction;

pub use compartment_view::{CompartmentView, Restriction, ViewPart};
pub use error::{ResourceBodyError, ResourceError};
pub use import::{ImportCount, ImportFault, ImportOptions, ImportProgress, ImportReport};
pub use prepare::{IdSource, PreparedResource, ResourceLimits};
pub use search::{FoundResource, SearchLimit};
pub use service::{DeleteResult, ExpectedVersion, Resources, StoredResource, Tombstone, WrittenResource};
pub use transaction::{BundleOperation, EntryAction, EntryRead, EntryResult, PlannedEntry, TransactionPlan};
