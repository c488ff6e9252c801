//! The includes and excludes of a value set.

use smallvec::SmallVec;

use super::filter::ValueSetFilter;
use super::include_cache::IncludeCache;
use crate::model::concept_text::TextKind;
use crate::model::{Unprocessable, concept_extensions, resource_json};

/// A value set with more includes and excludes than this has an index of them by code system.
const FEW_PARTS: usize = 16;

/// `ValueSet.compose`: the rules for membership. It is small and contiguous, because every test reads it, and
/// usually nothing else of the value set.
#[derive(Debug, Default)]
pub(crate) struct ValueSetCompose {
    pub(crate) include: SmallVec<[IncludeRule; 1]>,
    pub(crate) exclude: Vec<IncludeRule>,
    /// Whether `inactive` is false, so that inactive codes are not members.
    pub(crate) active_only: bool,
    /// Day that determines the version of a code system that an include does not state.
    pub(crate) locked_date: Option<Box<str>>,
    /// Data that most value sets do not have.
    pub(crate) rare: Option<Box<ComposeExtras>>,
}

/// Data that few value sets have.
#[derive(Debug, Default)]
pub(crate) struct ComposeExtras {
    /// Error in the value set that does not depend on the code. It is reported on every use.
    pub(crate) fault: Option<Unprocessable>,
    /// Whether a filter has a regular expression.
    pub(crate) has_patterns: bool,
    /// Includes and excludes by code system, if there are many.
    by_system: Option<[PartsBySystem; 2]>,
}

/// Numbers of the rules of each code system. The empty key has those without a code system.
type PartsBySystem = hashbrown::HashMap<Box<str>, Vec<u32>>;

impl ValueSetCompose {
    pub(crate) fn rules(&self) -> impl Iterator<Item = &IncludeRule> {
        self.include.iter().chain(&self.exclude)
    }

    /// Determines the versions to which each exclude applies. Versions of a code system share their codes, so
    /// an exclude applies to all versions, unless the extension `versionsMatch` is false or the value set
    /// includes the version that the exclude states.
    pub(super) fn scope_excludes(&mut self, versions_apart: bool) {
        for exclude in &mut self.exclude {
            let includes_version = |include: &IncludeRule| {
                include.system == exclude.system
                    && (include.version == exclude.version || include.version.as_deref() == Some("*"))
            };
            exclude.own_version =
                versions_apart || (exclude.version.is_some() && self.include.iter().any(includes_version));
        }
    }

    /// Returns whether an exclude applies to other versions of its code system than the one that it states.
    pub(crate) fn merges_versions(&self) -> bool {
        self.exclude.iter().any(|exclude| exclude.version.is_some() && !exclude.own_version)
    }

    /// Computes the data that depends on all rules.
    pub(super) fn build_indexes(&mut self) {
        if self.rules().flat_map(|part| &part.filters).any(ValueSetFilter::has_pattern) {
            self.rare.get_or_insert_default().has_patterns = true;
        }
        if self.include.len() + self.exclude.len() > FEW_PARTS {
            let index = |parts: &[IncludeRule]| {
                let mut index = PartsBySystem::default();
                for (number, part) in (0..).zip(parts) {
                    index.entry(part.system.clone().unwrap_or_default()).or_default().push(number);
                }
                index
            };
            let indexes = [index(&self.include), index(&self.exclude)];
            self.rare.get_or_insert_default().by_system = Some(indexes);
        }
    }

    pub(super) fn index(&self, which: usize) -> Option<&PartsBySystem> {
        self.rare.as_ref()?.by_system.as_ref().map(|indexes| &indexes[which])
    }

    /// Sets the error of the value set, unless there is one.
    pub(crate) fn set_fault(&mut self, fault: Unprocessable) {
        self.rare.get_or_insert_default().fault.get_or_insert(fault);
    }

    /// The includes that can contain a code of a code system, in order.
    #[inline]
    pub(crate) fn includes_of(&self, system: &str) -> PartsOf<'_> {
        PartsOf::new(&self.include, self.index(0), system)
    }

    /// The excludes that can contain a code of a code system, in order.
    pub(crate) fn excludes_of(&self, system: &str) -> PartsOf<'_> {
        PartsOf::new(&self.exclude, self.index(1), system)
    }
}

/// The rules that can contain a code of a code system; all of them if there are few.
pub(crate) enum PartsOf<'a> {
    All(std::slice::Iter<'a, IncludeRule>),
    /// Numbers of the rules of the code system, and of those without a code system.
    Indexed(&'a [IncludeRule], [std::iter::Peekable<std::slice::Iter<'a, u32>>; 2]),
}

impl<'a> PartsOf<'a> {
    #[inline]
    fn new(parts: &'a [IncludeRule], index: Option<&'a PartsBySystem>, system: &str) -> Self {
        let Some(index) = index else { return Self::All(parts.iter()) };
        let of = |system: &str| index.get(system).map_or([].iter(), |numbers| numbers.iter()).peekable();
        Self::Indexed(parts, [of(system), of("")])
    }
}

