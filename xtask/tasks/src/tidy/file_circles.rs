//! Circles of files inside a crate: files that import each other, directly or through others. They have to be
//! read together, so there may be few of them, and only small ones.
//!
//! An import counts for the file that declares the item, not for a file that re-exports it.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use super::module_cycles::{ModuleArrows, cycles};
use super::source_text::is_test_only;

/// Maximum number of circles in all crates.
const MOST_CIRCLES: usize = 10;
/// Maximum number of files in a circle.
const MOST_FILES: usize = 4;

/// Names of a module and its parents; empty for the root of the crate.
type ModulePath = Vec<String>;

/// The imports and paths of one file.
#[derive(Default)]
struct FileUses {
    /// Paths that the file uses, absolute in the crate.
    paths: Vec<ModulePath>,
    /// Names that the file imports or re-exports, with the absolute path of each.
    imported: BTreeMap<String, ModulePath>,
}

/// Checks the files of every crate.
pub fn check(sources: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    let crates: BTreeSet<&str> =
        sources.keys().filter_map(|file| file.find("/src/").map(|offset| &file[..offset + 4])).collect();
    let mut count = 0;
    for root in crates {
        let files = sources
            .iter()
            .filter_map(|(file, text)| Some((file.strip_prefix(root)?.strip_prefix('/')?, text.as_str())));
        for circle in cycles(&arrows(files)) {
            count += 1;
            if circle.len() > MOST_FILES {
                let files = circle.join(", ");
                faults.push(format!(
                    "{root}: {} files import each other: {files}; move what they share into a file of its own",
                    circle.len()
                ));
            }
        }
    }
    if count > MOST_CIRCLES {
        faults.push(format!(
            "{count} circles of files import each other, at most {MOST_CIRCLES} are allowed; move what two files share into a third"
        ));
    }
}

/// The files that each file imports from.
fn arrows<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> ModuleArrows {
    let parsed: BTreeMap<ModulePath, syn::File> =
        files.filter_map(|(file, text)| Some((module_path(file), syn::parse_file(text).ok()?))).collect();
    let modules: BTreeSet<ModulePath> = parsed.keys().cloned().collect();
    let uses: BTreeMap<&ModulePath, FileUses> =
        parsed.iter().map(|(module, file)| (module, FileUses::read(module, file, &modules))).collect();
    let mut arrows = ModuleArrows::new();
    for (module, file) in &uses {
        let declaring = file.paths.iter().filter_map(|path| declaring_module(path, &uses, 8));
        let others = declaring.filter(|declaring| declaring != module);
        arrows.entry(name(module)).or_default().extend(others.map(name));
    }
    arrows
}

fn module_path(file: &str) -> ModulePath {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/').filter(|name| !matches!(*name, "lib" | "main" | "mod")).map(str::to_owned).collect()
}

fn name(module: &ModulePath) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

/// The module that declares the item at a path, through at most `hops` re-exports.
fn declaring_module<'m>(
    path: &[String],
    uses: &BTreeMap<&'m ModulePath, FileUses>,
    hops: usize,
) -> Option<&'m ModulePath> {
    let (module, file) = (0..=path.len()).rev().find_map(|end| uses.get_key_value(&path[..end].to_vec()))?;
    let rest = &path[module.len()..];
    let imported = rest.first().and_then(|item| file.imported.get(item));
    match imported.filter(|imported| imported.as_slice() != path && hops > 0) {
        Some(imported) => {
            let path: ModulePath = imported.iter().chain(&rest[1..]).cloned().collect();
            declaring_module(&path, uses, hops - 1).or(Some(module))
        }
        None => Some(module),
    }
}

impl FileUses {
    fn read(module: &ModulePath, file: &syn::File, modules: &BTreeSet<ModulePath>) -> Self {
        let mut reader = UseReader { module, modules, uses: Self::default() };
        // Imports first, because paths can begin with what they import.
        for item in &file.items {
            if let Item::Use(item) = item {
                reader.read_import(&item.vis, &[], &item.tree);
            }
        }
        reader.visit_file(file);
        reader.uses
    }
}

struct UseReader<'a> {
    module: &'a ModulePath,
    modules: &'a BTreeSet<ModulePath>,
    uses: FileUses,
}

impl UseReader<'_> {
    fn read_import(&mut self, visibility: &Visibility, prefix: &[String], tree: &UseTree) {
        let joined = |name: String| [prefix, &[name]].concat();
        match tree {
            UseTree::Path(path) => {
                self.read_import(visibility, &joined(path.ident.to_string()), &path.tree);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.read_import(visibility, prefix, tree));
            }
            UseTree::Glob(_) => self.add_import(visibility, prefix, None),
            UseTree::Name(item) if item.ident == "self" => {
                self.add_import(visibility, prefix, prefix.last().cloned());
            }
            UseTree::Name(item) => {
                let name = item.ident.to_string();
                self.add_import(visibility, &joined(name.clone()), Some(name));
            }
            UseTree::Rename(item) => {
                self.add_import(visibility, &joined(item.ident.to_string()), Some(item.rename.to_string()));
            }
        }
    }

    fn add_import(&mut self, visibility: &Visibility, path: &[String], name: Option<String>) {
        let Some(path) = self.absolute(path) else { return };
        // A module that re-exports its own parts does not depend on them.
        let re_exports_part = !matches!(visibility, Visibility::Inherited) && path.starts_with(self.module);
        if !re_exports_part {
            self.uses.paths.push(path.clone());
        }
        if let Some(name) = name {
            self.uses.imported.insert(name, path);
        }
    }

    /// The path from the root of the crate; `None` for a path of another crate.
    fn absolute(&self, path: &[String]) -> Option<ModulePath> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (&self.module[..0], &path[1..]),
            "self" => (&self.module[..], &path[1..]),
            "super" => (&self.module[..self.module.len().checked_sub(supers)?], &path[supers..]),
            first => {
                if let Some(imported) = self.uses.imported.get(first) {
                    return Some([imported, &path[1..]].concat());
                }
                let child = [self.module.as_slice(), &path[..1]].concat();
                (self.modules.contains(&child).then_some(&self.module[..])?, path)
            }
        };
        Some([base, rest].concat())
    }
}

impl<'ast> Visit<'ast> for UseReader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Use(_) => return,
            _ => &[],
        };
        if !is_test_only(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.uses.paths.extend(self.absolute(&names));
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&'static str, &'static str)]) -> Vec<Vec<String>> {
        cycles(&arrows(files.iter().copied()))
    }

    #[test]
    fn an_import_counts_for_the_file_that_declares_the_item() {
        let files = [
            ("a/mod.rs", "mod b; mod c; pub use self::b::X;"),
            ("a/b.rs", "use super::c::Y; pub struct X;"),
            ("a/c.rs", "use super::X; pub struct Y;"),
        ];
        assert_eq!(circles(&files), [["a::b", "a::c"]]);
        let one_way = [files[0], ("a/b.rs", "pub struct X;"), files[2]];
        assert!(circles(&one_way).is_empty());
    }

    #[test]
    fn paths_count_and_tests_do_not() {
        let by_path = [("a.rs", "use crate::b; fn f() { b::g() }"), ("b.rs", "fn g() { super::a::f() }")];
        assert_eq!(circles(&by_path), [["a", "b"]]);
        let in_tests = [
            ("a.rs", "use crate::b::g;"),
            ("b.rs", "pub fn g() {} #[cfg(test)] mod tests { use crate::a::f; }"),
        ];
        assert!(circles(&in_tests).is_empty());
    }
}
