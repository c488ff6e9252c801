//! FHIR R4 data types that more than one leaf needs. No IO, no rules of any leaf.
//!
//! | module | what lives there |
//! |---|---|
//! | [`types`] | resource types and ids |
//! | [`coding`] | Coding, CodeableConcept |
//! | [`parameters`] | Parameters, from JSON and from a query string |
//! | [`outcome`] | OperationOutcome |
//! | [`instant`] | instants with milliseconds |

pub mod coding;
pub mod instant;
pub mod outcome;
pub mod parameters;
pub mod types;

pub use coding::{CodeableConcept, Coding};
pub use outcome::{Issue, IssueCode, OperationOutcome, Severity};
pub use parameters::{Parameter, Parameters, Value};
pub use types::{RESOURCE_TYPES, is_id, resource_type};
