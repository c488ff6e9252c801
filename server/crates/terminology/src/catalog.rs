//! Everything that is stored, found by id or by canonical URL. A catalog does not change; a new one
//! is made from it for each batch of changes, sharing what stayed the same.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use hashbrown::DefaultHashBuilder;

use crate::built_in::{self, Grammar};
use crate::code_system::CodeSystem;
use crate::definition::Definition;
use crate::input::malformed;
use crate::kept::Kept;
use crate::terminology::{Change, Problem};
use crate::value_set::{ValueSet, implicit};
use crate::version;
use crate::wire::{Content, Header};
use crate::{Budget, Index, TxError, Unprocessable};

/// Bytes of JSON that are compiled in one step.
pub(crate) const BYTES_PER_STEP: usize = 16;

/// What a resource is compiled to.
pub(crate) trait Compiled: Sized {
    /// Resource type.
    const KIND: &'static str;

    /// Compiles the resource; the error says in one line what was wrong.
    fn compile(header: &Header, bytes: &[u8]) -> Result<Self, String>;

    /// Bytes that it takes in memory, about.
    fn weight(&self) -> usize;
}

impl Compiled for CodeSystem {
    const KIND: &'static str = "CodeSystem";

    fn compile(header: &Header, bytes: &[u8]) -> Result<Self, String> {
        Self::compile(header, bytes)
    }

    fn weight(&self) -> usize {
        self.weight()
    }
}

impl Compiled for ValueSet {
    const KIND: &'static str = "ValueSet";

    fn compile(header: &Header, bytes: &[u8]) -> Result<Self, String> {
        Self::compile(header, bytes)
    }

    fn weight(&self) -> usize {
        self.weight()
    }
}

/// A stored resource: its header is read when it comes in, the rest when it is first used.
#[derive(Debug)]
pub(crate) struct Resource<T> {
    id: String,
    /// Apart, since what is compiled is what is asked for.
    header: Result<Box<Header>, String>,
    /// Given back once compiled: large systems would stand in memory twice.
    source: Mutex<Bytes>,
    compiled: OnceLock<Result<Arc<T>, String>>,
}

impl<T: Compiled> Resource<T> {
    pub(crate) fn new(id: String, bytes: Bytes) -> Self {
        let header =
            serde_json::from_slice::<Header>(&bytes).map_err(|e| e.to_string()).and_then(
                |header| match header.resource_type == T::KIND {
                    true => Ok(Box::new(header)),
                    false => Err(format!("resourceType is '{}', not '{}'", header.resource_type, T::KIND)),
                },
            );
        Self { id, header, source: Mutex::new(bytes), compiled: OnceLock::new() }
    }

    /// A resource that was compiled before.
    fn ready(id: String, header: Header, compiled: Arc<T>) -> Self {
        let compiled = OnceLock::from(Ok(compiled));
        Self { id, header: Ok(Box::new(header)), source: Mutex::default(), compiled }
    }

    /// Its header, where it could be read.
    pub(crate) fn header(&self) -> Option<&Header> {
        self.header.as_deref().ok()
    }

    /// What it compiles to; the question that needs it first pays for that.
    ///
    /// # Errors
    /// When it is broken, with the reason; when the budget ends.
    #[inline]
    pub(crate) fn get(&self, budget: &Budget<'_>) -> Result<&T, Unprocessable> {
        if self.compiled.get().is_none() {
            budget.during("compiling a resource");
            budget.spend(self.source_bytes() / BYTES_PER_STEP)?;
        }
        self.shared().map(|compiled| &**compiled)
    }

    /// Bytes that it takes in memory: those of the source until it is compiled.
    pub(crate) fn weight(&self) -> usize {
        match self.compiled.get() {
            Some(Ok(compiled)) => compiled.weight(),
            _ => self.source_bytes(),
        }
    }

