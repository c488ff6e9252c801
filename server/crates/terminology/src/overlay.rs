//! Resources that requests bring along (`tx-resource`, `cache-id`): laid over the catalog, and kept
//! compiled by their content, so that a repeated request compiles nothing again.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::value::RawValue;

use crate::catalog::{Brought, Catalog};
use crate::{Budget, Input, TxError, validate};

/// How many bytes of resources are kept, as they are in memory, and how many of them.
const RESOURCES: Limit = Limit { items: 1024, bytes: 64 << 20 };
/// How many catalogs with overlays are kept, and how many bytes of resources they hold together.
const CATALOGS: Limit = Limit { items: 32, bytes: 64 << 20 };
/// How many caches of clients are kept, and how many bytes of resources they hold together.
const CLIENTS: Limit = Limit { items: 256, bytes: 64 << 20 };

/// Bytes that a resource takes beside its content.
const KEPT_BYTES: usize = 512;
/// Steps that taking a resource takes beside those for its bytes.
const RESOURCE_STEPS: usize = 20;
/// Bytes of a resource that are hashed, and of its head that are read, in one step.
const BYTES_PER_STEP: usize = 32;

/// What a resource is known by: a keyed hash of its bytes, twice, so that nobody can make two alike.
type Digest = [u64; 2];

/// A resource of a request.
#[derive(Debug, Clone)]
struct Kept {
    digest: Digest,
    resource: Brought,
}

impl Kept {
    /// Bytes that it takes in memory.
    fn bytes(&self) -> usize {
        KEPT_BYTES + self.resource.weight()
    }
}

/// A catalog with the resources of a request.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) catalog: Catalog,
    resources: Vec<Kept>,
    /// The client's cache that the resources are kept in.
    client: Option<Client>,
}

/// Caller and `cache-id`.
type Client = (String, String);

/// What is remembered between requests. All of it can be lost without changing an answer, except
/// what a client keeps under its `cache-id`, which it then has to send again.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    keys: [RandomState; 2],
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    resources: Lru<Digest, Kept>,
    /// By the resources; with the catalog that they were laid over.
    catalogs: Lru<Vec<Digest>, (Weak<Catalog>, Arc<Overlay>)>,
    clients: Lru<Client, Vec<Kept>>,
}

impl Overlays {
    /// The catalog with what the request brings along; `None` where it brings nothing.
    ///
    /// # Errors
    /// When a `tx-resource` is no resource.
    pub(crate) fn over(
        &self,
        catalog: &Arc<Catalog>,
        input: Input<'_>,
        budget: &Budget<'_>,
    ) -> Result<Option<Arc<Overlay>>, TxError> {
        let sent = input.resources("tx-resource")?;
        let cache_id = input.text("cache-id")?;
        if sent.is_empty() && cache_id.is_none() {
            return Ok(None);
        }
        budget.during("reading the resources of the request");
        let mut resources = Vec::with_capacity(sent.len());
        for json in sent {
            budget.spend(RESOURCE_STEPS + json.get().len() / BYTES_PER_STEP)?;
            resources.extend(self.resource(json)?);
        }
        let client = cache_id.map(|id| (input.caller_name().to_owned(), id.to_owned()));
        if let Some(client) = &client {
            resources = self.remember(client, resources);
        }
        budget.spend(resources.len())?;
        if resources.is_empty() {
            return Ok(None);
        }
        let key: Vec<Digest> = resources.iter().map(|kept| kept.digest).collect();
        if let Some((base, overlay)) = self.lock().catalogs.get(&key)
            && std::ptr::eq(base.as_ptr(), Arc::as_ptr(catalog))
            && !overlay.catalog.is_stale()
        {
            return Ok(Some(overlay.clone()));
        }
        // The maps of the catalog are copied.
        budget.spend((catalog.code_system_count() + catalog.value_set_count()) / 4)?;
        let own = catalog.over(resources.iter().map(|kept| kept.resource.clone()));
        let overlay = Arc::new(Overlay { catalog: own, resources, client });
        let bytes = overlay.resources.iter().map(Kept::bytes).sum();
        self.lock().catalogs.put(CATALOGS, key, (Arc::downgrade(catalog), overlay.clone()), bytes);
        Ok(Some(overlay))
    }

