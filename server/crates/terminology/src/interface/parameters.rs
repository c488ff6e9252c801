//! The parameters of the operations, one row each. A parameter that means different things in two operations
//! has two rows. Names that are not in a row of the operation are ignored.

use super::operations::TerminologyOperation::{
    self, BatchValidateCode, BatchValidateCodeInSystem, Expand, Lookup, Subsumes, Translate, ValidateCode,
    ValidateCodeInSystem,
};

/// A row of the table of parameters.
#[derive(Debug)]
pub struct ParameterRow {
    /// Name in the request.
    pub name: &'static str,
    /// Type in FHIR. Any primitive that is a JSON string is accepted for another one, because clients differ
    /// in the one they send.
    pub fhir_type: &'static str,
    /// Whether the parameter can occur more than once.
    pub repeats: bool,
    /// Operations that accept it.
    pub operations: &'static [TerminologyOperation],
    /// Whether a request with this parameter follows the rules of HL7's terminology ecosystem, where they
    /// differ from those of FHIR R4.
    pub ecosystem: bool,
    /// How `$expand` repeats the parameter in `expansion.parameter`.
    pub in_expansion: InExpansion,
    /// The effect of the parameter, as one or more sentences.
    pub meaning: &'static str,
}

/// How `$expand` repeats a parameter of the request in `expansion.parameter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InExpansion {
    /// Not at all. An effect is shown in another way.
    Omitted,
    /// With this type, as in the member name (`Boolean` in `valueBoolean`).
    Repeated(&'static str),
    /// As a `uri`, if it determined a version.
    RepeatedIfUsed,
}

impl ParameterRow {
    /// The columns that a row can leave out.
    const DEFAULT: Self = Self {
        name: "",
        fhir_type: "",
        repeats: false,
        operations: &[],
        ecosystem: false,
        in_expansion: InExpansion::Omitted,
        meaning: "",
    };

    /// Returns whether a body is required, because a query cannot contain the value.
    pub fn needs_body(&self) -> bool {
        matches!(
            self.fhir_type,
            "Coding"
                | "CodeableConcept"
                | "Resource"
                | "ValueSet"
                | "CodeSystem"
                | "ConceptMap"
                | "Parameters"
                | "parts"
        )
    }

    /// Returns whether an operation accepts the parameter. A batch accepts those of its items, as their
    /// defaults.
    pub fn is_accepted_by(&self, operation: TerminologyOperation) -> bool {
        let accepts = |operation| self.operations.contains(&operation);
        accepts(operation) || operation.item_operation().is_some_and(accepts)
    }
}