    /// Bytes of the source; none once it is compiled. Not a field, since `compiled` is read at each question and stands
    /// in one line of the processor's cache.
    fn source_bytes(&self) -> usize {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn shared(&self) -> Result<&Arc<T>, Unprocessable> {
        let compiled = self.compiled.get_or_init(|| {
            let bytes = std::mem::take(&mut *self.source.lock().unwrap_or_else(PoisonError::into_inner));
            let header = self.header.as_ref().map_err(String::clone)?;
            T::compile(header, &bytes).map(Arc::new)
        });
        compiled.as_ref().map_err(|why| {
            let url = self.header().and_then(|header| header.url.clone());
            let resource = url.unwrap_or_else(|| format!("{}/{}", T::KIND, self.id));
            Unprocessable::Broken { resource, why: why.clone() }
        })
    }

    fn problem(&self) -> Option<Problem> {
        let why = self.header.as_ref().err().or_else(|| self.compiled.get()?.as_ref().err())?;
        Some(Problem { kind: T::KIND, id: self.id.clone(), why: why.clone() })
    }
}

/// A resource that a request brings along.
#[derive(Debug, Clone)]
pub(crate) enum Brought {
    CodeSystem(Arc<Resource<CodeSystem>>),
    ValueSet(Arc<Resource<ValueSet>>),
    Definition(Arc<Resource<Definition>>),
}

impl Brought {
    /// A resource of this type; `None` for a type that is not used here.
    pub(crate) fn new(kind: &str, id: String, bytes: &[u8]) -> Option<Self> {
        let bytes = Bytes::copy_from_slice(bytes);
        match kind {
            CodeSystem::KIND => Some(Self::CodeSystem(Arc::new(Resource::new(id, bytes)))),
            ValueSet::KIND => Some(Self::ValueSet(Arc::new(Resource::new(id, bytes)))),
            Definition::KIND => Some(Self::Definition(Arc::new(Resource::new(id, bytes)))),
            _ => None,
        }
    }

    /// Bytes that it takes in memory.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::CodeSystem(resource) => resource.weight(),
            Self::ValueSet(resource) => resource.weight(),
            Self::Definition(resource) => resource.weight(),
        }
    }
}

/// By id or URL. Keyed at random, and faster than the standard library's own hash.
type Map<T> = HashMap<String, T, DefaultHashBuilder>;

/// All resources of one type.
#[derive(Debug)]
struct Shelf<T> {
    by_id: Map<Arc<Resource<T>>>,
    /// Best first.
    by_url: Map<Vec<Arc<Resource<T>>>>,
    /// By `CodeSystem.valueSet`, the value set of all codes.
    by_value_set: Map<Vec<Arc<Resource<T>>>>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { by_id: Map::default(), by_url: Map::default(), by_value_set: Map::default() }
    }
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        let Self { by_id, by_url, by_value_set } = self;
        Self { by_id: by_id.clone(), by_url: by_url.clone(), by_value_set: by_value_set.clone() }
    }
}

impl<T: Compiled> Shelf<T> {
    fn put(&mut self, resource: Arc<Resource<T>>) {
        let id = resource.id.clone();
        self.remove(&id);
        if let Some((url, header)) = resource.header().and_then(|h| Some((h.url.clone()?, h))) {
            let versions = self.by_url.entry(url).or_default();
            // Before its equals: what came last is preferred.
            let better = |other: &Arc<Resource<T>>| {
                other.header().is_some_and(|other| by_preference(other, header).is_lt())
            };
            let at = versions.partition_point(better);
            versions.insert(at, resource.clone());
        }
        if let Some(all) = resource.header().and_then(|header| header.value_set.clone()) {
            self.by_value_set.entry(all).or_default().push(resource.clone());
        }
        self.by_id.insert(id, resource);
    }

