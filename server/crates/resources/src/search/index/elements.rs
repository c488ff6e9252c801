//! The elements of each resource type that determine compartments or terms of the search index, as a tree of
//! member names. A scan of a resource follows the tree and ignores all other members.

use std::collections::HashMap;
use std::sync::LazyLock;

use fhir::patient_compartment;
use fhir::search_parameters::{self, ElementPath, SearchParameter, ValueComparison};

use super::terms::TermName;

/// An element, and the elements below it.
#[derive(Debug, Default)]
pub(crate) struct ElementNode {
    children: Vec<(&'static str, ElementNode)>,
    /// `true` if the element is a Reference that determines compartments.
    pub is_compartment_reference: bool,
    /// The ways in which values of the element are indexed.
    pub indexed: Vec<IndexedElement>,
}

/// The way in which the values of an element are indexed.
#[derive(Debug)]
pub(crate) struct IndexedElement {
    /// The path and data type, without a restriction to a system or a target type.
    pub place: ElementPath,
    pub comparison: ValueComparison,
    pub name: TermName,
    /// `true` if a relative reference to a Patient determines a compartment. Such a reference has no term,
    /// because the compartment is looked up instead.
    pub is_compartment_reference: bool,
}

impl ElementNode {
    /// The node of the member with this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|(own, _)| *own == name).map(|(_, node)| node)
    }

    fn at(&mut self, path: &[&'static str]) -> &mut Self {
        let [name, rest @ ..] = path else { return self };
        let index = self.children.iter().position(|(own, _)| own == name).unwrap_or_else(|| {
            self.children.push((name, Self::default()));
            self.children.len() - 1
        });
        self.children[index].1.at(rest)
    }
}

static TREES: LazyLock<HashMap<&'static str, ElementNode>> = LazyLock::new(|| {
    let common: Vec<SearchParameter> = search_parameters::parameters("Resource").collect();
    let tree = |kind: &&'static str| {
        let mut root = ElementNode::default();
        for path in patient_compartment::paths(kind) {
            let path: Vec<_> = path.split('.').collect();
            root.at(&path).is_compartment_reference = true;
        }
        for parameter in search_parameters::parameters(kind).chain(common.iter().cloned()) {
            add(&mut root, kind, &parameter);
        }
        (*kind, root)
    };
    fhir::RESOURCE_TYPES.iter().map(tree).collect()
});

fn add(root: &mut ElementNode, kind: &str, parameter: &SearchParameter) {
    for place in &parameter.places {
        let Some(name) = TermName::of(kind, parameter, place) else { continue };
        let node = root.at(&place.path);
        // Several parameters may share an element, for example `patient` and `subject`.
        if node.indexed.iter().all(|known| known.name != name) {
            let place = ElementPath { only: None, ..place.clone() };
            let is_compartment_reference = node.is_compartment_reference;
            let comparison = parameter.comparison;
            node.indexed.push(IndexedElement { place, comparison, name, is_compartment_reference });
        }
    }
}

/// The tree of a resource type, or `None` for an unknown type.
pub(crate) fn of(kind: &str) -> Option<&'static ElementNode> {
    TREES.get(kind)
}
