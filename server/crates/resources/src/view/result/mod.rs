//! Parameters that affect the results of a search (FHIR R4, search): which elements, in which order, and with
//! which other resources.
//!
//! | module | contents |
//! |---|---|
//! | [`elements`] | `_elements` and `_summary`: resources reduced to some of their top-level elements |
//! | [`sort`] | `_sort`: keys, and pages of a sorted search |
//! | [`include`](mod@include) | `_include`: the references of matches that are followed |

pub mod elements;
pub mod include;
pub mod sort;
