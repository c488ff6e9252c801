//! A part of the members of a value set: codes of one code system.

use std::collections::HashSet;

use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::model::known_systems::ISO_3166;
use crate::model::resource_json::ContentMode;
use crate::model::{Budget, TxError};
use crate::value_set::{ListedCode, ValueSet};

/// The codes that one include selects from one version of a code system.
#[derive(Debug, Clone)]
pub(crate) struct MemberPart<'a> {
    /// Canonical URL of the code system.
    pub(crate) url: &'a str,
    /// The code system; `None` if it is not stored and the value set lists the codes.
    pub(crate) system: Option<&'a CodeSystem>,
    /// The value set of the include: the requested one or one of its imports.
    pub(crate) set: &'a ValueSet,
    /// The listed codes that are members, in the order of the list, if the include lists codes.
    pub(crate) listed: Option<Vec<MemberCode<'a>>>,
    pub(crate) bits: ConceptSet,
    /// Listed codes that are members and have no ordinal.
    pub(super) unknown_codes: HashSet<&'a str>,
    /// Whether every unknown code is a member, because the part contains all codes of a fragment.
    pub(super) open: bool,
    /// Whether the part is from an imported value set.
    pub(crate) is_imported: bool,
}

impl<'a> MemberPart<'a> {
    pub(crate) fn len(&self) -> usize {
        self.bits.count() + self.unknown_codes.len()
    }

    /// Returns whether the code system of the part is a fragment.
    pub(crate) fn is_of_fragment(&self) -> bool {
        self.system.is_some_and(|system| system.content == ContentMode::Fragment)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unknown_codes.is_empty() && self.bits.is_empty()
    }

    /// Keeps the codes that pass a test, which receives the concept, if there is one, and the code.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Option<u32>, &str) -> bool) {
        if let Some(system) = self.system {
            self.bits.retain(|concept| keep(Some(concept), system.code(concept)));
        }
        self.unknown_codes.retain(|code| keep(None, code));
    }

    /// The codes in order, without the first `skip`.
    pub(crate) fn iter_after(&self, skip: usize) -> Box<dyn Iterator<Item = MemberCode<'a>> + '_> {
        if let Some(items) = &self.listed {
            let is_in = |item: &&MemberCode<'a>| match item.concept {
                Some(concept_number) => self.bits.has(concept_number),
                None => self.unknown_codes.contains(item.code),
            };
            return Box::new(items.iter().filter(is_in).skip(skip).copied());
        }
        let Some(system) = self.system else { return Box::new(std::iter::empty()) };
        let item = |concept_number| MemberCode {
            code: system.code(concept_number),
            concept: Some(concept_number),
            listed: None,
        };
        Box::new(self.bits.iter_after(skip).map(item))
    }

    /// Removes inactive concepts.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(crate) fn drop_inactive(&mut self, budget: &Budget<'_>) -> Result<(), TxError> {
        let Some(system) = self.system.filter(|system| system.has_inactive()) else { return Ok(()) };
        budget.spend(self.bits.count() / 8)?;
        self.bits.retain(|concept| !system.is_inactive(concept));
        Ok(())
    }

    /// Removes codes whose meaning is that of a user, unless the value set lists them.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(crate) fn drop_user_assigned(&mut self, budget: &Budget<'_>) -> Result<(), TxError> {
        let Some(system) = self.system.filter(|system| system.url == ISO_3166) else { return Ok(()) };
        if self.listed.is_none() {
            budget.spend(self.bits.count())?;
            self.bits.retain(|concept| !system.is_user_assigned(concept));
        }
        Ok(())
    }

    /// Removes abstract concepts, which group others and are not to be selected.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(crate) fn drop_abstract(&mut self, budget: &Budget<'_>) -> Result<(), TxError> {
        let Some(system) = self.system else { return Ok(()) };
        budget.spend(self.bits.count() / 8)?;
        self.bits.retain(|concept| !system.is_abstract(concept));
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberCode<'a> {
    pub(crate) code: &'a str,
    /// The concept; `None` if the code system is not stored or is a fragment without the code.
    pub(crate) concept: Option<u32>,
    /// The entry in the list of the value set, if there is one.
    pub(crate) listed: Option<&'a ListedCode>,
}
