//! Evaluation of filters and history supplements.

use super::evaluation::EclEvaluator;
use super::filters::{ComponentTest, ConceptTest, DescriptionTest, EclFilter, SearchTerm, semantic_tag};
use super::syntax::{EclError, EclExpression, HistoryProfile};
use crate::code_system::concept_set::ConceptSet;
use crate::code_system::descriptions::ConceptDescription;
use crate::model::known_systems::SNOMED_CT_NAME;
use crate::model::text_folding::same_folded;

/// Number of bytes of a term that count as one step.
pub(super) const BYTES_PER_STEP: usize = 64;

/// Data that concepts, descriptions and members have in common.
pub(super) struct ComponentState<'a> {
    pub(super) is_active: bool,
    pub(super) module: Option<&'a str>,
    pub(super) effective_time: Option<&'a str>,
}

impl EclEvaluator<'_> {
    /// Returns whether a concept passes a filter.
    pub(super) fn passes(&self, filter: &EclFilter<ConceptTest>, concept: u32) -> Result<bool, EclError> {
        let property = |name| self.system.property(concept, name).next();
        let passes = match &filter.test {
            ConceptTest::Component(test) => {
                let state = ComponentState {
                    is_active: !self.system.is_inactive(concept),
                    module: property("moduleId"),
                    effective_time: property("effectiveTime"),
                };
                match self.component_passes(test, &state)? {
                    Some(passes) => passes,
                    None => return Ok(false),
                }
            }
            ConceptTest::DefinitionStatus(statuses) => {
                let is_defined = property("sufficientlyDefined") == Some("true");
                let status = if is_defined { "900000000000073002" } else { "900000000000074008" };
                self.names_component(statuses, status)?
            }
            ConceptTest::SemanticTag(tags) => self
                .any_holds(self.system.descriptions(concept).filter(|one| one.is_active), |description| {
                    self.has_tag(&description, tags)
                })?,
        };
        Ok(passes != filter.negated)
    }

    /// The result of a test; `None` if the component lacks the data.
    pub(super) fn component_passes(
        &self,
        test: &ComponentTest,
        state: &ComponentState<'_>,
    ) -> Result<Option<bool>, EclError> {
        Ok(match test {
            ComponentTest::Active(is_wanted) => {
                Some(is_wanted.is_none_or(|is_wanted| is_wanted == state.is_active))
            }
            ComponentTest::Module(modules) => match state.module {
                Some(module) => Some(self.names_component(modules, module)?),
                None => None,
            },
            ComponentTest::EffectiveTime(order, or_equal, dates) => {
                self.budget.spend(dates.len() / 8)?;
                state.effective_time.map(|date| {
                    dates.iter().any(|other| {
                        let actual = date.cmp(other);
                        actual == *order || (*or_equal && actual.is_eq())
                    })
                })
            }
        })
    }

    /// Returns whether an expression contains the concept of a module, a type or a reference set. An
    /// expression may also name it by id if the edition does not contain the concept.
    pub(super) fn names_component(&self, expression: &EclExpression, id: &str) -> Result<bool, EclError> {
        match expression {
            EclExpression::Concept(code) if !code.contains('#') => Ok(code == id),
            EclExpression::Or(any) => {
                self.budget.spend(any.len() / 8)?;
                self.any_holds(any, |each| self.names_component(each, id))
            }
            expression => match self.system.find(id) {
                Some(concept) => self.contains(expression, concept),
                None => Ok(false),
            },
        }
    }

    /// Returns whether one description of a concept passes all filters. Without a filter on the state, it is
    /// an active one.
    pub(super) fn is_described(
        &self,
        filters: &[EclFilter<DescriptionTest>],
        concept: u32,
    ) -> Result<bool, EclError> {
        let any_state = has_state(filters);
        let descriptions = self.system.descriptions(concept).filter(|one| any_state || one.is_active);
        self.any_holds(descriptions, |description| {
            self.budget.spend(1 + description.term.len() / BYTES_PER_STEP)?;
            self.all_hold(filters, |filter| self.description_passes(filter, &description))
        })
    }

    /// Removes concepts that certainly have no description with the words of a term filter, by the word
    /// index. The index has the texts in use, so it cannot decide if the filters admit inactive descriptions.
    pub(super) fn retain_with_words(
        &self,
        filters: &[EclFilter<DescriptionTest>],
        concepts: &mut ConceptSet,
    ) -> Result<(), EclError> {
        if has_state(filters) {
            return Ok(());
        }
        for filter in filters.iter().filter(|filter| !filter.negated) {
            let DescriptionTest::Term(terms) = &filter.test else { continue };
            let mut with_any = ConceptSet::empty(self.system.len());
            for term in terms {
                let SearchTerm::Match(words) = term else {
                    with_any = ConceptSet::full(self.system.len());
                    break;
                };
                let mut with_all = ConceptSet::full(self.system.len());
                self.budget.spend_words(with_all.words(), true)?;
                for word in words {
                    let concepts = self.system.word_index().find_concepts(self.system, word, self.budget)?;
                    with_all.intersect(&concepts);
                }
                with_any.unite(&with_all);
            }
            concepts.intersect(&with_any);
        }
        Ok(())
    }

    fn description_passes(
        &self,
        filter: &EclFilter<DescriptionTest>,
        description: &ConceptDescription<'_>,
    ) -> Result<bool, EclError> {
        let facts = description.facts;
        let passes = match &filter.test {
            DescriptionTest::Component(test) => {
                let stated = |text: &'_ str| !text.is_empty();
                let state = ComponentState {
                    is_active: description.is_active,
                    module: facts.map(|facts| facts.module).filter(|text| stated(text)),
                    effective_time: facts.map(|facts| facts.effective_time).filter(|text| stated(text)),
                };
                match self.component_passes(test, &state)? {
                    Some(passes) => passes,
                    None => return Ok(false),
                }
            }
            DescriptionTest::Term(terms) => self.any_holds(terms, |term| {
                self.budget.spend(term.steps() * (1 + description.term.len() / BYTES_PER_STEP))?;
                Ok(term.finds(description.term))
            })?,
            DescriptionTest::Language(codes) => {
                let Some(language) = description.language else { return Ok(false) };
                // The filter names languages without dialects, which have their own filter.
                let language = language.split('-').next().unwrap_or_default();
                self.budget.spend(codes.len() / 8)?;
                codes.iter().any(|code| code.eq_ignore_ascii_case(language))
            }
            DescriptionTest::Type(types) => self.names_component(types, description.kind)?,
            DescriptionTest::Dialect(tests) => {
                let dialects = facts.map(|facts| facts.dialects).unwrap_or_default();
                self.any_holds(dialects.split(' ').filter(|dialect| !dialect.is_empty()), |dialect| {
                    // The index stores each as the id of the reference set, followed by the acceptability.
                    let (id, sign) = dialect.split_at(dialect.len() - 1);
                    self.any_holds(tests, |test| {
                        self.spend_step()?;
                        let admitted = match sign {
                            "+" => test.acceptability.preferred,
                            _ => test.acceptability.acceptable,
                        };
                        Ok(admitted && self.names_component(&test.reference_sets, id)?)
                    })
                })?
            }
            DescriptionTest::Id(ids) => {
                self.budget.spend(ids.len() / 8)?;
                facts.is_some_and(|facts| ids.contains(&facts.id))
            }
            DescriptionTest::SemanticTag(tags) => self.has_tag(description, tags)?,
        };
        Ok(passes != filter.negated)
    }

    /// Returns whether a description is a fully specified name with one of these semantic tags.
    fn has_tag(&self, description: &ConceptDescription<'_>, tags: &[String]) -> Result<bool, EclError> {
        self.budget.spend(1 + tags.len() / 8)?;
        let tag = semantic_tag(description.term).filter(|_| description.kind == SNOMED_CT_NAME);
        Ok(tag.is_some_and(|tag| tags.iter().any(|other| same_folded(other, tag))))
    }

    /// Returns whether a historical association of a profile leads from a concept to one that passes a test.
    pub(super) fn replaced_by_any(
        &self,
        profile: &HistoryProfile,
        concept: u32,
        test: impl Fn(u32) -> Result<bool, EclError>,
    ) -> Result<bool, EclError> {
        // An association is a property whose name is the id of the reference set. No other property has such
        // a name.
        let is_id = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let properties = self.system.properties(concept).filter(|(name, _)| is_id(name));
        let associations = properties.filter_map(|(name, target)| Some((name, self.system.find(target)?)));
        self.any_holds(associations, |(reference_set, target)| {
            self.spend_step()?;
            let is_used = match profile {
                HistoryProfile::Listed(list) => list.contains(&reference_set),
                HistoryProfile::All => true,
                HistoryProfile::Of(sets) => match self.system.find(reference_set) {
                    Some(concept) => self.contains(sets, concept)?,
                    None => false,
                },
            };
            Ok(is_used && test(target)?)
        })
    }
}

/// Returns whether a filter selects descriptions by their state. Otherwise they must be active.
fn has_state(filters: &[EclFilter<DescriptionTest>]) -> bool {
    let is_state = |filter: &EclFilter<DescriptionTest>| {
        matches!(filter.test, DescriptionTest::Component(ComponentTest::Active(_)))
    };
    filters.iter().any(is_state)
}
