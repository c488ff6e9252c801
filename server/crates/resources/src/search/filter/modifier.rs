//! The modifiers of search parameters (FHIR R4, search, modifiers).

use fhir::search_parameters::ValueComparison::{self, Date, Number, Quantity, Reference, String, Token, Uri};

/// All kinds of parameters.
const ALL: &[ValueComparison] = &[Date, Number, Quantity, Reference, String, Token, Uri];

/// The test of a resource by the values of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueTest {
    /// The resource has one of the values.
    OneOf,
    /// The resource has none of the values.
    NoneOf,
    /// The resource has any value (`false`) or none (`true`).
    Absence,
}

/// The comparison of a text with the value of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextComparison {
    /// The text begins with the value. Case and accents do not count.
    Beginning,
    /// The text contains the value. Case and accents do not count.
    Part,
    /// The text is the value.
    Whole,
}

/// The rules of a modifier, and those of a parameter without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModifierRules {
    pub test: ValueTest,
    pub texts: TextComparison,
    /// Whether every resource that the search finds has the terms of its values, as they are without a
    /// modifier.
    pub is_indexed: bool,
}

/// Declares the modifiers: the name, the kinds of parameters that have it, and its rules.
macro_rules! search_modifiers {
    ($($(#[doc = $meaning:literal])+ $variant:ident = $name:literal for $comparisons:expr => $rules:expr;)+) => {
        /// A modifier.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum SearchModifier {
            $($(#[doc = $meaning])+ $variant,)+
            /// References to resources of this type.
            Type(&'static str),
        }

        /// The names of all modifiers, without the types of resources.
        pub const NAMES: &[&str] = &[$($name),+];

        impl SearchModifier {
            /// The modifier with this name, if parameters of this kind have it.
            pub(super) fn named(name: &str, comparison: ValueComparison) -> Option<Self> {
                let rows: &[(&str, Self, &[ValueComparison])] =
                    &[$(($name, Self::$variant, $comparisons)),+];
                let is_named = |(own, _, fitting): &&(&str, Self, &[ValueComparison])| {
                    *own == name && fitting.contains(&comparison)
                };
                match rows.iter().find(is_named) {
                    Some((_, modifier, _)) => Some(*modifier),
                    None if comparison == Reference => fhir::resource_type(name).map(Self::Type),
                    None => None,
                }
            }

            /// The rules of the modifier.
            pub(crate) fn rules(self) -> ModifierRules {
                match self {
                    $(Self::$variant => $rules,)+
                    Self::Type(_) => PLAIN,
                }
            }
        }
    };
}

/// The rules without a modifier.
pub(crate) const PLAIN: ModifierRules =
    ModifierRules { test: ValueTest::OneOf, texts: TextComparison::Beginning, is_indexed: true };

search_modifiers! {
    /// The resource has no value (`true`), or one (`false`).
    Missing = "missing" for ALL => ModifierRules { test: ValueTest::Absence, is_indexed: false, ..PLAIN };
    /// The resource has none of the values.
    Not = "not" for &[Token] => ModifierRules { test: ValueTest::NoneOf, is_indexed: false, ..PLAIN };
    /// The text is the value, with the same case and accents.
    Exact = "exact" for &[String] => ModifierRules { texts: TextComparison::Whole, ..PLAIN };
    /// The text contains the value.
    Contains = "contains" for &[String] =>
        ModifierRules { texts: TextComparison::Part, is_indexed: false, ..PLAIN };
}
