//! The operations, and the service that runs them.

pub mod closure;
pub(crate) mod concept_texts;
pub mod expand;
mod first_positions;
mod lookup;
mod messages;
mod resource_state;
pub(crate) mod service;
mod shared_parameters;
mod subsumes;
mod translate;
pub(crate) mod validate;

use crate::interface::{OperationInput, OperationLevel};
