//! Concept maps: the relations of the codes of one code system to those of another (FHIR R4, ConceptMap).
//!
//! | module | contents |
//! |---|---|
//! | `resource_json` | the JSON of a ConceptMap, of R4 and with the members that R5 renamed |
//! | `relation` | equivalences of R4 and relationships of R5 |
//! | here | the compiled map, in which codes of both sides are looked up |

mod relation;
mod resource_json;

use std::collections::HashMap;

pub(crate) use self::relation::Equivalence;
use self::resource_json::{ConceptMapJson, DependencyJson, ElementJson, GroupJson, UnmappedJson};

#[derive(Debug, Default)]
pub(crate) struct ConceptMap {
    pub(crate) url: String,
    pub(crate) version: Option<String>,
    /// Canonical URLs of the value sets that the map is from and to, if it states them.
    pub(crate) source_scope: Option<String>,
    pub(crate) target_scope: Option<String>,
    pub(crate) groups: Vec<MapGroup>,
    /// Size of the resource in bytes.
    bytes: usize,
}

/// The relations between two code systems.
#[derive(Debug, Default)]
pub(crate) struct MapGroup {
    pub(crate) source: MappedSystem,
    pub(crate) target: MappedSystem,
    targets: Vec<MapTarget>,
    /// Numbers of the targets of each code of the source.
    by_source: HashMap<String, Vec<u32>>,
    /// Numbers of the targets with each code of the target.
    by_target: HashMap<String, Vec<u32>>,
    pub(crate) unmapped: Option<Unmapped>,
}

/// A code system of a group.
#[derive(Debug, Default)]
pub(crate) struct MappedSystem {
    /// Canonical URL; empty if the group states none.
    pub(crate) url: String,
    pub(crate) version: Option<String>,
}

/// A relation of a code of the source to one of the target.
#[derive(Debug)]
pub(crate) struct MapTarget {
    pub(crate) source: MappedCode,
    /// `None` if the source has no counterpart.
    pub(crate) target: Option<MappedCode>,
    pub(crate) equivalence: Equivalence,
    /// Other elements that must have these values for the relation to apply.
    pub(crate) depends_on: Vec<Dependency>,
    /// Other elements that result from the translation.
    pub(crate) products: Vec<Dependency>,
}

/// A code with its display, if the map states one.
#[derive(Debug, Clone)]
pub(crate) struct MappedCode {
    pub(crate) code: String,
    pub(crate) display: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) property: String,
    pub(crate) system: Option<String>,
    pub(crate) value: String,
    pub(crate) display: Option<String>,
}

/// The translation of a code that the group does not contain.
#[derive(Debug)]
pub(crate) enum Unmapped {
    /// The code itself, in the code system of the target.
    Provided,
    Fixed(MappedCode),
    /// The translation by the map with this canonical URL.
    OtherMap(String),
}

impl ConceptMap {
    /// Compiles a ConceptMap resource.
    ///
    /// # Errors
    /// A message of one line if the resource is invalid.
    pub(crate) fn compile(bytes: &[u8]) -> Result<Self, String> {
        let json: ConceptMapJson = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let source_scope = json.source_scope().map(str::to_owned);
        let target_scope = json.target_scope().map(str::to_owned);
        let groups = json.group.into_iter().enumerate().map(|(index, group)| {
            MapGroup::compile(group).map_err(|reason| format!("ConceptMap.group[{index}]{reason}"))
        });
        Ok(Self {
            url: json.url.unwrap_or_default(),
            version: json.version,
            source_scope,
            target_scope,
            groups: groups.collect::<Result<_, _>>()?,
            bytes: bytes.len(),
        })
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        2 * self.bytes
    }
}

impl MapGroup {
    fn compile(json: GroupJson) -> Result<Self, String> {
        let mut group = Self {
            source: MappedSystem::new(json.source.as_deref(), json.source_version),
            target: MappedSystem::new(json.target.as_deref(), json.target_version),
            unmapped: json.unmapped.map(Unmapped::compile).transpose()?,
            ..Self::default()
        };
        for (index, element) in json.element.into_iter().enumerate() {
            group.add_element(element).map_err(|reason| format!(".element[{index}]{reason}"))?;
        }
        Ok(group)
    }

    fn add_element(&mut self, element: ElementJson) -> Result<(), String> {
        // Both codes are optional (R4, ConceptMap.group.element.code): a target without a source is a note.
        let Some(code) = element.code.filter(|code| !code.is_empty()) else { return Ok(()) };
        let source = MappedCode { code, display: element.display };
        if element.target.is_empty() {
            // An element without a target states that the code has no counterpart.
            self.push(MapTarget::unmatched(source));
            return Ok(());
        }
        for (index, target) in element.target.into_iter().enumerate() {
            let fault = |reason: String| format!(".target[{index}]{reason}");
            let equivalence =
                Equivalence::read(target.equivalence.as_deref(), target.relationship.as_deref())
                    .map_err(|reason| fault(format!(": {reason}")))?;
            let code = target.code.filter(|code| !code.is_empty());
            let values = |list: Vec<DependencyJson>| list.into_iter().map(Dependency::compile).collect();
            self.push(MapTarget {
                source: source.clone(),
                target: code.map(|code| MappedCode { code, display: target.display }),
                equivalence,
                depends_on: values(target.depends_on),
                products: values(target.product),
            });
        }
        Ok(())
    }

