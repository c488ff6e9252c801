//! Modifiers of ClaML: lists of characters that codes can end with, such as the fourth character of the
//! diabetes categories of ICD-10. A class names the modifiers of its codes, and of those of all classes below
//! it, and the codes that result are not in the file.

use std::collections::{HashMap, HashSet};

use terminology::indexing::{ConceptNumber, IndexBuilder};

/// Kind of the classes whose codes are used; chapters and blocks group them.
const CATEGORY: &str = "category";

/// A class with the parts of it that determine the codes made by modifiers.
#[derive(Debug, Default)]
pub(super) struct ClamlClass {
    pub number: ConceptNumber,
    pub code: String,
    pub kind: String,
    pub label: String,
    pub parents: Vec<String>,
    pub children: Vec<String>,
    pub modified_by: Vec<ModifiedBy>,
    /// Modifiers of classes above that do not apply to this class and those below it.
    pub excluded: Vec<String>,
}

/// The use of a modifier by a class (`ModifiedBy`).
#[derive(Debug, Clone, Default)]
pub(super) struct ModifiedBy {
    pub modifier: String,
    /// `all="false"`: only the listed classes of the modifier are used.
    pub only_valid: bool,
    /// Codes of the classes that are used (`ValidModifierClass`).
    pub valid: Vec<String>,
}

/// One ending of a modifier (`ModifierClass`).
#[derive(Debug, Default)]
pub(super) struct ModifierClass {
    pub modifier: String,
    pub code: String,
    pub label: String,
    /// Modifier or class of the modifier above this one.
    pub parent: String,
    /// Endings of other modifiers that this one must not follow: modifier and code.
    pub not_after: Vec<[String; 2]>,
}

/// All classes and modifiers of a file.
#[derive(Debug, Default)]
pub(super) struct ClamlModifiers {
    pub classes: Vec<ClamlClass>,
    pub modifier_classes: Vec<ModifierClass>,
}

/// A code made of the code of a class and endings.
#[derive(Debug, Clone)]
struct ComposedCode {
    number: ConceptNumber,
    code: String,
    label: String,
    /// The endings so far: modifier and code.
    endings: Vec<[String; 2]>,
}

impl ClamlModifiers {
    /// Adds the codes that modifiers make to the index. Returns their number.
    ///
    /// # Errors
    /// A message if a class names a modifier that the file does not define, or if there is more text than an
    /// index can hold.
    pub(super) fn add_codes(&self, builder: &mut IndexBuilder) -> Result<usize, String> {
        let by_code: HashMap<&str, &ClamlClass> =
            self.classes.iter().map(|class| (class.code.as_str(), class)).collect();
        let mut endings: HashMap<&str, Vec<&ModifierClass>> = HashMap::new();
        for ending in &self.modifier_classes {
            endings.entry(&ending.modifier).or_default().push(ending);
        }
        let parents = self.classes.iter().flat_map(|class| class.parents.iter().map(String::as_str));
        let with_children: HashSet<&str> = parents.collect();
        let mut added = 0;
        for class in &self.classes {
            let is_leaf = class.children.is_empty() && !with_children.contains(class.code.as_str());
            if !is_leaf || class.kind != CATEGORY {
                continue;
            }
            let mut codes = vec![ComposedCode {
                number: class.number,
                code: class.code.clone(),
                label: class.label.clone(),
                endings: Vec::new(),
            }];
            for used in modifiers_of(class, &by_code) {
                let subclasses = endings.get(used.modifier.as_str()).ok_or_else(|| {
                    format!(
                        "{} is modified by {}, which has no ModifierClass in the file; copy it again",
                        class.code, used.modifier
                    )
                })?;
                let mut next = Vec::new();
                for code in &codes {
                    next.extend(extend_code(builder, code, &used, subclasses)?);
                }
                added += next.len();
                // If no ending fits, the code stays as it is, and a later modifier can still apply.
                if !next.is_empty() {
                    codes = next;
                }
            }
        }
        Ok(added)
    }
}

/// The modifiers that apply to a class: its own and those of the classes above it that no class between them
/// excludes, in the order of the characters that they add.
fn modifiers_of(class: &ClamlClass, by_code: &HashMap<&str, &ClamlClass>) -> Vec<ModifiedBy> {
    let mut used: Vec<ModifiedBy> = Vec::new();
    let mut combinations = HashSet::new();
    let mut open = vec![(class, HashSet::new())];
    while let Some((current, mut excluded)) = open.pop() {
        if !combinations.insert(current.code.as_str()) {
            continue;
        }
        for modified in &current.modified_by {
            let is_new = used.iter().all(|other| other.modifier != modified.modifier);
            if is_new && !excluded.contains(modified.modifier.as_str()) {
                used.push(modified.clone());
            }
        }
        excluded.extend(current.excluded.iter().map(String::as_str));
        let parents = current.parents.iter().filter_map(|parent| by_code.get(parent.as_str()));
        open.extend(parents.map(|parent| (*parent, excluded.clone())));
    }
    used.sort_by_key(|modified| position(&modified.modifier));
    used
}

/// The position of the character that a modifier adds, which is at the end of its name, as in `S04E10_4`.
fn position(modifier: &str) -> u32 {
    modifier.rsplit_once('_').and_then(|(_, digits)| digits.parse().ok()).unwrap_or(u32::MAX)
}

/// Adds the codes that the endings of a modifier make of one code, and returns them.
fn extend_code(
    builder: &mut IndexBuilder,
    base: &ComposedCode,
    used: &ModifiedBy,
    endings: &[&ModifierClass],
) -> Result<Vec<ComposedCode>, String> {
    let mut codes: Vec<ComposedCode> = Vec::new();
    let mut numbers: HashMap<&str, ConceptNumber> = HashMap::new();
    for ending in endings {
        let is_valid = !used.only_valid || used.valid.contains(&ending.code);
        let is_excluded = base.endings.iter().any(|before| ending.not_after.contains(before));
        // A fourth character begins with a point, so that it does not follow another one.
        let fits = !(ending.code.starts_with('.') && base.code.contains('.'));
        if !is_valid || is_excluded || !fits {
            continue;
        }
        let point = if base.code.contains('.') || ending.code.starts_with('.') { "" } else { "." };
        let code = format!("{}{point}{}", base.code, ending.code);
        let (number, is_new) = builder.add_concept(&code)?;
        numbers.insert(&ending.code, number);
        let label = format!("{}: {}", base.label, ending.label);
        // A class of the file with this code has its own texts.
        if is_new {
            builder.add_parent(number, numbers.get(ending.parent.as_str()).copied().unwrap_or(base.number));
            builder.set_display(number, &label)?;
            builder.add_property(number, "kind", CATEGORY)?;
        }
        let mut so_far = base.endings.clone();
        so_far.push([ending.modifier.clone(), ending.code.clone()]);
        codes.push(ComposedCode { number, code, label, endings: so_far });
    }
    Ok(codes)
}
