//! Work that blocks, or computes for long, outside of the threads that serve requests.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

thread_local! {
    static IS_SINGLE: Cell<bool> = const { Cell::new(false) };
}

/// Makes the current thread do all work itself from now on. A simulation calls this, because the order in
/// which threads end cannot be repeated.
pub fn keep_on_this_thread() {
    IS_SINGLE.set(true);
}

/// `true` if the current thread does all work itself.
pub fn is_kept_on_this_thread() -> bool {
    IS_SINGLE.get()
}

/// Runs work on a thread for such work, from now on, even if the result is not awaited.
pub fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> BlockingWork<T> {
    match is_kept_on_this_thread() {
        true => BlockingWork::Ended(Some(work())),
        false => BlockingWork::Running(tokio::task::spawn_blocking(work)),
    }
}

/// The result of [`run_blocking`]; an error if the work panicked.
pub enum BlockingWork<T> {
    /// The work runs on another thread.
    Running(JoinHandle<T>),
    /// The work is done. The result is taken once.
    Ended(Option<T>),
}

// The result is moved out and never pinned.
impl<T> Unpin for BlockingWork<T> {}

impl<T> Future for BlockingWork<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Running(task) => Pin::new(task).poll(context),
            Self::Ended(result) => {
                Poll::Ready(Ok(result.take().expect("a future is not polled after its end")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_runs_elsewhere_unless_the_thread_keeps_it() {
        let here = || std::thread::current().id();
        let own = here();
        assert_ne!(run_blocking(here).await.unwrap(), own);
        std::thread::spawn(|| {
            keep_on_this_thread();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let here = || std::thread::current().id();
            assert_eq!(runtime.block_on(run_blocking(here)).unwrap(), here());
        })
        .join()
        .unwrap();
    }
}
