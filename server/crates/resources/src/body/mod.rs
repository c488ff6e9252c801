//! Reading the JSON of a resource without building a tree, and the references in it.

pub mod binary;
pub mod json;
pub mod references;
