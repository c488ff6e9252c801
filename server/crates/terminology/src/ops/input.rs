//! The parameters of a request before validation.
//!
//! A query string has no types: every value is text, so "true" may be a boolean, and a Coding cannot be sent. A body
//! has types, and a value of another type is rejected. [`OperationInput`] records which of the two the parameters are
//! from; no other code depends on it.

use std::collections::HashMap;

use fhir::{CodeableConcept, Coding, Parameter, Parameters, Value};
use serde_json::value::RawValue;

use crate::model::error::malformed;
use crate::model::{Budget, TxError};

/// Path on which the operation is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationLevel<'a> {
    /// The type, as in `ValueSet/$validate-code`.
    Type,
    /// The instance with this id, as in `ValueSet/fruit/$validate-code`.
    Instance(&'a str),
}

/// The parameters of a batch by name.
#[derive(Debug, Default)]
pub(crate) struct BatchParameters<'a>(HashMap<&'a str, Vec<&'a Parameter>>);

/// The parameters of an operation, with their source.
#[derive(Debug, Clone, Copy)]
pub struct OperationInput<'a> {
    parameters: &'a Parameters,
    /// Parameters of the batch that contains this request.
    shared: Option<&'a BatchParameters<'a>>,
    caller: &'a str,
    typed: bool,
    accept_language: Option<&'a str>,
    expansion_limit: Option<usize>,
    budget: Option<&'a Budget<'a>>,
}

impl<'a> OperationInput<'a> {
    /// Returns the input from a query string (see [`Parameters::from_query`]), in which all values are text.
    pub fn from_query(parameters: &'a Parameters) -> Self {
        Self {
            parameters,
            shared: None,
            caller: "",
            typed: false,
            accept_language: None,
            expansion_limit: None,
            budget: None,
        }
    }

    /// Returns the input from a body, in which each value has its type.
    pub fn from_body(parameters: &'a Parameters) -> Self {
        Self { typed: true, ..Self::from_query(parameters) }
    }

    /// Sets the header `Accept-Language`. The parameter `displayLanguage` takes precedence.
    #[must_use]
    pub fn accept_language(mut self, header: Option<&'a str>) -> Self {
        self.accept_language = header;
        self
    }

    /// Sets the number of codes above which the caller wants no expansion. It can only lower the limit of the server.
    #[must_use]
    pub fn expansion_limit(mut self, limit: Option<usize>) -> Self {
        self.expansion_limit = limit;
        self
    }

    /// Returns the limit that the caller set for the number of codes in an expansion.
    pub(crate) fn own_expansion_limit(&self) -> Option<usize> {
        self.expansion_limit
    }

    /// Sets the identity of the caller, in any stable form. Resources under a `cache-id` belong to one caller.
    #[must_use]
    pub fn caller(mut self, caller: &'a str) -> Self {
        self.caller = caller;
        self
    }

    /// Sets the budget of the request. The default is a full budget without a deadline.
    #[must_use]
    pub fn budget(mut self, budget: &'a Budget<'a>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Returns the budget, if one was set.
    pub(crate) fn own_budget(&self) -> Option<&'a Budget<'a>> {
        self.budget
    }

    /// Returns the identity of the caller.
    pub(crate) fn caller_name(&self) -> &'a str {
        self.caller
    }

    /// Returns the input with the parameters of one item of a batch. For a name that the item does not have, the
    /// parameters of the batch apply.
    pub(crate) fn with_item(self, parameters: &'a Parameters, shared: &'a BatchParameters<'a>) -> Self {
        Self { parameters, shared: Some(shared), ..self }
    }

