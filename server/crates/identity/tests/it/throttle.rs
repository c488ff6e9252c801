//! Tests that failed sign-ins are throttled, and that an attacker cannot lock out a user.

use std::sync::atomic::Ordering;

use jiff::SignedDuration;
use trefoil_identity::sign_in::throttle::{AttemptResult, SignInAttempt, ThrottleLimits};

use crate::support::{Setup, at};

const HOME: &str = "192.0.2.1";
const AWAY: &str = "198.51.100.7";

impl Setup {
    async fn attempt(
        &self,
        name: &str,
        address: &str,
        device: Option<&str>,
        second: i64,
    ) -> Result<SignInAttempt, SignedDuration> {
        let user = self.identity.users.active_user_by_name(name, at(second)).await.unwrap();
        let limits = ThrottleLimits::default();
        self.identity
            .throttle
            .begin_sign_in_attempt(name, user.as_ref(), address, device, &limits, at(second))
            .await
            .unwrap()
    }

    async fn fails(&self, name: &str, address: &str, second: i64) {
        let attempt = self.attempt(name, address, None, second).await.expect("the attempt is not locked");
        self.identity.throttle.settle_attempt(attempt, AttemptResult::Failure, at(second)).await.unwrap();
    }
}

#[tokio::test]
async fn five_failures_are_free_and_each_further_one_locks_twice_as_long() {
    for name in ["ada", "nobody-of-that-name"] {
        let setup = Setup::new().await;
        for _ in 0..5 {
            setup.fails(name, HOME, 0).await;
        }
        let mut second = 0;
        for lock in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            let wait = setup.attempt(name, HOME, None, second).await.unwrap_err();
            assert_eq!(wait, SignedDuration::from_secs(lock), "{name} at {second}");
            // An attempt during a lock does not extend it.
            assert!(setup.attempt(name, HOME, None, second).await.is_err());
            second += lock;
            setup.fails(name, HOME, second).await;
        }
        // The failures are forgotten 15 minutes after the last lock.
        setup.fails(name, HOME, second + 1801).await;
        setup.fails(name, HOME, second + 1801).await;
    }
}

#[tokio::test]
async fn a_failure_later_than_the_time_of_an_attempt_does_not_lock() {
    let setup = Setup::new().await;
    setup.fails("nobody-of-that-name", HOME, 2).await;
    setup.fails("ada", HOME, 1).await;
    setup.fails("ada", HOME, 0).await;
}

#[tokio::test]
async fn checked_and_delayed_attempts_are_counted() {
    let setup = Setup::new().await;
    for _ in 0..5 {
        setup.fails("ada", HOME, 0).await;
    }
    for _ in 0..2 {
        setup.attempt("ada", HOME, None, 0).await.unwrap_err();
    }
    let counts = &setup.identity.throttle.counts;
    let totals = (counts.checked.load(Ordering::Relaxed), counts.delayed.load(Ordering::Relaxed));
    assert_eq!(totals, (5, 2));
}

#[tokio::test]
async fn a_success_resets_the_failures_of_the_name_at_the_address() {
    let setup = Setup::new().await;
    for _ in 0..4 {
        setup.fails("ada", HOME, 0).await;
    }
    let right = setup.attempt("ADA", HOME, None, 0).await.unwrap();
    setup.identity.throttle.settle_attempt(right, AttemptResult::Success, at(0)).await.unwrap();
    for _ in 0..5 {
        setup.fails("ada", HOME, 0).await;
    }
    assert!(setup.attempt("ada", HOME, None, 0).await.is_err());
}

#[tokio::test]
async fn a_correct_code_does_not_reset_wrong_guesses() {
    let setup = Setup::new().await;
    let guess = async |n: u8, outcome| {
        let address = format!("203.0.113.{n}");
        let guess = setup.identity.throttle.begin_guess("user-code", &setup.user.sub, &address, at(0)).await;
        match guess.unwrap() {
            Ok(attempt) => {
                setup.identity.throttle.settle_attempt(attempt, outcome, at(0)).await.unwrap();
                true
            }
            Err(_) => false,
        }
    };
    for n in 0..5 {
        assert!(guess(n, AttemptResult::Failure).await);
        assert_eq!(guess(n, AttemptResult::Success).await, n < 4, "{n}");
    }
    assert!(!guess(9, AttemptResult::Failure).await);
}

