//! The segments of a path at the placeholders of its route.

use fhir::IssueCode;
use http::StatusCode;

use super::problem::{self, Problem};

/// The decoded segments of a path at the placeholders of its route, by name.
pub struct PathParameters(pub Vec<(&'static str, String)>);

impl PathParameters {
    /// Removes the value of a placeholder, and returns it.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let index = self.0.iter().position(|(key, _)| *key == name)?;
        Some(self.0.swap_remove(index).1)
    }
}

/// A type that a handler can have as the parameter for a placeholder.
pub trait FromPath: Sized {
    /// Takes the value of a placeholder.
    ///
    /// # Errors
    /// [`Problem`] if the value is not one of this type.
    fn from_path(path: &mut PathParameters, name: &str) -> Result<Self, Problem>;
}

/// The value of a placeholder that other routes of the same handler do not have.
impl FromPath for Option<String> {
    fn from_path(path: &mut PathParameters, name: &str) -> Result<Self, Problem> {
        Ok(path.take(name))
    }
}

/// # Panics
/// Panics if the route has no such placeholder, which a test of the routes excludes.
impl FromPath for String {
    fn from_path(path: &mut PathParameters, name: &str) -> Result<Self, Problem> {
        Ok(path.take(name).expect("the route has this placeholder"))
    }
}

/// A resource type of FHIR R4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceType(pub &'static str);

impl FromPath for ResourceType {
    fn from_path(path: &mut PathParameters, name: &str) -> Result<Self, Problem> {
        let text = String::from_path(path, name)?;
        fhir::resource_type(&text).map(Self).ok_or_else(|| {
            let text: String = text.chars().filter(|c| !c.is_control()).take(100).collect();
            let text = fhir::not_a_type(&text);
            problem::fhir_error(StatusCode::NOT_FOUND, IssueCode::NotSupported, text).into()
        })
    }
}
