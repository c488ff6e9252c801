//! What the caller sent, before it is checked.
//!
//! A query string has no types: every value is text, so "true" may be a boolean there, and a Coding
//! cannot be sent at all. A body has types, and a wrong one is refused. [`Input`] remembers where
//! the parameters came from and is the only place that knows the difference.

use std::collections::HashMap;

use fhir::{CodeableConcept, Coding, Parameter, Parameters, Value};
use serde_json::value::RawValue;

use crate::{Budget, TxError};

/// Where the operation was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level<'a> {
    /// On the type, such as `ValueSet/$validate-code`.
    Type,
    /// On the instance with this id, such as `ValueSet/fruit/$validate-code`.
    Instance(&'a str),
}

/// The parameters of a batch by name.
#[derive(Debug, Default)]
pub(crate) struct Shared<'a>(HashMap<&'a str, Vec<&'a Parameter>>);

/// The parameters of an operation and how they travelled.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    parameters: &'a Parameters,
    /// Those of the batch that this request is one item of.
    shared: Option<&'a Shared<'a>>,
    caller: &'a str,
    typed: bool,
    accept_language: Option<&'a str>,
    budget: Option<&'a Budget<'a>>,
}

impl<'a> Input<'a> {
    /// Parameters of a query string (see [`Parameters::from_query`]): all values are text.
    pub fn from_query(parameters: &'a Parameters) -> Self {
        Self { parameters, shared: None, caller: "", typed: false, accept_language: None, budget: None }
    }

    /// Parameters of a body: each value has its type.
    pub fn from_body(parameters: &'a Parameters) -> Self {
        Self { parameters, shared: None, caller: "", typed: true, accept_language: None, budget: None }
    }

    /// Adds the header `Accept-Language`; the parameter `displayLanguage` outranks it.
    #[must_use]
    pub fn accept_language(mut self, header: Option<&'a str>) -> Self {
        self.accept_language = header;
        self
    }

    /// Adds who asks, in any stable form: what is kept under a `cache-id` is kept for them alone.
    #[must_use]
    pub fn caller(mut self, caller: &'a str) -> Self {
        self.caller = caller;
        self
    }

    /// Bounds the work of the question; without this, a full budget without a deadline does.
    #[must_use]
    pub fn budget(mut self, budget: &'a Budget<'a>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The budget that the caller gave.
    pub(crate) fn own_budget(&self) -> Option<&'a Budget<'a>> {
        self.budget
    }

    /// Who asks.
    pub(crate) fn caller_name(&self) -> &'a str {
        self.caller
    }

    /// The same request with the parameters of one item of a batch: where the item has none of a
    /// name, the shared ones of that name hold.
    pub(crate) fn item(self, parameters: &'a Parameters, shared: &'a Shared<'a>) -> Self {
        Self { parameters, shared: Some(shared), ..self }
    }

