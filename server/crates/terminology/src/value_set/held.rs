//! The union of many parts of value sets, by version of code system: one look says whether any of them holds a code.

use std::collections::{HashMap, HashSet};

use super::bits::Bits;
use super::members::Part;
use crate::code_system::CodeSystem;
use crate::{Budget, TxError};

/// All that parts of one version of a code system hold.
#[derive(Debug, Clone)]
struct Union<'a> {
    system: Option<&'a CodeSystem>,
    bits: Bits,
    /// Listed codes without an ordinal.
    beside: HashSet<&'a str>,
    /// The same in lower case, where case does not matter to the system.
    folded: HashSet<String>,
    open: bool,
}

/// Parts, by the canonical URL of their code system.
#[derive(Debug, Clone, Default)]
pub(super) struct Held<'a>(HashMap<&'a str, Vec<Union<'a>>>);

fn lower(code: &str) -> String {
    code.chars().flat_map(char::to_lowercase).collect()
}

fn is_same(a: Option<&CodeSystem>, b: Option<&CodeSystem>) -> bool {
    a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref)
}

impl<'a> Union<'a> {
    /// Does it hold this concept, or code, of another part of the same code system URL?
    fn holds(&self, system: Option<&CodeSystem>, concept: Option<u32>, code: &str) -> bool {
        // In another version of the system, the same code counts.
        let here = match concept.filter(|_| is_same(self.system, system)) {
            Some(at) => Some(at),
            None => self.system.and_then(|system| system.find(code)),
        };
        match here {
            Some(at) => self.bits.has(at),
            None => {
                self.open
                    || self.beside.contains(code)
                    || (!self.folded.is_empty() && self.folded.contains(&lower(code)))
            }
        }
    }
}

impl<'a> Held<'a> {
    /// Adds a part.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn add(&mut self, part: &Part<'a>, budget: &Budget<'_>) -> Result<(), TxError> {
        budget.words(part.bits.words(), false)?;
        budget.spend(part.beside.len())?;
        let versions = self.0.entry(part.url).or_default();
        budget.spend(versions.len())?;
        let at = versions.iter().position(|union| is_same(union.system, part.system)).unwrap_or_else(|| {
            versions.push(Union {
                system: part.system,
                bits: Bits::default(),
                beside: HashSet::new(),
                folded: HashSet::new(),
                open: false,
            });
            versions.len() - 1
        });
        let union = &mut versions[at];
        let before = union.bits.words();
        union.bits.unite(&part.bits);
        budget.words(union.bits.words() - before, true)?;
        union.beside.extend(&part.beside);
        if part.system.is_some_and(|system| system.case_sensitive == Some(false)) {
            union.folded.extend(part.beside.iter().map(|code| lower(code)));
        }
        union.open |= part.open;
        Ok(())
    }

    /// Leaves out of a part what is held here: in any version of its code system, or in its own one only.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn take_from(
        &self,
        part: &mut Part<'a>,
        own_version: bool,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        self.narrow(part, own_version, false, budget)
    }

    /// Keeps of a part what is held here in any version of its code system.
    ///
    /// # Errors
    /// When the budget ends.
    pub(super) fn keep_in(&self, part: &mut Part<'a>, budget: &Budget<'_>) -> Result<(), TxError> {
        self.narrow(part, false, true, budget)
    }

    fn narrow(
        &self,
        part: &mut Part<'a>,
        own_version: bool,
        is_kept: bool,
        budget: &Budget<'_>,
    ) -> Result<(), TxError> {
        let versions = self.0.get(part.url).map_or(&[][..], Vec::as_slice);
        budget.spend(1 + versions.len())?;
        let system = part.system;
        let counts = |union: &&Union<'a>| !own_version || is_same(union.system, system);
        let counting: Vec<_> = versions.iter().filter(counts).collect();
        budget.spend(part.beside.len() * counting.len().max(1))?;
        part.beside.retain(|code| counting.iter().any(|union| union.holds(system, None, code)) == is_kept);
        budget.words(part.bits.words(), false)?;
        match (counting.as_slice(), system) {
            ([], _) | (_, None) => {
                if is_kept {
                    part.bits = Bits::default();
                }
            }
            // Of the same version, whole words at once.
            ([union], _) if is_same(union.system, system) => match is_kept {
                true => part.bits.intersect(&union.bits),
                false => part.bits.subtract(&union.bits),
            },
            (unions, Some(known)) => {
                budget.spend(part.bits.count() * unions.len())?;
                part.bits.retain(|at| {
                    unions.iter().any(|union| union.holds(system, Some(at), known.code(at))) == is_kept
                });
            }
        }
        part.bits.trim();
        part.open &= counting.iter().any(|union| union.open) == is_kept;
        Ok(())
    }
}
