//! The JSON of CodeSystem and ValueSet resources, borrowed from the bytes.
//!
//! Only the members that the engine uses are declared. Every `value[x]` of a property or an extension is read
//! as text, because filters compare texts.

use std::borrow::Cow;
use std::fmt;

pub(crate) use fhir::Text;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::canonical;
use super::concept_text::TextKind;
use super::known_systems::SNOMED_CT;

/// Extension with the standards status of a concept, designation or resource.
pub(crate) const STANDARDS_STATUS: &str =
    "http://hl7.org/fhir/StructureDefinition/structuredefinition-standards-status";
/// Extension with the id of a description of SNOMED CT.
pub(crate) const DESCRIPTION_ID: &str = "http://hl7.org/fhir/StructureDefinition/coding-sctdescid";
/// Extension with an artifact of which a resource is composed. R5 defines it.
const RELATED_ARTIFACT: &str = "http://hl7.org/fhir/StructureDefinition/artifact-relatedArtifact";
/// Extension that marks a supplement as a language pack for general use.
const LANGUAGE_PACK: &str = "http://hl7.org/fhir/StructureDefinition/codesystem-globalLangPack";
/// Extension with the type of a supplement; `lang-pack` is a language pack, too.
const SUPPLEMENT_TYPE: &str = "http://hl7.org/fhir/StructureDefinition/codesystem-supplement-type";
/// Extension with a supplement that a value set requires.
const SUPPLEMENT: &str = "http://hl7.org/fhir/StructureDefinition/valueset-supplement";
/// Extension that marks a code of a value set as deprecated.
const DEPRECATED: &str = "http://hl7.org/fhir/StructureDefinition/valueset-deprecated";

/// The members of a resource that identify it and decide which version is preferred.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceHeader {
    /// Resource type.
    pub resource_type: String,
    /// Resource id.
    pub id: Option<String>,
    /// Canonical URL.
    pub url: Option<String>,
    /// Business version.
    pub version: Option<String>,
    /// Publication status.
    pub status: Option<String>,
    /// Whether the resource is meant for testing only.
    pub experimental: bool,
    /// Date of the last change.
    pub date: Option<String>,
    /// CodeSystem only: how many of the concepts the resource contains.
    pub content: Option<ContentMode>,
    /// CodeSystem only: canonical URL of the value set of all its codes.
    pub value_set: Option<String>,
    /// CodeSystem only: canonical URL of the code system that a supplement extends.
    pub supplements: Option<String>,
    /// Name for use in programs.
    pub name: Option<String>,
    /// Name for display to users.
    pub title: Option<String>,
    /// Language of the texts.
    pub language: Option<String>,
    /// CodeSystem only: whether codes that differ by case are different codes.
    pub case_sensitive: Option<bool>,
    /// CodeSystem only: whether codes can change their meaning from one version to another.
    pub version_needed: bool,
    /// CodeSystem only: meaning of the hierarchy.
    pub hierarchy_meaning: Option<HierarchyMeaning>,
    /// CodeSystem only: the declared properties.
    pub property: Vec<PropertyDefinition>,
    /// The facts that extensions state.
    #[serde(rename = "extension", with = "header_extensions")]
    pub extensions: HeaderExtensions,
}

/// Facts about a resource that its extensions state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderExtensions {
    /// Maturity of the resource, such as `draft` or `withdrawn`.
    pub standards_status: Option<String>,
    /// CodeSystem only: whether a supplement is a language pack, which applies without being requested.
    pub is_language_pack: bool,
    /// CodeSystem only: version of the International Edition of which a release of SNOMED CT is composed.
    pub international_base: Option<String>,
}

