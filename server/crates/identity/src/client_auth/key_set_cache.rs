//! Cache of the key sets that clients publish at their `jwks_uri` (SMART Backend Services). The server
//! fetches them through [`FetchKeySet`].
//!
//! A key set is fresh for the lifetime in its response, but at least a minute and at most a day. An unknown
//! key id causes another fetch, at most every 30 seconds, because any caller can send an unknown id.
//! Concurrent requests for the same address wait for one fetch. After a failed fetch, the next fetch is
//! attempted 30 seconds later, so that an unresponsive host delays one request and not all of them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Minimum lifetime of a key set.
const MIN_LIFETIME: SignedDuration = SignedDuration::from_secs(60);
/// Maximum lifetime of a key set.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// Lifetime of a key set whose response specifies none.
const DEFAULT_LIFETIME: SignedDuration = SignedDuration::from_mins(5);
/// Minimum time between two fetches for an unknown key id, and after a failed fetch.
const FETCH_PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// Number of addresses above which entries that are not fresh are removed.
const MAX_ADDRESSES: usize = 1_000;
/// Maximum number of keys that are read from one set.
const MAX_KEYS: usize = 100;

/// A fetched key set.
#[derive(Debug, Clone, Default)]
pub struct FetchedKeySet {
    /// The members of `keys` in the JWK Set.
    pub keys: Vec<Value>,
    /// Lifetime according to the response headers, if they specify one.
    pub lifetime: Option<SignedDuration>,
}

/// The key set could not be fetched. The fetcher logs the reason; the caller does not receive it, because it
/// would reveal which hosts the server can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the registered key set of the client could not be read")]
pub struct KeySetUnreachable;

/// The future of a fetch.
pub type KeySetFuture<'a> =
    Pin<Box<dyn Future<Output = Result<FetchedKeySet, KeySetUnreachable>> + Send + 'a>>;

/// Fetches key sets. A fetch must end within a few seconds and must not contact private addresses.
pub trait FetchKeySet: Send + Sync {
    /// Fetches the key set at this address.
    fn fetch<'a>(&'a self, address: &'a str) -> KeySetFuture<'a>;
}

/// A fetcher that always fails, for servers whose clients register their keys by value.
pub struct NoKeySetFetch;

impl FetchKeySet for NoKeySetFetch {
    fn fetch<'a>(&'a self, _: &'a str) -> KeySetFuture<'a> {
        Box::pin(async { Err(KeySetUnreachable) })
    }
}

/// The key set of one address, as last fetched.
#[derive(Default)]
struct CachedKeySet {
    keys: Arc<Vec<Value>>,
    /// End of the lifetime of the key set; `None` before the first fetch.
    fresh_until: Option<Timestamp>,
    /// Time of the last fetch for an unknown key id.
    unknown_key_fetched: Option<Timestamp>,
    fetch_failed: Option<Timestamp>,
}

impl CachedKeySet {
    fn is_fresh(&self, now: Timestamp) -> bool {
        self.fresh_until.is_some_and(|fresh_until| now < fresh_until)
    }

    fn has_key(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key["kid"] == kid)
    }

    /// `true` if a fetch is allowed: [`FETCH_PAUSE`] must have passed since the last failed fetch and, if the
    /// set is fresh, since the last fetch for an unknown key id.
    fn may_fetch(&self, now: Timestamp) -> bool {
        let has_paused = |last: Option<Timestamp>| last.is_none_or(|last| now >= last + FETCH_PAUSE);
        has_paused(self.fetch_failed) && (!self.is_fresh(now) || has_paused(self.unknown_key_fetched))
    }
}

type CacheSlot = Arc<tokio::sync::Mutex<CachedKeySet>>;

/// The cached key sets of all addresses.
pub(crate) struct KeySetCache {
    fetch: Arc<dyn FetchKeySet>,
    slots: Mutex<HashMap<String, CacheSlot>>,
}

impl KeySetCache {
    pub fn new(fetch: Arc<dyn FetchKeySet>) -> Self {
        Self { fetch, slots: Mutex::default() }
    }

    fn slot(&self, address: &str, now: Timestamp) -> CacheSlot {
        let mut slots = self.slots.lock().expect("no thread panics while it holds the lock");
        if slots.len() >= MAX_ADDRESSES && !slots.contains_key(address) {
            slots.retain(|_, slot| slot.try_lock().map_or(true, |cached| cached.is_fresh(now)));
        }
        slots.entry(address.to_owned()).or_default().clone()
    }

