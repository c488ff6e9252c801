//! The files of the suite: `test-cases.json` and the files that it names, each read once.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::r4;

/// `test-cases.json`.
#[derive(Debug, Deserialize)]
pub struct TestCases {
    /// The suites.
    pub suites: Vec<TestSuite>,
}

/// Tests that share resources.
#[derive(Debug, Deserialize)]
pub struct TestSuite {
    /// Its name.
    pub name: String,
    /// The mode that it belongs to; without one it always runs.
    pub mode: Option<String>,
    /// Files with resources that every request brings along.
    #[serde(default)]
    pub setup: Vec<String>,
    /// True if the suite is switched off.
    #[serde(default)]
    pub disabled: bool,
    /// The tests.
    pub tests: Vec<SuiteTest>,
}

/// One request and what is expected of the answer.
#[derive(Debug, Deserialize)]
pub struct SuiteTest {
    /// Its name within the suite.
    pub name: String,
    /// Operation, such as `validate-code`.
    pub operation: String,
    /// The class of the status, such as `4xx`; without it 2xx.
    #[serde(rename = "http-code")]
    pub http_code: Option<String>,
    /// File with parameters that are added in place of the usual ones.
    pub profile: Option<String>,
    /// The header of this name.
    #[serde(rename = "Accept-Language")]
    pub accept_language: Option<String>,
    /// One more header.
    pub header: Option<TestHeader>,
    /// The mode without which it does not run.
    pub mode: Option<String>,
    /// The FHIR version that it is for.
    pub version: Option<Value>,
    /// A second answer that is allowed.
    pub response2: Option<String>,
    /// True if the test is switched off.
    #[serde(default)]
    pub disabled: bool,
    /// `request`, `response` and their variants for modes (`response:flat`).
    #[serde(flatten)]
    files: Map<String, Value>,
}

/// A header that a test sends.
#[derive(Debug, Deserialize)]
pub struct TestHeader {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
    /// The mode without which it is not sent.
    pub mode: Option<String>,
}

impl SuiteTest {
    /// The file of the request or the response, in these modes.
    pub fn file(&self, what: &str, modes: &BTreeSet<String>) -> Option<&str> {
        let special = modes.iter().find_map(|mode| self.files.get(&format!("{what}:{mode}")));
        special.or_else(|| self.files.get(what)).and_then(Value::as_str)
    }
}

/// The folder of the suite.
#[derive(Debug)]
pub struct TestFiles {
    root: PathBuf,
    read: RefCell<HashMap<String, Rc<Value>>>,
    in_r4: RefCell<HashMap<String, Rc<Value>>>,
}

impl TestFiles {
    /// The suite in this folder.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), read: RefCell::default(), in_r4: RefCell::default() }
    }

    /// Reads `test-cases.json`.
    ///
    /// # Errors
    /// Returns an error if the file does not exist or has another format.
    pub fn cases(&self) -> Result<TestCases> {
        let json = self.get("test-cases.json")?;
        TestCases::deserialize(&*json).context("test-cases.json is not of HL7's terminology suite")
    }

    /// Returns the contents of a file.
    ///
    /// # Errors
    /// Returns an error if the file is missing or is not JSON.
    pub fn get(&self, name: &str) -> Result<Rc<Value>> {
        if let Some(known) = self.read.borrow().get(name) {
            return Ok(known.clone());
        }
        let path = self.root.join(name);
        let bytes = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let value = parse(&bytes).with_context(|| format!("{} is not valid JSON", path.display()))?;
        let value = Rc::new(value);
        self.read.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(value)
    }

    /// A file in R4 form.
    ///
    /// # Errors
    /// Returns an error if the file is missing or is not JSON.
    pub fn r4(&self, name: &str) -> Result<Rc<Value>> {
        if let Some(known) = self.in_r4.borrow().get(name) {
            return Ok(known.clone());
        }
        let value = Rc::new(r4::from_r5(&*self.get(name)?));
        self.in_r4.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(value)
    }
}

/// Reads JSON that may begin with a byte order mark, as some files of the suite and some servers do.
///
/// # Errors
/// Returns an error if it is not JSON.
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_differ_by_mode_and_begin_with_a_mark() {
        let test: SuiteTest = serde_json::from_value(parse(
            b"\xef\xbb\xbf{\"name\":\"t\",\"operation\":\"expand\",\"response\":\"a\",\"response:flat\":\"b\"}",
        )
        .unwrap())
        .unwrap();
        let modes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(test.file("response", &modes(&["general"])), Some("a"));
        assert_eq!(test.file("response", &modes(&["flat", "general"])), Some("b"));
        assert_eq!(test.file("request", &modes(&[])), None);
    }
}
