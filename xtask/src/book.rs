//! `cargo xtask book`: the documents as a site with search, in `target/book/book`, made by mdbook.
//!
//! The pages keep their places in the tree of the project, so that the links between them need no change.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{check, root, target_dir};

/// A part of the site: its title, and the title and path of each page.
type Part = (&'static str, &'static [(&'static str, &'static str)]);

/// The order of the pages: what to do first, how to do it, what there is, and why it is so.
const PARTS: &[Part] = &[
    (
        "Tutorials",
        &[
            ("The first minute", "README.md"),
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
            ("Glossary", "server/docs/glossary.md"),
            ("Contributing", ".github/CONTRIBUTING.md"),
            ("Security", ".github/SECURITY.md"),
        ],
    ),
];

/// Makes the site.
pub fn run() -> Result<()> {
    let book = target_dir().join("book");
    drop(fs::remove_dir_all(&book));
    let source = book.join("src");
    for (_, path) in pages() {
        copy(path, &source)?;
    }
    for entry in fs::read_dir(root().join("client-tui"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".png") {
            copy(&format!("client-tui/{name}"), &source)?;
        }
    }
    fs::write(source.join("SUMMARY.md"), summary())?;
    fs::copy(root().join("server/docs/book.toml"), book.join("book.toml"))?;
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(&book);
    check(&mut mdbook).context("the site is made by mdbook; 'cargo install mdbook' installs it")?;
    println!("wrote {}", book.join("book/index.html").display());
    Ok(())
}

fn pages() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARTS.iter().flat_map(|(_, pages)| pages.iter().copied())
}

fn copy(path: &str, source: &Path) -> Result<()> {
    let target = source.join(path);
    fs::create_dir_all(target.parent().context("a page has a folder")?)?;
    fs::copy(root().join(path), target).with_context(|| format!("failed to copy {path}"))?;
    Ok(())
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
