//! Guessing is made slow, and nobody is locked out by strangers.

use jiff::SignedDuration;
use trefoil_identity::throttle::{Attempt, Outcome, ThrottleLimits};

use crate::support::{World, at};

const HOME: &str = "192.0.2.1";
const AWAY: &str = "198.51.100.7";

impl World {
    async fn attempt(
        &self,
        name: &str,
        address: &str,
        device: Option<&str>,
        second: i64,
    ) -> Result<Attempt, SignedDuration> {
        let user = self.identity.user_for_sign_in(name, at(second)).await.unwrap();
        let limits = ThrottleLimits::default();
        self.identity
            .attempt_sign_in(name, user.as_ref(), address, device, &limits, at(second))
            .await
            .unwrap()
    }

    async fn fails(&self, name: &str, address: &str, second: i64) {
        let attempt = self.attempt(name, address, None, second).await.expect("the attempt is looked at");
        self.identity.settle(attempt, Outcome::Wrong, at(second)).await.unwrap();
    }
}

#[tokio::test]
async fn five_failures_are_free_and_each_further_one_locks_twice_as_long() {
    for name in ["ada", "nobody-of-that-name"] {
        let world = World::new().await;
        for _ in 0..5 {
            world.fails(name, HOME, 0).await;
        }
        let mut second = 0;
        for lock in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900] {
            let wait = world.attempt(name, HOME, None, second).await.unwrap_err();
            assert_eq!(wait, SignedDuration::from_secs(lock), "{name} at {second}");
            // What comes during a lock does not lengthen it.
            assert!(world.attempt(name, HOME, None, second).await.is_err());
            second += lock;
            world.fails(name, HOME, second).await;
        }
        // 15 quiet minutes after the last lock all is forgotten.
        world.fails(name, HOME, second + 1801).await;
        world.fails(name, HOME, second + 1801).await;
    }
}

#[tokio::test]
async fn a_failure_of_somebody_else_that_is_younger_than_an_attempt_is_no_lock() {
    let world = World::new().await;
    world.fails("nobody-of-that-name", HOME, 2).await;
    world.fails("ada", HOME, 1).await;
    world.fails("ada", HOME, 0).await;
}

#[tokio::test]
async fn what_was_right_forgets_the_failures_before_it() {
    let world = World::new().await;
    for _ in 0..4 {
        world.fails("ada", HOME, 0).await;
    }
    let right = world.attempt("ADA", HOME, None, 0).await.unwrap();
    world.identity.settle(right, Outcome::Right, at(0)).await.unwrap();
    for _ in 0..5 {
        world.fails("ada", HOME, 0).await;
    }
    assert!(world.attempt("ada", HOME, None, 0).await.is_err());
}

#[tokio::test]
async fn a_right_code_of_ones_own_forgets_no_wrong_guesses() {
    let world = World::new().await;
    let guess = async |n: u8, outcome| {
        let address = format!("203.0.113.{n}");
        let counted = world.identity.attempt_guess("user-code", &world.user.sub, &address, at(0)).await;
        match counted.unwrap() {
            Ok(attempt) => {
                world.identity.settle(attempt, outcome, at(0)).await.unwrap();
                true
            }
            Err(_) => false,
        }
    };
    for n in 0..5 {
        assert!(guess(n, Outcome::Wrong).await);
        assert_eq!(guess(n, Outcome::Right).await, n < 4, "{n}");
    }
    assert!(!guess(9, Outcome::Wrong).await);
}

#[tokio::test]
async fn many_addresses_do_not_help() {
    let world = World::new().await;
    for n in 0..25 {
        world.fails("ada", &format!("203.0.113.{n}"), 0).await;
    }
    assert!(world.attempt("ada", "203.0.113.200", None, 0).await.is_err());
    assert!(world.attempt("other", "203.0.113.200", None, 0).await.is_ok());
}

#[tokio::test]
async fn many_names_do_not_help() {
    let world = World::new().await;
    for n in 0..50 {
        world.fails(&format!("name-{n}"), AWAY, 0).await;
    }
    assert!(world.attempt("ada", AWAY, None, 0).await.is_err());
    assert!(world.attempt("ada", HOME, None, 0).await.is_ok());
}

#[tokio::test]
async fn an_account_of_ones_own_does_not_wash_an_address_clean() {
    let world = World::new().await;
    for n in 0..50 {
        world.fails(&format!("name-{n}"), AWAY, 0).await;
        if n < 49 {
            let own = world.attempt("ada", AWAY, None, 0).await.unwrap();
            world.identity.settle(own, Outcome::Right, at(0)).await.unwrap();
        }
    }
    assert!(world.attempt("ada", AWAY, None, 0).await.is_err());
}