impl HeaderExtensions {
    /// The JSON of these facts.
    pub(crate) fn to_json(&self) -> Vec<serde_json::Value> {
        let status = self.standards_status.iter();
        let status = status.map(|status| json!({ "url": STANDARDS_STATUS, "valueCode": status }));
        let pack = self.is_language_pack.then(|| json!({ "url": LANGUAGE_PACK, "valueBoolean": true }));
        let base = self.international_base.iter().map(|version| {
            let resource = canonical::join(SNOMED_CT, Some(version));
            let artifact = json!({ "type": "composed-of", "resource": resource });
            json!({ "url": RELATED_ARTIFACT, "valueRelatedArtifact": artifact })
        });
        status.chain(pack).chain(base).collect()
    }
}

/// The JSON of [`HeaderExtensions`]: a list of extensions.
mod header_extensions {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::{
        HeaderExtensions, LANGUAGE_PACK, NamedValue, RELATED_ARTIFACT, SUPPLEMENT_TYPE, extension,
        standards_status,
    };
    use crate::model::canonical;
    use crate::model::known_systems::SNOMED_CT;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<HeaderExtensions, D::Error> {
        let list = Vec::<NamedValue<'de>>::deserialize(deserializer)?;
        Ok(HeaderExtensions {
            standards_status: standards_status(&list).map(String::from),
            is_language_pack: extension(&list, LANGUAGE_PACK) == Some("true")
                || extension(&list, SUPPLEMENT_TYPE) == Some("lang-pack"),
            international_base: extension(&list, RELATED_ARTIFACT)
                .map(canonical::split)
                .and_then(|(url, version)| version.filter(|_| url == SNOMED_CT))
                .map(str::to_owned),
        })
    }

    pub(super) fn serialize<S: Serializer>(
        extensions: &HeaderExtensions,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        extensions.to_json().serialize(serializer)
    }
}

/// JSON of `CodeSystem.property`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PropertyDefinition {
    /// Code of the property.
    pub code: String,
    /// URI that defines the property.
    pub uri: Option<String>,
    /// Description of the property.
    pub description: Option<String>,
    /// Type of the values, such as `code` or `boolean`.
    pub r#type: Option<String>,
}

/// Values of `CodeSystem.content`, in descending order of preference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContentMode {
    #[default]
    /// The resource contains all concepts.
    Complete,
    /// The resource contains some of the concepts.
    Fragment,
    /// The resource contains examples of concepts.
    Example,
    /// The resource contains no concepts.
    NotPresent,
    /// The resource contains additions to another code system.
    Supplement,
}

impl ContentMode {
    /// The code as FHIR spells it.
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

/// Values of `CodeSystem.hierarchyMeaning`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HierarchyMeaning {
    /// A child is a kind of its parent.
    IsA,
    /// A parent groups its children.
    GroupedBy,
    /// A child is a part of its parent.
    PartOf,
    /// A parent classifies its children.
    ClassifiedWith,
}

impl HierarchyMeaning {
    /// The code as FHIR spells it.
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
pub(crate) struct DesignationJson<'a> {
    #[serde(borrow, default)]
    pub(crate) language: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) value: Text<'a>,
    #[serde(borrow, default, rename = "use")]
    pub(crate) usage: Option<DesignationUse<'a>>,
    #[serde(borrow, default)]
    pub(crate) extension: Vec<NamedValue<'a>>,
}

impl DesignationJson<'_> {
    pub(crate) fn kind(&self) -> TextKind {
        let usage =
            |usage: &DesignationUse<'_>| TextKind::from_use(usage.system.as_deref(), usage.code.as_deref());
        self.usage.as_ref().map_or(TextKind::Display, usage)
    }
}

/// The use of a designation: a Coding.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DesignationUse<'a> {
    #[serde(borrow)]
    pub(crate) system: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) code: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) display: Option<Text<'a>>,
}

