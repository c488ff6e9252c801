//! `cargo xtask book`: the documents as a site with search, in `target/book/book`, made by mdbook.
//!
//! The pages keep their places in the tree of the project, so that the links between them need no change.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use xtask::workspace::{check, root, target_dir};

/// A part of the site: its title, and the title and path of each page.
type Part = (&'static str, &'static [(&'static str, &'static str)]);

/// The order of the pages: what to do first, how to do it, what there is, and why it is so.
const PARTS: &[Part] = &[
    (
        "Tutorials",
        &[
            ("Trefoil", "README.md"),
            ("Your own app in ten minutes", "server/docs/first-app.md"),
            ("Your first export, and its second day", "server/docs/first-export.md"),
            ("Your own terminology", "server/docs/first-terminology.md"),
            ("A hospital's provider", "server/docs/first-provider.md"),
        ],
    ),
    (
        "How to",
        &[
            ("Install it", "server/docs/installation.md"),
            ("Put a proxy in front", "server/docs/proxies.md"),
            ("Administer users, clients and keys", "server/docs/administration.md"),
            ("Write an app in your language", "server/docs/languages.md"),
            ("Sign people in", "server/docs/identity.md"),
            ("Load and ask terminology", "server/docs/terminology.md"),
            ("Export in bulk", "server/docs/bulk-export.md"),
            ("Store and search resources", "server/docs/resources.md"),
            ("Save, restore and move it", "server/docs/backup.md"),
            ("Erase a record", "server/docs/erasure.md"),
            ("Watch it", "server/docs/monitoring.md"),
            ("Operate it", "server/docs/operations.md"),
            ("Upgrade it", "server/docs/upgrading.md"),
            ("Find out what is wrong", "server/docs/troubleshooting.md"),
            ("Use the terminal client", "client-tui/README.md"),
            ("Test any server", "conformance/README.md"),
        ],
    ),
    (
        "Reference",
        &[
            ("Interface", "server/docs/interface.md"),
            ("OAuth and OpenID Connect", "server/docs/interface/oauth.md"),
            ("Pages", "server/docs/interface/pages.md"),
            ("FHIR", "server/docs/interface/fhir.md"),
            ("Terminology", "server/docs/interface/terminology.md"),
            ("Bulk export", "server/docs/interface/bulk.md"),
            ("Administration", "server/docs/interface/admin.md"),
            ("Settings", "server/docs/configuration.md"),
            ("Wants of users of the terminal client", "client-tui/docs/wants.md"),
            ("Changelog", "CHANGELOG.md"),
        ],
    ),
    (
        "Explanation",
        &[
            ("Architecture", "server/docs/architecture.md"),
            ("Decisions", "server/docs/decisions.md"),
            ("Scaling", "server/docs/scaling.md"),
            ("Benchmarks", "server/docs/benchmarks.md"),
            ("Questions, and other servers", "server/docs/questions.md"),
            ("Glossary", "server/docs/glossary.md"),
            ("Contributing", ".github/CONTRIBUTING.md"),
            ("Security", ".github/SECURITY.md"),
        ],
    ),
];

/// Folders with the pictures of the pages.
const PICTURES: [&str; 2] = ["client-tui", "server/docs/pictures"];
/// Languages whose consecutive blocks are tabs, with their names.
const TABS: [(&str, &str); 5] =
    [("bash", "Bash"), ("javascript", "JavaScript"), ("python", "Python"), ("java", "Java"), ("r", "R")];

/// Remedy if a program is missing.
const INSTALL: &str = "'cargo install mdbook mdbook-tabs' installs the programs that make the site";

/// Makes the site.
pub fn run() -> Result<()> {
    let book = target_dir().join("book");
    drop(fs::remove_dir_all(&book));
    let source = book.join("src");
    for (_, path) in pages() {
        copy(path, &source)?;
    }
    for folder in PICTURES {
        for entry in fs::read_dir(root().join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".png") {
                copy(&format!("{folder}/{name}"), &source)?;
            }
        }
    }
    fs::write(source.join("SUMMARY.md"), summary())?;
    fs::copy(root().join("server/docs/book.toml"), book.join("book.toml"))?;
    // The style and the script of the tabs.
    let mut tabs = Command::new("mdbook-tabs");
    check(tabs.arg("install").current_dir(&book)).context(INSTALL)?;
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(&book);
    check(&mut mdbook).context(INSTALL)?;
    println!("wrote {}", book.join("book/index.html").display());
    Ok(())
}

fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARTS.iter().flat_map(|(_, pages)| pages.iter().copied())
}

fn copy(path: &str, source: &Path) -> Result<()> {
    let target = source.join(path);
    fs::create_dir_all(target.parent().context("a page has a folder")?)?;
    let source = root().join(path);
    if path.ends_with(".md") {
        let text = fs::read_to_string(&source).with_context(|| format!("failed to read {path}"))?;
        fs::write(target, with_tabs(&text))?;
    } else {
        fs::copy(source, target).with_context(|| format!("failed to copy {path}"))?;
    }
    Ok(())
}

/// Puts consecutive blocks of [`TABS`] into tabs of mdbook-tabs. The choice of a reader holds for all pages.
fn with_tabs(text: &str) -> String {
    let mut result = String::new();
    let (mut is_open, mut in_tab) = (false, false);
    for line in text.lines() {
        let tab =
            line.strip_prefix("```").and_then(|language| TABS.iter().find(|(name, _)| *name == language));
        if let Some((_, name)) = tab {
            if !is_open {
                result += "{{#tabs global=\"language\" }}\n";
            }
            result += &format!("{{{{#tab name=\"{name}\" }}}}\n{line}\n");
            (is_open, in_tab) = (true, true);
        } else if in_tab && line == "```" {
            result += "```\n{{#endtab }}\n";
            in_tab = false;
        } else {
            if is_open && !in_tab && !line.is_empty() {
                result += "{{#endtabs }}\n\n";
                is_open = false;
            }
            if in_tab || !is_open {
                result += line;
                result.push('\n');
            }
        }
    }
    if is_open {
        result += "{{#endtabs }}\n";
    }
    result
}

/// The table of contents in the form of mdbook.
fn summary() -> String {
    let mut text = "# Summary\n".to_owned();
    for (part, pages) in PARTS {
        text.push_str(&format!("\n# {part}\n\n"));
        for (title, path) in *pages {
            text.push_str(&format!("- [{title}]({path})\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_blocks_are_tabs() {
        let page = "Text.\n\n```bash\na\n```\n\n```r\nb\n\nc\n```\n\nMore.\n\n```sh\nd\n```\n";
        let expected = "Text.\n\n{{#tabs global=\"language\" }}\n{{#tab name=\"Bash\" }}\n```bash\na\n```\n{{#endtab }}\n\
                        {{#tab name=\"R\" }}\n```r\nb\n\nc\n```\n{{#endtab }}\n{{#endtabs }}\n\nMore.\n\n```sh\nd\n```\n";
        assert_eq!(with_tabs(page), expected);
    }

    #[test]
    fn each_document_of_the_server_is_in_the_site() {
        for folder in ["server/docs", "server/docs/interface"] {
            for entry in fs::read_dir(root().join(folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let path = format!("{folder}/{name}");
                if name.ends_with(".md") {
                    assert!(pages().any(|(_, page)| page == path), "{path} is in no part of the site");
                }
            }
        }
    }

    #[test]
    fn the_contents_name_existing_pages() {
        for (title, path) in pages() {
            assert!(root().join(path).is_file(), "{title}: {path} does not exist");
            assert!(summary().contains(&format!("- [{title}]({path})\n")));
        }
    }
}
