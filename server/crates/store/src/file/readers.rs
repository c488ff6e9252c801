//! The threads that read pages: as few as there are processors. The memory of what they read goes from each to others and
//! back, so many threads would keep much of it.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use super::engine;
use crate::StoreError;

type Job = Box<dyn FnOnce() + Send>;

/// Hands work to the threads; they end with it, and it waits for them, so that nobody reads a folder that is given up.
pub(super) struct Readers {
    /// `None` only while it is being dropped.
    queue: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue = None;
        // None of them panics: what they work on is caught.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Readers {
    /// Starts them.
    ///
    /// # Errors
    /// [`StoreError::Engine`] where the system gives no thread.
    pub fn start() -> Result<Self, StoreError> {
        let (sender, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut readers = Self { queue: Some(sender), threads: Vec::new() };
        for _ in 0..thread::available_parallelism().map_or(2, NonZero::get).max(2) {
            let queue = Arc::clone(&queue);
            let work = move || {
                // Only the taking is done under the lock.
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok(job) = next() {
                    // Whoever waits for it learns that there is no answer.
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
