//! The threads that read pages. There is one for each processor. More threads would take more memory, because
//! the allocator caches freed memory for each thread.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use super::failure::engine;
use crate::{StoreError, cpu_budget};

type ReadJob = Box<dyn FnOnce() + Send>;

/// Passes work to the reader threads. Dropping it waits for the threads, so that no thread reads a folder
/// after it is closed.
pub(super) struct ReaderThreads {
    /// `None` only while the threads are being stopped.
    queue: Option<mpsc::Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        self.queue = None;
        // The threads cannot panic, because they catch the panics of the work.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl ReaderThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if the system cannot create a thread.
    pub fn start() -> Result<Self, StoreError> {
        let (sender, queue) = mpsc::channel::<ReadJob>();
        let queue = Arc::new(Mutex::new(queue));
        let mut readers = Self { queue: Some(sender), threads: Vec::new() };
        for _ in 0..thread::available_parallelism().map_or(2, NonZero::get).max(2) {
            let queue = Arc::clone(&queue);
            let work = move || {
                // The lock is held only while work is taken from the queue.
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(job) = next() {
                    // If the work panics, the waiting caller receives an error.
                    drop(catch_unwind(AssertUnwindSafe(job)));
                }
            };
            let thread = thread::Builder::new().name("store-reader".to_owned());
            readers.threads.push(thread.spawn(work).map_err(engine("start a reader of the store"))?);
        }
        Ok(readers)
    }

    /// Calls `read` on one of the reader threads and returns its result.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let stopped = || engine("read a page")("its reader stopped");
        let (reply, answer) = oneshot::channel();
        let budget = cpu_budget::current();
        let job = Box::new(move || {
            let result = match &budget {
                Some(budget) => budget.measure(read),
                None => read(),
            };
            // A caller that was cancelled needs no answer.
            drop(reply.send(result));
        });
        let queue = self.queue.as_ref().expect("the queue is open until it is dropped");
        queue.send(job).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}
