//! The regular expression of a filter, compiled when the filter is first asked.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

use crate::Budget;
use crate::budget::Exhausted;

/// Sizes of the compiled form that are tried, in bytes: the first that suffices is what the pattern counts as. Matching
/// is linear in any case.
const SIZES: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Bytes that a thread may take to match it faster.
const CACHE_BYTES: usize = 128 << 10;
/// Bytes that are compiled in one step.
const BYTES_PER_STEP: usize = 2;
/// Bytes of the compiled form that cost one step more for each text.
const BYTES_PER_TEXT: usize = 4 << 10;

/// A regular expression that a whole text must match.
#[derive(Debug, Default)]
pub(super) struct Pattern(OnceLock<Result<(Regex, usize), String>>);

impl Pattern {
    /// The compiled form of `text`, and the steps of one match beside those of the matched text; the inner error says
    /// what is wrong with it.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn get(
        &self,
        text: &str,
        budget: &Budget<'_>,
    ) -> Result<Result<(&Regex, usize), &str>, Exhausted> {
        if self.0.get().is_none() {
            let compiled = compile(text, budget)?;
            // Another question may have compiled the same meanwhile.
            self.0.get_or_init(|| compiled);
        }
        Ok(match self.0.get().expect("it was set above") {
            Ok((regex, bytes)) => Ok((regex, 1 + bytes / BYTES_PER_TEXT)),
            Err(why) => Err(why),
        })
    }

    /// Bytes of the compiled form, where it was compiled.
    pub(super) fn bytes(&self) -> usize {
        self.0.get().and_then(|compiled| compiled.as_ref().ok()).map_or(0, |(_, bytes)| *bytes)
    }

    /// Bytes that it takes in memory.
    pub(super) fn weight(&self) -> usize {
        let bytes = self.bytes();
        if bytes == 0 { 0 } else { bytes + CACHE_BYTES }
    }
}

fn compile(text: &str, budget: &Budget<'_>) -> Result<Result<(Regex, usize), String>, Exhausted> {
    budget.during("compiling the regular expressions of filters");
    let anchored = format!("^(?:{text})$");
    let mut too_big = String::new();
    for size in SIZES {
        budget.spend(size / BYTES_PER_STEP)?;
        let built = RegexBuilder::new(&anchored).size_limit(size).dfa_size_limit(CACHE_BYTES).build();
        match built {
            Ok(regex) => return Ok(Ok((regex, size))),
            Err(error @ regex::Error::CompiledTooBig(_)) => too_big = error.to_string(),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
    Ok(Err(too_big))
}
