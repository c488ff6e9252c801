//! A stored resource, which is compiled on first use.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::change::ResourceProblem;
use super::compiled_resource::CompiledResource;
use super::element_bindings::ElementBindings;
use crate::code_system::CodeSystem;
use crate::concept_map::ConceptMap;
use crate::model::resource_json::ResourceHeader;
use crate::model::{Budget, Unprocessable};
use crate::value_set::ValueSet;

/// Number of bytes of JSON whose compilation counts as one step.
pub(crate) const BYTES_PER_STEP: usize = 16;

impl CompiledResource for CodeSystem {
    const KIND: &'static str = "CodeSystem";

    fn compile(header: &ResourceHeader, bytes: &[u8]) -> Result<Self, String> {
        Self::compile(header, bytes)
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

impl CompiledResource for ValueSet {
    const KIND: &'static str = "ValueSet";

    fn compile(header: &ResourceHeader, bytes: &[u8]) -> Result<Self, String> {
        Self::compile(header, bytes)
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

impl CompiledResource for ConceptMap {
    const KIND: &'static str = "ConceptMap";

    fn compile(_: &ResourceHeader, bytes: &[u8]) -> Result<Self, String> {
        Self::compile(bytes)
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// A stored resource. Its header is read when it is stored, and the rest is compiled on first use.
#[derive(Debug)]
pub(crate) struct StoredResource<T> {
    pub(super) id: String,
    /// Header of the resource, or the reason why it is invalid. Most requests read only the compiled form.
    header: Result<Box<ResourceHeader>, String>,
    /// JSON of the resource, dropped after compilation so that a large code system is not in memory twice.
    source: Mutex<Bytes>,
    compiled: OnceLock<Result<Arc<T>, String>>,
}

impl<T: CompiledResource> StoredResource<T> {
    pub(crate) fn new(id: String, bytes: Bytes) -> Self {
        let header =
            serde_json::from_slice::<ResourceHeader>(&bytes).map_err(|e| e.to_string()).and_then(|header| {
                match header.resource_type == T::KIND {
                    true => Ok(Box::new(header)),
                    false => Err(format!("resourceType is '{}', not '{}'", header.resource_type, T::KIND)),
                }
            });
        Self { id, header, source: Mutex::new(bytes), compiled: OnceLock::new() }
    }

    /// A resource that is already compiled.
    pub(super) fn from_compiled(id: String, header: ResourceHeader, compiled: Arc<T>) -> Self {
        let compiled = OnceLock::from(Ok(compiled));
        Self { id, header: Ok(Box::new(header)), source: Mutex::default(), compiled }
    }

    /// The header, if it is valid.
    pub(crate) fn header(&self) -> Option<&ResourceHeader> {
        self.header.as_deref().ok()
    }

    /// The compiled form. The first request that needs it compiles it.
    ///
    /// # Errors
    /// [`Unprocessable`] if the resource is invalid or the budget is spent.
    #[inline]
    pub(crate) fn get(&self, budget: &Budget<'_>) -> Result<&T, Unprocessable> {
        if self.compiled.get().is_none() {
            budget.set_activity("compiling a resource");
            budget.spend(self.source_bytes() / BYTES_PER_STEP)?;
        }
        self.compiled_arc().map(|compiled| &**compiled)
    }

    /// The size in memory in bytes, which is that of the source until it is compiled.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.compiled.get() {
            Some(Ok(compiled)) => compiled.memory_bytes(),
            _ => self.source_bytes(),
        }
    }

    /// The size of the source in bytes; 0 once it is compiled. It is not a field, because `compiled` is read
    /// by every request and must stay in one cache line.
    fn source_bytes(&self) -> usize {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn compiled_arc(&self) -> Result<&Arc<T>, Unprocessable> {
        let compiled = self.compiled.get_or_init(|| {
            let bytes = std::mem::take(&mut *self.source.lock().unwrap_or_else(PoisonError::into_inner));
            let header = self.header.as_ref().map_err(String::clone)?;
            T::compile(header, &bytes).map(Arc::new)
        });
        compiled.as_ref().map_err(|reason| {
            let url = self.header().and_then(|header| header.url.clone());
            let resource = url.unwrap_or_else(|| format!("{}/{}", T::KIND, self.id));
            Unprocessable::Broken { resource, reason: reason.clone() }
        })
    }

    pub(super) fn problem(&self) -> Option<ResourceProblem> {
        let reason = self.header.as_ref().err().or_else(|| self.compiled.get()?.as_ref().err())?;
        Some(ResourceProblem { kind: T::KIND, id: self.id.clone(), reason: reason.clone() })
    }
}

/// A resource that a request contains.
#[derive(Debug, Clone)]
pub(crate) enum TxResource {
    CodeSystem(Arc<StoredResource<CodeSystem>>),
    ValueSet(Arc<StoredResource<ValueSet>>),
    Definition(Arc<StoredResource<ElementBindings>>),
    ConceptMap(Arc<StoredResource<ConceptMap>>),
}

impl TxResource {
    /// A resource of this type; `None` if the type is not used in terminology.
    pub(crate) fn new(kind: &str, id: String, bytes: &[u8]) -> Option<Self> {
        let bytes = Bytes::copy_from_slice(bytes);
        match kind {
            CodeSystem::KIND => Some(Self::CodeSystem(Arc::new(StoredResource::new(id, bytes)))),
            ValueSet::KIND => Some(Self::ValueSet(Arc::new(StoredResource::new(id, bytes)))),
            ElementBindings::KIND => Some(Self::Definition(Arc::new(StoredResource::new(id, bytes)))),
            ConceptMap::KIND => Some(Self::ConceptMap(Arc::new(StoredResource::new(id, bytes)))),
            _ => None,
        }
    }

    /// The size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::CodeSystem(resource) => resource.memory_bytes(),
            Self::ValueSet(resource) => resource.memory_bytes(),
            Self::Definition(resource) => resource.memory_bytes(),
            Self::ConceptMap(resource) => resource.memory_bytes(),
        }
    }
}
