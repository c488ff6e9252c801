//! The work that one question may cause: a number of steps, an amount of memory, and a check that its caller supplies
//! (a deadline, a client that has left).
//!
//! A step is one concept, text, include, filter or member that is looked at, or a few dozen bytes of JSON or words of a
//! set: between 10 and 100 ns. Counting one costs a subtraction; the check is called once in [`SLICE`] steps.

use std::cell::Cell;
use std::fmt;

/// Steps between two calls of the check.
const SLICE: u32 = 4_096;
/// Steps of a question that is answered on the caller's own thread: less than a millisecond.
const INLINE_STEPS: u64 = 10_000;
/// Steps of any question.
const STEPS: u64 = 20_000_000;
/// Bytes of sets of concepts that one question may make.
const MEMORY_BYTES: usize = 128 << 20;

/// Why a question ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The budget of [`Budget::inline`] is spent: ask again with [`Budget::full`].
    Inline,
    /// The steps are spent.
    Steps(u64),
    /// The memory is spent.
    Memory(usize),
    /// The check reports that this much CPU time, in milliseconds, is spent.
    Deadline(u64),
    /// The check reports that nobody waits for the answer.
    Cancelled,
}

/// A budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct Exhausted {
    /// Which limit was reached.
    pub cause: Cause,
    /// What the question was at, as "evaluating filters".
    pub during: &'static str,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let during = self.during;
        match self.cause {
            Cause::Inline => write!(f, "{during} takes more than {INLINE_STEPS} steps")?,
            Cause::Steps(limit) => write!(f, "{during} takes more than {limit} steps")?,
            Cause::Memory(limit) => write!(f, "{during} takes more than {} MiB of memory", limit >> 20)?,
            Cause::Deadline(ms) => write!(f, "{during} takes more than {ms} ms of CPU time")?,
            Cause::Cancelled => write!(f, "{during} was cancelled: the client has left or the server stops")?,
        }
        match self.cause {
            Cause::Inline | Cause::Cancelled => Ok(()),
            _ => f.write_str("; ask about fewer codes at a time, or use a value set with fewer includes, imports and filters"),
        }
    }
}

/// The check that a caller supplies: the reason to stop now, if there is one.
pub type Check<'c> = dyn Fn() -> Option<Cause> + 'c;

/// What is left for one question.
pub struct Budget<'c> {
    /// Steps until the next call of the check.
    slice: Cell<u32>,
    /// Steps after those.
    rest: Cell<u64>,
    memory: Cell<usize>,
    during: Cell<&'static str>,
    /// Set once the budget is spent: from then on every step fails.
    spent: Cell<Option<Cause>>,
    limit: u64,
    is_inline: bool,
    check: Option<&'c Check<'c>>,
}

impl Default for Budget<'_> {
    /// A full budget without a check.
    fn default() -> Self {
        Self::of(STEPS)
    }
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} steps", self.steps(), self.limit)
    }
}

impl<'c> Budget<'c> {
    /// A budget of this many steps.
    pub fn of(steps: u64) -> Self {
        let slice = steps.min(u64::from(SLICE)) as u32;
        Self {
            slice: Cell::new(slice),
            rest: Cell::new(steps - u64::from(slice)),
            memory: Cell::new(MEMORY_BYTES),
            during: Cell::new("the question"),
            spent: Cell::new(None),
            limit: steps,
            is_inline: false,
            check: None,
        }
    }

    /// The small budget of a question that is answered where it arrives. If it ends with [`Cause::Inline`], the
    /// question needs a thread of its own and a full budget.
    pub fn inline() -> Self {
        Self { is_inline: true, ..Self::of(INLINE_STEPS) }
    }

    /// The budget of any question, with a check.
    pub fn full(check: &'c Check<'c>) -> Self {
        Self { check: Some(check), ..Self::of(STEPS) }
    }

    /// Spends steps.
    ///
    /// # Errors
    /// When fewer are left, or the check says to stop.
    #[inline]
    pub(crate) fn spend(&self, steps: usize) -> Result<(), Exhausted> {
        match (self.slice.get() as usize).checked_sub(steps) {
            Some(left) => {
                self.slice.set(left as u32);
                Ok(())
            }
            None => self.refill(steps as u64),
        }
    }

