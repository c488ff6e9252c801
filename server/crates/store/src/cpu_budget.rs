//! The CPU time that one request may take, over all threads that work for it.
//!
//! The caller runs the work of a request in a budget. Each poll of the work is measured, and so is each
//! page that a reader thread of the file engine reads for it. Loops over many resources call [`check`] once
//! for each page, which fails when the budget is spent. A database does its share in its own process, where
//! it has limits of its own.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Returns the CPU time of the current thread.
pub type ThreadCpuTime = fn() -> Duration;

tokio::task_local! {
    static BUDGET: Arc<CpuBudget>;
}

thread_local! {
    /// CPU time of this thread at the start of the present poll.
    static POLL_START: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The CPU time of a request.
#[derive(Debug)]
pub struct CpuBudget {
    limit: Duration,
    spent_us: AtomicU64,
    thread_time: ThreadCpuTime,
}

/// The error of a request whose CPU time is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request takes more than {} ms of CPU time", limit.as_millis())]
pub struct CpuBudgetSpent {
    /// The limit.
    pub limit: Duration,
}

impl CpuBudget {
    /// A budget of this CPU time.
    pub fn new(limit: Duration, thread_time: ThreadCpuTime) -> Arc<Self> {
        Arc::new(Self { limit, spent_us: AtomicU64::new(0), thread_time })
    }

    /// Runs work in the budget.
    pub async fn run<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let budget = Arc::clone(&self);
        let work_result = poll_fn(move |context| {
            let start = (budget.thread_time)();
            let outer = POLL_START.replace(Some(start));
            let polled = work.as_mut().poll(context);
            POLL_START.set(outer);
            budget.add((budget.thread_time)().saturating_sub(start));
            polled
        });
        BUDGET.scope(self, work_result).await
    }

    /// Does work of the request on another thread.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = (self.thread_time)();
        let result = work();
        self.add((self.thread_time)().saturating_sub(start));
        result
    }

    fn add(&self, spent: Duration) {
        let spent_us = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
        self.spent_us.fetch_add(spent_us, Ordering::Relaxed);
    }

    /// The CPU time spent so far, with that of the present poll.
    fn spent(&self) -> Duration {
        let present = POLL_START.get().map(|start| (self.thread_time)().saturating_sub(start));
        Duration::from_micros(self.spent_us.load(Ordering::Relaxed)) + present.unwrap_or_default()
    }
}

/// The budget of the current work, for threads that work for it.
pub fn current() -> Option<Arc<CpuBudget>> {
    BUDGET.try_with(Arc::clone).ok()
}

/// Checks that the budget of the current work is not spent. Work without a budget may take any time.
///
/// # Errors
/// Returns [`CpuBudgetSpent`] with the limit.
pub fn check() -> Result<(), CpuBudgetSpent> {
    let is_spent = |budget: &Arc<CpuBudget>| budget.spent() > budget.limit;
    match BUDGET.try_with(|budget| is_spent(budget).then_some(budget.limit)) {
        Ok(Some(limit)) => Err(CpuBudgetSpent { limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Lets the CPU time of this thread pass.
    fn work(ms: u64) {
        TIME.set(TIME.get() + Duration::from_millis(ms));
    }

    #[tokio::test]
    async fn the_time_of_all_polls_and_threads_is_counted() {
        let budget = CpuBudget::new(Duration::from_millis(10), || TIME.get());
        work(100);
        budget
            .run(async {
                work(4);
                assert_eq!(check(), Ok(()));
                tokio::task::yield_now().await;
                let budget = current().expect("the work has a budget");
                std::thread::spawn(move || budget.measure(|| work(4))).join().expect("the thread ends");
                assert_eq!(check(), Ok(()));
                work(3);
                assert_eq!(check(), Err(CpuBudgetSpent { limit: Duration::from_millis(10) }));
            })
            .await;
        assert_eq!(check(), Ok(()), "work without a budget");
    }
}
