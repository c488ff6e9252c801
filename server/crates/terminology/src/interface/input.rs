//! The parameters of a request before validation.
//!
//! A query string has no types: every value is text, so "true" may be a boolean, and a Coding cannot be sent.
//! A body has types, and a value of another type is rejected. [`OperationInput`] records which of the two the
//! parameters are from; no other code depends on it.

use std::collections::HashMap;

use fhir::{CodeableConcept, Coding, Parameter, Parameters, Value};
use serde_json::value::RawValue;

use super::operations::TerminologyOperation;
use super::parameters::{
    self, Boolean, Integer, OneCoding, OneConcept, OneResource, ParameterRow, Parts, Resources, Text, Texts,
};
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
    /// The operation, from the time at which it runs. Reading a parameter that it does not accept is a fault.
    operation: Option<TerminologyOperation>,
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
            operation: None,
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

    /// Sets the number of codes above which the caller wants no expansion. It can only lower the limit of the
    /// server.
    #[must_use]
    pub fn expansion_limit(mut self, limit: Option<usize>) -> Self {
        self.expansion_limit = limit;
        self
    }

    /// The limit that the caller set for the number of codes in an expansion.
    pub(crate) fn own_expansion_limit(&self) -> Option<usize> {
        self.expansion_limit
    }

    /// Sets the identity of the caller, in any stable form. Resources under a `cache-id` belong to one
    /// caller.
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

    /// The budget, if one was set.
    pub(crate) fn own_budget(&self) -> Option<&'a Budget<'a>> {
        self.budget
    }

    pub(crate) fn caller_name(&self) -> &'a str {
        self.caller
    }

    /// The input with the parameters of one item of a batch. For a name that the item does not have, the
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

    /// The header `Accept-Language`.
    pub(crate) fn header_languages(&self) -> Option<&'a str> {
        self.accept_language
    }

    /// The input of an operation that starts.
    pub(crate) fn for_operation(self, operation: TerminologyOperation) -> Self {
        Self { operation: Some(operation), ..self }
    }

    fn parameters_of(&self, row: &'static ParameterRow) -> impl Iterator<Item = &'a Parameter> + use<'a> {
        debug_assert!(
            self.operation.is_none_or(|operation| row.is_accepted_by(operation)),
            "{:?} has no row for '{}'",
            self.operation,
            row.name
        );
        self.parameters_named(row.name)
    }

    fn parameters_named(&self, name: &'static str) -> impl Iterator<Item = &'a Parameter> + use<'a> {
        let own = move |list: &'a Parameters| list.parameter.iter().filter(move |p| p.name == name);
        let shared = self.shared.filter(|_| own(self.parameters).next().is_none());
        let shared = shared.and_then(|shared| shared.0.get(name)).map_or(&[][..], Vec::as_slice);
        own(self.parameters).chain(shared.iter().copied())
    }

    /// The value of a parameter that must not be repeated.
    fn single_value(&self, row: &'static ParameterRow) -> Result<Option<&'a Value>, TxError> {
        let mut all = self.parameters_of(row);
        let Some(first) = all.next() else { return Ok(None) };
        if all.next().is_some() {
            return Err(malformed(row.name, "it occurs more than once; send it once"));
        }
        first.value.as_ref().map(Some).ok_or_else(|| malformed(row.name, "it has no value"))
    }

    /// Returns whether the request has the parameter.
    pub(crate) fn has(&self, row: &'static ParameterRow) -> bool {
        self.parameters_of(row).next().is_some()
    }

    /// Returns whether the request uses HL7's terminology ecosystem: whether it has any of its parameters,
    /// even one that this operation ignores.
    pub(crate) fn is_of_ecosystem(&self) -> bool {
        let mut rows = parameters::ALL.iter().filter(|row| row.ecosystem);
        rows.any(|row| self.parameters_named(row.name).next().is_some())
    }

    /// A parameter whose type is a JSON string (`uri`, `code`, `string`, …). Any of these types is accepted,
    /// because clients differ in the one they send.
    ///
    /// # Errors
    /// [`TxError`] if the parameter is repeated, empty, or of another type.
    pub(crate) fn text(&self, parameter: Text) -> Result<Option<&'a str>, TxError> {
        let row = parameter.row();
        self.single_value(row)?.map(|value| as_text(row.name, value)).transpose()
    }

    /// The values of a text parameter that may be repeated.
    ///
    /// # Errors
    /// [`TxError`] if a value is empty or of another type.
    pub(crate) fn texts(&self, parameter: Texts) -> Result<Vec<&'a str>, TxError> {
        let row = parameter.row();
        let value = |parameter: &'a Parameter| match &parameter.value {
            Some(value) => as_text(row.name, value),
            None => Err(malformed(row.name, "it has no value")),
        };
        self.parameters_of(row).map(value).collect()
    }

    /// A `boolean` parameter.
    ///
    /// # Errors
    /// [`TxError`] if the parameter is repeated or not a boolean. A body must send it as `valueBoolean`.
    pub(crate) fn boolean(&self, parameter: Boolean) -> Result<Option<bool>, TxError> {
        let row = parameter.row();
        match self.single_value(row)? {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(*value)),
            Some(Value::Text(_, text)) if !self.typed => match text.as_str() {
                "true" => Ok(Some(true)),
                "false" => Ok(Some(false)),
                _ => Err(malformed(row.name, format!("'{text}' is not true or false"))),
            },
            Some(_) => Err(malformed(row.name, "it must be sent as valueBoolean")),
        }
    }

    /// Returns whether a `boolean` parameter is true. Its default is false.
    ///
    /// # Errors
    /// See [`OperationInput::boolean`].
    pub(crate) fn flag(&self, parameter: Boolean) -> Result<bool, TxError> {
        Ok(self.boolean(parameter)?.unwrap_or(false))
    }

    /// An `integer` parameter that must not be negative.
    ///
    /// # Errors
    /// [`TxError`] if the parameter is repeated, negative, or not an integer.
    pub(crate) fn number(&self, parameter: Integer) -> Result<Option<usize>, TxError> {
        let row = parameter.row();
        let number = match self.single_value(row)? {
            None => return Ok(None),
            Some(Value::Number(_, number)) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
            Some(Value::Text(_, text)) if !self.typed => text.parse().ok(),
            Some(_) => None,
        };
        // The data type `integer` has 32 bits (FHIR R4, data types).
        let number = number.filter(|&number| i32::try_from(number).is_ok());
        let reason = "it must be an integer from 0 to 2147483647";
        number.map(Some).ok_or_else(|| malformed(row.name, reason))
    }

    /// All parameters in the order of the request.
    pub(crate) fn all_parameters(&self) -> &'a [Parameter] {
        &self.parameters.parameter
    }

    /// A `Coding` parameter.
    ///
    /// # Errors
    /// [`TxError`] if the parameter is repeated, in a query string, or of another type.
    pub(crate) fn coding(&self, parameter: OneCoding) -> Result<Option<&'a Coding>, TxError> {
        let row = parameter.row();
        match self.typed_value(row)? {
            None => Ok(None),
            Some(Value::Coding(coding)) => Ok(Some(coding)),
            Some(_) => Err(malformed(row.name, "it must be sent as valueCoding")),
        }
    }

    /// A `CodeableConcept` parameter.
    ///
    /// # Errors
    /// [`TxError`] if the parameter is repeated, in a query string, or of another type.
    pub(crate) fn codeable_concept(
        &self,
        parameter: OneConcept,
    ) -> Result<Option<&'a CodeableConcept>, TxError> {
        let row = parameter.row();
        match self.typed_value(row)? {
            None => Ok(None),
            Some(Value::CodeableConcept(concept)) => Ok(Some(concept)),
            Some(_) => Err(malformed(row.name, "it must be sent as valueCodeableConcept")),
        }
    }

    /// A resource that must not be repeated.
    ///
    /// # Errors
    /// [`TxError`] if it is repeated, in a query string, or not a resource.
    pub(crate) fn resource(&self, parameter: OneResource) -> Result<Option<&'a RawValue>, TxError> {
        let row = parameter.row();
        match self.resources_of(row)?.as_slice() {
            [] => Ok(None),
            [json] => Ok(Some(*json)),
            _ => Err(malformed(row.name, format!("it occurs more than once; send one {}", row.fhir_type))),
        }
    }

    /// Returns resources that may be repeated.
    ///
    /// # Errors
    /// [`TxError`] if one is in a query string or is not a resource.
    pub(crate) fn resources(&self, parameter: Resources) -> Result<Vec<&'a RawValue>, TxError> {
        self.resources_of(parameter.row())
    }

    /// Parameters that consist of parts.
    ///
    /// # Errors
    /// [`TxError`] if one is in a query string.
    pub(crate) fn parts(&self, parameter: Parts) -> Result<Vec<&'a Parameter>, TxError> {
        let row = parameter.row();
        if !self.typed && self.has(row) {
            return Err(needs_body(row.name, "parameter with parts"));
        }
        Ok(self.parameters_of(row).collect())
    }

    fn resources_of(&self, row: &'static ParameterRow) -> Result<Vec<&'a RawValue>, TxError> {
        let resource = |parameter: &'a Parameter| match &parameter.value {
            Some(Value::Resource(json)) => Ok(&**json),
            _ if !self.typed => Err(needs_body(row.name, "resource")),
            _ => Err(malformed(row.name, "it must be sent as resource")),
        };
        self.parameters_of(row).map(resource).collect()
    }

    fn typed_value(&self, row: &'static ParameterRow) -> Result<Option<&'a Value>, TxError> {
        if !self.typed && self.has(row) {
            return Err(needs_body(row.name, row.fhir_type));
        }
        self.single_value(row)
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
    use super::parameters::{
        ABSTRACT, CODE, CODING, DISPLAY, FILTER, LENIENT_DISPLAY_VALIDATION, TX_RESOURCE, UUID,
    };
    use super::*;

    #[test]
    fn a_query_has_no_types_and_a_body_has() {
        let query = Parameters::from_query(
            "abstract=true&lenient-display-validation=yes&code=x&coding=y&display=&filter=1&filter=2",
        );
        let query = OperationInput::from_query(&query);
        assert_eq!(query.boolean(ABSTRACT), Ok(Some(true)));
        assert_eq!(query.text(CODE), Ok(Some("x")));
        assert_eq!(query.text(UUID), Ok(None));
        for (error, reason) in [
            (query.boolean(LENIENT_DISPLAY_VALIDATION).unwrap_err(), "'yes' is not true or false"),
            (query.coding(CODING).unwrap_err(), "a Coding cannot be sent in a query string"),
            (query.text(DISPLAY).unwrap_err(), "it is empty"),
            (query.text(FILTER).unwrap_err(), "more than once"),
        ] {
            assert!(error.to_string().contains(reason), "{error}");
        }

        let mut body = Parameters::new();
        body.push_string("abstract", "true");
        body.push_boolean("code", true);
        body.push_code("coding", "x");
        body.push_code("tx-resource", "x");
        let body = OperationInput::from_body(&body);
        for (error, reason) in [
            (body.boolean(ABSTRACT).unwrap_err(), "must be sent as valueBoolean"),
            (body.text(CODE).unwrap_err(), "must be a text"),
            (body.coding(CODING).unwrap_err(), "must be sent as valueCoding"),
            (body.resources(TX_RESOURCE).unwrap_err(), "must be sent as resource"),
        ] {
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
