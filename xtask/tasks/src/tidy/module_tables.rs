//! Tables of modules: a table with the header `module` in the comment at the top of a file names every module
//! of this file, so that a newcomer finds each of them by its contents.

use std::collections::{BTreeMap, BTreeSet};

use syn::Item;

use super::source_text::is_test_only;

/// Checks the tables of all files.
pub fn check(sources: &BTreeMap<String, String>, faults: &mut Vec<String>) {
    for (file, text) in sources {
        for module in missing_modules(text) {
            faults
                .push(format!("{file}: the table of modules lacks '{module}'; add a row with its contents"));
        }
    }
}

/// The modules that a source declares in other files and its table does not name.
fn missing_modules(text: &str) -> Vec<String> {
    let comment = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut rows = comment.skip_while(|line| !line.starts_with(" | module |")).peekable();
    if rows.peek().is_none() {
        return Vec::new();
    }
    let words: BTreeSet<&str> =
        rows.flat_map(|row| row.split(|c: char| c != '_' && !c.is_alphanumeric())).collect();
    let Ok(source) = syn::parse_file(text) else { return Vec::new() };
    let modules = source.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && !is_test_only(&module.attrs) => {
            Some(module.ident.to_string())
        }
        _ => None,
    });
    modules.filter(|module| !words.contains(module.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_every_module_but_those_for_tests() {
        let table = "//! Parts.\n//!\n//! | module | contents |\n//! |---|---|\n//! | [`a`], `b_c` | x |\n\n";
        let modules = "mod a;\npub mod b_c;\npub(crate) mod d;\nmod inline {}\n#[cfg(test)]\nmod tests;\n";
        assert_eq!(missing_modules(&format!("{table}{modules}")), ["d"]);
        assert!(missing_modules(modules).is_empty(), "a file without a table");
    }
}