impl<'a> Iterator for PartsOf<'a> {
    type Item = &'a IncludeRule;

    #[inline]
    fn next(&mut self) -> Option<&'a IncludeRule> {
        match self {
            Self::All(parts) => parts.next(),
            Self::Indexed(parts, [own, without]) => {
                let number = match (own.peek(), without.peek()) {
                    (Some(a), Some(b)) if b < a => without.next(),
                    (Some(_), _) => own.next(),
                    (None, _) => without.next(),
                }?;
                Some(&parts[*number as usize])
            }
        }
    }
}

/// One `compose.include` or `exclude`. A member satisfies all of `listed`, `filters` and `value_sets` that
/// are present. With a code system alone, all its codes are members.
#[derive(Debug, Default)]
pub(crate) struct IncludeRule {
    pub(crate) system: Option<Box<str>>,
    pub(crate) version: Option<Box<str>>,
    pub(crate) listed: Option<Box<CodeList>>,
    pub(crate) filters: SmallVec<[ValueSetFilter; 1]>,
    /// Cache of the concepts that pass the filters.
    pub(crate) cache: IncludeCache,
    pub(crate) value_sets: Vec<String>,
    /// Of an exclude: whether it applies only to its own version of the code system.
    pub(crate) own_version: bool,
}

/// The codes that an include lists.
pub(crate) type CodeList = hashbrown::HashMap<Box<str>, ListedCode>;

/// A code that an include lists.
#[derive(Debug, Default)]
pub(crate) struct ListedCode {
    pub(crate) place: usize,
    pub(crate) display: Option<Box<str>>,
    pub(crate) designations: Vec<ListedDesignation>,
    /// Whether the value set marks the code as deprecated.
    pub(crate) deprecated: bool,
    /// Extensions that an expansion repeats, by their position in [`REPEATED`](concept_extensions::REPEATED).
    pub(crate) extensions: Vec<(u8, Box<str>)>,
}

/// A designation of a listed code.
#[derive(Debug)]
pub(crate) struct ListedDesignation {
    pub(crate) language: Option<Box<str>>,
    pub(crate) text: Box<str>,
    pub(crate) kind: TextKind,
    /// System, code and display of its `use`.
    pub(crate) purpose: Option<Box<[String; 3]>>,
    /// Id of the description of SNOMED CT.
    pub(crate) description_id: Option<Box<str>>,
}

impl IncludeRule {
    /// Compiles a rule. The outer error is a violation of FHIR's rules, the inner one a filter that cannot be
    /// used.
    pub(super) fn compile(
        json: &resource_json::IncludeJson<'_>,
        index: &str,
    ) -> Result<Result<Self, Unprocessable>, String> {
        let by_code = !json.concept.is_empty();
        let by_filter = !json.filter.is_empty();
        if json.system.is_none() && json.value_set.is_empty() {
            return Err(format!("{index} has neither system nor valueSet (vsd-1)"));
        }
        if json.system.is_none() && (by_code || by_filter) {
            return Err(format!("{index} has codes or filters but no system (vsd-2)"));
        }
        if by_code && by_filter {
            return Err(format!("{index} has both codes and filters (vsd-3)"));
        }
        let system = json.system.as_deref().unwrap_or_default();
        let filters = json
            .filter
            .iter()
            .enumerate()
            .map(|(n, filter)| ValueSetFilter::compile(filter, system, format!("{index}.filter[{n}]")))
            .collect::<Result<_, _>>();
        Ok(filters.map(|filters| Self {
            system: json.system.as_deref().map(Box::from),
            version: json.version.as_deref().map(Box::from),
            // Of two equal codes the first is kept.
            listed: by_code
                .then(|| Box::new(json.concept.iter().enumerate().rev().map(ListedCode::compile).collect())),
            filters,
            value_sets: json.value_set.clone(),
            cache: IncludeCache::default(),
            own_version: false,
        }))
    }
}

impl ListedCode {
    pub(super) fn compile((place, written): (usize, &resource_json::ListedCodeJson<'_>)) -> (Box<str>, Self) {
        let designation = |d: &resource_json::DesignationJson<'_>| ListedDesignation {
            language: d.language.as_deref().map(Box::from),
            text: Box::from(&*d.value),
            kind: d.kind(),
            purpose: d.usage.as_ref().map(|usage| {
                let parts = [&usage.system, &usage.code, &usage.display];
                Box::new(parts.map(|part| part.as_deref().unwrap_or_default().to_owned()))
            }),
            description_id: resource_json::description_id(&d.extension).map(Box::from),
        };
        let include = Self {
            place,
            display: written.display.as_deref().map(Box::from),
            designations: written.designation.iter().map(designation).collect(),
            deprecated: resource_json::is_deprecated(&written.extension),
            extensions: concept_extensions::stored_with_listed_code(&written.extension),
        };
        ((*written.code).into(), include)
    }
}
