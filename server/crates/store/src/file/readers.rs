//! The threads that read pages, as many as there are processors. More threads would keep more memory, because the
//! allocator caches freed memory for each thread.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use super::engine;
use crate::StoreError;

type ReadJob = Box<dyn FnOnce() + Send>;

/// Passes work to the threads. When it is dropped, it waits for them, so that no thread reads a folder that is
/// closed.
pub(super) struct ReaderThreads {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<ReadJob>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for ReaderThreads {
    fn drop(&mut self) {
        self.queue = None;
        // The threads cannot panic, because they catch panics of their work.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl ReaderThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns [`StoreError::Engine`] if the system creates no thread.
    pub fn start() -> Result<Self, StoreError> {
        let (sender, queue) = mpsc::channel::<ReadJob>();
        let queue = Arc::new(Mutex::new(queue));
        let mut readers = Self { queue: Some(sender), threads: Vec::new() };
        for _ in 0..thread::available_parallelism().map_or(2, NonZero::get).max(2) {
            let queue = Arc::clone(&queue);
            let work = move || {
                // Only the taking is done under the lock.
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(job) = next() {
                    // The caller that waits receives an error.
                    drop(catch_unwind(AssertUnwindSafe(job)));
                }
            };
            let thread = thread::Builder::new().name("store-reader".to_owned());
            readers.threads.push(thread.spawn(work).map_err(engine("start a reader of the store"))?);
        }
        Ok(readers)
    }

    /// Reads on one of the threads.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let stopped = || engine("read a page")("its reader stopped");
        let (reply, answer) = oneshot::channel();
        // A caller that went away needs no answer.
        let job = Box::new(move || drop(reply.send(read())));
        let queue = self.queue.as_ref().expect("the queue is open until it is dropped");
        queue.send(job).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}
