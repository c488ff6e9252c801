//! The relation of a target to its source: the equivalences of R4, and the relationships of R5 in which they
//! are expressed.

/// Declares the equivalences: the code of R4, the relationship of R5, and the equivalence in the opposite
/// direction.
macro_rules! equivalences {
    ($($(#[doc = $meaning:literal])+ $name:ident $code:literal $relationship:literal $opposite:ident;)+) => {
        /// The equivalence of a target to its source (R4, ConceptMapEquivalence): "the target is … than the
        /// source".
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Equivalence {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Equivalence {
            const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The code of R4.
            pub(crate) fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// The relationship of R5 (ConceptMapRelationship).
            pub(crate) fn relationship(self) -> &'static str {
                match self {
                    $(Self::$name => $relationship,)+
                }
            }

            /// The equivalence of the source to the target.
            pub(crate) fn reversed(self) -> Self {
                match self {
                    $(Self::$name => Self::$opposite,)+
                }
            }
        }
    };
}

equivalences! {
    /// Equivalent in meaning.
    Equivalent "equivalent" "equivalent" Equivalent;
    /// Exactly the same.
    Equal "equal" "equivalent" Equal;
    /// The target is wider in meaning.
    Wider "wider" "source-is-narrower-than-target" Narrower;
    /// The target subsumes the source.
    Subsumes "subsumes" "source-is-narrower-than-target" Specializes;
    /// The target is narrower in meaning.
    Narrower "narrower" "source-is-broader-than-target" Wider;
    /// The target specializes the source.
    Specializes "specializes" "source-is-broader-than-target" Subsumes;
    /// The meanings overlap.
    Inexact "inexact" "related-to" Inexact;
    /// Related in a way that is not stated.
    RelatedTo "relatedto" "related-to" RelatedTo;
    /// The source has no counterpart.
    Unmatched "unmatched" "not-related-to" Unmatched;
    /// The meanings are explicitly unrelated.
    Disjoint "disjoint" "not-related-to" Disjoint;
}

impl Equivalence {
    /// Reads the member of R4, or else that of R5.
    ///
    /// # Errors
    /// A message if the code is unknown or missing.
    pub(super) fn read(equivalence: Option<&str>, relationship: Option<&str>) -> Result<Self, String> {
        let (member, code) = match (equivalence, relationship) {
            (Some(code), _) => ("equivalence", code),
            (None, Some(code)) => ("relationship", code),
            (None, None) => return Err("equivalence is missing".to_owned()),
        };
        let names = |one: &Self| if equivalence.is_some() { one.code() } else { one.relationship() };
        let relation = Self::ALL.iter().find(|one| names(one) == code);
        relation.copied().ok_or_else(|| {
            let mut all: Vec<&str> = Self::ALL.iter().map(names).collect();
            all.dedup();
            format!("{member} is '{code}'; use one of {}", all.join(", "))
        })
    }

    /// Returns whether the source is translated (R4, `$translate`: not unmatched and not disjoint).
    pub(crate) fn is_translation(self) -> bool {
        !matches!(self, Self::Unmatched | Self::Disjoint)
    }
}
