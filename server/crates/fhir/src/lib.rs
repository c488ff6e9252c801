//! FHIR R4 data types that several crates use. It performs no IO and contains no domain rules.
//!
//! | module | contents |
//! |---|---|
//! | [`types`] | resource types and ids |
//! | [`structures`] | elements of each resource type and data type |
//! | [`primitive`] | primitive data types and their formats |
//! | [`validation`] | the defects of a resource |
//! | [`search_parameters`] | search parameters of each resource type |
//! | [`patient_compartment`] | elements that put a resource into the compartment of a Patient |
//! | [`coding`] | Coding, CodeableConcept |
//! | [`parameters`] | Parameters, from JSON and from a query string |
//! | [`outcome`] | OperationOutcome |
//! | [`json`] | answers written as JSON |
//! | [`instant`] | instants with milliseconds |
//! | [`patient_references`] | elements that may refer to a Patient |
//! | [`period`] | Period |
//! | [`text`] | strings of JSON that are not copied |

pub mod coding;
pub mod instant;
pub mod json;
pub mod outcome;
pub mod parameters;
pub mod patient_compartment;
pub mod patient_references;
pub mod period;
pub mod primitive;
pub mod search_parameters;
pub mod structures;
pub mod text;
pub mod types;
pub mod validation;

pub use coding::{CodeableConcept, Coding};
pub use json::Json;
pub use outcome::{Issue, IssueCode, OperationOutcome, Severity};
pub use parameters::{JsonNumber, Parameter, Parameters, Value};
pub use period::Period;
pub use text::Text;
pub use types::{IdLength, RESOURCE_TYPES, is_id, not_a_type, resource_type};
