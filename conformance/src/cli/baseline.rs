//! Baselines: files with known failures, in the format of `gaps.toml`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};

use crate::run::verdict::Verdict;
use crate::run::{RunEvent, RunListener};

/// Reads a baseline: the reasons by case.
pub fn read_baseline(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let gaps = crate::spec::gaps(&text).with_context(|| path.display().to_string())?;
    Ok(gaps.into_iter().map(|gap| (gap.case, gap.reason)).collect())
}

/// Collects the ids of failed cases for a baseline.
#[derive(Debug, Clone, Default)]
pub struct Failures(Arc<Mutex<Vec<(String, String)>>>);

impl RunListener for Failures {
    fn on_event(&mut self, event: &RunEvent<'_>) {
        if let RunEvent::Case(outcome) = event
            && let Verdict::Fail(failure) = &outcome.verdict
        {
            let reason = failure.differences.join("; ");
            self.0
                .lock()
                .expect("no thread panics while it holds the lock")
                .push((outcome.id.clone(), reason));
        }
    }
}

impl Failures {
    /// Writes the failures as a baseline.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failures = self.0.lock().expect("no thread panics while it holds the lock");
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let rows = failures
            .iter()
            .map(|(case, reason)| format!("[[gap]]\ncase = {}\nreason = {}\n", quoted(case), quoted(reason)));
        let text = rows.collect::<Vec<_>>().join("\n");
        std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    }
}