    /// Returns the keys at an address. Fetches the key set if it is not fresh or does not contain `kid`.
    pub async fn keys_for(
        &self,
        address: &str,
        kid: &str,
        now: Timestamp,
    ) -> Result<Arc<Vec<Value>>, KeySetUnreachable> {
        let slot = self.slot(address, now);
        let mut cached = slot.lock().await;
        if cached.is_fresh(now) && (cached.has_key(kid) || !cached.may_fetch(now)) {
            return Ok(cached.keys.clone());
        }
        if !cached.may_fetch(now) {
            return Err(KeySetUnreachable);
        }
        if cached.is_fresh(now) {
            cached.unknown_key_fetched = Some(now);
        }
        match self.fetch.fetch(address).await {
            Ok(fetched) => {
                let life = fetched.lifetime.unwrap_or(DEFAULT_LIFETIME).clamp(MIN_LIFETIME, MAX_LIFETIME);
                cached.keys = Arc::new(fetched.keys.into_iter().take(MAX_KEYS).collect());
                (cached.fresh_until, cached.fetch_failed) = (Some(now + life), None);
                Ok(cached.keys.clone())
            }
            Err(KeySetUnreachable) => {
                cached.fetch_failed = Some(now);
                // If the fetch for an unknown key id failed, a fresh set stays valid.
                if cached.is_fresh(now) { Ok(cached.keys.clone()) } else { Err(KeySetUnreachable) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;

    /// A fetcher that returns a configured key set and counts its calls.
    #[derive(Default)]
    struct KeySetHost {
        fetches: AtomicUsize,
        answer: Mutex<Option<FetchedKeySet>>,
    }

    impl FetchKeySet for KeySetHost {
        fn fetch<'a>(&'a self, _: &'a str) -> KeySetFuture<'a> {
            Box::pin(async {
                self.fetches.fetch_add(1, Ordering::SeqCst);
                // Yields, so that the other requests run during this fetch.
                tokio::task::yield_now().await;
                self.answer.lock().unwrap().clone().ok_or(KeySetUnreachable)
            })
        }
    }

    struct KeySetSetup {
        host: Arc<KeySetHost>,
        sets: KeySetCache,
    }

    impl KeySetSetup {
        fn new() -> Self {
            let host = Arc::new(KeySetHost::default());
            Self { sets: KeySetCache::new(host.clone()), host }
        }

        fn serve(&self, kid: &str, lifetime_s: Option<i64>) {
            let lifetime = lifetime_s.map(SignedDuration::from_secs);
            *self.host.answer.lock().unwrap() =
                Some(FetchedKeySet { keys: vec![json!({ "kid": kid })], lifetime });
        }

        /// Requests a key, and checks whether the set contains it and how often the host was called until
        /// now.
        #[track_caller]
        fn check(&self, second: i64, kid: &str, expected: (Result<bool, KeySetUnreachable>, usize)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let now = Timestamp::from_second(1_000_000 + second).unwrap();
            let fetched = runtime.block_on(self.sets.keys_for("https://c.example/jwks", kid, now));
            let fetched = fetched.map(|keys| keys.iter().any(|key| key["kid"] == kid));
            assert_eq!((fetched, self.host.fetches.load(Ordering::SeqCst)), expected);
        }
    }

    #[test]
    fn a_key_set_is_fresh_for_its_lifetime_within_bounds() {
        for (lifetime_s, fresh_s) in [(None, 300), (Some(5), 60), (Some(600), 600), (Some(9_000_000), 86_400)]
        {
            let setup = KeySetSetup::new();
            setup.serve("a", lifetime_s);
            setup.check(0, "a", (Ok(true), 1));
            setup.check(fresh_s - 1, "a", (Ok(true), 1));
            setup.check(fresh_s, "a", (Ok(true), 2));
        }
    }

    #[test]
    fn an_unknown_key_causes_one_fetch_in_30_seconds() {
        let setup = KeySetSetup::new();
        setup.serve("a", Some(3600));
        setup.check(0, "a", (Ok(true), 1));
        setup.serve("b", Some(3600));
        setup.check(1, "b", (Ok(true), 2));
        setup.check(2, "c", (Ok(false), 2));
        setup.check(30, "c", (Ok(false), 2));
        setup.check(31, "c", (Ok(false), 3));
    }

    #[test]
    fn after_a_failed_fetch_none_is_attempted_for_30_seconds() {
        let setup = KeySetSetup::new();
        setup.check(0, "a", (Err(KeySetUnreachable), 1));
        setup.serve("a", None);
        setup.check(29, "a", (Err(KeySetUnreachable), 1));
        setup.check(30, "a", (Ok(true), 2));
        *setup.host.answer.lock().unwrap() = None;
        setup.check(31, "b", (Ok(false), 3));
        setup.check(32, "a", (Ok(true), 3));
        setup.check(330, "a", (Err(KeySetUnreachable), 4));
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_fetch() {
        let setup = KeySetSetup::new();
        setup.serve("a", None);
        let now = Timestamp::from_second(1_000_000).unwrap();
        let get = || setup.sets.keys_for("https://c.example/jwks", "a", now);
        let fetched = tokio::join!(get(), get(), get(), get());
        assert!(fetched.0.is_ok() && fetched.1.is_ok() && fetched.2.is_ok() && fetched.3.is_ok());
        assert_eq!(setup.host.fetches.load(Ordering::SeqCst), 1);
    }
}