    /// Counts what the resources of a request take in memory now: a question may have compiled them.
    pub(crate) fn weigh(&self, overlay: &Overlay) {
        let mut memory = self.lock();
        let mut bytes = 0;
        for kept in &overlay.resources {
            memory.resources.weigh(RESOURCES, &kept.digest, kept.bytes());
            bytes += kept.bytes();
        }
        let key: Vec<Digest> = overlay.resources.iter().map(|kept| kept.digest).collect();
        memory.catalogs.weigh(CATALOGS, &key, bytes);
        if let Some(client) = &overlay.client {
            memory.clients.weigh(CLIENTS, client, bytes);
        }
    }

    /// Lets go of what was laid over a catalog that is no longer the current one, so that replaced
    /// code systems do not stay in memory.
    pub(crate) fn forget_catalogs(&self) {
        self.lock().catalogs = Lru::default();
    }

    /// The resource of these bytes; `None` where it is of a type that is not used here.
    fn resource(&self, json: &RawValue) -> Result<Option<Kept>, TxError> {
        let bytes = json.get().as_bytes();
        let digest = [0, 1].map(|at: usize| self.keys[at].hash_one(bytes));
        if let Some(kept) = self.lock().resources.get(&digest) {
            return Ok(Some(kept.clone()));
        }
        let header = validate::header(json, "tx-resource")?;
        // No FHIR id has a space, so these cannot hide a stored resource.
        let id = format!("tx-resource {:016x}{:016x}", digest[0], digest[1]);
        let Some(resource) = Brought::new(&header.resource_type, id, bytes) else { return Ok(None) };
        let kept = Kept { digest, resource };
        self.lock().resources.put(RESOURCES, digest, kept.clone(), kept.bytes());
        Ok(Some(kept))
    }

