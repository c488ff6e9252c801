//! Long terminology questions run on separate threads, with limited concurrency and a bounded queue, so that
//! one core is left for everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use store::blocking::run_blocking;

use terminology::Budget;
use terminology::ExhaustionCause;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::clock;

/// Maximum number of waiting questions; further ones are rejected.
const MAX_WAITING: usize = 64;
/// Maximum CPU time of one question.
pub const MAX_QUESTION_TIME: Duration = Duration::from_millis(900);

/// Limits the running and the waiting questions.
pub struct QuestionPool {
    /// Maximum memory of one question in bytes.
    memory: usize,
    /// Number of questions that run at the same time.
    threads: usize,
    running: Arc<Semaphore>,
    admitted: Arc<Semaphore>,
    stopping: Arc<AtomicBool>,
    counts: Arc<QuestionCounts>,
}

/// Counts of long questions since the start.
#[derive(Debug, Default)]
pub struct QuestionCounts {
    /// Questions that were answered or ended early.
    pub asked: AtomicU64,
    /// Questions that were rejected because too many were waiting.
    pub refused: AtomicU64,
    /// CPU time of all questions, in microseconds.
    pub cpu_us: AtomicU64,
}

/// The reason for which a question was not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionRejected {
    /// Too many questions are waiting.
    Full,
    /// The server is stopping.
    Stopping,
}

/// Cancels a question when its future is dropped, because the client has disconnected.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl QuestionPool {
    /// A pool for a machine with `cores` cores, of which one is left for everything else, and for questions
    /// that together take at most `memory` bytes.
    pub fn new(cores: usize, memory: usize) -> Self {
        let threads = cores.saturating_sub(1).max(1);
        Self {
            memory: memory / threads,
            threads,
            running: Arc::new(Semaphore::new(threads)),
            admitted: Arc::new(Semaphore::new(threads + MAX_WAITING)),
            stopping: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// Runs a question with a full budget. It ends when the CPU time is used up, the returned future is
    /// dropped, or the server stops.
    ///
    /// # Errors
    /// [`QuestionRejected`] if too many questions are waiting or the server is stopping.
    pub async fn run<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Budget<'_>) -> T + Send + 'static,
    ) -> Result<T, QuestionRejected> {
        let admitted = self.admitted.clone().try_acquire_owned().map_err(|_| {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            QuestionRejected::Full
        })?;
        let running = self.running.clone().acquire_owned().await.expect("the semaphore is never closed");
        if self.stopping.load(Ordering::Relaxed) {
            return Err(QuestionRejected::Stopping);
        }
        let cancelled = CancelOnDrop(Arc::default());
        let (is_cancelled, is_stopping) = (cancelled.0.clone(), self.stopping.clone());
        // The thread holds the permits, because a cancelled question runs until its next check of the
        // cancellation.
        let permits: [OwnedSemaphorePermit; 2] = [running, admitted];
        let (memory, counts) = (self.memory, Arc::clone(&self.counts));
        let answer = run_blocking(move || {
            let started = clock::thread_cpu_time();
            let check = || {
                if is_cancelled.load(Ordering::Relaxed) || is_stopping.load(Ordering::Relaxed) {
                    return Some(ExhaustionCause::Cancelled);
                }
                let spent = clock::thread_cpu_time().saturating_sub(started);
                (spent > MAX_QUESTION_TIME)
                    .then_some(ExhaustionCause::Deadline(MAX_QUESTION_TIME.as_millis() as u64))
            };
            let result = ask(&Budget::full(&check).with_memory(memory));
            let spent = clock::thread_cpu_time().saturating_sub(started);
            counts.asked.fetch_add(1, Ordering::Relaxed);
            counts.cpu_us.fetch_add(u64::try_from(spent.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            drop(permits);
            result
        });
        let result = answer.await.expect("a question does not panic");
        drop(cancelled);
        Ok(result)
    }

    /// The counts since the start.
    pub fn counts(&self) -> &QuestionCounts {
        &self.counts
    }

    /// The number of questions that run or wait.
    pub fn open(&self) -> usize {
        (self.threads + MAX_WAITING).saturating_sub(self.admitted.available_permits())
    }

    /// Cancels the running questions and rejects the waiting ones, because the server is stopping.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use fhir::Parameters;
    use futures_util::FutureExt as _;
    use terminology::{OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation};

    use super::*;

    /// Repeats a question until the budget ends, and returns the cause.
    fn ask(budget: &Budget<'_>) -> Option<ExhaustionCause> {
        let json = r#"{"resourceType":"CodeSystem","id":"s","url":"urn:s","status":"active","content":"complete",
            "concept":[{"code":"a"},{"code":"b"}]}"#;
        let terminology = Terminology::default();
        terminology.apply([TerminologyChange::Put {
            kind: "CodeSystem",
            id: "s".to_owned(),
            bytes: json.into(),
        }]);
        let query = Parameters::from_query("codeA=a&codeB=b&system=urn:s");
        let input = OperationInput::from_query(&query).budget(budget);
        std::iter::repeat_with(|| {
            terminology.run(TerminologyOperation::Subsumes, OperationLevel::Type, input, "")
        })
        .find_map(Result::err)?
        .exhausted()
    }

    #[tokio::test]
    async fn a_cancelled_question_ends_and_returns_its_permits() {
        let pool = Arc::new(QuestionPool::new(1, usize::MAX));
        let (sender, ended) = tokio::sync::oneshot::channel();
        let mut question = Box::pin(pool.run(move |budget| sender.send(ask(budget)).is_ok()));
        assert!(question.as_mut().now_or_never().is_none());
        drop(question);
        assert_eq!(ended.await, Ok(Some(ExhaustionCause::Cancelled)));
        assert_eq!(pool.run(|_| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_server_that_stops_ends_its_questions() {
        let pool = Arc::new(QuestionPool::new(1, usize::MAX));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let question = {
            let pool = pool.clone();
            tokio::spawn(async move {
                let ask = move |budget: &Budget<'_>| {
                    begun.send(()).expect("the test waits");
                    ask(budget)
                };
                pool.run(ask).await
            })
        };
        has_begun.await.expect("it begins");
        pool.stop();
        assert_eq!(question.await.expect("it does not panic"), Ok(Some(ExhaustionCause::Cancelled)));
        assert_eq!(pool.run(|_| 7).await, Err(QuestionRejected::Stopping));
    }

    #[tokio::test]
    async fn more_than_the_queue_holds_are_refused() {
        let pool = QuestionPool::new(1, usize::MAX);
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let first = pool.run(move |_| gate.recv().is_ok());
        let mut waiting: Vec<_> = Vec::new();
        let mut first = Box::pin(first);
        assert!(first.as_mut().now_or_never().is_none());
        for _ in 0..MAX_WAITING {
            let mut one = Box::pin(pool.run(|_| ()));
            assert!(one.as_mut().now_or_never().is_none());
            waiting.push(one);
        }
        assert_eq!(pool.run(|_| ()).await, Err(QuestionRejected::Full));
        open.send(()).expect("it waits");
        assert_eq!(first.await, Ok(true));
        for one in waiting {
            assert_eq!(one.await, Ok(()));
        }
    }
}