/// The members of a resource in the order of the JSON.
#[derive(Debug, Default)]
pub(crate) struct ResourceMembers<'a>(pub(crate) Vec<(Text<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for ResourceMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ResourceVisitor;
        impl<'de> Visitor<'de> for ResourceVisitor {
            type Value = ResourceMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a resource")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceMembers<'de>, A::Error> {
                let mut out = ResourceMembers::default();
                while let Some(member) = map.next_entry()? {
                    out.0.push(member);
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(ResourceVisitor)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ValueSetJson<'a> {
    pub(crate) language: Option<String>,
    #[serde(borrow)]
    pub(crate) extension: Vec<NamedValue<'a>>,
    /// Contained resources, to which `#id` refers.
    #[serde(borrow)]
    pub(crate) contained: Vec<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) compose: Option<ComposeJson<'a>>,
    #[serde(borrow)]
    pub(crate) expansion: Option<ExpansionJson<'a>>,
}

/// JSON of `ValueSet.compose`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ComposeJson<'a> {
    pub(crate) inactive: Option<bool>,
    /// Day that determines the versions of code systems without a version.
    pub(crate) locked_date: Option<String>,
    #[serde(borrow)]
    pub(crate) extension: Vec<NamedValue<'a>>,
    #[serde(borrow)]
    pub(crate) include: Vec<IncludeJson<'a>>,
    #[serde(borrow)]
    pub(crate) exclude: Vec<IncludeJson<'a>>,
}

/// `ValueSet.compose.include` and `exclude`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct IncludeJson<'a> {
    pub(crate) system: Option<String>,
    pub(crate) version: Option<String>,
    #[serde(borrow)]
    pub(crate) concept: Vec<ListedCodeJson<'a>>,
    pub(crate) filter: Vec<FilterJson>,
    pub(crate) value_set: Vec<String>,
    #[serde(borrow)]
    pub(crate) extension: Vec<NamedValue<'a>>,
}

/// JSON of `ValueSet.compose.include.concept`.
#[derive(Debug, Deserialize)]
pub(crate) struct ListedCodeJson<'a> {
    #[serde(borrow)]
    pub(crate) code: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) display: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) designation: Vec<DesignationJson<'a>>,
    #[serde(borrow, default)]
    pub(crate) extension: Vec<NamedValue<'a>>,
}

/// `ValueSet.compose.include.filter`. A missing value is read as an empty one, and reported as a fault of the
/// value set.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FilterJson {
    pub(crate) property: String,
    pub(crate) op: String,
    pub(crate) value: String,
}

/// JSON of `ValueSet.expansion`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExpansionJson<'a> {
    #[serde(borrow)]
    pub(crate) contains: Vec<ContainsJson<'a>>,
}

/// `ValueSet.expansion.contains` at any depth; a heading if it has no code.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainsJson<'a> {
    pub(crate) system: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) r#abstract: bool,
    #[serde(borrow)]
    pub(crate) code: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) display: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) contains: Vec<ContainsJson<'a>>,
}

/// A value with a name: a property with its `code`, or an extension with its `url`. The `value[x]` is read as
/// text. The text of a Coding is its code, and that of a RelatedArtifact its resource; other complex types
/// have no text.
#[derive(Debug, Default)]
pub(crate) struct NamedValue<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) value: Option<Text<'a>>,
    /// System and display of a Coding.
    pub(crate) coding: Option<[Text<'a>; 2]>,
    pub(crate) extension: Vec<NamedValue<'a>>,
}