    /// Adds resources to those that a client keeps under an id, and gives all of them.
    fn remember(&self, client: &Client, sent: Vec<Kept>) -> Vec<Kept> {
        let mut memory = self.lock();
        let mut all = memory.clients.get(client).cloned().unwrap_or_default();
        if sent.is_empty() {
            return all;
        }
        all.extend(sent);
        // What was sent last counts most.
        let mut known = HashSet::new();
        all.reverse();
        all.retain(|kept| known.insert(kept.digest));
        all.reverse();
        let bytes = all.iter().map(Kept::bytes).sum();
        memory.clients.put(CLIENTS, client.clone(), all.clone(), bytes);
        all
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much a memory holds.
#[derive(Debug, Clone, Copy)]
struct Limit {
    items: usize,
    bytes: usize,
}

/// A small memory that forgets first what was not asked for longest.
#[derive(Debug)]
struct Lru<K, V> {
    items: HashMap<K, Item<V>>,
    bytes: usize,
    /// Counts every use.
    clock: u64,
}

#[derive(Debug)]
struct Item<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<K, V> Default for Lru<K, V> {
    fn default() -> Self {
        Self { items: HashMap::new(), bytes: 0, clock: 0 }
    }
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    fn get(&mut self, key: &K) -> Option<&V> {
        self.clock += 1;
        let item = self.items.get_mut(key)?;
        item.used = self.clock;
        Some(&item.value)
    }

    /// Keeps a value, unless it alone is over the limit.
    fn put(&mut self, limit: Limit, key: K, value: V, bytes: usize) {
        self.clock += 1;
        if let Some(old) = self.items.remove(&key) {
            self.bytes -= old.bytes;
        }
        if bytes > limit.bytes {
            return;
        }
        self.make_room(limit, 1, bytes);
        self.bytes += bytes;
        self.items.insert(key, Item { value, bytes, used: self.clock });
    }

    /// Counts a value with other bytes than before.
    fn weigh(&mut self, limit: Limit, key: &K, bytes: usize) {
        let Some(item) = self.items.get_mut(key) else { return };
        self.bytes = self.bytes - item.bytes + bytes;
        item.bytes = bytes;
        self.make_room(limit, 0, 0);
    }

    /// Forgets until there is room for one more, or for none.
    fn make_room(&mut self, limit: Limit, more: usize, bytes: usize) {
        while self.items.len() + more > limit.items || self.bytes + bytes > limit.bytes {
            let Some(oldest) =
                self.items.iter().min_by_key(|(_, item)| item.used).map(|(key, _)| key.clone())
            else {
                break;
            };
            if let Some(old) = self.items.remove(&oldest) {
                self.bytes -= old.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fhir::Parameters;

    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let limit = Limit { items: 3, bytes: 10 };
        let mut lru = Lru::default();
        for key in 1..=3 {
            lru.put(limit, key, key * 10, 2);
        }
        assert_eq!(lru.get(&1), Some(&10));
        lru.put(limit, 4, 40, 2);
        assert_eq!(lru.get(&2), None);
        assert_eq!(lru.get(&1), Some(&10));
        lru.put(limit, 5, 50, 9);
        assert_eq!((lru.items.len(), lru.bytes), (1, 9), "what is big takes the place of many");
        lru.put(limit, 6, 60, 11);
        assert_eq!(lru.get(&6), None, "what is too big is not kept");
        lru.put(limit, 5, 51, 1);
        assert_eq!(lru.get(&5), Some(&51));
        assert_eq!(lru.bytes, 1);
        lru.put(limit, 7, 70, 1);
        lru.weigh(limit, &7, 10);
        assert_eq!(lru.get(&5), None, "what has grown takes the place of others");
        assert_eq!(lru.get(&7), Some(&70));
        lru.weigh(limit, &7, 11);
        assert_eq!((lru.items.len(), lru.bytes), (0, 0), "what has grown too big is not kept");
    }

    const SET: &str =
        r#"{"resourceType":"ValueSet","url":"urn:set","compose":{"include":[{"system":"urn:a"}]}}"#;

    fn request(resources: &[&str], cache_id: Option<&str>) -> Parameters {
        let mut out = Parameters::new();
        for json in resources {
            out.push_resource("tx-resource", &serde_json::from_str::<Box<RawValue>>(json).unwrap());
        }
        if let Some(id) = cache_id {
            out.push_string("cache-id", id);
        }
        out
    }

    #[test]
    fn the_same_resources_over_the_same_catalog_are_laid_once() {
        let (overlays, catalog) = (Overlays::default(), Arc::new(Catalog::default()));
        let plain = request(&[], None);
        assert!(overlays.over(&catalog, Input::from_body(&plain), &Budget::default()).unwrap().is_none());
        let with = request(&[SET, r#"{"resourceType":"ConceptMap"}"#], None);
        let over =
            |catalog| overlays.over(catalog, Input::from_body(&with), &Budget::default()).unwrap().unwrap();
        let first = over(&catalog);
        assert!(first.catalog.value_set("urn:set", None, &Budget::default()).unwrap().is_some());
        assert!(Arc::ptr_eq(&first, &over(&catalog)));
        let changed = Arc::new(Catalog::default());
        let second = over(&changed);
        assert!(!Arc::ptr_eq(&first, &second));
        let set = |overlay: &Arc<Overlay>| {
            std::ptr::from_ref(
                overlay.catalog.value_set("urn:set", None, &Budget::default()).unwrap().unwrap(),
            )
        };
        assert_eq!(set(&first), set(&second), "the set is compiled once for both");
    }

    #[test]
    fn an_overlay_that_remembers_enough_is_laid_anew() {
        let (overlays, catalog) = (Overlays::default(), Arc::new(Catalog::default()));
        let with = request(&[SET], None);
        let over = || overlays.over(&catalog, Input::from_body(&with), &Budget::default()).unwrap().unwrap();
        let first = over();
        for code in 0..2_000 {
            let implicit = format!("http://snomed.info/sct?fhir_vs=isa/{code}");
            assert!(over().catalog.value_set(&implicit, None, &Budget::default()).unwrap().is_some());
        }
        assert!(!Arc::ptr_eq(&first, &over()));
        assert!(!over().catalog.is_stale());
    }

    #[test]
    fn a_cache_id_keeps_resources_for_its_caller_alone() {
        let (overlays, catalog) = (Overlays::default(), Arc::new(Catalog::default()));
        let (first, later) = (request(&[SET], Some("c1")), request(&[], Some("c1")));
        let over = |parameters, caller| {
            overlays.over(&catalog, Input::from_body(parameters).caller(caller), &Budget::default()).unwrap()
        };
        assert!(over(&later, "ann").is_none());
        assert!(over(&first, "ann").is_some());
        assert!(over(&later, "ann").is_some());
        assert!(over(&later, "bob").is_none());
    }
}
