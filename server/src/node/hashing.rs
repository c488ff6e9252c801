//! Password hashing on separate threads, with limited concurrency: each hash takes 19 MiB and a core.

use std::sync::Arc;

use identity::Random;
use identity::sign_in::password::{self, PasswordError, PasswordPolicy};
use store::blocking::run_blocking;
use tokio::sync::Semaphore;

/// Maximum number of waiting requests of each kind; further requests are rejected immediately.
const MAX_WAITING: usize = 64;

/// The kind of request that needs a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashRequester {
    /// A signed-in user, or a browser in which the user has signed in before.
    Known,
    /// Any other request.
    Stranger,
}

/// A new password of a user, with what its policy compares it with.
pub struct PasswordToHash {
    /// The password.
    pub plain: String,
    /// The user name, which the password must not be.
    pub username: String,
    /// The address of the server, which the password must not be.
    pub service: String,
    /// The requirements.
    pub policy: PasswordPolicy,
}

impl PasswordToHash {
    /// Checks the password and hashes it, which takes a core and 19 MiB. Only the threads of a
    /// [`PasswordHasher`] call this.
    pub fn hash(&self, random: &dyn Random) -> Result<String, PasswordError> {
        self.policy.check_password(&self.plain, &self.username, &self.service)?;
        Ok(password::hash_password(&self.plain, random))
    }
}

/// Limits concurrent hashes and waiting requests. Strangers have a queue of their own, and only the first of
/// them compete with known requesters. So a known requester waits for one hash at most, however many
/// strangers are waiting.
pub struct PasswordHasher {
    running: Arc<Semaphore>,
    strangers_running: Semaphore,
    known: Semaphore,
    strangers: Semaphore,
}

impl PasswordHasher {
    /// Allows `at_once` concurrent hashes.
    pub fn new(at_once: usize) -> Self {
        Self {
            running: Arc::new(Semaphore::new(at_once)),
            strangers_running: Semaphore::new(at_once),
            known: Semaphore::new(at_once + MAX_WAITING),
            strangers: Semaphore::new(at_once + MAX_WAITING),
        }
    }

    /// Checks a new password and hashes it, for an operator.
    ///
    /// # Errors
    /// Returns [`PasswordError`] if the password does not meet the policy.
    pub async fn hash_new_password(
        &self,
        new: PasswordToHash,
        random: Arc<dyn Random>,
    ) -> Result<String, PasswordError> {
        self.run(move || new.hash(&*random)).await
    }

    /// Runs the work of an operator, regardless of the number of waiting requests.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let permit = Arc::clone(&self.running).acquire_owned().await.expect("the semaphore is never closed");
        // The work continues if the request is cancelled, so it keeps the permit.
        let work = move || {
            let _permit = permit;
            work()
        };
        run_blocking(work).await.expect("hashing does not panic")
    }

    /// Runs the work of a request. Returns `None` if too many requests of its kind are waiting.
    pub async fn run_in_turn<T: Send + 'static>(
        &self,
        requester: HashRequester,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match requester {
            HashRequester::Known => {
                let _waiting = self.known.try_acquire().ok()?;
                Some(self.run(work).await)
            }
            HashRequester::Stranger => {
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
    async fn requests_beyond_the_queue_are_rejected_until_there_is_room() {
        let hashing = Arc::new(PasswordHasher::new(1));
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
                    hashing.run_in_turn(HashRequester::Stranger, move || pass(&gate)).await.is_some()
                })
            })
            .collect();
        // Rejected requests end immediately; the others end when the gate opens.
        while tasks.iter().filter(|task| task.is_finished()).count() < 100 - 1 - MAX_WAITING {
            tokio::task::yield_now().await;
        }
        *gate.0.lock().expect("nobody panics here") = true;
        gate.1.notify_all();
        let mut served = 0;
        for task in tasks {
            served += usize::from(task.await.expect("nobody panics here"));
        }
        assert_eq!(served, 1 + MAX_WAITING);
        assert_eq!(hashing.run_in_turn(HashRequester::Stranger, || 7).await, Some(7));
    }

    #[tokio::test]
    async fn a_known_browser_is_served_before_waiting_strangers() {
        let hashing = Arc::new(PasswordHasher::new(1));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let served = Arc::new(Mutex::new(Vec::new()));
        let first = hashing.clone();
        let running = tokio::spawn(async move {
            first.run_in_turn(HashRequester::Stranger, move || gate.recv().expect("the gate is opened")).await
        });
        while hashing.running.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let ask = |requester| {
            let (hashing, served) = (hashing.clone(), served.clone());
            tokio::spawn(async move {
                let note = move || served.lock().expect("nobody panics here").push(requester);
                hashing.run_in_turn(requester, note).await.is_some()
            })
        };
        let strangers: Vec<_> = (0..MAX_WAITING).map(|_| ask(HashRequester::Stranger)).collect();
        while hashing.strangers.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            hashing.run_in_turn(HashRequester::Stranger, || ()).await,
            None,
            "the queue of strangers is full"
        );
        let known_user = ask(HashRequester::Known);
        while hashing.known.available_permits() > MAX_WAITING {
            tokio::task::yield_now().await;
        }
        open.send(()).expect("the first one waits");
        assert!(running.await.expect("nobody panics here").is_some());
        assert!(known_user.await.expect("nobody panics here"));
        for stranger in strangers {
            assert!(stranger.await.expect("nobody panics here"));
        }
        assert_eq!(served.lock().expect("nobody panics here")[0], HashRequester::Known);
    }
}
