//! The interface of the operations: one row for each operation and each parameter, and the typed access to a
//! request by these rows.

pub(crate) mod input;
pub mod operations;
pub mod parameters;
mod received;

pub use self::input::{OperationInput, OperationLevel};
pub use self::operations::TerminologyOperation;
pub use self::received::{ParsedParameters, ReceivedFault, ReceivedParameters};
