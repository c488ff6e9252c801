//! Limits on the work of one request: a number of steps, an amount of memory, and a check that the caller
//! supplies (a deadline, a client that has disconnected).
//!
//! A step is one concept, text, include, filter or member, or a few dozen bytes of JSON, or a few dozen words
//! of a concept set. It takes between 10 and 100 ns. Counting a step costs one subtraction; the check is
//! called every [`SLICE`] steps.

use std::cell::Cell;
use std::fmt;

/// Number of steps between two calls of the check.
const SLICE: u32 = 4_096;
/// Maximum number of steps of a request that is answered on the caller's own thread: less than a millisecond.
const INLINE_STEPS: u64 = 10_000;
/// Maximum number of steps of any request.
const STEPS: u64 = 20_000_000;
/// Maximum size of the concept sets that one request creates, in bytes.
const MEMORY_BYTES: usize = 128 << 20;

/// Reason why a request ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExhaustionCause {
    /// The budget of [`Budget::inline`] is spent. Repeat the request with [`Budget::full`].
    Inline,
    /// The limit of steps is reached. The value is the limit.
    Steps(u64),
    /// The limit of memory is reached. The value is the limit in bytes.
    Memory(usize),
    /// The check reports that this CPU time, in milliseconds, is spent.
    Deadline(u64),
    /// The check reports that the client has disconnected or the server stops.
    Cancelled,
}

/// Error of a request whose budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct BudgetExhausted {
    /// The limit that was reached.
    pub cause: ExhaustionCause,
    /// Activity when the budget was spent, such as "evaluating filters".
    pub during: &'static str,
}

impl fmt::Display for BudgetExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let during = self.during;
        match self.cause {
            ExhaustionCause::Inline => write!(f, "{during} takes more than {INLINE_STEPS} steps")?,
            ExhaustionCause::Steps(limit) => write!(f, "{during} takes more than {limit} steps")?,
            ExhaustionCause::Memory(limit) => {
                write!(f, "{during} takes more than {} MiB of memory", limit >> 20)?
            }
            ExhaustionCause::Deadline(ms) => write!(f, "{during} takes more than {ms} ms of CPU time")?,
            ExhaustionCause::Cancelled => {
                write!(f, "{during} was cancelled: the client has disconnected or the server is stopping")?
            }
        }
        match self.cause {
            ExhaustionCause::Inline | ExhaustionCause::Cancelled => Ok(()),
            _ => f.write_str(
                "; send fewer codes at a time, or use a value set with fewer includes, imports and filters",
            ),
        }
    }
}

/// The check that a caller supplies. It returns a reason to end the request, or `None`.
pub type BudgetCheck<'c> = dyn Fn() -> Option<ExhaustionCause> + 'c;

/// The remaining budget of one request.
pub struct Budget<'c> {
    /// Steps until the next call of the check.
    slice: Cell<u32>,
    /// Steps that remain after that call.
    rest: Cell<u64>,
    memory: Cell<usize>,
    during: Cell<&'static str>,
    /// Set once the budget is spent. From then on every step fails.
    spent: Cell<Option<ExhaustionCause>>,
    limit: u64,
    memory_limit: usize,
    is_inline: bool,
    check: Option<&'c BudgetCheck<'c>>,
}

impl Default for Budget<'_> {
    /// A full budget without a check.
    fn default() -> Self {
        Self::with_steps(STEPS)
    }
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} steps", self.steps(), self.limit)
    }
}

impl<'c> Budget<'c> {
    /// Returns a budget of this number of steps.
    pub fn with_steps(steps: u64) -> Self {
        let slice = steps.min(u64::from(SLICE)) as u32;
        Self {
            slice: Cell::new(slice),
            rest: Cell::new(steps - u64::from(slice)),
            memory: Cell::new(MEMORY_BYTES),
            during: Cell::new("the request"),
            spent: Cell::new(None),
            limit: steps,
            memory_limit: MEMORY_BYTES,
            is_inline: false,
            check: None,
        }
    }

    /// Returns the small budget of a request that is answered on the thread that received it. If it ends with
    /// [`ExhaustionCause::Inline`], repeat the request on a thread of its own with a full budget.
    pub fn inline() -> Self {
        Self { is_inline: true, ..Self::with_steps(INLINE_STEPS) }
    }

    /// Returns the budget of any request, with a check.
    pub fn full(check: &'c BudgetCheck<'c>) -> Self {
        Self { check: Some(check), ..Self::with_steps(STEPS) }
    }

    /// Reduces the memory of the budget, on a machine that has little.
    #[must_use]
    pub fn with_memory(self, bytes: usize) -> Self {
        let bytes = bytes.min(MEMORY_BYTES);
        self.memory.set(bytes);
        Self { memory_limit: bytes, ..self }
    }

    /// Spends memory.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if too little memory remains.
    pub(crate) fn spend_memory(&self, bytes: usize) -> Result<(), BudgetExhausted> {
        let rest = self.memory.get().checked_sub(bytes);
        self.memory.set(rest.ok_or_else(|| self.exhausted(ExhaustionCause::Memory(self.memory_limit)))?);
        Ok(())
    }

