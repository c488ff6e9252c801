//! The defects of a resource: elements that its type does not have, cardinalities, JSON types, and formats of
//! primitive values. Profiles, bindings of codes, targets of references and invariants are not validated.
//!
//! | module | contents |
//! |---|---|
//! | `object` | walks through the JSON of a resource |
//! | `primitive_value` | primitive values and the extensions beside them |
//! | `path` | the path of an element, written only for a defect |
//! | here | defects, and the validation of a resource |

mod object;
mod path;
mod primitive_value;

use std::fmt;

use serde::de::DeserializeSeed as _;

use self::object::ObjectSeed;
use self::path::ElementPath;
use crate::structures::structure;
use crate::{IdLength, Issue, IssueCode, Severity};

/// Maximum number of defects with a description, for those that are unreadable and those that are not.
const DESCRIBED: usize = 50;

/// A defect of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementDefect {
    /// FHIRPath of the element, such as `Patient.name[0].given`.
    pub expression: String,
    /// Type of the issue in an OperationOutcome.
    pub code: IssueCode,
    /// Description of the defect, for people. It contains the value.
    pub text: String,
    /// `true` if typed readers of FHIR cannot represent the value: a number instead of a string, a day that
    /// the calendar does not have, a contained resource of an unknown type.
    pub is_unreadable: bool,
}

/// The defects of a resource, in the order of its elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementDefects {
    /// The first 50 defects that are unreadable, and the first 50 that are not.
    pub described: Vec<ElementDefect>,
    /// Number of unreadable defects.
    pub unreadable: usize,
    /// Number of the other defects.
    pub irregular: usize,
    /// The lengths of ids that are no defects.
    ids: IdLength,
}

impl ElementDefects {
    /// The first defect that is unreadable, or the first one if none is.
    pub fn first(&self) -> Option<&ElementDefect> {
        self.described.iter().find(|defect| defect.is_unreadable).or(self.described.first())
    }

    /// The same defects, in a resource that is an element of another one. `path` replaces its type.
    #[must_use]
    pub fn below(mut self, path: &str) -> Self {
        for defect in &mut self.described {
            let end = defect.expression.find('.').unwrap_or(defect.expression.len());
            defect.expression.replace_range(..end, path);
        }
        self
    }

    /// `true` if the resource has no defect.
    pub fn is_empty(&self) -> bool {
        self.total() == 0
    }

    /// Number of all defects.
    pub fn total(&self) -> usize {
        self.unreadable + self.irregular
    }

    /// Adds a defect. `describe` is called only if the defect is described.
    fn add(
        &mut self,
        path: &ElementPath<'_>,
        code: IssueCode,
        is_unreadable: bool,
        describe: impl FnOnce() -> String,
    ) {
        let count = if is_unreadable { &mut self.unreadable } else { &mut self.irregular };
        *count += 1;
        if *count <= DESCRIBED {
            let expression = path.to_string();
            self.described.push(ElementDefect { expression, code, text: describe(), is_unreadable });
        }
    }
}

impl fmt::Display for ElementDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.expression, self.text)
    }
}

impl From<&ElementDefect> for Issue {
    /// An unreadable element is an error, any other defect is a warning.
    fn from(defect: &ElementDefect) -> Self {
        let severity = if defect.is_unreadable { Severity::Error } else { Severity::Warning };
        Self::new(severity, defect.code, defect.to_string()).at(&defect.expression)
    }
}

/// Finds the defects of a resource. `resource` must be JSON that is an object, and `kind` the type of the
/// resource, which must be one of FHIR R4. Longer ids than `ids` permits are defects.
///
/// ```
/// use trefoil_fhir::{IdLength, validation::validate};
///
/// let body = br#"{"resourceType": "Patient", "birthDate": "1980-02-30", "nickname": "Al"}"#;
/// let defects = validate("Patient", body, IdLength::R4);
/// assert_eq!((defects.unreadable, defects.irregular), (1, 1));
/// assert_eq!(defects.described[0].expression, "Patient.birthDate");
/// ```
pub fn validate(kind: &str, resource: &[u8], ids: IdLength) -> ElementDefects {
    let mut defects = ElementDefects { ids, ..ElementDefects::default() };
    let Some(structure) = structure(kind) else { return defects };
    let path = ElementPath::root(kind);
    let mut reader = serde_json::Deserializer::from_slice(resource);
    let seed = ObjectSeed { defects: &mut defects, structure, is_resource: true, path: &path };
    if let Err(error) = seed.deserialize(&mut reader) {
        // The text is JSON, so this is a number that no type of a reader holds.
        defects.add(&path, IssueCode::Structure, true, || format!("cannot be read: {error}"));
    }
    defects
}

#[cfg(test)]
mod tests;