    fn remove(&mut self, id: &str) {
        let Some(old) = self.by_id.remove(id) else { return };
        let Some(header) = old.header() else { return };
        for (map, key) in [(&mut self.by_url, &header.url), (&mut self.by_value_set, &header.value_set)] {
            if let Some(key) = key
                && let Some(list) = map.get_mut(key)
            {
                list.retain(|resource| resource.id != id);
                if list.is_empty() {
                    map.remove(key);
                }
            }
        }
    }

    /// All versions of a URL, the preferred one first.
    fn versions(&self, url: &str) -> &[Arc<Resource<T>>] {
        self.by_url.get(url).map_or(&[], Vec::as_slice)
    }

    /// The preferred resource of this URL among those that a version or pattern names.
    fn find(&self, url: &str, wanted: Option<&str>) -> Option<&Resource<T>> {
        self.versions(url).iter().map(|resource| &**resource).find(|resource| {
            wanted.is_none_or(|wanted| {
                let have = resource.header().and_then(|header| header.version.as_deref());
                have.is_some_and(|have| version::matches(wanted, have))
            })
        })
    }
}

/// Was this resource there on that day, as far as its `date` tells?
fn is_of(header: &Header, day: &str) -> bool {
    header.date.as_deref().is_none_or(|date| date.get(..day.len()).unwrap_or(date) <= day)
}

/// Begin of the versions of SNOMED CT's International Edition.
const INTERNATIONAL: &str = "http://snomed.info/sct/900000000000207008/";

/// Orders two versions of one canonical URL, the one to prefer first: complete before fragment
/// before anything else, then SNOMED CT's International Edition, whatever the number of another one's module, then the
/// newest version, then the latest date.
fn by_preference(a: &Header, b: &Header) -> Ordering {
    let newest = |a: &Option<String>, b: &Option<String>| {
        version::compare(b.as_deref().unwrap_or_default(), a.as_deref().unwrap_or_default())
    };
    let content = |header: &Header| header.content.unwrap_or(Content::Complete);
    let is_international =
        |header: &Header| header.version.as_deref().is_some_and(|version| version.starts_with(INTERNATIONAL));
    content(a)
        .cmp(&content(b))
        .then_with(|| is_international(b).cmp(&is_international(a)))
        .then_with(|| newest(&a.version, &b.version))
        .then_with(|| newest(&a.date, &b.date))
}

/// So many value sets that their URLs define are kept ready before they are forgotten.
const IMPLICIT_KEPT: usize = 1_000;

/// Code systems and value sets at one moment.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    code_systems: Shelf<CodeSystem>,
    value_sets: Shelf<ValueSet>,
    definitions: Shelf<Definition>,
    /// Codes of grammars, shared by the catalogs that follow one another.
    built_in: Arc<built_in::Memory>,
    /// Value sets that their URLs define. What they are compiled to does not hang on the catalog, but what they remember
    /// does, so each catalog has its own.
    implicit: Kept<ValueSet, IMPLICIT_KEPT>,
}

impl Clone for Catalog {
    fn clone(&self) -> Self {
        Self {
            code_systems: self.code_systems.clone(),
            value_sets: self.value_sets.clone(),
            definitions: self.definitions.clone(),
            built_in: Arc::clone(&self.built_in),
            implicit: Kept::default(),
        }
    }
}

impl Catalog {
    /// This catalog with a batch of changes.
    pub(crate) fn with(&self, changes: impl IntoIterator<Item = Change>) -> Self {
        let mut next = self.clone();
        for change in changes {
            match change {
                Change::Put { kind: CodeSystem::KIND, id, bytes } => {
                    next.code_systems.put(Arc::new(Resource::new(id, bytes)));
                }
                Change::Put { kind: ValueSet::KIND, id, bytes } => {
                    next.value_sets.put(Arc::new(Resource::new(id, bytes)));
                }
                Change::Index { id, index } => {
                    let header = index.0.header.clone();
                    next.code_systems.put(Arc::new(Resource::ready(id, header, index.0)));
                }
                Change::Delete { kind: CodeSystem::KIND, id } => next.code_systems.remove(&id),
                Change::Put { kind: Definition::KIND, id, bytes } => {
                    let definition = Resource::new(id, bytes);
                    // At once: few of its bytes are kept, and what is broken has no bindings.
                    drop(definition.shared());
                    next.definitions.put(Arc::new(definition));
                }
                Change::Delete { kind: ValueSet::KIND, id } => next.value_sets.remove(&id),
                Change::Delete { kind: Definition::KIND, id } => next.definitions.remove(&id),
                Change::Put { .. } | Change::Delete { .. } => {}
            }
        }
        next
    }

