//! The path of an element: a list that lives on the call stack, and is written only if a defect is described.

use std::fmt;

/// The path of an element or of one of its values.
#[derive(Clone, Copy)]
pub(super) struct ElementPath<'a> {
    parent: Option<&'a ElementPath<'a>>,
    name: &'a str,
    index: Option<usize>,
}

impl<'a> ElementPath<'a> {
    /// The path of a resource: its type.
    pub fn root(kind: &'a str) -> Self {
        Self { parent: None, name: kind, index: None }
    }

    /// The path of an element of this one.
    pub fn element(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), name, index: None }
    }

    /// The path of one value of this element, counted from 0.
    pub fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

impl fmt::Display for ElementPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.name)?;
        match self.index {
            Some(index) => write!(f, "[{index}]"),
            None => Ok(()),
        }
    }
}
