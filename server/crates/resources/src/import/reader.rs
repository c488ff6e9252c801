//! From files to writes. Runs on a thread that may block, and waits when the store cannot follow.

use std::io::{self, BufRead, Cursor, Read};
use std::mem;
use std::path::{Path, PathBuf};

use store::{ExpectVersion, ResourceKey, VersionWrite};
use tokio::sync::mpsc;

use super::files::{self, Content, Line};
use super::{Bad, ImportOptions, Work};
use crate::BodyError;
use crate::bundle::{self, Head};
use crate::prepare::{Id, Limits, Prepared, prepare, prepare_named};

/// One commit takes writes until their drafts reach this many bytes,
const BATCH_BYTES: usize = 2 << 20;
/// or until there are this many of them.
const BATCH_WRITES: usize = 1_000;
/// Bytes between two reports of what was read.
const STEP: u64 = 1 << 20;
/// Types of Bundles that are only a way to carry resources; others are documents of their own.
const CARRIERS: [&str; 4] = ["batch", "collection", "searchset", "transaction"];

/// Why reading stops before the end of a file.
enum Halt {
    /// The store failed, so nobody listens any more.
    Stopped,
    /// This file cannot be read on.
    File(String),
}

impl From<io::Error> for Halt {
    fn from(error: io::Error) -> Self {
        Self::File(error.to_string())
    }
}

pub(super) struct Reader<N> {
    options: ImportOptions,
    fhir_base: String,
    new_id: N,
    sink: mpsc::Sender<Work>,
    batch: Vec<VersionWrite>,
    batch_bytes: usize,
    /// Bytes of the files that are dealt with, and of all.
    bytes: u64,
    of: u64,
}

impl<N: FnMut() -> String> Reader<N> {
    pub fn new(options: ImportOptions, fhir_base: String, new_id: N, sink: mpsc::Sender<Work>) -> Self {
        Self { options, fhir_base, new_id, sink, batch: Vec::new(), batch_bytes: 0, bytes: 0, of: 0 }
    }

    /// Reads everything, unless the store fails.
    pub fn run(mut self, paths: &[PathBuf]) {
        self.of = files::size(paths);
        for path in paths {
            let done = match files::below(path) {
                Ok(found) => found.iter().try_for_each(|file| self.file(file, file == path)),
                Err(error) => self.bad(&path.display().to_string(), None, &error.to_string()),
            };
            if done.is_err() {
                break;
            }
        }
    }

    /// One file. `is_named`: the caller named it, so it is bad if it holds nothing.
    fn file(&mut self, path: &Path, is_named: bool) -> Result<(), Halt> {
        let name = path.display().to_string();
        self.send(Work::File(name.clone()))?;
        let read = match files::open(path, self.teller(&name)) {
            Ok(Content::Tar(archive)) => self.package(&name, archive),
            Ok(Content::Text(text)) => self.text(&name, text, is_named),
            Ok(Content::Other) => self.nothing(&name, is_named, "neither JSON nor a package"),
            Err(error) => Err(error.into()),
        };
        match read {
            Err(Halt::File(reason)) => self.bad(&name, None, &reason)?,
            other => other?,
        }
        self.flush()?;
        // Of a file that holds nothing only the head was read.
        self.bytes += path.metadata().map_or(0, |file| file.len());
        self.send(Work::Bytes { file: name.clone(), bytes: self.bytes, of: self.of })?;
        self.send(Work::Done(name))
    }

    /// Passes on what is read of a file, in steps.
    fn teller(&self, name: &str) -> Box<dyn FnMut(u64)> {
        let (sink, file, of) = (self.sink.clone(), name.to_owned(), self.of);
        let (mut bytes, mut told) = (self.bytes, self.bytes);
        Box::new(move |more| {
            bytes += more;
            if bytes - told >= STEP {
                told = bytes;
                // That nobody listens any more is found by what comes next.
                drop(sink.blocking_send(Work::Bytes { file: file.clone(), bytes, of }));
            }
        })
    }

