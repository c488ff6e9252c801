//! Requests whose client disconnects before the response. A request that may write is completed nevertheless:
//! if it were cancelled, a write could lack its audit line, and a sign-in attempt its result.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Maximum number of requests that continue without their client. Further ones are cancelled, so that a
/// client cannot accumulate running requests by disconnecting.
const MAX_ABANDONED: u32 = 1_000;

/// Requests whose clients have disconnected.
pub struct AbandonedRequests {
    permits: Arc<Semaphore>,
}

impl Default for AbandonedRequests {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_ABANDONED as usize)) }
    }
}

impl AbandonedRequests {
    /// Starts a request that continues if the returned future is dropped.
    pub fn run_to_end<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> RunningRequest<T> {
        RunningRequest { task: Some(tokio::spawn(request)), permits: Arc::clone(&self.permits) }
    }

    /// Waits until the requests without a client have ended, for up to `limit`.
    pub async fn all_ended(&self, limit: Duration) {
        if tokio::time::timeout(limit, self.permits.acquire_many(MAX_ABANDONED)).await.is_err() {
            tracing::warn!("requests of clients that have disconnected were not completed");
        }
    }
}

/// A request that is being processed.
pub struct RunningRequest<T: Send + 'static> {
    task: Option<JoinHandle<T>>,
    permits: Arc<Semaphore>,
}

impl<T: Send + 'static> Future for RunningRequest<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(task) = &mut self.task else { return Poll::Pending };
        let result = std::task::ready!(Pin::new(task).poll(context));
        self.task = None;
        match result {
            Ok(output) => Poll::Ready(output),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down, which also drops the connection.
            Err(_) => Poll::Pending,
        }
    }
}

impl<T: Send + 'static> Drop for RunningRequest<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        match (Arc::clone(&self.permits).try_acquire_owned(), Handle::try_current()) {
            (Ok(permit), Ok(runtime)) => {
                runtime.spawn(async move {
                    drop(task.await);
                    drop(permit);
                });
            }
            _ => task.abort(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_request_continues_without_its_client_unless_there_are_too_many() {
        let abandoned = AbandonedRequests { permits: Arc::new(Semaphore::new(1)) };
        let begin = || {
            let (resume, resumed) = oneshot::channel::<()>();
            let (ended, end) = oneshot::channel();
            let request = abandoned.run_to_end(async move {
                drop(resumed.await);
                _ = ended.send(());
            });
            (request, resume, end)
        };
        let (first, resume_first, first_end) = begin();
        let (second, _, second_end) = begin();
        drop(first);
        drop(second);
        assert!(second_end.await.is_err(), "the second request was not cancelled");
        resume_first.send(()).unwrap();
        assert_eq!(first_end.await, Ok(()));
        // Its permit is free again.
        let permit = abandoned.permits.acquire().await.unwrap();
        drop(permit);
        let (third, resume_third, third_end) = begin();
        drop(third);
        resume_third.send(()).unwrap();
        assert_eq!(third_end.await, Ok(()));
        assert_eq!(abandoned.run_to_end(async { 7 }).await, 7);
    }
}
