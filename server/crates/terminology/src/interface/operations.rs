//! The operations, one row each. The routes of the server, its CapabilityStatement and
//! `server/docs/interface` follow from these rows.

/// HTTP methods with which an operation can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationMethods {
    /// GET with the parameters in the query, and POST with a Parameters resource.
    GetAndPost,
    /// POST only: a parameter is a resource, which a query cannot contain.
    Post,
}

/// A row of the table of operations.
#[derive(Debug)]
pub struct OperationRow {
    /// Resource type in the path. A token needs read access to it.
    pub resource_type: &'static str,
    /// Name without `$`.
    pub name: &'static str,
    /// Whether the operation can also be called on an instance, as in `ValueSet/ID/$expand`.
    pub on_instances: bool,
    /// Methods of HTTP.
    pub methods: OperationMethods,
    /// Canonical URL of the OperationDefinition, if one is published.
    pub definition: Option<&'static str>,
    /// The effect of the operation, as one sentence.
    pub meaning: &'static str,
}

/// Declares [`TerminologyOperation`], with one row of [`OperationRow`] for each operation.
macro_rules! operations {
    ($($(#[doc = $meaning:literal])+ $operation:ident { $($column:ident: $value:expr),+ $(,)? })+) => {
        /// An operation on terminology.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum TerminologyOperation {
            $($(#[doc = $meaning])+ $operation,)+
        }

        impl TerminologyOperation {
            /// All operations, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$operation),+];

            /// Returns the row of the operation.
            pub const fn row(self) -> &'static OperationRow {
                match self {
                    $(Self::$operation => &OperationRow { meaning: concat!($($meaning),+), $($column: $value),+ },)+
                }
            }
        }
    };
}

operations! {
    /// Tests whether a code is in a value set, and whether its display and version are correct.
    ValidateCode {
        resource_type: "ValueSet",
        name: "validate-code",
        on_instances: true,
        methods: OperationMethods::GetAndPost,
        definition: Some("http://hl7.org/fhir/OperationDefinition/ValueSet-validate-code"),
    }
    /// Validates several codes against value sets, each as `$validate-code` does.
    BatchValidateCode {
        resource_type: "ValueSet",
        name: "batch-validate-code",
        on_instances: false,
        methods: OperationMethods::Post,
        definition: None,
    }
    /// Lists the codes of a value set, or a page of them.
    Expand {
        resource_type: "ValueSet",
        name: "expand",
        on_instances: true,
        methods: OperationMethods::GetAndPost,
        definition: Some("http://hl7.org/fhir/OperationDefinition/ValueSet-expand"),
    }
    /// Tests whether a code is in a code system, and whether its display and version are correct.
    ValidateCodeInSystem {
        resource_type: "CodeSystem",
        name: "validate-code",
        on_instances: true,
        methods: OperationMethods::GetAndPost,
        definition: Some("http://hl7.org/fhir/OperationDefinition/CodeSystem-validate-code"),
    }
    /// Validates several codes against code systems, each as `$validate-code` does.
    BatchValidateCodeInSystem {
        resource_type: "CodeSystem",
        name: "batch-validate-code",
        on_instances: false,
        methods: OperationMethods::Post,
        definition: None,
    }
    /// Returns the texts and properties of one concept.
    Lookup {
        resource_type: "CodeSystem",
        name: "lookup",
        on_instances: false,
        methods: OperationMethods::GetAndPost,
        definition: Some("http://hl7.org/fhir/OperationDefinition/CodeSystem-lookup"),
    }
    /// Returns how two codes of a code system are related.
    Subsumes {
        resource_type: "CodeSystem",
        name: "subsumes",
        on_instances: true,
        methods: OperationMethods::GetAndPost,
        definition: Some("http://hl7.org/fhir/OperationDefinition/CodeSystem-subsumes"),
    }
    /// Returns the counterparts of a code by concept maps and by the maps of SNOMED CT.
    Translate {
        resource_type: "ConceptMap",
        name: "translate",
        on_instances: true,
        methods: OperationMethods::GetAndPost,
        definition: Some("http://hl7.org/fhir/OperationDefinition/ConceptMap-translate"),
    }
}

impl TerminologyOperation {
    /// Returns the operation at a path below the FHIR base, such as `ValueSet/fruit/$expand`, and the id of
    /// the instance in it.
    pub fn at_path(path: &str) -> Option<(Self, Option<&str>)> {
        let (target, name) = path.rsplit_once("/$")?;
        let (kind, id) = match target.split_once('/') {
            Some((kind, id)) => (kind, Some(id)),
            None => (target, None),
        };
        let is_called = |row: &OperationRow| {
            (row.resource_type, row.name) == (kind, name) && (id.is_none() || row.on_instances)
        };
        let operation = Self::ALL.iter().find(|operation| is_called(operation.row()))?;
        id.is_none_or(|id| !id.contains('/')).then_some((*operation, id))
    }

    /// Returns the operation that validates each item of a batch.
    pub fn item_operation(self) -> Option<Self> {
        match self {
            Self::BatchValidateCode => Some(Self::ValidateCode),
            Self::BatchValidateCodeInSystem => Some(Self::ValidateCodeInSystem),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_by_path() {
        use TerminologyOperation::{BatchValidateCode, Expand, ValidateCodeInSystem};
        for (path, expected) in [
            ("ValueSet/$expand", Some((Expand, None))),
            ("ValueSet/fruit/$expand", Some((Expand, Some("fruit")))),
            ("CodeSystem/$validate-code", Some((ValidateCodeInSystem, None))),
            ("ValueSet/$batch-validate-code", Some((BatchValidateCode, None))),
            ("ValueSet/fruit/$batch-validate-code", None),
            ("ValueSet/a/b/$expand", None),
            ("CodeSystem/$expand", None),
            ("$expand", None),
            ("ValueSet/expand", None),
        ] {
            assert_eq!(TerminologyOperation::at_path(path), expected, "{path}");
        }
    }
}
