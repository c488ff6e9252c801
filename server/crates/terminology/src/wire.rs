//! CodeSystem and ValueSet as they are written in JSON, borrowed from the bytes.
//!
//! Only the members that the engine uses are named. All `value[x]` of properties and extensions
//! are read as text, which is how filters compare them.

use std::borrow::Cow;
use std::fmt;

pub(crate) use fhir::Text;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::display::TextKind;

/// Extension that gives a concept, designation or resource its standards status.
const STANDARDS_STATUS: &str = "http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status";
/// Extension by which a value set asks for a supplement.
const SUPPLEMENT: &str = "http://hl7.org/fhir/StructureDefinition/valueset-supplement";
/// Extension by which a value set calls one of its codes deprecated.
const DEPRECATED: &str = "http://hl7.org/fhir/StructureDefinition/valueset-deprecated";

/// What can be read of a resource at a glance: enough to find it and to choose between versions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Header {
    pub(crate) resource_type: String,
    pub(crate) id: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) experimental: bool,
    pub(crate) date: Option<String>,
    /// CodeSystem only.
    pub(crate) content: Option<Content>,
    /// CodeSystem only: canonical URL of the value set of all its codes.
    pub(crate) value_set: Option<String>,
    /// CodeSystem only: canonical URL of the code system that a supplement adds to.
    pub(crate) supplements: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) language: Option<String>,
    /// CodeSystem only.
    pub(crate) case_sensitive: Option<bool>,
    /// CodeSystem only.
    pub(crate) hierarchy_meaning: Option<Meaning>,
    /// CodeSystem only: the properties that it declares.
    pub(crate) property: Vec<PropertyDefinition>,
    /// Standards status, which is an extension.
    #[serde(rename = "extension", serialize_with = "write_status", deserialize_with = "read_status")]
    pub(crate) standards_status: Option<String>,
}

fn read_status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let extensions = Vec::<Tagged<'de>>::deserialize(deserializer)?;
    Ok(standards_status(&extensions).map(String::from))
}

fn write_status<S: Serializer>(status: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    let extension = |status| serde_json::json!({ "url": STANDARDS_STATUS, "valueCode": status });
    serializer.collect_seq(status.iter().map(extension))
}

/// `CodeSystem.property`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PropertyDefinition {
    pub(crate) code: String,
    pub(crate) uri: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) r#type: Option<String>,
}

/// `CodeSystem.content`, best first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Content {
    #[default]
    Complete,
    Fragment,
    Example,
    NotPresent,
    Supplement,
}

impl Content {
    /// As FHIR spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Fragment => "fragment",
            Self::Example => "example",
            Self::NotPresent => "not-present",
            Self::Supplement => "supplement",
        }
    }
}

/// `CodeSystem.hierarchyMeaning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Meaning {
    IsA,
    GroupedBy,
    PartOf,
    ClassifiedWith,
}

impl Meaning {
    /// As FHIR spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IsA => "is-a",
            Self::GroupedBy => "grouped-by",
            Self::PartOf => "part-of",
            Self::ClassifiedWith => "classified-with",
        }
    }
}

/// A designation of a concept, in a code system or in a value set.
#[derive(Debug, Deserialize)]
pub(crate) struct Designation<'a> {
    #[serde(borrow, default)]
    pub(crate) language: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) value: Text<'a>,
    #[serde(borrow, default, rename = "use")]
    pub(crate) usage: Option<Usage<'a>>,
    #[serde(borrow, default)]
    pub(crate) extension: Vec<Tagged<'a>>,
}

impl Designation<'_> {
    /// What it is for.
    pub(crate) fn kind(&self) -> TextKind {
        let usage = |usage: &Usage<'_>| TextKind::of(usage.system.as_deref(), usage.code.as_deref());
        self.usage.as_ref().map_or(TextKind::Display, usage)
    }
}

/// What a designation is used for: a Coding.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Usage<'a> {
    #[serde(borrow)]
    pub(crate) system: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) code: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) display: Option<Text<'a>>,
}

/// The members of a resource in the order they are written, each with its JSON.
#[derive(Debug, Default)]
pub(crate) struct Members<'a>(pub(crate) Vec<(Text<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a resource")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut out = Members::default();
                while let Some(member) = map.next_entry()? {
                    out.0.push(member);
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A ValueSet.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ValueSet<'a> {
    pub(crate) language: Option<String>,
    #[serde(borrow)]
    pub(crate) extension: Vec<Tagged<'a>>,
    /// Resources that only this one refers to, as `#id`.
    #[serde(borrow)]
    pub(crate) contained: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) compose: Option<Compose<'a>>,
    #[serde(borrow)]
    pub(crate) expansion: Option<Expansion<'a>>,
}

