//! Converts files to writes. The reader runs on a thread that may block, and waits if the store is slower
//! than the reader.

use std::io::{self, BufRead, Cursor, Read};
use std::mem;
use std::path::{Path, PathBuf};

use store::{ResourceKey, VersionWrite};
use tokio::sync::mpsc;

use super::files::{self, FileContent, InputLine};
use super::options::{ImportFault, ImportOptions, ImportWork};
use crate::ResourceBodyError;
use crate::write::bundle::{self, BundleHead};
use crate::write::prepare::{IdSource, PreparedResource, ResourceLimits, prepare, prepare_named};

/// Size in bytes of the drafts in a batch at which the batch is committed.
const BATCH_BYTES: usize = 2 << 20;
/// Maximum number of writes in a batch.
const BATCH_WRITES: usize = 1_000;
/// Number of bytes between two progress events.
const STEP: u64 = 1 << 20;
/// Bundle types that only transport resources. Bundles of other types are resources themselves.
const CARRIERS: [&str; 4] = ["batch", "collection", "searchset", "transaction"];

/// Reasons why a file is not read to its end.
enum ReadHalt {
    /// The store failed and the receiver was dropped.
    Stopped,
    /// The rest of the file cannot be read, for this reason.
    File(String),
}

impl From<io::Error> for ReadHalt {
    fn from(error: io::Error) -> Self {
        Self::File(error.to_string())
    }
}

pub(super) struct LineReader<N> {
    options: ImportOptions,
    fhir_base: String,
    new_id: N,
    sink: mpsc::Sender<ImportWork>,
    batch: Vec<VersionWrite>,
    /// Resources of the batch with numbers that most readers round.
    imprecise: Vec<String>,
    batch_bytes: usize,
    /// Number of bytes in the files that were processed, and in all files.
    bytes: u64,
    of: u64,
}

impl<N: FnMut() -> String> LineReader<N> {
    pub fn new(options: ImportOptions, fhir_base: String, new_id: N, sink: mpsc::Sender<ImportWork>) -> Self {
        Self {
            options,
            fhir_base,
            new_id,
            sink,
            batch: Vec::new(),
            imprecise: Vec::new(),
            batch_bytes: 0,
            bytes: 0,
            of: 0,
        }
    }

    /// Reads all files. Stops early if the store fails.
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

    /// Reads one file. A file without resources is a fault if the caller named the file itself (`is_named`).
    fn file(&mut self, path: &Path, is_named: bool) -> Result<(), ReadHalt> {
        let name = path.display().to_string();
        self.send(ImportWork::File(name.clone()))?;
        let read = match files::open(path, self.teller(&name)) {
            Ok(FileContent::Tar(archive)) => self.package(&name, archive),
            Ok(FileContent::Text(text)) => {
                let size = path.metadata().map_or(0, |file| file.len());
                self.text(&name, text, size, is_named)
            }
            Ok(FileContent::Other) => self.nothing(&name, is_named, "neither JSON nor a package"),
            Err(error) => Err(error.into()),
        };
        match read {
            Err(ReadHalt::File(reason)) => self.bad(&name, None, &reason)?,
            other => other?,
        }
        self.flush()?;
        // Only the start of a file without resources was read, so its whole size is added here.
        self.bytes += path.metadata().map_or(0, |file| file.len());
        self.send(ImportWork::Bytes { file: name.clone(), bytes: self.bytes, of: self.of })?;
        self.send(ImportWork::FileDone(name))
    }

    /// A function that reports the bytes read from a file, every [`STEP`] bytes.
    fn teller(&self, name: &str) -> Box<dyn FnMut(u64)> {
        let (sink, file, of) = (self.sink.clone(), name.to_owned(), self.of);
        let (mut bytes, mut told) = (self.bytes, self.bytes);
        Box::new(move |more| {
            bytes += more;
            if bytes - told >= STEP {
                told = bytes;
                // If the receiver was dropped, the next message detects this.
                drop(sink.blocking_send(ImportWork::Bytes { file: file.clone(), bytes, of }));
            }
        })
    }

