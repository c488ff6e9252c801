//! The regular expression of a filter, compiled on first use.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use crate::model::Budget;
use crate::model::budget::BudgetExhausted;

/// Limits for the size of the compiled form in bytes, tried in this order. The first sufficient limit is
/// counted as the size. Matching takes linear time with each of them.
const SIZES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Maximum size of the matching cache of a thread, in bytes.
const CACHE_BYTES: usize = 128 << 10;
/// Number of compiled bytes that count as one step.
const BYTES_PER_STEP: usize = 2;
/// Number of compiled bytes that add one step to each match.
const BYTES_PER_TEXT: usize = 4 << 10;

/// A regular expression that must match the whole text.
#[derive(Debug, Default)]
pub(crate) struct FilterPattern(OnceLock<Result<(Regex, usize), String>>);

impl FilterPattern {
    /// The compiled form of `text`, and the steps of one match in addition to those of the matched text. The
    /// inner error is the reason why the expression is invalid.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if the budget is spent.
    pub(crate) fn get(
        &self,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Result<(&Regex, usize), &str>, BudgetExhausted> {
        if self.0.get().is_none() {
            let compiled = compile(text, budget)?;
            // Another request may have compiled the same expression in the meantime.
            self.0.get_or_init(|| compiled);
        }
        Ok(match self.0.get().expect("the cell is set above") {
            Ok((regex, bytes)) => Ok((regex, 1 + bytes / BYTES_PER_TEXT)),
            Err(reason) => Err(reason),
        })
    }

    /// The size of the compiled form in bytes, or 0 if it is not compiled yet.
    pub(crate) fn bytes(&self) -> usize {
        self.0.get().and_then(|compiled| compiled.as_ref().ok()).map_or(0, |(_, bytes)| *bytes)
    }

    /// The size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bytes = self.bytes();
        if bytes == 0 { 0 } else { bytes + CACHE_BYTES }
    }
}

fn compile(text: &str, budget: &Budget<'_>) -> Result<Result<(Regex, usize), String>, BudgetExhausted> {
    budget.set_activity("compiling the regular expressions of filters");
    let anchored = format!("^(?:{text})$");
    let mut too_big = String::new();
    for size in SIZES {
        budget.spend(size / BYTES_PER_STEP)?;
        let result = RegexBuilder::new(&anchored).size_limit(size).dfa_size_limit(CACHE_BYTES).build();
        match result {
            Ok(regex) => return Ok(Ok((regex, size))),
            Err(error @ regex::Error::CompiledTooBig(_)) => too_big = error.to_string(),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    Ok(Err(too_big))
}
