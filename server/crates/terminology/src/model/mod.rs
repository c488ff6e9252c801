//! The base of all layers: canonical URLs and versions, language ranges, texts of concepts, errors, the
//! budget of a request, and the JSON of resources.

pub mod budget;
pub(crate) mod canonical;
pub(crate) mod concept_extensions;
pub(crate) mod concept_text;
pub(crate) mod dialects;
pub(crate) mod editions;
pub(crate) mod error;
pub(crate) mod error_text;
pub(crate) mod filter_fault;
pub(crate) mod known_systems;
pub(crate) mod language;
pub(crate) mod resource_json;
pub(crate) mod text_folding;
pub(crate) mod version_choice;

pub use self::budget::Budget;
pub use self::error::{TxError, Unprocessable};
