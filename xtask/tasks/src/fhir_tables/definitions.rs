//! HL7's definitions of FHIR R4: structure definitions, search parameters, value sets and the Patient
//! compartment.
//!
//! They are read from the package `hl7.fhir.r4.core` 4.0.1, or from a folder with the JSON files of the
//! package or of HL7's `definitions.json.zip`. A file is a resource or a Bundle of resources. Definitions of
//! other versions of FHIR are ignored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use xtask::workspace::{check, target_dir};

/// File name of the published package.
pub const PACKAGE: &str = "hl7.fhir.r4.core-4.0.1.tgz";
/// Name of a folder with the JSON files, or with a folder `package` that contains them.
pub const FOLDER: &str = "hl7.fhir.r4.core-4.0.1";

const FHIR_VERSION: &str = "4.0.1";
/// Prefixes of the names of the files that are read, in the package and in `definitions.json.zip`.
const FILE_PREFIXES: [&str; 8] = [
    "StructureDefinition-",
    "SearchParameter-",
    "CompartmentDefinition-",
    "profiles-resources.",
    "profiles-types.",
    "search-parameters.",
    "ValueSet-",
    "valuesets.",
];
/// Extension with the FHIR type of an element whose type is stated as a FHIRPath type.
const FHIR_TYPE: &str = "http://hl7.org/fhir/StructureDefinition/structuredefinition-fhir-type";

/// The definitions from which the tables are generated.
#[derive(Default)]
pub struct FhirDefinitions {
    /// Resource types and data types, by name.
    pub types: BTreeMap<String, TypeDefinition>,
    /// Elements of all types, by path.
    pub elements: BTreeMap<String, ElementDefinition>,
    pub search_parameters: Vec<SearchDefinition>,
    /// Members of the Patient compartment: resource types with the search parameters that link them to a
    /// Patient.
    pub patient_compartment: Vec<CompartmentMember>,
    /// The code system of each value set whose codes are all of one, by URL.
    pub value_set_systems: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(tag = "resourceType")]
enum DefinitionResource {
    Bundle {
        entry: Vec<DefinitionEntry>,
    },
    StructureDefinition(TypeDefinition),
    SearchParameter(SearchDefinition),
    CompartmentDefinition {
        code: String,
        resource: Vec<CompartmentMember>,
    },
    ValueSet(ValueSetDefinition),
    #[serde(other)]
    Other,
}

/// The members of a ValueSet from which the code systems of its codes follow.
#[derive(Deserialize)]
struct ValueSetDefinition {
    url: Option<String>,
    compose: Option<ValueSetCompose>,
}