    /// The parameters of a batch, to be looked up for each of its items.
    pub(crate) fn shared(&self) -> Shared<'a> {
        let mut shared = Shared::default();
        for parameter in &self.parameters.parameter {
            shared.0.entry(&parameter.name).or_default().push(parameter);
        }
        shared
    }

    /// The header `Accept-Language`.
    pub(crate) fn header_languages(&self) -> Option<&'a str> {
        self.accept_language
    }

    /// A parameter that may be there once, with its value.
    fn single(&self, name: &str) -> Result<Option<&'a Value>, TxError> {
        let mut all = self.all(name);
        let Some(first) = all.next() else { return Ok(None) };
        if all.next().is_some() {
            return Err(malformed(name, "it is there more than once; give it one value"));
        }
        first.value.as_ref().map(Some).ok_or_else(|| malformed(name, "it has no value"))
    }

    fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a Parameter> + use<'a, 'n> {
        let own = move |list: &'a Parameters| list.parameter.iter().filter(move |p| p.name == name);
        let shared = self.shared.filter(|_| own(self.parameters).next().is_none());
        let shared = shared.and_then(|shared| shared.0.get(name)).map_or(&[][..], Vec::as_slice);
        own(self.parameters).chain(shared.iter().copied())
    }

    /// Is there any parameter of this name?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// A parameter whose type is written as a JSON string (`uri`, `code`, `string`, …): any of
    /// these types will do, since clients differ in which one they send.
    ///
    /// # Errors
    /// When it is repeated, empty, or of another type.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, TxError> {
        self.single(name)?.map(|value| as_text(name, value)).transpose()
    }

    /// The values of a text parameter that may be repeated.
    ///
    /// # Errors
    /// When one is empty or of another type.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<&'a str>, TxError> {
        let value = |parameter: &'a Parameter| match &parameter.value {
            Some(value) => as_text(name, value),
            None => Err(malformed(name, "it has no value")),
        };
        self.all(name).map(value).collect()
    }

    /// A `boolean` parameter.
    ///
    /// # Errors
    /// When it is repeated, or no boolean; a body must send it as `valueBoolean`.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, TxError> {
        match self.single(name)? {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(*value)),
            Some(Value::Text(_, text)) if !self.typed => match text.as_str() {
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                _ => Err(malformed(name, format!("'{text}' is not true or false"))),
            },
            Some(_) => Err(malformed(name, "it must be given as valueBoolean")),
        }
    }

    /// An `integer` parameter that cannot be negative.
    ///
    /// # Errors
    /// When it is repeated, negative, or no integer.
    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, TxError> {
        let number = match self.single(name)? {
            None => return Ok(None),
            Some(Value::Number(_, number)) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
            Some(Value::Text(_, text)) if !self.typed => text.parse().ok(),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| malformed(name, "it must be an integer that is not negative"))
    }

    /// All parameters, in the order given.
    pub(crate) fn every(&self) -> &'a [Parameter] {
        &self.parameters.parameter
    }

    /// A `Coding` parameter.
    ///
    /// # Errors
    /// When it is repeated, in a query string, or of another type.
    pub(crate) fn coding(&self, name: &str) -> Result<Option<&'a Coding>, TxError> {
        match self.complex(name, "Coding")? {
            None => Ok(None),
            Some(Value::Coding(coding)) => Ok(Some(coding)),
            Some(_) => Err(malformed(name, "it must be given as valueCoding")),
        }
    }

    /// A `CodeableConcept` parameter.
    ///
    /// # Errors
    /// When it is repeated, in a query string, or of another type.
    pub(crate) fn codeable_concept(&self, name: &str) -> Result<Option<&'a CodeableConcept>, TxError> {
        match self.complex(name, "CodeableConcept")? {
            None => Ok(None),
            Some(Value::CodeableConcept(concept)) => Ok(Some(concept)),
            Some(_) => Err(malformed(name, "it must be given as valueCodeableConcept")),
        }
    }

    /// The resources given under this name.
    ///
    /// # Errors
    /// When one is in a query string or no resource.
    pub(crate) fn resources(&self, name: &str) -> Result<Vec<&'a RawValue>, TxError> {
        let resource = |parameter: &'a Parameter| match &parameter.value {
            Some(Value::Resource(json)) => Ok(&**json),
            _ if !self.typed => Err(needs_body(name, "resource")),
            _ => Err(malformed(name, "it must be given as resource")),
        };
        self.all(name).map(resource).collect()
    }

    fn complex(&self, name: &str, kind: &str) -> Result<Option<&'a Value>, TxError> {
        if !self.typed && self.has(name) {
            return Err(needs_body(name, kind));
        }
        self.single(name)
    }
}

fn as_text<'a>(name: &str, value: &'a Value) -> Result<&'a str, TxError> {
    match value {
        Value::Text(_, text) if text.is_empty() => Err(malformed(name, "it is empty")),
        Value::Text(_, text) => Ok(text),
        _ => Err(malformed(name, "it must be a text, such as valueString, valueCode or valueUri")),
    }
}

fn needs_body(name: &str, kind: &str) -> TxError {
    malformed(name, format!("a {kind} cannot be sent in a query string; send Parameters by POST"))
}

/// A parameter that cannot be used.
pub(crate) fn malformed(parameter: &str, why: impl Into<String>) -> TxError {
    TxError::Malformed { parameter: parameter.to_owned(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_no_types_and_a_body_has() {
        let query = Parameters::from_query("abstract=true&lenient=yes&code=x&coding=y&empty=&two=1&two=2");
        let query = Input::from_query(&query);
        assert_eq!(query.boolean("abstract"), Ok(Some(true)));
        assert_eq!(query.text("code"), Ok(Some("x")));
        assert_eq!(query.text("absent"), Ok(None));
        for (error, why) in [
            (query.boolean("lenient").unwrap_err(), "'yes' is not true or false"),
            (query.coding("coding").unwrap_err(), "a Coding cannot be sent in a query string"),
            (query.text("empty").unwrap_err(), "it is empty"),
            (query.text("two").unwrap_err(), "more than once"),
        ] {
            assert!(error.to_string().contains(why), "{error}");
        }

        let mut body = Parameters::new();
        body.push_string("abstract", "true");
        body.push_boolean("code", true);
        body.push_code("coding", "x");
        let body = Input::from_body(&body);
        for (error, why) in [
            (body.boolean("abstract").unwrap_err(), "must be given as valueBoolean"),
            (body.text("code").unwrap_err(), "must be a text"),
            (body.coding("coding").unwrap_err(), "must be given as valueCoding"),
            (body.resources("coding").unwrap_err(), "must be given as resource"),
        ] {
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