    /// This catalog with the resources of a request; what comes last is preferred among equals.
    pub(crate) fn over(&self, resources: impl IntoIterator<Item = Brought>) -> Self {
        let mut next = self.clone();
        for resource in resources {
            match resource {
                Brought::CodeSystem(resource) => next.code_systems.put(resource),
                Brought::ValueSet(resource) => next.value_sets.put(resource),
                Brought::Definition(resource) => next.definitions.put(resource),
            }
        }
        next
    }

    /// The index of the code system of an id, where there is one that is not broken.
    pub(crate) fn index(&self, id: &str) -> Option<Index> {
        self.code_systems.by_id.get(id)?.shared().ok().cloned().map(Index)
    }

    /// The code system of an id.
    ///
    /// # Errors
    /// When there is none, or it is broken.
    pub(crate) fn code_system_by_id(&self, id: &str, budget: &Budget<'_>) -> Result<&CodeSystem, TxError> {
        by_id(&self.code_systems, id, budget)
    }

    /// The value set of an id.
    ///
    /// # Errors
    /// When there is none, or it is broken.
    pub(crate) fn value_set_by_id(&self, id: &str, budget: &Budget<'_>) -> Result<&ValueSet, TxError> {
        by_id(&self.value_sets, id, budget)
    }

    /// The preferred code system among those that the version or pattern names; supplements are no
    /// code systems of their own. A built-in system comes before a stored one that is not complete.
    /// Of a grammar this is the empty frame: where the code is known, use
    /// [`code_system_for`](Self::code_system_for).
    pub(crate) fn code_system(&self, url: &str, version: Option<&str>) -> Option<&Resource<CodeSystem>> {
        self.with_built_in(url, version, || built_in::system(url))
    }

    /// The same for a question about one code, which may come from a grammar.
    pub(crate) fn code_system_for(
        &self,
        url: &str,
        version: Option<&str>,
        code: &str,
    ) -> Option<&Resource<CodeSystem>> {
        self.with_built_in(url, version, || match Grammar::of(url) {
            Some(grammar) => self.built_in.concept(grammar, code).or_else(|| built_in::system(url)),
            None => built_in::system(url),
        })
    }

    /// Is this a system whose codes only a grammar knows?
    pub(crate) fn is_endless(&self, url: &str) -> bool {
        // Asked at every `$subsumes`, so the cheap question comes first.
        Grammar::of(url).is_some()
            && self.code_system(url, None).map(std::ptr::from_ref)
                == built_in::system(url).map(std::ptr::from_ref)
    }