#[derive(Deserialize)]
struct ValueSetCompose {
    #[serde(default)]
    include: Vec<ValueSetInclude>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValueSetInclude {
    system: Option<String>,
    #[serde(default)]
    value_set: Vec<String>,
}

impl ValueSetDefinition {
    /// The only code system of its codes, with the URL of the value set.
    fn only_system(self) -> Option<(String, String)> {
        let include = self.compose?.include;
        let first = include.first()?.system.clone()?;
        let is_only =
            include.iter().all(|part| part.system.as_ref() == Some(&first) && part.value_set.is_empty());
        Some((self.url?, first)).filter(|_| is_only)
    }
}

#[derive(Deserialize)]
struct DefinitionEntry {
    resource: DefinitionResource,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeDefinition {
    #[serde(rename = "type")]
    name: String,
    kind: String,
    #[serde(rename = "abstract")]
    is_abstract: bool,
    derivation: Option<String>,
    fhir_version: Option<String>,
    snapshot: Option<ElementSnapshot>,
}

#[derive(Deserialize)]
struct ElementSnapshot {
    element: Vec<ElementDefinition>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElementDefinition {
    pub path: String,
    #[serde(default)]
    pub min: u32,
    /// Maximum number of values: a number, or `*`.
    #[serde(default)]
    pub max: String,
    #[serde(default)]
    pub is_summary: bool,
    /// Path of the element that defines the content of this one, as `#path`.
    pub content_reference: Option<String>,
    #[serde(rename = "type", default)]
    types: Vec<ElementTypeDefinition>,
    binding: Option<ElementBinding>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ElementBinding {
    strength: String,
    value_set: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ElementTypeDefinition {
    code: String,
    /// The profiles of the resources to which a Reference may refer. None permits every type.
    #[serde(default)]
    target_profile: Vec<String>,
    #[serde(default)]
    extension: Vec<TypeExtension>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeExtension {
    url: String,
    value_url: Option<String>,
}

#[derive(Deserialize)]
pub struct SearchDefinition {
    pub code: String,
    /// Resource types that have the parameter.
    pub base: Vec<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub expression: Option<String>,
    version: Option<String>,
}

/// A resource type in a CompartmentDefinition.
#[derive(Deserialize)]
pub struct CompartmentMember {
    #[serde(rename = "code")]
    pub kind: String,
    /// Codes of search parameters. If there are none, no resource of the type is in a compartment.
    #[serde(default, rename = "param")]
    pub parameters: Vec<String>,
}

/// The folder with the JSON files, if `data` contains it or the package, which is then unpacked.
pub fn find_folder(data: &Path) -> Result<Option<PathBuf>> {
    let package = data.join(PACKAGE);
    let mut folder = data.join(FOLDER);
    if package.is_file() {
        folder = target_dir().join(FOLDER);
        std::fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
        check(Command::new("tar").arg("-xzf").arg(package).arg("-C").arg(&folder))?;
    }
    let inner = folder.join("package");
    Ok([inner, folder].into_iter().find(|folder| folder.is_dir()))
}

impl FhirDefinitions {
    /// Reads all definitions of a folder.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if one of the kinds of definitions is missing.
    pub fn read(folder: &Path) -> Result<Self> {
        let folder_entries =
            std::fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
        let mut paths = Vec::new();
        for entry in folder_entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".json") && FILE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                paths.push(entry.path());
            }
        }
        paths.sort();
        let mut definitions = Self::default();
        for path in paths {
            let text = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
            let resource = serde_json::from_slice(&text)
                .with_context(|| format!("{} is not a definition", path.display()))?;
            definitions.add(resource);
        }
        let missing = [
            ("StructureDefinition", definitions.types.is_empty()),
            ("SearchParameter", definitions.search_parameters.is_empty()),
            ("CompartmentDefinition for Patient", definitions.patient_compartment.is_empty()),
            ("ValueSet", definitions.value_set_systems.is_empty()),
        ];
        if let Some((kind, _)) = missing.into_iter().find(|(_, is_missing)| *is_missing) {
            bail!("{} contains no {kind} of FHIR {FHIR_VERSION}", folder.display());
        }
        Ok(definitions)
    }

    fn add(&mut self, resource: DefinitionResource) {
        match resource {
            DefinitionResource::Bundle { entry } => {
                entry.into_iter().for_each(|entry| self.add(entry.resource));
            }
            DefinitionResource::StructureDefinition(definition) if definition.defines_type() => {
                let elements = definition.elements().iter();
                self.elements.extend(elements.map(|element| (element.path.clone(), element.clone())));
                self.types.insert(definition.name.clone(), definition);
            }
            DefinitionResource::SearchParameter(definition)
                if definition.version.as_deref() == Some(FHIR_VERSION) =>
            {
                self.search_parameters.push(definition);
            }
            DefinitionResource::ValueSet(definition) => {
                self.value_set_systems.extend(definition.only_system());
            }
            DefinitionResource::CompartmentDefinition { code, resource } if code == "Patient" => {
                self.patient_compartment = resource;
            }
            _ => {}
        }
    }
}

impl TypeDefinition {
    /// Returns whether this is a type of this version of FHIR. A constraint is a profile of another type.
    fn defines_type(&self) -> bool {
        self.fhir_version.as_deref() == Some(FHIR_VERSION) && self.derivation.as_deref() != Some("constraint")
    }

    /// Returns whether instances of the type consist of elements. `Element` is abstract, but is the type of
    /// what accompanies a primitive value.
    pub fn has_elements(&self) -> bool {
        match &*self.kind {
            "resource" | "complex-type" => !self.is_abstract || self.name == "Element",
            _ => false,
        }
    }

    /// Whether the type is a resource type that can be stored.
    pub fn is_resource(&self) -> bool {
        self.kind == "resource" && !self.is_abstract && self.name != "Parameters"
    }

    pub fn elements(&self) -> &[ElementDefinition] {
        self.snapshot.as_ref().map_or(&[], |snapshot| &snapshot.element)
    }
}

impl FhirDefinitions {
    /// The code system of the values of an element of type `code`, if its required binding names one.
    pub fn implicit_system(&self, element: &ElementDefinition) -> Option<&str> {
        let binding = element.binding.as_ref().filter(|binding| binding.strength == "required")?;
        let url = binding.value_set.as_deref()?.split('|').next()?;
        self.value_set_systems.get(url).map(String::as_str)
    }
}

impl ElementDefinition {
    /// Whether the element may be a Reference to a resource of this type. `Resource` as a target is every
    /// type.
    pub fn may_refer_to(&self, kind: &str) -> bool {
        const PROFILES: &str = "http://hl7.org/fhir/StructureDefinition/";
        let is_target = |profile: &String| {
            profile.strip_prefix(PROFILES).is_some_and(|target| target == kind || target == "Resource")
        };
        let references = self.types.iter().filter(|of| of.code == "Reference");
        references
            .map(|of| &of.target_profile)
            .any(|targets| targets.is_empty() || targets.iter().any(is_target))
    }

    /// The names of the element's data types.
    pub fn type_names(&self) -> impl Iterator<Item = &str> {
        self.types.iter().map(|of| {
            let fhir_type = of.extension.iter().find(|extension| extension.url == FHIR_TYPE);
            fhir_type.and_then(|extension| extension.value_url.as_deref()).unwrap_or(&of.code)
        })
    }
}
