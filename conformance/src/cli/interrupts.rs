//! Interrupts by the user, or by a CI server that cancels a job.

use std::sync::atomic::{AtomicBool, Ordering};

/// Waits for two interrupts. Sets `stop` at the first, after which the run ends in order.
pub async fn two_interrupts(stop: &AtomicBool) {
    interrupt().await;
    stop.store(true, Ordering::Relaxed);
    eprintln!("\ninterrupted: waiting for the cases that run; press Ctrl-C again to end at once");
    interrupt().await;
}

/// Waits for Ctrl-C, or a signal that ends programs: a CI server sends one to a job that it cancels.
pub async fn interrupt() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let waits = kinds.into_iter().filter_map(|kind| signal(kind).ok()).map(|mut signal| {
            Box::pin(async move {
                signal.recv().await;
            })
        });
        futures_util::future::select_all(waits).await;
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