    #[cold]
    fn refill(&self, steps: u64) -> Result<(), Exhausted> {
        if let Some(cause) = self.spent.get() {
            return Err(self.exhausted(cause));
        }
        let left = u64::from(self.slice.get()) + self.rest.get();
        let Some(left) = left.checked_sub(steps) else {
            return Err(self.exhausted(if self.is_inline {
                Cause::Inline
            } else {
                Cause::Steps(self.limit)
            }));
        };
        let slice = left.min(u64::from(SLICE));
        self.slice.set(slice as u32);
        self.rest.set(left - slice);
        match self.check.and_then(|check| check()) {
            Some(cause) => Err(self.exhausted(cause)),
            None => Ok(()),
        }
    }

    fn exhausted(&self, cause: Cause) -> Exhausted {
        self.slice.set(0);
        self.rest.set(0);
        self.spent.set(Some(cause));
        Exhausted { cause, during: self.during.get() }
    }

    /// Spends steps on this many 64-bit words of a set, and memory if they are new.
    ///
    /// # Errors
    /// As for [`spend`](Self::spend); too much memory.
    pub(crate) fn words(&self, words: usize, are_new: bool) -> Result<(), Exhausted> {
        self.spend(1 + words / 32)?;
        if are_new {
            let left = self.memory.get().checked_sub(words * 8);
            self.memory.set(left.ok_or_else(|| self.exhausted(Cause::Memory(MEMORY_BYTES)))?);
        }
        Ok(())
    }

    /// Names what the question is at, for the message when the budget ends.
    pub(crate) fn during(&self, what: &'static str) {
        self.during.set(what);
    }

    /// Tries `work` with half of what is left. Returns `None` if it takes more than that; with an inline budget, that
    /// is an error, since a full one may suffice.
    ///
    /// # Errors
    /// The work's; the check says to stop.
    pub(crate) fn half<T, E: From<Exhausted>>(
        &self,
        work: impl FnOnce(&Budget<'c>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let left = u64::from(self.slice.get()) + self.rest.get();
        let half = Budget { is_inline: self.is_inline, check: self.check, ..Budget::of(left / 2) };
        let done = work(&half);
        self.spend(half.steps() as usize)?;
        match (done, half.spent.get()) {
            (Err(_), Some(Cause::Steps(_) | Cause::Memory(_))) => Ok(None),
            (done, _) => done.map(Some),
        }
    }

    /// How many steps are spent.
    pub fn steps(&self) -> u64 {
        self.limit - self.rest.get() - u64::from(self.slice.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_to_the_last_and_the_check_is_called_between_slices() {
        let calls = Cell::new(0);
        let check = || {
            calls.set(calls.get() + 1);
            None
        };
        let budget = Budget { check: Some(&check), ..Budget::of(3 * u64::from(SLICE)) };
        for step in 1..=3 * u64::from(SLICE) {
            assert_eq!(budget.spend(1), Ok(()));
            assert_eq!(budget.steps(), step);
        }
        assert_eq!(calls.get(), 2);
        let cause = |budget: &Budget<'_>| budget.spend(1).unwrap_err().cause;
        assert_eq!(cause(&budget), Cause::Steps(3 * u64::from(SLICE)));
        assert_eq!(cause(&Budget { is_inline: true, ..Budget::of(0) }), Cause::Inline);
    }

    #[test]
    fn what_the_check_says_holds_from_then_on() {
        let check = || Some(Cause::Cancelled);
        let budget = Budget::full(&check);
        budget.during("counting");
        let ended = (0..2 * SLICE).find_map(|_| budget.spend(1).err()).unwrap();
        assert_eq!(ended.to_string(), "counting was cancelled: the client has left or the server stops");
        assert_eq!(budget.spend(1).unwrap_err().cause, Cause::Cancelled);
    }

    #[test]
    fn half_of_a_budget_may_end_without_the_whole() {
        let budget = Budget::of(100);
        let work = |steps| move |half: &Budget<'_>| half.spend(steps).map(|()| steps);
        assert_eq!(budget.half(work(50)), Ok(Some(50)));
        assert_eq!(budget.half(work(26)), Ok(None));
        assert_eq!(budget.spend(1), Ok(()));
        let inline = Budget { is_inline: true, ..Budget::of(100) };
        assert_eq!(inline.half(work(51)).unwrap_err().cause, Cause::Inline);
    }
}