    /// Groups the parameters by name, for the items of a batch.
    pub(crate) fn as_batch(&self) -> BatchParameters<'a> {
        let mut shared = BatchParameters::default();
        for parameter in &self.parameters.parameter {
            shared.0.entry(&parameter.name).or_default().push(parameter);
        }
        shared
    }

    /// Returns the header `Accept-Language`.
    pub(crate) fn header_languages(&self) -> Option<&'a str> {
        self.accept_language
    }

    /// Returns the value of a parameter that must not be repeated.
    fn single_value(&self, name: &str) -> Result<Option<&'a Value>, TxError> {
        let mut all = self.parameters_named(name);
        let Some(first) = all.next() else { return Ok(None) };
        if all.next().is_some() {
            return Err(malformed(name, "it occurs more than once; send it once"));
        }
        first.value.as_ref().map(Some).ok_or_else(|| malformed(name, "it has no value"))
    }

    fn parameters_named<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a Parameter> + use<'a, 'n> {
        let own = move |list: &'a Parameters| list.parameter.iter().filter(move |p| p.name == name);
        let shared = self.shared.filter(|_| own(self.parameters).next().is_none());
        let shared = shared.and_then(|shared| shared.0.get(name)).map_or(&[][..], Vec::as_slice);
        own(self.parameters).chain(shared.iter().copied())
    }

    /// Returns whether there is a parameter of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.parameters_named(name).next().is_some()
    }

    /// Returns a parameter whose type is a JSON string (`uri`, `code`, `string`, …). Any of these types is accepted,
    /// because clients differ in the one they send.
    ///
    /// # Errors
    /// Returns [`TxError`] if the parameter is repeated, empty, or of another type.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, TxError> {
        self.single_value(name)?.map(|value| as_text(name, value)).transpose()
    }

    /// Returns the values of a text parameter that may be repeated.
    ///
    /// # Errors
    /// Returns [`TxError`] if a value is empty or of another type.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<&'a str>, TxError> {
        let value = |parameter: &'a Parameter| match &parameter.value {
            Some(value) => as_text(name, value),
            None => Err(malformed(name, "it has no value")),
        };
        self.parameters_named(name).map(value).collect()
    }

    /// Returns a `boolean` parameter.
    ///
    /// # Errors
    /// Returns [`TxError`] if the parameter is repeated or not a boolean. A body must send it as `valueBoolean`.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>, TxError> {
        match self.single_value(name)? {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(*value)),
            Some(Value::Text(_, text)) if !self.typed => match text.as_str() {
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                _ => Err(malformed(name, format!("'{text}' is not true or false"))),
            },
            Some(_) => Err(malformed(name, "it must be sent as valueBoolean")),
        }
    }

    /// Returns an `integer` parameter that must not be negative.
    ///
    /// # Errors
    /// Returns [`TxError`] if the parameter is repeated, negative, or not an integer.
    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, TxError> {
        let number = match self.single_value(name)? {
            None => return Ok(None),
            Some(Value::Number(_, number)) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
            Some(Value::Text(_, text)) if !self.typed => text.parse().ok(),
            Some(_) => None,
        };
        number.map(Some).ok_or_else(|| malformed(name, "it must be an integer that is not negative"))
    }

    /// Returns all parameters in the order of the request.
    pub(crate) fn all_parameters(&self) -> &'a [Parameter] {
        &self.parameters.parameter
    }

    /// Returns a `Coding` parameter.
    ///
    /// # Errors
    /// Returns [`TxError`] if the parameter is repeated, in a query string, or of another type.
    pub(crate) fn coding(&self, name: &str) -> Result<Option<&'a Coding>, TxError> {
        match self.typed_value(name, "Coding")? {
            None => Ok(None),
            Some(Value::Coding(coding)) => Ok(Some(coding)),
            Some(_) => Err(malformed(name, "it must be sent as valueCoding")),
        }
    }

    /// Returns a `CodeableConcept` parameter.
    ///
    /// # Errors
    /// Returns [`TxError`] if the parameter is repeated, in a query string, or of another type.
    pub(crate) fn codeable_concept(&self, name: &str) -> Result<Option<&'a CodeableConcept>, TxError> {
        match self.typed_value(name, "CodeableConcept")? {
            None => Ok(None),
            Some(Value::CodeableConcept(concept)) => Ok(Some(concept)),
            Some(_) => Err(malformed(name, "it must be sent as valueCodeableConcept")),
        }
    }

    /// Returns the resources in the parameters of this name.
    ///
    /// # Errors
    /// Returns [`TxError`] if one is in a query string or is not a resource.
    pub(crate) fn resources(&self, name: &str) -> Result<Vec<&'a RawValue>, TxError> {
        let resource = |parameter: &'a Parameter| match &parameter.value {
            Some(Value::Resource(json)) => Ok(&**json),
            _ if !self.typed => Err(needs_body(name, "resource")),
            _ => Err(malformed(name, "it must be sent as resource")),
        };
        self.parameters_named(name).map(resource).collect()
    }

    fn typed_value(&self, name: &str, kind: &str) -> Result<Option<&'a Value>, TxError> {
        if !self.typed && self.has(name) {
            return Err(needs_body(name, kind));
        }
        self.single_value(name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_no_types_and_a_body_has() {
        let query = Parameters::from_query("abstract=true&lenient=yes&code=x&coding=y&empty=&two=1&two=2");
        let query = OperationInput::from_query(&query);
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
        let body = OperationInput::from_body(&body);
        for (error, why) in [
            (body.boolean("abstract").unwrap_err(), "must be sent as valueBoolean"),
            (body.text("code").unwrap_err(), "must be a text"),
            (body.coding("coding").unwrap_err(), "must be sent as valueCoding"),
            (body.resources("coding").unwrap_err(), "must be sent as resource"),
        ] {
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
