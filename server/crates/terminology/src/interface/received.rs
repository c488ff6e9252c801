//! The parameters of an operation as a request contains them, and which forms of a request are accepted (FHIR
//! R4, operations, executing an operation synchronously).

use fhir::{IssueCode, Parameters, Value};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{OperationInput, TerminologyOperation, parameters};

/// The parameters of a request, not parsed.
#[derive(Debug, Clone, Copy)]
pub enum ReceivedParameters<'a> {
    /// The query of a GET.
    Query(&'a str),
    /// The body of a POST: Parameters, or one resource. Only with the latter, the other parameters are in the
    /// query.
    Body {
        /// The body.
        body: &'a [u8],
        /// The query of its URL.
        query: &'a str,
    },
}

/// The parameters of a request.
#[derive(Debug)]
pub struct ParsedParameters {
    parameters: Parameters,
    /// `true` if each value has its type, as in Parameters.
    typed: bool,
}

/// The reason why the parameters of a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedFault {
    /// The body is not a Parameters resource, nor a resource of a type for which the operation has a
    /// parameter.
    Body(String),
    /// A parameter is in the URL although the body contains Parameters.
    InUrl(String),
}

impl ReceivedFault {
    /// The type of the issue in an OperationOutcome.
    pub fn code(&self) -> IssueCode {
        match self {
            Self::Body(_) => IssueCode::Structure,
            Self::InUrl(_) => IssueCode::Invalid,
        }
    }

    /// Describes the fault. `body` names the body, such as `the body`.
    pub fn text(&self, body: &str) -> String {
        match self {
            Self::Body(reason) => format!("{body} is not a Parameters resource: {reason}"),
            Self::InUrl(name) => format!(
                "parameter '{name}' is in the URL of a POST, where it would be ignored; send it in the Parameters of {body}, or use GET"
            ),
        }
    }
}

impl ReceivedParameters<'_> {
    /// Length in bytes.
    pub fn length(self) -> usize {
        match self {
            Self::Query(query) => query.len(),
            Self::Body { body, query } => body.len() + query.len(),
        }
    }

    /// Parses the parameters of an operation.
    ///
    /// ```
    /// use trefoil_terminology::{ReceivedParameters, TerminologyOperation};
    ///
    /// let body = br#"{"resourceType": "ValueSet"}"#;
    /// let received = ReceivedParameters::Body { body, query: "count=1" };
    /// assert!(received.parse(TerminologyOperation::Expand).is_ok());
    /// assert!(received.parse(TerminologyOperation::Subsumes).is_err());
    /// ```
    ///
    /// # Errors
    /// [`ReceivedFault`] if the body has another form, or if a parameter in the URL would be ignored.
    pub fn parse(self, operation: TerminologyOperation) -> Result<ParsedParameters, ReceivedFault> {
        let (body, query) = match self {
            Self::Query(query) => {
                return Ok(ParsedParameters { parameters: Parameters::from_query(query), typed: false });
            }
            Self::Body { body, query } => (body, query),
        };
        let reason = match Parameters::from_json(body) {
            Ok(parameters) => {
                let in_url = Parameters::from_query(query).parameter.into_iter();
                let is_ours = |name: &str| parameters::of_operation(operation).any(|row| row.name == name);
                return match in_url.map(|parameter| parameter.name).find(|name| is_ours(name)) {
                    Some(name) => Err(ReceivedFault::InUrl(name.into_owned())),
                    None => Ok(ParsedParameters { parameters, typed: true }),
                };
            }
            Err(reason) => reason,
        };
        let (name, resource) = lone_resource(operation, body).ok_or(ReceivedFault::Body(reason))?;
        let mut parameters = Parameters::from_query(query);
        parameters.push(name, Value::Resource(resource));
        Ok(ParsedParameters { parameters, typed: false })
    }
}

impl ParsedParameters {
    /// The input of the operation.
    pub fn input(&self) -> OperationInput<'_> {
        match self.typed {
            true => OperationInput::from_body(&self.parameters),
            false => OperationInput::from_query(&self.parameters),
        }
    }
}

/// The resource of a body that is not Parameters, with the name of the parameter of its type.
fn lone_resource(operation: TerminologyOperation, body: &[u8]) -> Option<(&'static str, Box<RawValue>)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head<'a> {
        #[serde(borrow)]
        resource_type: fhir::Text<'a>,
    }
    let head: Head<'_> = serde_json::from_slice(body).ok()?;
    let mut rows = parameters::of_operation(operation);
    let row = rows.find(|row| row.fhir_type == &*head.resource_type && !row.repeats)?;
    Some((row.name, serde_json::from_slice(body).ok()?))
}