    /// Reads NDJSON, a resource or a Bundle. The text is NDJSON if the file name says so, or if the first
    /// line is a complete object and more text follows. `size` is the size of the file.
    fn text(
        &mut self,
        name: &str,
        mut source: Box<dyn BufRead>,
        size: u64,
        is_named: bool,
    ) -> Result<(), ReadHalt> {
        if name.ends_with(".ndjson") || name.ends_with(".ndjson.gz") {
            return self.lines(name, &mut source);
        }
        let limit = self.options.bundle_bytes;
        // The whole file is often one line. A buffer that grows would need up to three times the memory.
        let mut first = Vec::with_capacity((limit as u64).min(size) as usize + 2);
        let mut blank_lines = 0;
        loop {
            match files::next_line(&mut source, &mut first, limit)? {
                InputLine::Text if first.trim_ascii().is_empty() => blank_lines += 1,
                InputLine::Text => break,
                InputLine::TooLong => {
                    return self.bad(name, None, &ResourceBodyError::TooBig { limit }.to_string());
                }
                InputLine::End => return self.nothing(name, is_named, "it is empty"),
            }
        }
        let text = first.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&first);
        let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
        // The skipped line ends are inserted again, so that line numbers in messages are correct.
        first.splice(0..0, vec![b'\n'; blank_lines]);
        first.push(b'\n');
        if is_whole && has_more(&mut source, &mut first)? {
            return self.lines(name, &mut Cursor::new(first).chain(source));
        }
        let mut document = first;
        source.take((limit + 1).saturating_sub(document.len()) as u64).read_to_end(&mut document)?;
        self.document(name, &document, is_named)
    }

    fn lines(&mut self, name: &str, source: &mut dyn BufRead) -> Result<(), ReadHalt> {
        let limit = self.options.line_bytes.min(self.options.limits.bytes);
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            let answer = match files::next_line(source, &mut line, limit)? {
                InputLine::End => break,
                InputLine::Text if line.trim_ascii().is_empty() => Ok(None),
                InputLine::Text => self.resource(&line).map(Some),
                InputLine::TooLong => Err(ResourceBodyError::TooBig { limit }),
            };
            number += 1;
            match answer {
                Ok(Some(prepared)) => self.add(prepared),
                Ok(None) => {}
                Err(error) => self.bad(name, Some(number), &error.at_line(number).to_string())?,
            }
            if number % self.options.lines == 0 {
                self.flush()?;
                self.send(ImportWork::Lines(name.to_owned(), number))?;
            } else if self.is_full() {
                self.flush()?;
            }
        }
        self.flush()?;
        if number % self.options.lines != 0 {
            self.send(ImportWork::Lines(name.to_owned(), number))
        } else {
            Ok(())
        }
    }

    /// Reads a FHIR package: the resources in its folder `package`.
    fn package(&mut self, name: &str, archive: Box<dyn Read>) -> Result<(), ReadHalt> {
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

    /// Reads one text that is a resource or a Bundle, completely or not at all.
    fn document(&mut self, name: &str, text: &[u8], is_named: bool) -> Result<(), ReadHalt> {
        let unmarked = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let limit = self.options.bundle_bytes;
        let is_bundle =
            BundleHead::of(unmarked).and_then(|head| head.kind).is_some_and(|kind| kind == "Bundle");
        let prepared = if text.len() > limit {
            Err(ResourceBodyError::TooBig { limit })
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
            Err(ResourceBodyError::NoType) => {
                self.nothing(name, is_named, &ResourceBodyError::NoType.to_string())
            }
            Err(error) => self.bad(name, None, &error.to_string()),
        }
    }

    fn bundle(&mut self, text: &[u8]) -> Result<Vec<PreparedResource>, ResourceBodyError> {
        let bundle = bundle::parse(text)?;
        if !CARRIERS.contains(&&*bundle.kind) {
            return self.resource(text).map(|prepared| vec![prepared]);
        }
        let places = bundle::places(&bundle.entry, &mut self.new_id)?;
        let names = bundle::names(&bundle.entry, &places);
        let limits = self.options.limits;
        let entries = bundle.entry.iter().zip(&places).enumerate();
        entries
            .filter_map(|(index, (entry, place))| Some((index, entry.resource?, place.as_ref()?)))
            .map(|(index, resource, (kind, id))| {
                prepare_named(
                    resource.get().as_bytes(),
                    Some(kind),
                    IdSource::Given(id),
                    &limits,
                    &self.fhir_base,
                    Some(&names),
                )
                .map_err(|error| error.in_entry(index))
            })
            .collect()
    }

    fn resource(&mut self, text: &[u8]) -> Result<PreparedResource, ResourceBodyError> {
        let limits: ResourceLimits = self.options.limits;
        match prepare(text, None, IdSource::Own, &limits, &self.fhir_base) {
            Err(ResourceBodyError::NoId) => {
                prepare(text, None, IdSource::Given(&(self.new_id)()), &limits, &self.fhir_base)
            }
            other => other,
        }
    }

    fn add(&mut self, prepared: PreparedResource) {
        let PreparedResource { kind, id, draft, compartments, terms, has_imprecise_number } = prepared;
        if has_imprecise_number {
            self.imprecise.push(format!("{kind}/{id}"));
        }
        self.batch_bytes += draft.bytes.len();
        let write = VersionWrite::put(ResourceKey::new(kind, id), draft, compartments).indexed(terms);
        self.batch.push(VersionWrite { unless_same: true, ..write });
    }

    fn is_full(&self) -> bool {
        self.batch_bytes >= BATCH_BYTES || self.batch.len() >= BATCH_WRITES
    }

    /// Sends the collected writes. It is called only between resources and Bundles, so that each of them is
    /// in one commit.
    fn flush(&mut self) -> Result<(), ReadHalt> {
        self.batch_bytes = 0;
        let batch = mem::take(&mut self.batch);
        let imprecise = mem::take(&mut self.imprecise);
        if !imprecise.is_empty() {
            self.send(ImportWork::Imprecise(imprecise))?;
        }
        if batch.is_empty() { Ok(()) } else { self.send(ImportWork::Writes(batch)) }
    }

    fn nothing(&mut self, name: &str, is_named: bool, reason: &str) -> Result<(), ReadHalt> {
        if is_named {
            return self.bad(name, None, reason);
        }
        let skipped = ImportFault { file: name.to_owned(), line: None, reason: reason.to_owned() };
        self.send(ImportWork::Skipped(skipped))
    }

    fn bad(&mut self, name: &str, line: Option<u64>, reason: &str) -> Result<(), ReadHalt> {
        self.send(ImportWork::ImportFault(ImportFault {
            file: name.to_owned(),
            line,
            reason: reason.to_owned(),
        }))
    }

    fn send(&mut self, work: ImportWork) -> Result<(), ReadHalt> {
        self.sink.blocking_send(work).map_err(|_| ReadHalt::Stopped)
    }
}

/// Moves whitespace from the source to `passed`. Returns `true` if other text follows.
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