/// The value of the extension with this URL.
fn extension<'e>(list: &'e [NamedValue<'_>], url: &str) -> Option<&'e str> {
    list.iter().find(|e| &*e.name == url)?.value.as_deref()
}

/// The standards status among these extensions.
pub(crate) fn standards_status<'e>(list: &'e [NamedValue<'_>]) -> Option<&'e str> {
    extension(list, STANDARDS_STATUS)
}

/// The id of the description of SNOMED CT among these extensions.
pub(crate) fn description_id<'e>(list: &'e [NamedValue<'_>]) -> Option<&'e str> {
    extension(list, DESCRIPTION_ID)
}

/// Returns whether these extensions mark a code of a value set as deprecated.
pub(crate) fn is_deprecated(list: &[NamedValue<'_>]) -> bool {
    extension(list, DEPRECATED) == Some("true") || standards_status(list) == Some("deprecated")
}

/// The supplements that these extensions require.
pub(crate) fn supplements(list: &[NamedValue<'_>]) -> Vec<String> {
    list.iter()
        .filter(|e| &*e.name == SUPPLEMENT)
        .filter_map(|e| e.value.as_deref().map(String::from))
        .collect()
}

/// The value of an expansion parameter that `ValueSet.compose` sets by extension.
pub(crate) fn expansion_parameter<'e>(list: &'e [NamedValue<'_>], name: &str) -> Option<&'e str> {
    list.iter()
        .filter(|e| e.name.ends_with("/valueset-expansion-parameter"))
        .find(|e| extension(&e.extension, "name") == Some(name))
        .and_then(|e| extension(&e.extension, "value"))
}

impl<'de: 'a, 'a> Deserialize<'de> for NamedValue<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ResourceMembers;
        impl<'de> Visitor<'de> for ResourceMembers {
            type Value = NamedValue<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a property or an extension")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NamedValue<'de>, A::Error> {
                let mut out = NamedValue::default();
                while let Some(member) = map.next_key::<Text<'de>>()? {
                    match &*member {
                        "code" | "url" => out.name = map.next_value()?,
                        "extension" => out.extension = map.next_value()?,
                        // A decimal keeps its digits.
                        "valueDecimal" => {
                            let digits = map.next_value::<&RawValue>()?.get().trim_matches('"');
                            out.value = Some(Text(Cow::Borrowed(digits)));
                        }
                        value if value.starts_with("value") => {
                            let read = map.next_value::<ScalarText<'de>>()?;
                            (out.value, out.coding) = (read.text, read.coding);
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(out)
            }
        }
        deserializer.deserialize_map(ResourceMembers)
    }
}

/// A JSON value as text; `None` if it is not a scalar.
#[derive(Default)]
struct ScalarText<'a> {
    text: Option<Text<'a>>,
    /// System and display of a Coding.
    coding: Option<[Text<'a>; 2]>,
}

impl<'a> ScalarText<'a> {
    fn of(text: Cow<'a, str>) -> Self {
        Self { text: Some(Text(text)), coding: None }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ScalarText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        fn owned<'a, E>(text: impl ToString) -> Result<ScalarText<'a>, E> {
            Ok(ScalarText::of(Cow::Owned(text.to_string())))
        }
        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = ScalarText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<ScalarText<'de>, E> {
                Ok(ScalarText::of(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<ScalarText<'de>, E> {
                owned(text)
            }

            fn visit_bool<E>(self, value: bool) -> Result<ScalarText<'de>, E> {
                owned(value)
            }

            fn visit_i64<E>(self, value: i64) -> Result<ScalarText<'de>, E> {
                owned(value)
            }

            fn visit_u64<E>(self, value: u64) -> Result<ScalarText<'de>, E> {
                owned(value)
            }

            fn visit_f64<E>(self, value: f64) -> Result<ScalarText<'de>, E> {
                owned(value)
            }

            fn visit_unit<E>(self) -> Result<ScalarText<'de>, E> {
                Ok(ScalarText::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ScalarText<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(ScalarText::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ScalarText<'de>, A::Error> {
                let mut code = None;
                let [mut system, mut display, mut resource] = [None, None, None];
                while let Some(member) = map.next_key::<Text<'de>>()? {
                    match &*member {
                        // Of a Coding, the code is the value.
                        "code" => code = map.next_value::<ScalarText<'de>>()?.text,
                        "system" => system = map.next_value::<ScalarText<'de>>()?.text,
                        "display" => display = map.next_value::<ScalarText<'de>>()?.text,
                        "resource" => resource = map.next_value::<ScalarText<'de>>()?.text,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let coding = code.is_some().then(|| [system, display].map(Option::unwrap_or_default));
                Ok(ScalarText { text: code.or(resource), coding })
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}