    /// NDJSON, a resource or a Bundle. NDJSON is what is called so, or has a whole object in its first line
    /// and something behind it.
    fn text(&mut self, name: &str, mut source: Box<dyn BufRead>, is_named: bool) -> Result<(), Halt> {
        if name.ends_with(".ndjson") || name.ends_with(".ndjson.gz") {
            return self.lines(name, &mut source);
        }
        let limit = self.options.bundle_bytes;
        let mut first = Vec::new();
        let mut blank_lines = 0;
        loop {
            match files::next_line(&mut source, &mut first, limit)? {
                Line::Text if first.trim_ascii().is_empty() => blank_lines += 1,
                Line::Text => break,
                Line::TooLong => return self.bad(name, None, &BodyError::TooBig { limit }.to_string()),
                Line::End => return self.nothing(name, is_named, "it is empty"),
            }
        }
        let text = first.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&first);
        let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
        // What was read is put back, so that line numbers are right.
        first.splice(0..0, vec![b'\n'; blank_lines]);
        first.push(b'\n');
        if is_whole && has_more(&mut source, &mut first)? {
            return self.lines(name, &mut Cursor::new(first).chain(source));
        }
        let mut document = first;
        source.take((limit + 1).saturating_sub(document.len()) as u64).read_to_end(&mut document)?;
        self.document(name, &document, is_named)
    }

    fn lines(&mut self, name: &str, source: &mut dyn BufRead) -> Result<(), Halt> {
        let limit = self.options.line_bytes.min(self.options.limits.bytes);
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            let answer = match files::next_line(source, &mut line, limit)? {
                Line::End => break,
                Line::Text if line.trim_ascii().is_empty() => Ok(None),
                Line::Text => self.resource(&line).map(Some),
                Line::TooLong => Err(BodyError::TooBig { limit }),
            };
            number += 1;
            match answer {
                Ok(Some(prepared)) => self.add(prepared),
                Ok(None) => {}
                Err(error) => self.bad(name, Some(number), &error.at_line(number).to_string())?,
            }
            if number % self.options.lines == 0 {
                self.flush()?;
                self.send(Work::Lines(name.to_owned(), number))?;
            } else if self.is_full() {
                self.flush()?;
            }
        }
        self.flush()?;
        if number % self.options.lines != 0 {
            self.send(Work::Lines(name.to_owned(), number))
        } else {
            Ok(())
        }
    }

    /// A FHIR package: the resources in its folder `package`.
    fn package(&mut self, name: &str, archive: Box<dyn Read>) -> Result<(), Halt> {
        let mut archive = tar::Archive::new(archive);
        for entry in archive.entries()? {
            let mut entry = entry?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = entry.path()?.display().to_string();
            let full = format!("{name}:{path}");
            let file =
                path.trim_start_matches("./").strip_prefix("package/").filter(|file| !file.contains('/'));
            match file {
                Some(file) if file.ends_with(".json") && !file.starts_with('.') => {
                    let mut text = Vec::new();
                    entry.by_ref().take(self.options.bundle_bytes as u64 + 1).read_to_end(&mut text)?;
                    self.document(&full, &text, false)?;
                }
                _ => self.nothing(&full, false, "not a file 'package/….json'")?,
            }
            if self.is_full() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// One text that is a resource or a Bundle: all of it or nothing.
    fn document(&mut self, name: &str, text: &[u8], is_named: bool) -> Result<(), Halt> {
        let unmarked = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let limit = self.options.bundle_bytes;
        let is_bundle = Head::of(unmarked).and_then(|head| head.kind).is_some_and(|kind| kind == "Bundle");
        let prepared = if text.len() > limit {
            Err(BodyError::TooBig { limit })
        } else if is_bundle {
            self.bundle(unmarked)
        } else {
            self.resource(text).map(|prepared| vec![prepared])
        };
        match prepared {
            Ok(prepared) => {
                prepared.into_iter().for_each(|prepared| self.add(prepared));
                Ok(())
            }
            Err(BodyError::NoType) => self.nothing(name, is_named, &BodyError::NoType.to_string()),
            Err(error) => self.bad(name, None, &error.to_string()),
        }
    }

    fn bundle(&mut self, text: &[u8]) -> Result<Vec<Prepared>, BodyError> {
        let bundle = bundle::parse(text)?;
        if !CARRIERS.contains(&&*bundle.kind) {
            return self.resource(text).map(|prepared| vec![prepared]);
        }
        let places = bundle::places(&bundle.entry, &mut self.new_id)?;
        let names = bundle::names(&bundle.entry, &places);
        let limits = self.options.limits;
        let entries = bundle.entry.iter().zip(&places).enumerate();
        entries
            .filter_map(|(at, (entry, place))| Some((at, entry.resource?, place.as_ref()?)))
            .map(|(at, resource, (kind, id))| {
                prepare_named(
                    resource.get().as_bytes(),
                    Some(kind),
                    Id::Given(id),
                    &limits,
                    &self.fhir_base,
                    Some(&names),
                )
                .map_err(|error| error.in_entry(at))
            })
            .collect()
    }

    fn resource(&mut self, text: &[u8]) -> Result<Prepared, BodyError> {
        let limits: Limits = self.options.limits;
        match prepare(text, None, Id::Own, &limits, &self.fhir_base) {
            Err(BodyError::NoId) => {
                prepare(text, None, Id::Given(&(self.new_id)()), &limits, &self.fhir_base)
            }
            other => other,
        }
    }

    fn add(&mut self, prepared: Prepared) {
        let Prepared { kind, id, draft, compartments } = prepared;
        self.batch_bytes += draft.bytes.len();
        self.batch.push(VersionWrite {
            key: ResourceKey::new(kind, id),
            expect: ExpectVersion::Any,
            body: Some(draft),
            compartments,
            unless_same: true,
        });
    }

    fn is_full(&self) -> bool {
        self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_WRITES
    }

    /// Hands over what was gathered; only between resources and Bundles, so that each is in one commit.
    fn flush(&mut self) -> Result<(), Halt> {
        self.batch_bytes = 0;
        let batch = mem::take(&mut self.batch);
        if batch.is_empty() { Ok(()) } else { self.send(Work::Writes(batch)) }
    }

    fn nothing(&mut self, name: &str, is_named: bool, reason: &str) -> Result<(), Halt> {
        if is_named {
            return self.bad(name, None, reason);
        }
        let skipped = Bad { file: name.to_owned(), line: None, reason: reason.to_owned() };
        self.send(Work::Skipped(skipped))
    }

    fn bad(&mut self, name: &str, line: Option<u64>, reason: &str) -> Result<(), Halt> {
        self.send(Work::Bad(Bad { file: name.to_owned(), line, reason: reason.to_owned() }))
    }

    fn send(&mut self, work: Work) -> Result<(), Halt> {
        self.sink.blocking_send(work).map_err(|_| Halt::Stopped)
    }
}

/// Moves whitespace from the source to `passed`; says whether anything is behind it.
fn has_more(source: &mut dyn BufRead, passed: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let chunk = source.fill_buf()?;
        if chunk.is_empty() {
            return Ok(false);
        }
        let blank = chunk.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let is_more = blank < chunk.len();
        passed.extend_from_slice(&chunk[..blank]);
        source.consume(blank);
        if is_more {
            return Ok(true);
        }
    }
}
