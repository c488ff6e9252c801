//! Key sets of clients by address: when one is fetched, how long it is believed, and when it is fetched again
//! (SMART Backend Services, `jwks_uri`; requirement 2.51). The fetching itself is done by whoever runs the
//! rules, through [`FetchKeySet`].
//!
//! A set is kept as long as its answer says, but at least a minute and at most a day. A key id that it does not
//! have is a reason to fetch it again, though not more than once in half a minute, since anybody can name one.
//! One fetch is under way for each address; whoever comes meanwhile waits for it. After a failure nobody tries
//! for a while, so that a silent host costs one wait and not one for each request.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The shortest time that a set is believed.
const FLOOR: SignedDuration = SignedDuration::from_secs(60);
/// The longest.
const CEILING: SignedDuration = SignedDuration::from_hours(24);
/// Where the answer says nothing.
const DEFAULT: SignedDuration = SignedDuration::from_mins(5);
/// The pause between two fetches for the sake of an unknown key id, and after a failure.
const PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// So many addresses are remembered before those of no use are forgotten.
const ADDRESSES: usize = 1_000;
/// So many keys of a set are looked at.
const KEYS: usize = 100;

/// A key set as it came.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// The members of `keys`.
    pub keys: Vec<Value>,
    /// How long the answer's headers let it be kept, where they say so.
    pub lifetime: Option<SignedDuration>,
}

/// The set could not be read. Why stands in the log of whoever fetched, not here: a caller must not learn what
/// lies behind an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the registered key set of the client could not be read")]
pub struct Unreachable;

/// A fetch under way.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<Fetched, Unreachable>> + Send + 'a>>;

/// Fetches a key set. It has to end in a few seconds and to stay off addresses that are none of the public's.
pub trait FetchKeySet: Send + Sync {
    /// Fetches the set at this address.
    fn fetch<'a>(&'a self, address: &'a str) -> Fetching<'a>;
}

/// Fetches nothing: where clients have their keys by value.
pub struct NoFetch;

impl FetchKeySet for NoFetch {
    fn fetch<'a>(&'a self, _: &'a str) -> Fetching<'a> {
        Box::pin(async { Err(Unreachable) })
    }
}

/// What is known of one address.
#[derive(Default)]
struct Known {
    keys: Arc<Vec<Value>>,
    /// Until when the set is believed; `None` before the first.
    until: Option<Timestamp>,
    /// When it was last fetched for the sake of an unknown key id.
    renewed: Option<Timestamp>,
    failed: Option<Timestamp>,
}

impl Known {
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key["kid"] == kid)
    }

    /// May it be fetched now?
    fn may_fetch(&self, now: Timestamp) -> bool {
        let rested = |last: Option<Timestamp>| last.is_none_or(|last| now >= last + PAUSE);
        rested(self.failed) && (!self.is_fresh(now) || rested(self.renewed))
    }
}

type Place = Arc<tokio::sync::Mutex<Known>>;

/// The sets of all addresses.
pub(crate) struct KeySets {
    fetch: Arc<dyn FetchKeySet>,
    known: Mutex<HashMap<String, Place>>,
}

impl KeySets {
    pub fn new(fetch: Arc<dyn FetchKeySet>) -> Self {
        Self { fetch, known: Mutex::default() }
    }

    fn place(&self, address: &str, now: Timestamp) -> Place {
        let mut known = self.known.lock().expect("no thread panics while it holds the map");
        if known.len() >= ADDRESSES && !known.contains_key(address) {
            known.retain(|_, place| place.try_lock().map_or(true, |known| known.is_fresh(now)));
        }
        known.entry(address.to_owned()).or_default().clone()
    }