#[tokio::test]
async fn a_known_browser_is_not_locked_out_by_strangers_and_has_its_own_limit() {
    let world = World::new().await;
    let cookie = world.identity.device_cookie(&world.user, None);
    for n in 0..25 {
        world.fails("ada", &format!("203.0.113.{n}"), 0).await;
    }
    assert!(world.attempt("ada", HOME, None, 0).await.is_err());
    // The owner's browser comes from the same address as a stranger, and is let in.
    for _ in 0..5 {
        let attempt = world.attempt("ada", "203.0.113.1", Some(&cookie), 0).await.unwrap();
        world.identity.settle(attempt, Outcome::Wrong, at(0)).await.unwrap();
    }
    assert!(world.attempt("ada", "203.0.113.1", Some(&cookie), 0).await.is_err());
    // It goes on under its own id, so that a new sign-in does not begin a new count.
    let renewed = world.identity.device_cookie(&world.user, Some(&cookie));
    assert_eq!(renewed, cookie);
}

#[tokio::test]
async fn a_device_cookie_is_good_for_its_user_and_password_alone() {
    let world = World::new().await;
    let cookie = world.identity.device_cookie(&world.user, None);
    for _ in 0..5 {
        world.fails("ada", HOME, 0).await;
        world.fails("grace", HOME, 0).await;
    }
    assert!(world.attempt("grace", HOME, Some(&cookie), 0).await.is_err(), "another name");
    let forged = format!("{}x.{}", &cookie[..5], cookie.split_once('.').unwrap().1);
    assert!(world.attempt("ada", HOME, Some(&forged), 0).await.is_err(), "another id");
    assert!(world.attempt("ada", HOME, Some("no cookie of ours"), 0).await.is_err());
    assert!(world.attempt("ada", HOME, Some(&cookie), 0).await.is_ok());
    let changed = |user: &mut trefoil_identity::user::User| user.password = Some("another".to_owned());
    world.identity.change_user("ada", at(0), changed).await.unwrap();
    assert!(world.attempt("ada", HOME, Some(&cookie), 0).await.is_err(), "another password");
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_at_once_are_bounded_and_one_at_a_time_after_the_free_ones() {
    let world = std::sync::Arc::new(World::new().await);
    let tries = (0..64).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { world.attempt("ada", HOME, None, 0).await })
    });
    let mut looked_at = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        looked_at.extend(tried.await.unwrap());
    }
    assert_eq!(looked_at.len(), 25, "each reserves a free failure of the name");
    for attempt in looked_at {
        world.identity.settle(attempt, Outcome::Wrong, at(0)).await.unwrap();
    }
    let wait = world.attempt("ada", HOME, None, 0).await.unwrap_err();
    assert_eq!(wait, SignedDuration::from_mins(15), "all of them count");
    let one = world.attempt("ada", HOME, None, 901).await.unwrap();
    assert_eq!(world.attempt("ada", HOME, None, 901).await.unwrap_err(), SignedDuration::from_secs(1));
    world.identity.settle(one, Outcome::Unseen, at(902)).await.unwrap();
    assert!(world.attempt("ada", HOME, None, 902).await.is_ok());
}

#[tokio::test]
async fn one_user_in_many_programs_at_once_is_no_attack() {
    let world = World::new().await;
    let mut under_way = Vec::new();
    for _ in 0..25 {
        under_way.push(world.attempt("ada", HOME, None, 0).await.unwrap());
    }
    for attempt in under_way {
        world.identity.settle(attempt, Outcome::Right, at(1)).await.unwrap();
    }
    assert!(world.attempt("ada", HOME, None, 1).await.is_ok());
}

#[tokio::test]
async fn the_limits_are_settings() {
    let world = World::new().await;
    let limits = ThrottleLimits {
        per_pair: 2,
        per_user: 3,
        per_address: 4,
        max_lockout: SignedDuration::from_secs(2),
    };
    let attempt = async |name: &str, address: &str, second: i64| {
        let counted = world.identity.attempt_sign_in(name, None, address, None, &limits, at(second)).await;
        let counted = counted.unwrap();
        match counted {
            Ok(attempt) => {
                world.identity.settle(attempt, Outcome::Wrong, at(second)).await.map(|()| None).unwrap()
            }
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

        /// However many addresses try one name at once, and in whatever order attempts begin and end, only the free
        /// failures of the name are checked.
        #[test]
        fn a_distributed_burst_gets_the_free_failures_and_no_more(
            rounds in prop::collection::vec((1_usize..120, any::<bool>()), 1..6),
        ) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            let checked = runtime.block_on(async {
                let world = std::sync::Arc::new(World::new().await);
                let (mut checked, mut held, mut address) = (0, Vec::new(), 0_usize);
                for (burst, settles) in rounds {
                    let mut tries = JoinSet::new();
                    for _ in 0..burst {
                        address += 1;
                        let (world, from) = (world.clone(), format!("10.{}.{}.1", address / 256, address % 256));
                        tries.spawn(async move { world.attempt("ada", &from, None, 0).await });
                    }
                    for attempt in tries.join_all().await.into_iter().flatten() {
                        checked += 1;
                        held.push(attempt);
                    }
                    if settles {
                        for attempt in held.drain(..) {
                            world.identity.settle(attempt, Outcome::Wrong, at(0)).await.unwrap();
                        }
                    }
                }
                checked
            });
            prop_assert!(checked <= 25, "{checked} attempts were checked");
        }
    }
}
