//! The files of the suite: `test-cases.json` and the files that it names. Each file is read once.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::r4;

/// Content of `test-cases.json`.
#[derive(Debug, Deserialize)]
pub struct TestCases {
    /// Suites of tests.
    pub suites: Vec<TestSuite>,
}

/// A group of tests with the same setup.
#[derive(Debug, Deserialize)]
pub struct TestSuite {
    /// Name of the suite.
    pub name: String,
    /// Mode in which the suite runs; `None` if it runs in all modes.
    pub mode: Option<String>,
    /// Files with resources that every request contains.
    #[serde(default)]
    pub setup: Vec<String>,
    /// Whether the suite is disabled.
    #[serde(default)]
    pub disabled: bool,
    /// Tests of the suite.
    pub tests: Vec<SuiteTest>,
}

/// A test: one request and its expected response.
#[derive(Debug, Deserialize)]
pub struct SuiteTest {
    /// Name of the test within the suite.
    pub name: String,
    /// Operation, such as `validate-code`.
    pub operation: String,
    /// Expected class of the status, such as `4xx`; `2xx` if `None`.
    #[serde(rename = "http-code")]
    pub http_code: Option<String>,
    /// File with parameters that are added instead of the default ones.
    pub profile: Option<String>,
    /// Value of the header `Accept-Language`.
    #[serde(rename = "Accept-Language")]
    pub accept_language: Option<String>,
    /// An additional header.
    pub header: Option<TestHeader>,
    /// Mode that the test requires.
    pub mode: Option<String>,
    /// FHIR version that the test requires.
    pub version: Option<Value>,
    /// File of an alternative expected response.
    pub response2: Option<String>,
    /// Whether the test is disabled.
    #[serde(default)]
    pub disabled: bool,
    /// Files by role: `request`, `response` and their variants for modes (`response:flat`).
    #[serde(flatten)]
    files: Map<String, Value>,
}

/// A header that a test sends.
#[derive(Debug, Deserialize)]
pub struct TestHeader {
    /// Name of the header.
    pub name: String,
    /// Value of the header.
    pub value: String,
    /// Mode in which the header is sent; `None` if it is sent in all modes.
    pub mode: Option<String>,
}

/// Texts of a server's messages by file of the expected response and number of the message.
pub type Externals = HashMap<String, HashMap<String, String>>;

/// Reads a file with the texts of messages.
///
/// # Errors
/// An error if the file cannot be read or has another format.
pub fn externals(path: &Path) -> Result<Externals> {
    let text = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} does not contain texts of messages", path.display()))
}

impl SuiteTest {
    /// The file of the request or the response in these modes.
    pub fn file(&self, what: &str, modes: &BTreeSet<String>) -> Option<&str> {
        let special = modes.iter().find_map(|mode| self.files.get(&format!("{what}:{mode}")));
        special.or_else(|| self.files.get(what)).and_then(Value::as_str)
    }
}

/// Files in the folder of the suite.
#[derive(Debug)]
pub struct TestFiles {
    root: PathBuf,
    read: RefCell<HashMap<String, Rc<Value>>>,
    in_r4: RefCell<HashMap<String, Rc<Value>>>,
}

impl TestFiles {
    /// The files in this folder.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), read: RefCell::default(), in_r4: RefCell::default() }
    }

    /// Reads `test-cases.json`.
    ///
    /// # Errors
    /// An error if the file does not exist or has another format.
    pub fn cases(&self) -> Result<TestCases> {
        let json = self.get("test-cases.json")?;
        TestCases::deserialize(&*json).context("test-cases.json does not belong to HL7's terminology suite")
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// An error if the file is missing or is not JSON.
    pub fn get(&self, name: &str) -> Result<Rc<Value>> {
        if let Some(cached) = self.read.borrow().get(name) {
            return Ok(cached.clone());
        }
        let path = self.root.join(name);
        let bytes = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let value = parse(&bytes).with_context(|| format!("{} is not valid JSON", path.display()))?;
        let value = Rc::new(value);
        self.read.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(value)
    }

    /// The contents of a file, converted to R4.
    ///
    /// # Errors
    /// An error if the file is missing or is not JSON.
    pub fn r4(&self, name: &str) -> Result<Rc<Value>> {
        if let Some(cached) = self.in_r4.borrow().get(name) {
            return Ok(cached.clone());
        }
        let value = Rc::new(r4::from_r5(&*self.get(name)?));
        self.in_r4.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(value)
    }
}

/// Parses JSON that may begin with a byte order mark, as some files of the suite and some responses do.
///
/// # Errors
/// An error if the text is not JSON.
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_depend_on_the_mode_and_begin_with_a_byte_order_mark() {
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