#[tokio::test]
async fn attempts_from_many_addresses_are_locked() {
    let setup = Setup::new().await;
    for n in 0..25 {
        setup.fails("ada", &format!("203.0.113.{n}"), 0).await;
    }
    assert!(setup.attempt("ada", "203.0.113.200", None, 0).await.is_err());
    assert!(setup.attempt("other", "203.0.113.200", None, 0).await.is_ok());
}

#[tokio::test]
async fn attempts_with_many_names_are_locked() {
    let setup = Setup::new().await;
    for n in 0..50 {
        setup.fails(&format!("name-{n}"), AWAY, 0).await;
    }
    assert!(setup.attempt("ada", AWAY, None, 0).await.is_err());
    assert!(setup.attempt("ada", HOME, None, 0).await.is_ok());
}

#[tokio::test]
async fn a_sign_in_does_not_reset_the_failures_of_an_address() {
    let setup = Setup::new().await;
    for n in 0..50 {
        setup.fails(&format!("name-{n}"), AWAY, 0).await;
        if n < 49 {
            let own = setup.attempt("ada", AWAY, None, 0).await.unwrap();
            setup.identity.throttle.settle_attempt(own, AttemptResult::Success, at(0)).await.unwrap();
        }
    }
    assert!(setup.attempt("ada", AWAY, None, 0).await.is_err());
}

#[tokio::test]
async fn a_known_browser_has_its_own_counter() {
    let setup = Setup::new().await;
    let cookie = setup.identity.throttle.device_cookie(&setup.user, None);
    for n in 0..25 {
        setup.fails("ada", &format!("203.0.113.{n}"), 0).await;
    }
    assert!(setup.attempt("ada", HOME, None, 0).await.is_err());
    // The user's browser has the same address as the attacker and is nevertheless not locked.
    for _ in 0..5 {
        let attempt = setup.attempt("ada", "203.0.113.1", Some(&cookie), 0).await.unwrap();
        setup.identity.throttle.settle_attempt(attempt, AttemptResult::Failure, at(0)).await.unwrap();
    }
    assert!(setup.attempt("ada", "203.0.113.1", Some(&cookie), 0).await.is_err());
    // The renewed cookie keeps its id, so that a new sign-in does not start a new counter.
    let renewed = setup.identity.throttle.device_cookie(&setup.user, Some(&cookie));
    assert_eq!(renewed, cookie);
}

#[tokio::test]
async fn a_device_cookie_is_valid_for_its_user_and_password_only() {
    let setup = Setup::new().await;
    let cookie = setup.identity.throttle.device_cookie(&setup.user, None);
    for _ in 0..5 {
        setup.fails("ada", HOME, 0).await;
        setup.fails("grace", HOME, 0).await;
    }
    assert!(setup.attempt("grace", HOME, Some(&cookie), 0).await.is_err(), "another name");
    let forged = format!("{}x.{}", &cookie[..5], cookie.split_once('.').unwrap().1);
    assert!(setup.attempt("ada", HOME, Some(&forged), 0).await.is_err(), "another id");
    assert!(setup.attempt("ada", HOME, Some("no cookie of ours"), 0).await.is_err());
    assert!(setup.attempt("ada", HOME, Some(&cookie), 0).await.is_ok());
    let change = |user: &mut trefoil_identity::model::user::User| user.password = Some("another".to_owned());
    setup.identity.users.change_user("ada", at(0), change).await.unwrap();
    assert!(setup.attempt("ada", HOME, Some(&cookie), 0).await.is_err(), "another password");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_attempts_are_limited_and_then_run_one_at_a_time() {
    let setup = std::sync::Arc::new(Setup::new().await);
    let tries = (0..64).map(|_| {
        let setup = setup.clone();
        tokio::spawn(async move { setup.attempt("ada", HOME, None, 0).await })
    });
    let mut evaluated = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        evaluated.extend(tried.await.unwrap());
    }
    assert_eq!(evaluated.len(), 25, "each attempt reserves a free failure of the user name");
    for attempt in evaluated {
        setup.identity.throttle.settle_attempt(attempt, AttemptResult::Failure, at(0)).await.unwrap();
    }
    let wait = setup.attempt("ada", HOME, None, 0).await.unwrap_err();
    assert_eq!(wait, SignedDuration::from_mins(15), "all failed attempts were counted");
    let one = setup.attempt("ada", HOME, None, 901).await.unwrap();
    assert_eq!(setup.attempt("ada", HOME, None, 901).await.unwrap_err(), SignedDuration::from_secs(1));
    setup.identity.throttle.settle_attempt(one, AttemptResult::NotEvaluated, at(902)).await.unwrap();
    assert!(setup.attempt("ada", HOME, None, 902).await.is_ok());
}

