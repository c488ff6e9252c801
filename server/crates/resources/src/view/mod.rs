//! Resources as a caller may see them: those of Patient compartments, the pages of a search, and the form of
//! its results.

pub mod changed;
pub mod compartment_view;
pub mod ordered;
pub mod pages;
pub mod patient_set;
pub mod referenced;
pub(crate) mod referrers;
pub(crate) mod relations;
pub mod restriction;
pub mod result;