    fn push(&mut self, target: MapTarget) {
        let number = self.targets.len() as u32;
        self.by_source.entry(target.source.code.clone()).or_default().push(number);
        if let Some(code) = &target.target {
            self.by_target.entry(code.code.clone()).or_default().push(number);
        }
        self.targets.push(target);
    }

    /// The relations of a code of the source; `None` if the group does not contain the code.
    pub(crate) fn relations_from(&self, code: &str) -> Option<impl Iterator<Item = &MapTarget>> {
        self.by_source.get(code).map(|numbers| self.numbered(numbers))
    }

    /// The relations to a code of the target; `None` if the group does not contain the code.
    pub(crate) fn relations_to(&self, code: &str) -> Option<impl Iterator<Item = &MapTarget>> {
        self.by_target.get(code).map(|numbers| self.numbered(numbers))
    }

    fn numbered<'a>(&'a self, numbers: &'a [u32]) -> impl Iterator<Item = &'a MapTarget> {
        numbers.iter().map(|number| &self.targets[*number as usize])
    }
}

impl MappedSystem {
    /// A code system, with its version in the canonical URL or beside it.
    fn new(canonical: Option<&str>, version: Option<String>) -> Self {
        let (url, in_url) = crate::model::canonical::split(canonical.unwrap_or_default());
        Self { url: url.to_owned(), version: version.or_else(|| in_url.map(str::to_owned)) }
    }
}

impl MapTarget {
    fn unmatched(source: MappedCode) -> Self {
        let (depends_on, products) = (Vec::new(), Vec::new());
        Self { source, target: None, equivalence: Equivalence::Unmatched, depends_on, products }
    }
}

impl Dependency {
    fn compile(json: DependencyJson) -> Self {
        Self {
            property: json.property.unwrap_or_default(),
            system: json.system,
            value: json.value.unwrap_or_default(),
            display: json.display,
        }
    }
}

impl Unmapped {
    fn compile(json: UnmappedJson) -> Result<Self, String> {
        let missing =
            |member: &str, mode: &str| format!(".unmapped.{member} is missing, which '{mode}' needs");
        match json.mode.as_deref().unwrap_or_default() {
            // R5 renamed the first mode.
            "provided" | "use-source-code" => Ok(Self::Provided),
            "fixed" => {
                let code = json.code.ok_or_else(|| missing("code", "fixed"))?;
                Ok(Self::Fixed(MappedCode { code, display: json.display }))
            }
            "other-map" => {
                json.url.or(json.other_map).map(Self::OtherMap).ok_or_else(|| missing("url", "other-map"))
            }
            mode => Err(format!(".unmapped.mode is '{mode}', not provided, fixed or other-map")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(group: &str) -> Result<ConceptMap, String> {
        let json =
            format!(r#"{{"resourceType":"ConceptMap","url":"urn:m","status":"active","group":[{group}]}}"#);
        ConceptMap::compile(json.as_bytes())
    }

    #[test]
    fn both_sides_are_looked_up() {
        let map = compile(
            r#"{"source":"urn:a","target":"urn:b|2","element":[
                {"code":"1","target":[{"code":"x","equivalence":"wider"},{"code":"y","relationship":"equivalent"}]},
                {"code":"2","target":[{"code":"x","equivalence":"equal"}]},
                {"code":"3"}],
              "unmapped":{"mode":"use-source-code"}}"#,
        )
        .unwrap();
        let group = &map.groups[0];
        let targets = |code: &str| -> Option<Vec<&str>> {
            let targets = group.relations_from(code)?;
            Some(
                targets.map(|target| target.target.as_ref().map_or("-", |code| code.code.as_str())).collect(),
            )
        };
        assert_eq!(targets("1"), Some(vec!["x", "y"]));
        assert_eq!(targets("3"), Some(vec!["-"]));
        assert_eq!(targets("4"), None);
        let sources: Vec<&str> =
            group.relations_to("x").unwrap().map(|target| target.source.code.as_str()).collect();
        assert_eq!(sources, ["1", "2"]);
        assert_eq!((group.target.url.as_str(), group.target.version.as_deref()), ("urn:b", Some("2")));
        assert!(matches!(group.unmapped, Some(Unmapped::Provided)));
    }

    #[test]
    fn a_fault_is_reported_with_its_place() {
        for (group, expected) in [
            (
                r#"{"element":[{"code":"1","target":[{"code":"x","equivalence":"same"}]}]}"#,
                "ConceptMap.group[0].element[0].target[0]: equivalence is 'same'",
            ),
            (
                r#"{"element":[{"code":"1","target":[{"code":"x"}]}]}"#,
                "ConceptMap.group[0].element[0].target[0]: equivalence is missing",
            ),
            (r#"{"unmapped":{"mode":"fixed"}}"#, "ConceptMap.group[0].unmapped.code is missing"),
            (r#"{"unmapped":{"mode":"none"}}"#, "ConceptMap.group[0].unmapped.mode is 'none'"),
        ] {
            let reason = compile(group).unwrap_err();
            assert!(reason.starts_with(expected), "{reason}");
        }
    }
}
