//! The elements of each resource type that determine compartments or terms of the search index, as a tree of
//! member names. A scan of a resource follows the tree and ignores all other members.

use std::collections::HashMap;
use std::sync::LazyLock;

use fhir::patient_compartment;
use fhir::patient_references::{self, ReferencePath};
use fhir::search_parameters::{self, ElementPath, SearchParameter, ValueComparison};

use super::terms::TermName;
use crate::search::filter::value::is_narrative;

/// An element, and the elements below it.
#[derive(Debug, Default)]
pub(crate) struct ElementNode {
    /// Names of the members, and their indexes in the arena.
    children: Vec<(&'static str, usize)>,
    /// Set if the element is a Reference that may refer to a Patient.
    pub reference: Option<ReferenceRole>,
    /// The ways in which values of the element are indexed.
    pub indexed: Vec<IndexedElement>,
}

/// The effect of a reference to a Patient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferenceRole {
    /// The resource belongs to the compartment of the Patient.
    Compartment,
    /// The resource only mentions the Patient.
    Mention,
}

/// The way in which the values of an element are indexed.
#[derive(Debug)]
pub(crate) struct IndexedElement {
    /// The path and data type, without a restriction to a system or a target type.
    pub place: ElementPath,
    pub comparison: ValueComparison,
    pub name: TermName,
    /// `true` if a relative reference to a Patient determines a compartment of R4. Such a reference has no
    /// term, because the compartment is looked up instead. References of the types that R4 left out have
    /// terms, because stores of before contain versions without their compartments.
    pub is_compartment_reference: bool,
}

impl ElementNode {
    /// The node of the member with this name.
    pub fn child(&self, name: &str) -> Option<&'static Self> {
        let (_, index) = self.children.iter().find(|(own, _)| *own == name)?;
        Some(&TREES.nodes[*index])
    }
}

/// The trees of all resource types. Elements that repeat others, such as the sections of a section, are
/// cycles.
struct ElementTrees {
    nodes: Vec<ElementNode>,
    roots: HashMap<&'static str, usize>,
}

static TREES: LazyLock<ElementTrees> = LazyLock::new(|| {
    let mut common: Vec<SearchParameter> = search_parameters::parameters("Resource").collect();
    // A narrative has too many words for an index of its own.
    common.retain(|parameter| !parameter.places.iter().all(is_narrative));
    let mut trees = ElementTrees { nodes: Vec::new(), roots: HashMap::new() };
    for kind in fhir::RESOURCE_TYPES {
        let root = trees.add_node();
        trees.roots.insert(kind, root);
        trees.add_references(root, kind);
        for parameter in search_parameters::parameters(kind).chain(common.iter().cloned()) {
            trees.add_parameter(root, kind, &parameter);
        }
    }
    trees
});

impl ElementTrees {
    fn add_node(&mut self) -> usize {
        self.nodes.push(ElementNode::default());
        self.nodes.len() - 1
    }

    /// The node at a path below another one, which is created if it does not exist.
    fn node_at(&mut self, parent: usize, path: &[&'static str]) -> usize {
        path.iter().fold(parent, |parent, name| {
            let child = self.nodes[parent].children.iter().find(|(own, _)| own == name);
            if let Some((_, index)) = child {
                return *index;
            }
            let index = self.add_node();
            self.nodes[parent].children.push((name, index));
            index
        })
    }

    /// Adds the elements that may refer to a Patient.
    fn add_references(&mut self, root: usize, kind: &str) {
        let paths = patient_references::paths(kind);
        // The elements below one that is repeated have nodes of their own, because only its first
        // occurrence is indexed.
        let mut repeated: HashMap<&'static str, usize> = HashMap::new();
        for path in paths {
            if let ReferencePath::Repeated { of, .. } = path {
                repeated.entry(of).or_insert_with(|| self.add_node());
            }
        }
        let mut parents: Vec<(&str, usize)> = repeated.iter().map(|(of, node)| (*of, *node)).collect();
        parents.push(("", root));
        for (prefix, parent) in parents {
            let below = |path: &'static str| match prefix {
                "" => Some(path),
                _ => path.strip_prefix(prefix)?.strip_prefix('.'),
            };
            for path in paths {
                match *path {
                    ReferencePath::Reference(path) => {
                        let Some(below) = below(path) else { continue };
                        let is_of_compartment =
                            parent == root && patient_compartment::paths(kind).contains(&path);
                        let role = match is_of_compartment {
                            true => ReferenceRole::Compartment,
                            false => ReferenceRole::Mention,
                        };
                        let node = self.node_at(parent, &below.split('.').collect::<Vec<_>>());
                        self.nodes[node].reference = Some(role);
                    }
                    ReferencePath::Repeated { path, of } => {
                        let Some(below) = below(path) else { continue };
                        let (parent, name) = match below.rsplit_once('.') {
                            Some((before, name)) => {
                                (self.node_at(parent, &before.split('.').collect::<Vec<_>>()), name)
                            }
                            None => (parent, below),
                        };
                        self.nodes[parent].children.push((name, repeated[of]));
                    }
                }
            }
        }
    }

    fn add_parameter(&mut self, root: usize, kind: &str, parameter: &SearchParameter) {
        for place in &parameter.places {
            let Some(name) = TermName::of(kind, parameter, place) else { continue };
            let node = self.node_at(root, &place.path);
            // Several parameters may share an element, for example `patient` and `subject`.
            if self.nodes[node].indexed.iter().all(|element| element.name != name) {
                let is_compartment_reference =
                    patient_compartment::r4_paths(kind).contains(&place.path.join(".").as_str());
                let (place, comparison) = (ElementPath { only: None, ..place.clone() }, parameter.comparison);
                let element = IndexedElement { place, comparison, name, is_compartment_reference };
                self.nodes[node].indexed.push(element);
            }
        }
    }
}

/// The tree of a resource type, or `None` for an unknown type.
pub(crate) fn of(kind: &str) -> Option<&'static ElementNode> {
    TREES.roots.get(kind).map(|&root| &TREES.nodes[root])
}
