//! Password hashing away from the async threads, a few at a time: each hash takes 19 MiB and a core.

use tokio::sync::Semaphore;

/// Most strangers who wait for their turn; more are sent away at once.
const QUEUE: usize = 64;

/// Bounds the hashes under way and those that wait.
pub struct Hashing {
    running: Semaphore,
    in_turn: Semaphore,
}

impl Hashing {
    /// So many at once.
    pub fn new(at_once: usize) -> Self {
        Self { running: Semaphore::new(at_once), in_turn: Semaphore::new(at_once + QUEUE) }
    }

    /// Hashes or checks a password, however many wait: for the operator's own work.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let _place = self.running.acquire().await.expect("the semaphore is never closed");
        tokio::task::spawn_blocking(work).await.expect("hashing does not panic")
    }

    /// The same for strangers: `None` where too many wait already, so that nobody can pile hashing up.
    pub async fn in_turn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let _waiting = self.in_turn.try_acquire().ok()?;
        Some(self.run(work).await)
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
                tokio::spawn(async move { hashing.in_turn(move || pass(&gate)).await.is_some() })
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
        assert_eq!(hashing.in_turn(|| 7).await, Some(7));
    }
}
