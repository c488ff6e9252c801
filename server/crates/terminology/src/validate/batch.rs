//! `ValueSet/$batch-validate-code` (HL7's terminology ecosystem): many questions in one request.

use fhir::Parameters;

use crate::catalog::{BYTES_PER_STEP, Catalog};
use crate::input::malformed;
use crate::{Budget, Input, Level, TxError};

/// How many questions one request may hold.
const ITEM_LIMIT: usize = 10_000;

/// Answers each `validation` by itself. What an item does not say, the parameters of the batch say;
/// what cannot be judged is an OperationOutcome in its place, so the batch never fails as a whole.
///
/// # Errors
/// When there is nothing to validate, or too much; when the budget of the whole batch ends.
pub(crate) fn answer(
    catalog: &Catalog,
    input: Input<'_>,
    budget: &Budget<'_>,
) -> Result<Parameters, TxError> {
    let items = input.resources("validation")?;
    if items.is_empty() {
        return Err(TxError::Missing { what: "at least one parameter 'validation' is needed".to_owned() });
    }
    if items.len() > ITEM_LIMIT {
        let why = format!("there are {} of them; send at most {ITEM_LIMIT} at a time", items.len());
        return Err(malformed("validation", why));
    }
    let shared = input.shared();
    let mut out = Parameters::new();
    for json in items {
        budget.spend(1 + json.get().len() / BYTES_PER_STEP)?;
        let answer = Parameters::from_json(json.get().as_bytes())
            .map_err(|why| malformed("validation", why))
            .and_then(|item| super::answer(catalog, Level::Type, input.item(&item, &shared), budget));
        match answer {
            Err(error) if error.exhausted().is_some() => return Err(error),
            Ok(answer) => out.push_resource("validation", &answer),
            Err(error) => out.push_outcome("validation", error.outcome()),
        }
    }
    Ok(out)
}