    /// Spends steps.
    ///
    /// # Errors
    /// [`BudgetExhausted`] if fewer steps remain, or if the check returns a reason to end.
    #[inline]
    pub(crate) fn spend(&self, steps: usize) -> Result<(), BudgetExhausted> {
        match (self.slice.get() as usize).checked_sub(steps) {
            Some(rest) => {
                self.slice.set(rest as u32);
                Ok(())
            }
            None => self.refill(steps as u64),
        }
    }

    #[cold]
    fn refill(&self, steps: u64) -> Result<(), BudgetExhausted> {
        if let Some(cause) = self.spent.get() {
            return Err(self.exhausted(cause));
        }
        let total = u64::from(self.slice.get()) + self.rest.get();
        let Some(rest) = total.checked_sub(steps) else {
            return Err(self.exhausted(if self.is_inline {
                ExhaustionCause::Inline
            } else {
                ExhaustionCause::Steps(self.limit)
            }));
        };
        let slice = rest.min(u64::from(SLICE));
        self.slice.set(slice as u32);
        self.rest.set(rest - slice);
        match self.check.and_then(|check| check()) {
            Some(cause) => Err(self.exhausted(cause)),
            None => Ok(()),
        }
    }

    fn exhausted(&self, cause: ExhaustionCause) -> BudgetExhausted {
        self.slice.set(0);
        self.rest.set(0);
        self.spent.set(Some(cause));
        BudgetExhausted { cause, during: self.during.get() }
    }

    /// Spends steps on this number of 64-bit words of a concept set, and memory if the words are new.
    ///
    /// # Errors
    /// [`BudgetExhausted`] as [`spend`](Self::spend) does, and if too little memory remains.
    pub(crate) fn spend_words(&self, words: usize, are_new: bool) -> Result<(), BudgetExhausted> {
        self.spend(1 + words / 32)?;
        if are_new {
            self.spend_memory(words * 8)?;
        }
        Ok(())
    }

    /// The memory that remains, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory.get()
    }

    /// The memory that was spent since it was `before`, because what was created was dropped.
    pub(crate) fn restore_memory(&self, before: usize) {
        self.memory.set(before.min(self.memory_limit));
    }

    /// Sets the name of the current work, for the message of [`BudgetExhausted`].
    pub(crate) fn set_activity(&self, what: &'static str) {
        self.during.set(what);
    }

    /// Runs `work` with half of the remaining budget, and returns `None` if that is not enough. With an
    /// inline budget that case is an error instead, because a full budget may be enough.
    ///
    /// # Errors
    /// The error of `work`, or [`BudgetExhausted`] if the check returns a reason to end.
    pub(crate) fn with_half<T, E: From<BudgetExhausted>>(
        &self,
        work: impl FnOnce(&Budget<'c>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let rest = u64::from(self.slice.get()) + self.rest.get();
        let half = Budget { is_inline: self.is_inline, check: self.check, ..Budget::with_steps(rest / 2) };
        let result = work(&half);
        self.spend(half.steps() as usize)?;
        match (result, half.spent.get()) {
            (Err(_), Some(ExhaustionCause::Steps(_) | ExhaustionCause::Memory(_))) => Ok(None),
            (result, _) => result.map(Some),
        }
    }

    /// Returns the number of steps spent so far.
    pub fn steps(&self) -> u64 {
        self.limit - self.rest.get() - u64::from(self.slice.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_counted_and_the_check_runs_between_slices() {
        let calls = Cell::new(0);
        let check = || {
            calls.set(calls.get() + 1);
            None
        };
        let budget = Budget { check: Some(&check), ..Budget::with_steps(3 * u64::from(SLICE)) };
        for step in 1..=3 * u64::from(SLICE) {
            assert_eq!(budget.spend(1), Ok(()));
            assert_eq!(budget.steps(), step);
        }
        assert_eq!(calls.get(), 2);
        let cause = |budget: &Budget<'_>| budget.spend(1).unwrap_err().cause;
        assert_eq!(cause(&budget), ExhaustionCause::Steps(3 * u64::from(SLICE)));
        assert_eq!(cause(&Budget { is_inline: true, ..Budget::with_steps(0) }), ExhaustionCause::Inline);
    }

    #[test]
    fn the_reason_of_the_check_is_final() {
        let check = || Some(ExhaustionCause::Cancelled);
        let budget = Budget::full(&check);
        budget.set_activity("counting");
        let error = (0..2 * SLICE).find_map(|_| budget.spend(1).err()).unwrap();
        assert_eq!(
            error.to_string(),
            "counting was cancelled: the client has disconnected or the server is stopping"
        );
        assert_eq!(budget.spend(1).unwrap_err().cause, ExhaustionCause::Cancelled);
    }

    #[test]
    fn half_of_the_budget_can_be_spent_without_error() {
        let budget = Budget::with_steps(100);
        let work = |steps| move |half: &Budget<'_>| half.spend(steps).map(|()| steps);
        assert_eq!(budget.with_half(work(50)), Ok(Some(50)));
        assert_eq!(budget.with_half(work(26)), Ok(None));
        assert_eq!(budget.spend(1), Ok(()));
        let inline = Budget { is_inline: true, ..Budget::with_steps(100) };
        assert_eq!(inline.with_half(work(51)).unwrap_err().cause, ExhaustionCause::Inline);
    }
}