    /// The keys at an address, fetched where they have to be: so that one of this id is among them, if it can
    /// be done.
    pub async fn get(
        &self,
        address: &str,
        kid: &str,
        now: Timestamp,
    ) -> Result<Arc<Vec<Value>>, Unreachable> {
        let place = self.place(address, now);
        let mut known = place.lock().await;
        if known.is_fresh(now) && (known.has(kid) || !known.may_fetch(now)) {
            return Ok(known.keys.clone());
        }
        if !known.may_fetch(now) {
            return Err(Unreachable);
        }
        if known.is_fresh(now) {
            known.renewed = Some(now);
        }
        match self.fetch.fetch(address).await {
            Ok(fetched) => {
                let life = fetched.lifetime.unwrap_or(DEFAULT).clamp(FLOOR, CEILING);
                known.keys = Arc::new(fetched.keys.into_iter().take(KEYS).collect());
                (known.until, known.failed) = (Some(now + life), None);
                Ok(known.keys.clone())
            }
            Err(Unreachable) => {
                known.failed = Some(now);
                // A set that is still believed is not lost by a try to have a newer one.
                if known.is_fresh(now) { Ok(known.keys.clone()) } else { Err(Unreachable) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// Counts its fetches; gives the set that is set.
    #[derive(Default)]
    struct Host {
        fetches: AtomicUsize,
        answer: Mutex<Option<Fetched>>,
    }

    impl FetchKeySet for Host {
        fn fetch<'a>(&'a self, _: &'a str) -> Fetching<'a> {
            Box::pin(async {
                self.fetches.fetch_add(1, Ordering::SeqCst);
                // Whoever else comes gets a turn while this one is under way.
                tokio::task::yield_now().await;
                self.answer.lock().unwrap().clone().ok_or(Unreachable)
            })
        }
    }

    struct World {
        host: Arc<Host>,
        sets: KeySets,
    }

    impl World {
        fn new() -> Self {
            let host = Arc::new(Host::default());
            Self { sets: KeySets::new(host.clone()), host }
        }

        fn serve(&self, kid: &str, lifetime_s: Option<i64>) {
            let lifetime = lifetime_s.map(SignedDuration::from_secs);
            *self.host.answer.lock().unwrap() = Some(Fetched { keys: vec![json!({ "kid": kid })], lifetime });
        }

        /// Asks for a key at a second; says whether it is there and how many fetches there were in all.
        #[track_caller]
        fn check(&self, second: i64, kid: &str, expected: (Result<bool, Unreachable>, usize)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let now = Timestamp::from_second(1_000_000 + second).unwrap();
            let found = runtime.block_on(self.sets.get("https://c.example/jwks", kid, now));
            let found = found.map(|keys| keys.iter().any(|key| key["kid"] == kid));
            assert_eq!((found, self.host.fetches.load(Ordering::SeqCst)), expected);
        }
    }

    #[test]
    fn a_set_is_believed_as_long_as_it_says_within_bounds() {
        for (says, believed) in [(None, 300), (Some(5), 60), (Some(600), 600), (Some(9_000_000), 86_400)] {
            let world = World::new();
            world.serve("a", says);
            world.check(0, "a", (Ok(true), 1));
            world.check(believed - 1, "a", (Ok(true), 1));
            world.check(believed, "a", (Ok(true), 2));
        }
    }

    #[test]
    fn an_unknown_key_is_looked_for_once_in_half_a_minute() {
        let world = World::new();
        world.serve("a", Some(3600));
        world.check(0, "a", (Ok(true), 1));
        world.serve("b", Some(3600));
        world.check(1, "b", (Ok(true), 2));
        world.check(2, "c", (Ok(false), 2));
        world.check(30, "c", (Ok(false), 2));
        world.check(31, "c", (Ok(false), 3));
    }

    #[test]
    fn after_a_failure_nobody_tries_for_a_while() {
        let world = World::new();
        world.check(0, "a", (Err(Unreachable), 1));
        world.serve("a", None);
        world.check(29, "a", (Err(Unreachable), 1));
        world.check(30, "a", (Ok(true), 2));
        *world.host.answer.lock().unwrap() = None;
        world.check(31, "b", (Ok(false), 3));
        world.check(32, "a", (Ok(true), 3));
        world.check(330, "a", (Err(Unreachable), 4));
    }

    #[tokio::test]
    async fn one_fetch_serves_all_who_wait() {
        let world = World::new();
        world.serve("a", None);
        let now = Timestamp::from_second(1_000_000).unwrap();
        let get = || world.sets.get("https://c.example/jwks", "a", now);
        let found = tokio::join!(get(), get(), get(), get());
        assert!(found.0.is_ok() && found.1.is_ok() && found.2.is_ok() && found.3.is_ok());
        assert_eq!(world.host.fetches.load(Ordering::SeqCst), 1);
    }
}
