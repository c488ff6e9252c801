//! One counterpart of a code.

use fhir::{Coding, Parameter};

use crate::concept_map::Equivalence;

pub(super) struct TranslationMatch {
    pub(super) equivalence: Equivalence,
    pub(super) concept: Option<Coding>,
    pub(super) products: Vec<Parameter>,
    /// Facts of the map about this counterpart: a URI and a value.
    pub(super) properties: Vec<(String, String)>,
    pub(super) map: String,
}
