//! Password hashing away from the async threads, a few at a time: each hash takes 19 MiB and a core.

use tokio::sync::Semaphore;

/// Maximum number of requests of each kind that wait for their turn; further ones are rejected at once.
const QUEUE: usize = 64;

/// Who asks for a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// A signed-in user, or a browser in which the user has signed in before.
    Known,
    /// Anybody else.
    Stranger,
}

/// Bounds the hashes under way and the requests that wait. Strangers wait among themselves, and only the first of them
/// compete with known requesters: those wait for one hash at most, however many strangers wait.
pub struct Hashing {
    running: Semaphore,
    strangers_running: Semaphore,
    known: Semaphore,
    strangers: Semaphore,
}

impl Hashing {
    /// Allows this number of concurrent hashes.
    pub fn new(at_once: usize) -> Self {
        Self {
            running: Semaphore::new(at_once),
            strangers_running: Semaphore::new(at_once),
            known: Semaphore::new(at_once + QUEUE),
            strangers: Semaphore::new(at_once + QUEUE),
        }
    }

    /// Hashes or checks a password, however many requests wait: for the operator's own work.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _place = self.running.acquire().await.expect("the semaphore is never closed");
        tokio::task::spawn_blocking(work).await.expect("hashing does not panic")
    }

    /// Hashes or checks a password for a request from outside; `None` if too many of its kind wait already.
    pub async fn in_turn<T: Send + 'static>(
        &self,
        requester: Requester,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match requester {
            Requester::Known => {
                let _waiting = self.known.try_acquire().ok()?;
                Some(self.run(work).await)
            }
            Requester::Stranger => {
                let _waiting = self.strangers.try_acquire().ok()?;
                let _turn = self.strangers_running.acquire().await.expect("the semaphore is never closed");
                Some(self.run(work).await)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Condvar, Mutex};

    use super::*;

    #[tokio::test]
    async fn more_than_the_queue_holds_are_sent_away_and_come_again_later() {
        let hashing = Arc::new(Hashing::new(1));
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let pass = |gate: &(Mutex<bool>, Condvar)| {
            let (open, opened) = gate;
            let mut open = open.lock().expect("nobody panics here");
            while !*open {
                open = opened.wait(open).expect("nobody panics here");
            }
        };
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let (hashing, gate) = (hashing.clone(), gate.clone());
                tokio::spawn(async move {
                    hashing.in_turn(Requester::Stranger, move || pass(&gate)).await.is_some()
                })
            })
            .collect();
        // Whoever is sent away ends at once; the others end when the gate opens.
        while tasks.iter().filter(|task| task.is_finished()).count() < 100 - 1 - QUEUE {
            tokio::task::yield_now().await;
        }
        *gate.0.lock().expect("nobody panics here") = true;
        gate.1.notify_all();
        let mut served = 0;
        for task in tasks {
            served += usize::from(task.await.expect("nobody panics here"));
        }
        assert_eq!(served, 1 + QUEUE);
        assert_eq!(hashing.in_turn(Requester::Stranger, || 7).await, Some(7));
    }

    #[tokio::test]
    async fn a_known_browser_is_served_before_all_strangers_that_wait() {
        let hashing = Arc::new(Hashing::new(1));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let served = Arc::new(Mutex::new(Vec::new()));
        let first = hashing.clone();
        let held = tokio::spawn(async move {
            first.in_turn(Requester::Stranger, move || gate.recv().expect("the gate is opened")).await
        });
        while hashing.running.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let ask = |requester| {
            let (hashing, served) = (hashing.clone(), served.clone());
            tokio::spawn(async move {
                let note = move || served.lock().expect("nobody panics here").push(requester);
                hashing.in_turn(requester, note).await.is_some()
            })
        };
        let strangers: Vec<_> = (0..QUEUE).map(|_| ask(Requester::Stranger)).collect();
        while hashing.strangers.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(hashing.in_turn(Requester::Stranger, || ()).await, None, "the queue of strangers is full");
        let known = ask(Requester::Known);
        while hashing.known.available_permits() > QUEUE {
            tokio::task::yield_now().await;
        }
        open.send(()).expect("the first one waits");
        assert!(held.await.expect("nobody panics here").is_some());
        assert!(known.await.expect("nobody panics here"));
        for stranger in strangers {
            assert!(stranger.await.expect("nobody panics here"));
        }
        assert_eq!(served.lock().expect("nobody panics here")[0], Requester::Known);
    }
}