#[tokio::test]
async fn concurrent_sign_ins_of_one_user_succeed() {
    let setup = Setup::new().await;
    let mut under_way = Vec::new();
    for _ in 0..25 {
        under_way.push(setup.attempt("ada", HOME, None, 0).await.unwrap());
    }
    for attempt in under_way {
        setup.identity.throttle.settle_attempt(attempt, AttemptResult::Success, at(1)).await.unwrap();
    }
    assert!(setup.attempt("ada", HOME, None, 1).await.is_ok());
}

#[tokio::test]
async fn the_limits_are_configurable() {
    let setup = Setup::new().await;
    let limits = ThrottleLimits {
        per_pair: 2,
        per_user: 3,
        per_address: 4,
        max_lockout: SignedDuration::from_secs(2),
    };
    let attempt = async |name: &str, address: &str, second: i64| {
        let guess = setup
            .identity
            .throttle
            .begin_sign_in_attempt(name, None, address, None, &limits, at(second))
            .await;
        let guess = guess.unwrap();
        match guess {
            Ok(attempt) => setup
                .identity
                .throttle
                .settle_attempt(attempt, AttemptResult::Failure, at(second))
                .await
                .map(|()| None)
                .unwrap(),
            Err(wait) => Some(wait.as_secs()),
        }
    };
    assert_eq!(attempt("a", HOME, 0).await, None);
    assert_eq!(attempt("a", HOME, 0).await, None);
    assert_eq!(attempt("a", HOME, 0).await, Some(1), "two failures of a pair");
    assert_eq!(attempt("a", AWAY, 0).await, None);
    assert_eq!(attempt("a", AWAY, 0).await, Some(1), "three failures of a name");
    assert_eq!(attempt("b", HOME, 0).await, None);
    assert_eq!(attempt("c", HOME, 0).await, None);
    assert_eq!(attempt("d", HOME, 0).await, Some(1), "four failures of an address");
    for second in [10, 20, 30] {
        assert_eq!(attempt("a", HOME, second).await, None);
        assert_eq!(attempt("a", HOME, second).await, Some(2), "the longest lock");
    }
}

mod laws {
    use proptest::prelude::*;
    use tokio::task::JoinSet;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]

        /// Whatever the number of addresses and the order of starts and results, the number of checked
        /// passwords does not exceed the free failures of the user name.
        #[test]
        fn a_distributed_burst_gets_only_the_free_failures(
            rounds in prop::collection::vec((1_usize..120, any::<bool>()), 1..6),
        ) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            let first = rounds[0].0;
            let guesses = runtime.block_on(async {
                let setup = std::sync::Arc::new(Setup::new().await);
                let (mut checked, mut held, mut address) = (0, Vec::new(), 0_usize);
                for (burst, settles) in rounds {
                    let mut tries = JoinSet::new();
                    for _ in 0..burst {
                        address += 1;
                        let (setup, from) = (setup.clone(), format!("10.{}.{}.1", address / 256, address % 256));
                        tries.spawn(async move { setup.attempt("ada", &from, None, 0).await });
                    }
                    for attempt in tries.join_all().await.into_iter().flatten() {
                        checked += 1;
                        held.push(attempt);
                    }
                    if settles {
                        for attempt in held.drain(..) {
                            setup.identity.throttle.settle_attempt(attempt, AttemptResult::Failure, at(0)).await.unwrap();
                        }
                    }
                }
                checked
            });
            prop_assert!(guesses <= 25, "{guesses} attempts were checked");
            // Each of the first attempts comes from its own address, so that none of them waits.
            prop_assert!(guesses >= first.min(25), "{guesses} of {first} attempts were checked");
        }
    }
}
