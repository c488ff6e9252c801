//! Catalogs that include the resources of a request (`tx-resource`, `cache-id`). Compiled resources are
//! cached by their content, so that a repeated request compiles nothing.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;

use super::lru_cache::{CacheLimit, LruCache};
use super::{Catalog, TxResource};
use crate::model::error::malformed;
use crate::model::resource_json::ResourceHeader;
use crate::model::{Budget, TxError};

const RESOURCES: CacheLimit = CacheLimit { items: 1024, bytes: 64 << 20 };
/// Limits of the cached catalogs, counting the resources they contain.
const CATALOGS: CacheLimit = CacheLimit { items: 32, bytes: 64 << 20 };
/// Limits of the caches under a `cache-id`, counting the resources they contain.
const CLIENTS: CacheLimit = CacheLimit { items: 256, bytes: 64 << 20 };

/// Size of a cached resource, excluding its content, in bytes.
const KEPT_BYTES: usize = 512;
/// Number of steps for a resource, in addition to those for its bytes.
const RESOURCE_STEPS: usize = 20;
/// Number of bytes of a resource that are hashed, or whose header is read, in one step.
const BYTES_PER_STEP: usize = 32;

/// Two keyed hashes of the bytes of a resource. A client that does not know the keys cannot construct a
/// collision.
type ResourceDigest = [u64; 2];

#[derive(Debug, Clone)]
struct CachedResource {
    digest: ResourceDigest,
    resource: TxResource,
}

impl CachedResource {
    /// The size in memory, in bytes.
    fn bytes(&self) -> usize {
        KEPT_BYTES + self.resource.memory_bytes()
    }
}

/// A catalog with the resources of a request.
#[derive(Debug)]
pub(crate) struct CatalogOverlay {
    pub(crate) catalog: Catalog,
    resources: Vec<CachedResource>,
    /// Key of the client cache with the resources, if the request has a `cache-id`.
    client: Option<ClientCacheKey>,
}

/// The resources that one request sends or refers to.
#[derive(Debug, Default)]
pub(crate) struct SentResources<'a> {
    /// Values of `tx-resource`.
    pub(crate) resources: Vec<&'a RawValue>,
    /// Identity of the caller, who owns the resources under a `cache-id`.
    pub(crate) caller: &'a str,
    pub(crate) cache_id: Option<&'a str>,
}

/// Caller and `cache-id`.
type ClientCacheKey = (String, String);

/// Caches between requests. All entries can be dropped without changing an answer, except those under a
/// `cache-id`: their client must send the resources again.
#[derive(Debug, Default)]
pub(crate) struct OverlayCache {
    keys: [RandomState; 2],
    memory: Mutex<CachedOverlays>,
}

#[derive(Debug, Default)]
struct CachedOverlays {
    resources: LruCache<ResourceDigest, CachedResource>,
    /// Overlays by the digests of their resources.
    catalogs: LruCache<Vec<ResourceDigest>, Arc<CatalogOverlay>>,
    clients: LruCache<ClientCacheKey, Vec<CachedResource>>,
}

impl OverlayCache {
    /// The catalog with the resources of a request; `None` if it has none.
    ///
    /// # Errors
    /// [`TxError`] if a `tx-resource` is not a resource, or if the budget is spent.
    pub(crate) fn overlay_for(
        &self,
        catalog: &Arc<Catalog>,
        sent_resources: SentResources<'_>,
        budget: &Budget<'_>,
    ) -> Result<Option<Arc<CatalogOverlay>>, TxError> {
        let SentResources { resources: sent_resources, caller, cache_id } = sent_resources;
        if sent_resources.is_empty() && cache_id.is_none() {
            return Ok(None);
        }
        budget.set_activity("reading the resources of the request");
        let mut resources = Vec::with_capacity(sent_resources.len());
        for json in sent_resources {
            budget.spend(RESOURCE_STEPS + json.get().len() / BYTES_PER_STEP)?;
            resources.extend(self.cached_resource(json)?);
        }
        let client = cache_id.map(|id| (caller.to_owned(), id.to_owned()));
        if let Some(client) = &client {
            resources = self.add_to_client_cache(client, resources);
        }
        budget.spend(resources.len())?;
        if resources.is_empty() {
            return Ok(None);
        }
        let key: Vec<ResourceDigest> = resources.iter().map(|cached| cached.digest).collect();
        if let Some(overlay) = self.lock().catalogs.get(&key)
            && overlay.catalog.is_above(catalog)
            && !overlay.catalog.is_stale()
        {
            return Ok(Some(overlay.clone()));
        }
        let own = catalog.with_resources(resources.iter().map(|cached| cached.resource.clone()));
        let overlay = Arc::new(CatalogOverlay { catalog: own, resources, client });
        let bytes = overlay.resources.iter().map(CachedResource::bytes).sum();
        self.lock().catalogs.put(CATALOGS, key, overlay.clone(), bytes);
        Ok(Some(overlay))
    }

