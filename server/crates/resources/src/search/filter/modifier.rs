//! The modifiers of search parameters (FHIR R4, search, modifiers).

use fhir::search_parameters::ValueComparison::{self, Date, Number, Quantity, Reference, String, Token, Uri};

/// All kinds of parameters.
const ALL: &[ValueComparison] = &[Date, Number, Quantity, Reference, String, Token, Uri];

/// Declares the modifiers: name, and the kinds of parameters that have it. What the modifier does to the
/// values, to the test of a resource and to the index are matches, each of which needs an arm for it.
macro_rules! search_modifiers {
    ($($(#[doc = $meaning:literal])+ $variant:ident = $name:literal for $comparisons:expr;)+) => {
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
        }
    };
}

search_modifiers! {
    /// The resource has no value (`true`), or one (`false`).
    Missing = "missing" for ALL;
    /// The resource has none of the values.
    Not = "not" for &[Token];
    /// The text is the value, with the same case and accents.
    Exact = "exact" for &[String];
    /// The text contains the value.
    Contains = "contains" for &[String];
}