    fn with_built_in<'a>(
        &'a self,
        url: &str,
        version: Option<&str>,
        built_in: impl FnOnce() -> Option<&'a Resource<CodeSystem>>,
    ) -> Option<&'a Resource<CodeSystem>> {
        let stored = self.code_systems.find(url, version);
        let stored = stored.filter(|r| r.header().is_some_and(|h| !is_supplement(h)));
        let complete = |r: &&Resource<CodeSystem>| {
            r.header().is_some_and(|h| h.content.is_none_or(|c| c == Content::Complete))
        };
        if stored.as_ref().is_some_and(complete) {
            return stored;
        }
        // What is built in has no version of its own.
        match version {
            None | Some("*") => built_in().or(stored),
            Some(_) => stored.map(|stored| built_in().unwrap_or(stored)),
        }
    }

    /// Is it time for [`refreshed`](Self::refreshed)?
    pub(crate) fn is_stale(&self) -> bool {
        self.built_in.is_full() || self.implicit.is_full()
    }

    /// The same catalog without the codes of grammars and the implicit value sets that it remembers.
    pub(crate) fn refreshed(&self) -> Self {
        Self { built_in: Arc::default(), ..self.clone() }
    }

    /// The preferred code system that was there on a day, for a question about one code; without a day, today's.
    /// What is built in was there at all times.
    pub(crate) fn code_system_of(
        &self,
        url: &str,
        day: Option<&str>,
        code: &str,
    ) -> Option<&Resource<CodeSystem>> {
        let Some(day) = day else { return self.code_system_for(url, None, code) };
        self.code_system_on(url, day).or_else(|| {
            let is_built_in = built_in::system(url).is_some();
            is_built_in.then(|| self.code_system_for(url, None, code)).flatten()
        })
    }

    /// The preferred stored code system that was there on a day.
    pub(crate) fn code_system_on(&self, url: &str, day: &str) -> Option<&Resource<CodeSystem>> {
        let mut versions = self.code_systems.versions(url).iter().map(|resource| &**resource);
        versions.find(|r| r.header().is_some_and(|h| !is_supplement(h) && is_of(h, day)))
    }

    /// The preferred value set that was there on a day; without a day, today's.
    ///
    /// # Errors
    /// When it is broken.
    pub(crate) fn value_set_of(
        &self,
        url: &str,
        day: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Option<&ValueSet>, TxError> {
        let Some(day) = day else { return self.value_set(url, None, budget) };
        let mut versions = self.value_sets.versions(url).iter();
        match versions.find(|r| r.header().is_some_and(|h| is_of(h, day))) {
            Some(resource) => Ok(Some(resource.get(budget)?)),
            None => self.value_set(url, None, budget),
        }
    }

    /// The supplement with this canonical URL.
    pub(crate) fn supplement(&self, canonical: &str) -> Option<&Resource<CodeSystem>> {
        let (url, version) = version::split(canonical);
        self.code_systems.find(url, version).filter(|r| r.header().is_some_and(is_supplement))
    }

    /// The versions of a code system that are there, oldest first.
    pub(crate) fn code_system_versions(&self, url: &str) -> Vec<String> {
        let headers = self.code_systems.versions(url).iter().filter_map(|r| r.header());
        let mut versions: Vec<_> =
            headers.filter(|h| !is_supplement(h)).filter_map(|h| h.version.clone()).collect();
        versions.sort_by(|a, b| version::compare(a, b));
        versions.dedup();
        versions
    }

    /// The value set with this canonical URL: a stored one, the one of all codes that a code
    /// system names in `CodeSystem.valueSet`, or one that the URL itself defines. `None` where there is neither.
    ///
    /// # Errors
    /// When it is there but broken.
    pub(crate) fn value_set(
        &self,
        url: &str,
        version: Option<&str>,
        budget: &Budget<'_>,
    ) -> Result<Option<&ValueSet>, TxError> {
        if let Some(resource) = self.value_sets.find(url, version) {
            return Ok(Some(resource.get(budget)?));
        }
        let all = self.code_systems.by_value_set.get(url).into_iter().flatten();
        let of_all = all
            .filter_map(|resource| Some((resource, resource.header()?)))
            .filter(|(_, header)| !is_supplement(header))
            .filter(|(_, header)| {
                let have = header.version.as_deref();
                version.is_none_or(|wanted| have.is_some_and(|have| version::matches(wanted, have)))
            })
            .min_by(|a, b| by_preference(a.1, b.1).then_with(|| a.0.id.cmp(&b.0.id)));
        if let Some((resource, _)) = of_all {
            return Ok(resource.get(budget)?.of_all.as_ref());
        }
        if let Some(set) = self.implicit.get(url) {
            return Ok(Some(set));
        }
        let set = implicit::value_set(url);
        Ok(set.map(|set| self.implicit.insert(url.to_owned(), set, 256 + 64 * url.len())))
    }

    /// The canonical URL of the value set that `context` leads to: an element of a StructureDefinition, as
    /// `url[|version]#element`.
    ///
    /// # Errors
    /// Says what is missing; [`Unprocessable`] when the definition is broken.
    pub(crate) fn bound_by(&self, context: &str, budget: &Budget<'_>) -> Result<&str, TxError> {
        let wrong = |why: String| malformed("context", why);
        let (canonical, element) = context.split_once('#').ok_or_else(|| {
            wrong(format!("'{context}' names no element; write it as StructureDefinition-URL#element"))
        })?;
        let (url, version) = version::split(canonical);
        let definition = self.definitions.find(url, version).ok_or_else(|| {
            wrong(format!(
                "the StructureDefinition '{canonical}' is not stored here; give 'url' or 'valueSet'"
            ))
        })?;
        definition.get(budget)?.binding(element).ok_or_else(|| {
            wrong(format!("'{canonical}' has no element '{element}' that is bound to a value set"))
        })
    }

    /// How many CodeSystem resources there are.
    pub(crate) fn code_system_count(&self) -> usize {
        self.code_systems.by_id.len()
    }

    /// How many ValueSet resources there are.
    pub(crate) fn value_set_count(&self) -> usize {
        self.value_sets.by_id.len()
    }

    /// URL and version of each readable code system, sorted.
    pub(crate) fn code_systems(&self) -> Vec<(String, Option<String>)> {
        let headers = self.code_systems.by_id.values().filter_map(|r| r.header());
        let mut list: Vec<_> = headers
            .filter(|h| !is_supplement(h))
            .filter_map(|h| Some((h.url.clone()?, h.version.clone())))
            .collect();
        list.sort();
        list
    }

    /// The versions of each code system, the one that is used where none is named first.
    pub(crate) fn code_systems_by_url(&self) -> BTreeMap<String, Vec<Option<String>>> {
        let versions = |list: &[Arc<Resource<CodeSystem>>]| {
            let headers = list.iter().filter_map(|r| r.header()).filter(|h| !is_supplement(h));
            headers.map(|header| header.version.clone()).collect::<Vec<_>>()
        };
        let stored = self.code_systems.by_url.iter().map(|(url, list)| (url.clone(), versions(list)));
        let mut all: BTreeMap<_, _> = stored.filter(|(_, versions)| !versions.is_empty()).collect();
        for url in built_in::URLS {
            let built_in = built_in::system(url).map(std::ptr::from_ref);
            if self.code_system(url, None).map(std::ptr::from_ref) == built_in {
                all.entry((*url).to_owned()).or_default().insert(0, None);
            }
        }
        all
    }

    /// Every resource that is known to be broken, sorted by type and id.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let code_systems = self.code_systems.by_id.values().filter_map(|r| r.problem());
        let value_sets = self.value_sets.by_id.values().filter_map(|r| r.problem());
        let definitions = self.definitions.by_id.values().filter_map(|r| r.problem());
        let mut list: Vec<_> = code_systems.chain(value_sets).chain(definitions).collect();
        list.sort_by(|a, b| (a.kind, &a.id).cmp(&(b.kind, &b.id)));
        list
    }
}

fn by_id<'a, T: Compiled>(shelf: &'a Shelf<T>, id: &str, budget: &Budget<'_>) -> Result<&'a T, TxError> {
    let unknown = || TxError::UnknownInstance { kind: T::KIND, id: id.to_owned() };
    Ok(shelf.by_id.get(id).ok_or_else(unknown)?.get(budget)?)
}

fn is_supplement(header: &Header) -> bool {
    header.content == Some(Content::Supplement)
}
