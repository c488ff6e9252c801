//! The union of several parts of value sets, by version of code system, so that one test covers all parts.

use std::collections::{HashMap, HashSet};

use super::member_part::MemberPart;
use crate::code_system::CodeSystem;
use crate::code_system::concept_set::ConceptSet;
use crate::model::{Budget, TxError};

/// The union of the parts from one version of a code system.
#[derive(Debug, Clone)]
struct SystemUnion<'a> {
    system: Option<&'a CodeSystem>,
    bits: ConceptSet,
    unknown_codes: HashSet<&'a str>,
    /// The same codes in lower case, if the system ignores case.
    folded: HashSet<String>,
    open: bool,
}

/// Unions by the canonical URL of the code system.
#[derive(Debug, Clone, Default)]
pub(super) struct PartUnions<'a>(HashMap<&'a str, Vec<SystemUnion<'a>>>);

fn to_lower(code: &str) -> String {
    code.chars().flat_map(char::to_lowercase).collect()
}

fn is_same(a: Option<&CodeSystem>, b: Option<&CodeSystem>) -> bool {
    a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref)
}

impl<'a> SystemUnion<'a> {
    /// Returns whether the union contains a concept or code of a part with the same code system URL.
    fn contains(&self, system: Option<&CodeSystem>, concept: Option<u32>, code: &str) -> bool {
        // Equal codes in different versions of the code system are the same code.
        let here = match concept.filter(|_| is_same(self.system, system)) {
            Some(concept) => Some(concept),
            None => self.system.and_then(|system| system.find(code)),
        };
        match here {
            Some(concept) => self.bits.has(concept),
            None => {
                self.open
                    || self.unknown_codes.contains(code)
                    || (!self.folded.is_empty() && self.folded.contains(&to_lower(code)))
            }
        }
    }
}

impl<'a> PartUnions<'a> {
    /// Adds a part.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn add_part(&mut self, part: &MemberPart<'a>, budget: &Budget<'_>) -> Result<(), TxError> {
        budget.spend_words(part.bits.words(), false)?;
        budget.spend(part.unknown_codes.len())?;
        let versions = self.0.entry(part.url).or_default();
        budget.spend(versions.len())?;
        let index =
            versions.iter().position(|union| is_same(union.system, part.system)).unwrap_or_else(|| {
                versions.push(SystemUnion {
                    system: part.system,
                    bits: ConceptSet::default(),
                    unknown_codes: HashSet::new(),
                    folded: HashSet::new(),
                    open: false,
                });
                versions.len() - 1
            });
        let union = &mut versions[index];
        let before = union.bits.words();
        union.bits.unite(&part.bits);
        budget.spend_words(union.bits.words() - before, true)?;
        union.unknown_codes.extend(&part.unknown_codes);
        if part.system.is_some_and(|system| system.case_sensitive == Some(false)) {
            union.folded.extend(part.unknown_codes.iter().map(|code| to_lower(code)));
        }
        union.open |= part.open;
        Ok(())
    }

    /// Removes the codes of the unions from a part: those of any version of its code system, or of its own
    /// version only.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn subtract_from(
        &self,
        part: &mut MemberPart<'a>,
        own_version: bool,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        self.filter_part(part, own_version, false, budget)
    }

    /// Keeps the codes of a part that are in the unions of any version of its code system.
    ///
    /// # Errors
    /// [`TxError`] if the budget is spent.
    pub(super) fn intersect_with(
        &self,
        part: &mut MemberPart<'a>,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        self.filter_part(part, false, true, budget)
    }

    fn filter_part(
        &self,
        part: &mut MemberPart<'a>,
        own_version: bool,
        is_kept: bool,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        let versions = self.0.get(part.url).map_or(&[][..], Vec::as_slice);
        budget.spend(1 + versions.len())?;
        let system = part.system;
        let counts = |union: &&SystemUnion<'a>| !own_version || is_same(union.system, system);
        let counting: Vec<_> = versions.iter().filter(counts).collect();
        budget.spend(part.unknown_codes.len() * counting.len().max(1))?;
        part.unknown_codes
            .retain(|code| counting.iter().any(|union| union.contains(system, None, code)) == is_kept);
        budget.spend_words(part.bits.words(), false)?;
        match (counting.as_slice(), system) {
            ([], _) | (_, None) => {
                if is_kept {
                    part.bits = ConceptSet::default();
                }
            }
            // Sets from the same version are combined word by word.
            ([union], _) if is_same(union.system, system) => match is_kept {
                true => part.bits.intersect(&union.bits),
                false => part.bits.subtract(&union.bits),
            },
            (unions, Some(present)) => {
                budget.spend(part.bits.count() * unions.len())?;
                part.bits.retain(|concept| {
                    unions.iter().any(|union| union.contains(system, Some(concept), present.code(concept)))
                        == is_kept
                });
            }
        }
        part.bits.trim();
        part.open &= counting.iter().any(|union| union.open) == is_kept;
        Ok(())
    }
}