    /// Updates the size of the resources of a request, because the request may have compiled them.
    pub(crate) fn update_sizes(&self, overlay: &CatalogOverlay) {
        let mut memory = self.lock();
        let mut bytes = 0;
        for cached in &overlay.resources {
            memory.resources.set_size(RESOURCES, &cached.digest, cached.bytes());
            bytes += cached.bytes();
        }
        let key: Vec<ResourceDigest> = overlay.resources.iter().map(|cached| cached.digest).collect();
        memory.catalogs.set_size(CATALOGS, &key, bytes);
        if let Some(client) = &overlay.client {
            memory.clients.set_size(CLIENTS, client, bytes);
        }
    }

    /// Drops all cached overlays, so that a replaced catalog does not stay in memory.
    pub(crate) fn drop_overlays(&self) {
        self.lock().catalogs = LruCache::default();
    }

    /// The resource with these bytes; `None` if its type is not used in terminology.
    fn cached_resource(&self, json: &RawValue) -> Result<Option<CachedResource>, TxError> {
        let bytes = json.get().as_bytes();
        let digest = [0, 1].map(|index: usize| self.keys[index].hash_one(bytes));
        if let Some(cached) = self.lock().resources.get(&digest) {
            return Ok(Some(cached.clone()));
        }
        let header: ResourceHeader =
            serde_json::from_str(json.get()).map_err(|error| malformed("tx-resource", error.to_string()))?;
        // A FHIR id must not contain a space, so these ids never replace a stored resource.
        let id = format!("tx-resource {:016x}{:016x}", digest[0], digest[1]);
        let Some(resource) = TxResource::new(&header.resource_type, id, bytes) else { return Ok(None) };
        let cached = CachedResource { digest, resource };
        self.lock().resources.put(RESOURCES, digest, cached.clone(), cached.bytes());
        Ok(Some(cached))
    }

    /// Adds resources to those under a `cache-id`, and returns all of them.
    fn add_to_client_cache(
        &self,
        client: &ClientCacheKey,
        resources: Vec<CachedResource>,
    ) -> Vec<CachedResource> {
        let mut memory = self.lock();
        let mut all = memory.clients.get(client).cloned().unwrap_or_default();
        if resources.is_empty() {
            return all;
        }
        all.extend(resources);
        // Resources sent last take precedence.
        let mut urls = HashSet::new();
        all.reverse();
        all.retain(|cached| urls.insert(cached.digest));
        all.reverse();
        let bytes = all.iter().map(CachedResource::bytes).sum();
        memory.clients.put(CLIENTS, client.clone(), all.clone(), bytes);
        all
    }

    fn lock(&self) -> MutexGuard<'_, CachedOverlays> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str =
        r#"{"resourceType":"ValueSet","url":"urn:set","compose":{"include":[{"system":"urn:a"}]}}"#;

    fn sent<'a>(resources: &[&'a str], caller: &'a str, cache_id: Option<&'a str>) -> SentResources<'a> {
        let resources = resources.iter().map(|json| serde_json::from_str(json).unwrap()).collect();
        SentResources { resources, caller, cache_id }
    }

    #[test]
    fn equal_resources_and_catalogs_share_an_overlay() {
        let (overlays, catalog) = (OverlayCache::default(), Arc::new(Catalog::default()));
        assert!(
            overlays.overlay_for(&catalog, SentResources::default(), &Budget::default()).unwrap().is_none()
        );
        let with = || sent(&[SET, r#"{"resourceType":"ConceptMap"}"#], "", None);
        let over = |catalog| overlays.overlay_for(catalog, with(), &Budget::default()).unwrap().unwrap();
        let first = over(&catalog);
        assert!(first.catalog.value_set("urn:set", None, &Budget::default()).unwrap().is_some());
        assert!(Arc::ptr_eq(&first, &over(&catalog)));
        let next = Arc::new(Catalog::default());
        let second = over(&next);
        assert!(!Arc::ptr_eq(&first, &second));
        let set = |overlay: &Arc<CatalogOverlay>| {
            std::ptr::from_ref(
                overlay.catalog.value_set("urn:set", None, &Budget::default()).unwrap().unwrap(),
            )
        };
        assert_eq!(set(&first), set(&second), "both share the compiled value set");
    }

    #[test]
    fn an_overlay_with_a_full_cache_is_replaced() {
        let (overlays, catalog) = (OverlayCache::default(), Arc::new(Catalog::default()));
        let with = || sent(&[SET], "", None);
        let over = || overlays.overlay_for(&catalog, with(), &Budget::default()).unwrap().unwrap();
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
        let (overlays, catalog) = (OverlayCache::default(), Arc::new(Catalog::default()));
        let over = |resources: &[&'static str], caller| {
            overlays.overlay_for(&catalog, sent(resources, caller, Some("c1")), &Budget::default()).unwrap()
        };
        assert!(over(&[], "ann").is_none());
        assert!(over(&[SET], "ann").is_some());
        assert!(over(&[], "ann").is_some());
        assert!(over(&[], "bob").is_none());
    }
}
