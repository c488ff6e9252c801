//! Spawned tasks: a handle that aborts its task when it is dropped, and waiting for a task that nothing
//! aborts.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

/// Waits until a task that nothing aborts has ended. If the runtime is shutting down, this never returns,
/// because the runtime then drops the caller too.
pub(crate) async fn until_ended<T>(task: impl Future<Output = Result<T, JoinError>>) -> T {
    match task.await {
        Ok(output) => output,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => std::future::pending().await,
    }
}

/// Handle of a spawned task. Dropping the handle aborts the task. Its output is that of the task: a panic of
/// the task continues in the task that waits.
pub(crate) struct AbortOnDrop<T>(AbortOnDropHandle<T>);

impl<T: Send + 'static> AbortOnDrop<T> {
    /// Spawns `work` as a task.
    pub fn of(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(AbortOnDropHandle::new(tokio::spawn(work)))
    }

    /// `true` if the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match std::task::ready!(Pin::new(&mut self.0).poll(context)) {
            Ok(output) => Poll::Ready(output),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The task was cancelled because the runtime is shutting down, which also drops the task that
            // polls this handle.
            Err(_) => Poll::Pending,
        }
    }
}