/// Declares the types that stand for a row and fix how its value is read, so that reading it in another way
/// does not compile.
macro_rules! handles {
    ($($(#[doc = $meaning:literal])+ $handle:ident($repeats:literal);)+) => {
        $($(#[doc = $meaning])+
        #[derive(Debug, Clone, Copy)]
        pub struct $handle(pub(super) &'static ParameterRow);

        impl $handle {
            const REPEATS: bool = $repeats;

            /// Returns the row of the parameter.
            pub const fn row(self) -> &'static ParameterRow {
                self.0
            }
        })+
    };
}

handles! {
    /// A parameter that is text in JSON.
    Text(false);
    /// A parameter that is text in JSON and can occur more than once.
    Texts(true);
    /// A parameter of type `boolean`.
    Boolean(false);
    /// A parameter of type `integer` that is not negative.
    Integer(false);
    /// A parameter of type `Coding`.
    OneCoding(false);
    /// A parameter of type `CodeableConcept`.
    OneConcept(false);
    /// A parameter that is a resource.
    OneResource(false);
    /// A parameter that is a resource and can occur more than once.
    Resources(true);
    /// A parameter that consists of parts and can occur more than once.
    Parts(true);
}

/// Declares the rows. A row is a constant of a handle type, with the columns of [`ParameterRow`].
macro_rules! parameters {
    ($($(#[doc = $meaning:literal])+ $parameter:ident: $handle:ident { $($column:ident: $value:expr),+ $(,)? })+) => {
        $($(#[doc = $meaning])+
        #[allow(clippy::needless_update, reason = "only rows with all columns need no defaults")]
        pub const $parameter: $handle = $handle(&ParameterRow {
            $($column: $value,)+
            repeats: $handle::REPEATS,
            meaning: concat!($($meaning),+),
            ..ParameterRow::DEFAULT
        });)+

        /// All rows, in the order of the table.
        pub const ALL: &[&ParameterRow] = &[$($parameter.0),+];
    };
}

const EVERY_OPERATION: &[TerminologyOperation] = TerminologyOperation::ALL;
const VALIDATIONS: &[TerminologyOperation] = &[ValidateCode, ValidateCodeInSystem];
const VERSIONED: &[TerminologyOperation] = &[ValidateCode, ValidateCodeInSystem, Expand];

parameters! {
    /// Canonical URL of the value set, with or without `|version`. `#id` names a value set that `valueSet`
    /// contains. Ignored if the operation is called on an instance.
    VALUE_SET_URL: Text {
        name: "url",
        fhir_type: "uri",
        operations: &[ValidateCode, Expand],
    }
    /// Canonical URL of the code system, with or without `|version`. Ignored if the operation is called on an
    /// instance.
    CODE_SYSTEM_URL: Text {
        name: "url",
        fhir_type: "uri",
        operations: &[ValidateCodeInSystem],
    }
    /// The value set itself, instead of its URL.
    VALUE_SET: OneResource {
        name: "valueSet",
        fhir_type: "ValueSet",
        operations: &[ValidateCode, Expand],
    }
    /// Version of the value set.
    VALUE_SET_VERSION: Text {
        name: "valueSetVersion",
        fhir_type: "string",
        operations: &[ValidateCode, Expand],
    }
    /// The code system itself, instead of its URL.
    CODE_SYSTEM: OneResource {
        name: "codeSystem",
        fhir_type: "CodeSystem",
        operations: &[ValidateCodeInSystem],
    }
    /// Element whose required binding names the value set, such as `Observation.status`, if there is no
    /// `url`.
    CONTEXT: Text {
        name: "context",
        fhir_type: "uri",
        operations: &[ValidateCode, Expand],
    }
    /// The code. One of `code`, `coding` and `codeableConcept` is required.
    CODE: Text {
        name: "code",
        fhir_type: "code",
        operations: &[ValidateCode, ValidateCodeInSystem, Lookup, Translate],
    }
    /// Canonical URL of the code system of `code`, with or without `|version`. Required with `code`, unless
    /// `inferSystem` or `context` is sent.
    CODE_SYSTEM_OF_CODE: Text {
        name: "system",
        fhir_type: "uri",
        operations: &[ValidateCode],
    }
    /// Another name of `url`.
    CODE_SYSTEM_ALIAS: Text {
        name: "system",
        fhir_type: "uri",
        operations: &[ValidateCodeInSystem],
    }
    /// Canonical URL of the code system. Required with `code`.
    LOOKUP_SYSTEM: Text {
        name: "system",
        fhir_type: "uri",
        operations: &[Lookup],
    }
    /// Canonical URL of the code system. Required unless the operation is called on an instance, of which it
    /// must be the URL.
    SUBSUMES_SYSTEM: Text {
        name: "system",
        fhir_type: "uri",
        operations: &[Subsumes],
    }
    /// Version of the code system of `code`.
    SYSTEM_VERSION_OF_CODE: Text {
        name: "systemVersion",
        fhir_type: "string",
        operations: &[ValidateCode],
    }
    /// Version of the code system. On an instance, it must be the version of the instance.
    VERSION: Text {
        name: "version",
        fhir_type: "string",
        operations: &[ValidateCodeInSystem, Lookup, Subsumes],
    }
    /// Text that must be a display of the code.
    DISPLAY: Text {
        name: "display",
        fhir_type: "string",
        operations: VALIDATIONS,
    }
    /// The code with its system, version and display.
    CODING: OneCoding {
        name: "coding",
        fhir_type: "Coding",
        operations: &[ValidateCode, ValidateCodeInSystem, Lookup, Translate],
    }
    /// Several codes. One must be valid, or all that can be are translated.
    CODEABLE_CONCEPT: OneConcept {
        name: "codeableConcept",
        fhir_type: "CodeableConcept",
        operations: &[ValidateCode, ValidateCodeInSystem, Translate],
    }
    /// Canonical URL of the concept map, with or without `|version`, or `http://snomed.info/sct?fhir_cm=ID`
    /// for a map of SNOMED CT. Without it, all maps between the requested value sets and systems are used.
    /// Ignored if the operation is called on an instance.
    CONCEPT_MAP_URL: Text {
        name: "url",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// The concept map itself, instead of its URL.
    CONCEPT_MAP: OneResource {
        name: "conceptMap",
        fhir_type: "ConceptMap",
        operations: &[Translate],
    }
    /// Version of the concept map.
    CONCEPT_MAP_VERSION: Text {
        name: "conceptMapVersion",
        fhir_type: "string",
        operations: &[Translate],
    }
    /// Version of the code system of `code`, `sourceCode` or `targetCode`. Groups of a map for another
    /// version are not used.
    TRANSLATE_VERSION: Text {
        name: "version",
        fhir_type: "string",
        operations: &[Translate],
    }
    /// Canonical URL of the code system of the code. Required with `code`, `sourceCode` and `targetCode`.
    TRANSLATE_SYSTEM: Text {
        name: "system",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Another name of `system`, the code system of the given code.
    SOURCE_SYSTEM: Text {
        name: "sourceSystem",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Value set that the map is from; with `reverse`, the one that it leads to.
    MAP_SOURCE: Text {
        name: "source",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Value set that the map leads to; with `reverse`, the one that it is from.
    MAP_TARGET: Text {
        name: "target",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Code system of the translations.
    TARGET_SYSTEM_R4: Text {
        name: "targetsystem",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Value of another element on which a translation depends, in the parts `element` and `concept`. A
    /// translation with a dependency is returned only if the request states its value.
    DEPENDENCY: Parts {
        name: "dependency",
        fhir_type: "parts",
        operations: &[Translate],
    }
    /// Whether the codes that lead to the code are returned. Default: false.
    REVERSE: Boolean {
        name: "reverse",
        fhir_type: "boolean",
        operations: &[Translate],
    }
    /// The code, as R5 names it. A request with a parameter of R5 is answered with `relationship` and
    /// `originMap`, instead of `equivalence` and `source`.
    SOURCE_CODE: Text {
        name: "sourceCode",
        fhir_type: "code",
        operations: &[Translate],
    }
    /// The code with its system, as R5 names it.
    SOURCE_CODING: OneCoding {
        name: "sourceCoding",
        fhir_type: "Coding",
        operations: &[Translate],
    }
    /// Several codes, as R5 names them.
    SOURCE_CODEABLE_CONCEPT: OneConcept {
        name: "sourceCodeableConcept",
        fhir_type: "CodeableConcept",
        operations: &[Translate],
    }
    /// A code that the map leads to, for the reverse direction, as R5 names it.
    TARGET_CODE: Text {
        name: "targetCode",
        fhir_type: "code",
        operations: &[Translate],
    }
    /// A code that the map leads to with its system, for the reverse direction, as R5 names it.
    TARGET_CODING: OneCoding {
        name: "targetCoding",
        fhir_type: "Coding",
        operations: &[Translate],
    }
    /// Several codes that the map leads to, for the reverse direction, as R5 names them.
    TARGET_CODEABLE_CONCEPT: OneConcept {
        name: "targetCodeableConcept",
        fhir_type: "CodeableConcept",
        operations: &[Translate],
    }
    /// Value set that the map is from, as R5 names it. `reverse` does not change its meaning.
    SOURCE_SCOPE: Text {
        name: "sourceScope",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Value set that the map leads to, as R5 names it. `reverse` does not change its meaning.
    TARGET_SCOPE: Text {
        name: "targetScope",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// Code system that the map leads to, as R5 names it.
    TARGET_SYSTEM: Text {
        name: "targetSystem",
        fhir_type: "uri",
        operations: &[Translate],
    }
    /// The first code. Both codes, or both codings, are required.
    CODE_A: Text {
        name: "codeA",
        fhir_type: "code",
        operations: &[Subsumes],
    }
    /// The second code.
    CODE_B: Text {
        name: "codeB",
        fhir_type: "code",
        operations: &[Subsumes],
    }
    /// The first code, with its system.
    CODING_A: OneCoding {
        name: "codingA",
        fhir_type: "Coding",
        operations: &[Subsumes],
    }
    /// The second code, with its system.
    CODING_B: OneCoding {
        name: "codingB",
        fhir_type: "Coding",
        operations: &[Subsumes],
    }
    /// Day, or time of which the day counts: of each code system and value set without a requested version,
    /// the latest version of this day or earlier is used.
    DATE: Text {
        name: "date",
        fhir_type: "dateTime",
        operations: &[ValidateCode, ValidateCodeInSystem, Expand, Lookup],
        in_expansion: InExpansion::Repeated("DateTime"),
    }
    /// Whether abstract codes are accepted. Default: true.
    ABSTRACT: Boolean {
        name: "abstract",
        fhir_type: "boolean",
        operations: VALIDATIONS,
    }
    /// Languages of displays, in the form of `Accept-Language`, which it replaces.
    DISPLAY_LANGUAGE: Text {
        name: "displayLanguage",
        fhir_type: "code",
        operations: &[ValidateCode, ValidateCodeInSystem, Expand, Lookup, Translate],
        in_expansion: InExpansion::Repeated("Code"),
    }
    /// Words in any order. Each must begin a word of the code, the display or a designation. Case, accents
    /// and widths do not matter.
    FILTER: Text {
        name: "filter",
        fhir_type: "string",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("String"),
    }
    /// Number of codes to skip.
    OFFSET: Integer {
        name: "offset",
        fhir_type: "integer",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Integer"),
    }
    /// Maximum number of codes in the answer. 0 returns only the total.
    COUNT: Integer {
        name: "count",
        fhir_type: "integer",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Integer"),
    }
    /// Whether inactive codes are left out. Default: false.
    ACTIVE_ONLY: Boolean {
        name: "activeOnly",
        fhir_type: "boolean",
        operations: VERSIONED,
        ecosystem: true,
        in_expansion: InExpansion::Repeated("Boolean"),
    }
    /// Whether the codes are a flat list. Default: false, but a page is always flat.
    EXCLUDE_NESTED: Boolean {
        name: "excludeNested",
        fhir_type: "boolean",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Boolean"),
    }
    /// Whether abstract codes, which a user interface shows but does not let select, are left out. Default:
    /// false.
    EXCLUDE_NOT_FOR_UI: Boolean {
        name: "excludeNotForUI",
        fhir_type: "boolean",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Boolean"),
    }
    /// Whether post-coordinated expressions are left out. Default: false.
    EXCLUDE_POST_COORDINATED: Boolean {
        name: "excludePostCoordinated",
        fhir_type: "boolean",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Boolean"),
    }
    /// Whether the codes have their designations. Default: false, or true with `designation`.
    INCLUDE_DESIGNATIONS: Boolean {
        name: "includeDesignations",
        fhir_type: "boolean",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Boolean"),
    }
    /// Designations to include: a range of languages (`de`), a language (`urn:ietf:bcp:47|de`) or a use
    /// (`system|code`).
    DESIGNATION: Texts {
        name: "designation",
        fhir_type: "string",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("String"),
    }
    /// Whether the answer has the definition of the value set. Default: false.
    INCLUDE_DEFINITION: Boolean {
        name: "includeDefinition",
        fhir_type: "boolean",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Boolean"),
    }
    /// Properties that the codes have in `expansion.contains`.
    EXPAND_PROPERTY: Texts {
        name: "property",
        fhir_type: "string",
        operations: &[Expand],
    }
    /// Properties to return; also `designation`, `lang.X`, `parent`, `child`, `definition`, and `*` for all.
    /// Default: all.
    LOOKUP_PROPERTY: Texts {
        name: "property",
        fhir_type: "code",
        operations: &[Lookup],
    }
    /// Code systems whose codes are left out, with or without `|version`.
    EXCLUDE_SYSTEM: Texts {
        name: "exclude-system",
        fhir_type: "canonical",
        operations: &[Expand],
        in_expansion: InExpansion::Repeated("Uri"),
    }
    /// Supplements whose designations and properties are used, as canonical URLs.
    USE_SUPPLEMENT: Texts {
        name: "useSupplement",
        fhir_type: "canonical",
        operations: &[ValidateCode, ValidateCodeInSystem, Expand, Lookup],
        ecosystem: true,
    }
    /// Version of a code system, as `url|version`, where the request and the value set name none.
    DEFAULT_SYSTEM_VERSION: Texts {
        name: "system-version",
        fhir_type: "canonical",
        operations: VERSIONED,
        ecosystem: true,
        in_expansion: InExpansion::RepeatedIfUsed,
    }
    /// Version that a code system must have, as `url|version`. Another one is an error.
    CHECK_SYSTEM_VERSION: Texts {
        name: "check-system-version",
        fhir_type: "canonical",
        operations: VERSIONED,
        ecosystem: true,
        in_expansion: InExpansion::RepeatedIfUsed,
    }
    /// Version of a code system, as `url|version`, in place of the one in the request or value set.
    FORCE_SYSTEM_VERSION: Texts {
        name: "force-system-version",
        fhir_type: "canonical",
        operations: VERSIONED,
        ecosystem: true,
        in_expansion: InExpansion::RepeatedIfUsed,
    }
    /// Version of a value set, as `url|version`, where the request and the importing value set name none.
    DEFAULT_VALUE_SET_VERSION: Texts {
        name: "default-valueset-version",
        fhir_type: "canonical",
        operations: VERSIONED,
        ecosystem: true,
        in_expansion: InExpansion::RepeatedIfUsed,
    }
    /// Whether a code without `system` is taken from the one code system of the value set that has it.
    /// Default: false.
    INFER_SYSTEM: Boolean {
        name: "inferSystem",
        fhir_type: "boolean",
        operations: VALIDATIONS,
        ecosystem: true,
    }
    /// Whether a wrong display is a warning instead of an error. Default: false.
    LENIENT_DISPLAY_VALIDATION: Boolean {
        name: "lenient-display-validation",
        fhir_type: "boolean",
        operations: VALIDATIONS,
        ecosystem: true,
    }
    /// Whether only membership is tested, and not the display. Default: false.
    MEMBERSHIP_ONLY: Boolean {
        name: "valueset-membership-only",
        fhir_type: "boolean",
        operations: VALIDATIONS,
        ecosystem: true,
    }
    /// A code to validate, as a Parameters resource. An item takes the parameters that it does not have from
    /// the batch.
    VALIDATION: Resources {
        name: "validation",
        fhir_type: "Parameters",
        operations: &[BatchValidateCode, BatchValidateCodeInSystem],
    }
    /// CodeSystems and ValueSets that this request can use besides the stored ones.
    TX_RESOURCE: Resources {
        name: "tx-resource",
        fhir_type: "Resource",
        operations: EVERY_OPERATION,
        ecosystem: true,
    }
    /// Keeps the resources of `tx-resource` for later requests of the same caller with the same value.
    CACHE_ID: Text {
        name: "cache-id",
        fhir_type: "id",
        operations: EVERY_OPERATION,
        ecosystem: true,
    }
    /// Identifier of the request. It only selects the rules of the ecosystem.
    UUID: Text {
        name: "uuid",
        fhir_type: "string",
        operations: VERSIONED,
        ecosystem: true,
    }
}

/// Returns the rows of an operation, in the order of the table.
pub fn of_operation(operation: TerminologyOperation) -> impl Iterator<Item = &'static ParameterRow> {
    ALL.iter().copied().filter(move |row| row.operations.contains(&operation))
}

/// Returns the names for `TerminologyCapabilities.expansion.parameter`: the parameters of `$expand`, sorted.
/// HL7's validator looks for `cache-id` in it before it sends one.
pub fn expand_parameter_names() -> Vec<&'static str> {
    let mut names: Vec<_> = of_operation(Expand).map(|row| row.name).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_row_in_each_operation() {
        for &operation in TerminologyOperation::ALL {
            let mut names: Vec<_> = of_operation(operation).map(|row| row.name).collect();
            assert!(!names.is_empty(), "{operation:?}");
            names.sort_unstable();
            assert!(names.is_sorted_by(|a, b| a < b), "{operation:?} accepts a name twice: {names:?}");
        }
    }

    #[test]
    fn a_row_is_complete() {
        for row in ALL {
            assert!(
                !row.name.is_empty() && !row.fhir_type.is_empty() && !row.operations.is_empty(),
                "{row:?}"
            );
            assert!(row.meaning.ends_with('.'), "{row:?}");
        }
    }
}