/// `ValueSet.compose`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Compose<'a> {
    pub(crate) inactive: Option<bool>,
    /// Versions that are not named are those of this day.
    pub(crate) locked_date: Option<String>,
    #[serde(borrow)]
    pub(crate) extension: Vec<Tagged<'a>>,
    #[serde(borrow)]
    pub(crate) include: Vec<Include<'a>>,
    #[serde(borrow)]
    pub(crate) exclude: Vec<Include<'a>>,
}

/// `ValueSet.compose.include` and `exclude`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Include<'a> {
    pub(crate) system: Option<String>,
    pub(crate) version: Option<String>,
    #[serde(borrow)]
    pub(crate) concept: Vec<Listed<'a>>,
    pub(crate) filter: Vec<Filter>,
    pub(crate) value_set: Vec<String>,
}

/// `ValueSet.compose.include.concept`.
#[derive(Debug, Deserialize)]
pub(crate) struct Listed<'a> {
    #[serde(borrow)]
    pub(crate) code: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) display: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) designation: Vec<Designation<'a>>,
    #[serde(borrow, default)]
    pub(crate) extension: Vec<Tagged<'a>>,
}

/// `ValueSet.compose.include.filter`. A missing value is the set's fault, not the reader's.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Filter {
    pub(crate) property: String,
    pub(crate) op: String,
    pub(crate) value: String,
}

/// `ValueSet.expansion`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Expansion<'a> {
    #[serde(borrow)]
    pub(crate) contains: Vec<Contains<'a>>,
}

/// `ValueSet.expansion.contains`, at any depth; without a code it is only a heading.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Contains<'a> {
    pub(crate) system: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) r#abstract: bool,
    #[serde(borrow)]
    pub(crate) code: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) display: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) contains: Vec<Contains<'a>>,
}

/// Something with a name (`code` of a property, `url` of an extension) and a `value[x]`, read as
/// text: of a Coding its code, of other complex values nothing.
#[derive(Debug, Default)]
pub(crate) struct Tagged<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) value: Option<Text<'a>>,
    /// Nested extensions.
    pub(crate) extension: Vec<Tagged<'a>>,
}

/// The value of the extension with this URL.
fn extension<'e>(list: &'e [Tagged<'_>], url: &str) -> Option<&'e str> {
    list.iter().find(|e| &*e.name == url)?.value.as_deref()
}

/// The standards status that these extensions give.
pub(crate) fn standards_status<'e>(list: &'e [Tagged<'_>]) -> Option<&'e str> {
    extension(list, STANDARDS_STATUS)
}

/// Do these extensions call a code of a value set deprecated?
pub(crate) fn is_deprecated(list: &[Tagged<'_>]) -> bool {
    extension(list, DEPRECATED) == Some("true") || standards_status(list) == Some("deprecated")
}

/// The supplements that these extensions ask for.
pub(crate) fn supplements(list: &[Tagged<'_>]) -> Vec<String> {
    list.iter()
        .filter(|e| &*e.name == SUPPLEMENT)
        .filter_map(|e| e.value.as_deref().map(String::from))
        .collect()
}

/// The value of an expansion parameter that `ValueSet.compose` fixes by extension.
pub(crate) fn expansion_parameter<'e>(list: &'e [Tagged<'_>], name: &str) -> Option<&'e str> {
    list.iter()
        .filter(|e| e.name.ends_with("/valueset-expansion-parameter"))
        .find(|e| extension(&e.extension, "name") == Some(name))
        .and_then(|e| extension(&e.extension, "value"))
}

impl<'de: 'a, 'a> Deserialize<'de> for Tagged<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Tagged<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a property or an extension")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tagged<'de>, A::Error> {
                let mut out = Tagged::default();
                while let Some(member) = map.next_key::<Text<'de>>()? {
                    match &*member {
                        "code" | "url" => out.name = map.next_value()?,
                        "extension" => out.extension = map.next_value()?,
                        value if value.starts_with("value") => out.value = map.next_value::<Scalar<'de>>()?.0,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Any JSON value as text.
struct Scalar<'a>(Option<Text<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        fn owned<'a, E>(text: impl ToString) -> Result<Scalar<'a>, E> {
            Ok(Scalar(Some(Text(Cow::Owned(text.to_string())))))
        }
        impl<'de> Visitor<'de> for Any {
            type Value = Scalar<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Text(Cow::Borrowed(text)))))
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar<'de>, E> {
                owned(text)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar<'de>, E> {
                owned(value)
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar<'de>, E> {
                owned(value)
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar<'de>, E> {
                owned(value)
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar<'de>, E> {
                owned(value)
            }

            fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
                Ok(Scalar(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
                let mut code = None;
                while let Some(member) = map.next_key::<Text<'de>>()? {
                    match &*member {
                        "code" => code = map.next_value::<Scalar<'de>>()?.0,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Scalar(code))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
