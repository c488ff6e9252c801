//! One Markdown page for each requirement that failed, for the maker of the server: what the clause asks for,
//! what was sent, what came back, and how to repeat it without the suite.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::record::RunRecord;
use crate::run::verdict::{CaseFailure, ShownExchange};
use crate::run::{RunEvent, RunListener};
use crate::spec::requirement::Requirement;

/// Writes the pages into a folder at the end of the run.
pub struct Findings {
    folder: PathBuf,
    record: RunRecord,
}

impl Findings {
    /// Creates the folder.
    ///
    /// # Errors
    /// An error if it cannot be created.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), record: RunRecord::default() })
    }
}

impl RunListener for Findings {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        self.record.add(event);
        if let RunEvent::End(_) = event {
            for (name, text) in pages(&self.record) {
                let path = self.folder.join(name);
                if let Err(error) = fs::write(&path, text) {
                    eprintln!("error: failed to write {}: {error}", path.display());
                }
            }
        }
    }
}

/// The names and texts of the pages, in the order of the requirements.
fn pages(record: &RunRecord) -> Vec<(String, String)> {
    let failed = record.requirements.iter().filter_map(|requirement| {
        let failures: Vec<_> =
            record.failures().filter(|(outcome, _)| outcome.covers.contains(&requirement.id)).collect();
        (!failures.is_empty()).then(|| {
            let mut text = head(record, requirement);
            for (outcome, failure) in failures {
                write_failure(&mut text, &outcome.id, failure);
            }
            (format!("{}.md", requirement.id.replace('/', "-")), text)
        })
    });
    failed.collect()
}

fn head(record: &RunRecord, requirement: &Requirement) -> String {
    let source = match &requirement.standard {
        Some(url) => format!("<{url}>"),
        None => "a rule of Trefoil, not of a standard".to_owned(),
    };
    format!(
        "# {}\n\n- Requirement: `{}`, {}\n- Source: {source}\n- Server: {}, {}\n- Suite: {}\n",
        requirement.gist,
        requirement.id,
        requirement.level.keyword(),
        record.target,
        record.started.strftime("%Y-%m-%d %H:%M UTC"),
        record.suite
    )
}

fn write_failure(text: &mut String, case: &str, failure: &CaseFailure) {
    let _ = writeln!(text, "\n## {case}\n");
    for difference in &failure.differences {
        let _ = writeln!(text, "- {difference}");
    }
    let count = failure.exchanges.len();
    if count == 0 {
        return;
    }
    let secrets =
        "`***` stands for a secret, a code or a token: put in the one of the answer before, or your own.";
    let _ = writeln!(text, "\nTo repeat it, send these requests in order. {secrets}");
    for (number, ShownExchange { request, answer }) in failure.exchanges.iter().enumerate() {
        let role = if number + 1 == count { ", whose answer differs" } else { "" };
        let _ = writeln!(text, "\n### Step {}{role}\n", number + 1);
        write_block(text, "sh", request);
        text.push('\n');
        write_block(text, "http", answer);
    }
}

/// A fenced block with a fence that its content does not have.
fn write_block(text: &mut String, language: &str, content: &str) {
    let mut fence = "```".to_owned();
    while content.contains(&fence) {
        fence.push('`');
    }
    let _ = writeln!(text, "{fence}{language}\n{}\n{fence}", content.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::trial;

    #[test]
    fn each_failed_requirement_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        trial::emit(&mut Findings::new(&folder.path().join("new/folder")).unwrap());
        let names: Vec<_> = fs::read_dir(folder.path().join("new/folder"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, ["spec-userinfo-x.md"]);
        let page = fs::read_to_string(folder.path().join("new/folder/spec-userinfo-x.md")).unwrap();
        insta::assert_snapshot!(page);
    }

    #[test]
    fn a_block_ends_at_its_own_fence() {
        let mut text = String::new();
        write_block(&mut text, "http", "a\n```\nb\n");
        assert_eq!(text, "````http\na\n```\nb\n````\n");
    }
}
