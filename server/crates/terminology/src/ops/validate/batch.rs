//! `$batch-validate-code` of ValueSet and of CodeSystem (HL7's terminology ecosystem): several validations in
//! one request.

use fhir::Parameters;

use crate::catalog::{BYTES_PER_STEP, Catalog};
use crate::interface::TerminologyOperation;
use crate::interface::parameters::VALIDATION;
use crate::model::error::malformed;
use crate::model::{Budget, TxError};
use crate::ops::{OperationInput, OperationLevel};

/// Maximum number of validations in a request.
pub const MAX_BATCH_ITEMS: usize = 10_000;

/// The function that answers an item.
type ValidateItem =
    fn(&Catalog, OperationLevel<'_>, OperationInput<'_>, &Budget<'_>) -> Result<Parameters, TxError>;

/// Answers each `validation` separately. Parameters that an item does not have are taken from the batch. An
/// error of an item is an OperationOutcome in its position, so it does not fail the batch.
///
/// # Errors
/// [`TxError`] if the batch is empty or too large, or if the budget of the batch is spent.
pub(crate) fn answer_batch(
    catalog: &Catalog,
    input: OperationInput<'_>,
    budget: &Budget<'_>,
    item_operation: TerminologyOperation,
    validate: ValidateItem,
) -> Result<Parameters, TxError> {
    let items = input.resources(VALIDATION)?;
    if items.is_empty() {
        return Err(TxError::Missing { what: "at least one parameter 'validation' is required".to_owned() });
    }
    if items.len() > MAX_BATCH_ITEMS {
        let reason =
            format!("it occurs {} times; send at most {MAX_BATCH_ITEMS} in one request", items.len());
        return Err(malformed("validation", reason));
    }
    let shared = input.as_batch();
    let input = input.for_operation(item_operation);
    let mut out = Parameters::new();
    for json in items {
        budget.spend(1 + json.get().len() / BYTES_PER_STEP)?;
        let answer = Parameters::from_json(json.get().as_bytes())
            .map_err(|reason| malformed("validation", reason))
            .and_then(|item| {
                validate(catalog, OperationLevel::Type, input.with_item(&item, &shared), budget)
            });
        match answer {
            Err(error) if error.exhausted().is_some() => return Err(error),
            Ok(response) => out.push_resource("validation", &response),
            Err(error) => out.push_outcome("validation", error.outcome()),
        }
    }
    Ok(out)
}
