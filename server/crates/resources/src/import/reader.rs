//! Converts files to writes. The reader runs on a thread that may block, and waits if the store is slower
//! than the reader.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::mem;
use std::path::{Path, PathBuf};

use memchr::memmem;
use serde_json::value::RawValue;
use store::{ResourceKey, VersionWrite};
use tokio::sync::mpsc;

use super::bundle_requests::{self, BundleWrites, EntryWrite};
use super::files::{self, FileContent, InputLine};
use super::manifest::{self, FileRole, FileRoles};
use super::options::{ImportFault, ImportOptions, ImportWork, IrregularResources};
use super::pending_references::KnownMatches;
use crate::ResourceBodyError;
use crate::write::bundle::{self, ParsedBundle, ResourceHead};
use crate::write::prepare::{IdSource, PreparedResource, ResourceRules, prepare_named};

/// Size in bytes of the drafts in a batch at which the batch is committed.
const BATCH_BYTES: usize = 2 << 20;
/// Maximum number of writes in a batch.
const BATCH_WRITES: usize = 1_000;
/// Number of bytes between two progress events.
const STEP: u64 = 1 << 20;
/// Bundle types whose requests are applied.
const REQUESTS: [&str; 2] = ["batch", "transaction"];
/// Bundle types that only transport resources, in a file of their own. Bundles of other types are resources
/// themselves.
const CARRIERS: [&str; 4] = ["batch", "collection", "searchset", "transaction"];
/// Folders of a FHIR package with examples.
const EXAMPLES: [&str; 2] = ["package/example/", "package/examples/"];

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

/// The defect of a text, or the end of the import.
enum Defect {
    Body(ResourceBodyError),
    Halt(ReadHalt),
}

impl From<ResourceBodyError> for Defect {
    fn from(error: ResourceBodyError) -> Self {
        Self::Body(error)
    }
}

impl From<ReadHalt> for Defect {
    fn from(halt: ReadHalt) -> Self {
        Self::Halt(halt)
    }
}

pub(super) struct LineReader<N> {
    options: ImportOptions,
    fhir_base: String,
    new_id: N,
    /// Conditional references whose match is known.
    matches: KnownMatches,
    sink: mpsc::Sender<ImportWork>,
    batch: Vec<VersionWrite>,
    /// Resources of the batch with numbers that most readers round.
    imprecise: Vec<String>,
    /// Resources of the batch with defects, by file.
    irregular: BTreeMap<String, IrregularResources>,
    batch_bytes: usize,
    /// The roles of the files according to manifests, and the role of the current file.
    roles: FileRoles,
    role: Option<FileRole>,
    /// Number of bytes in the files that were processed, and in all files.
    bytes: u64,
    of: u64,
}

impl<N: FnMut() -> String> LineReader<N> {
    pub fn new(
        options: ImportOptions,
        fhir_base: String,
        new_id: N,
        matches: KnownMatches,
        sink: mpsc::Sender<ImportWork>,
    ) -> Self {
        Self {
            options,
            matches,
            fhir_base,
            new_id,
            sink,
            batch: Vec::new(),
            imprecise: Vec::new(),
            irregular: BTreeMap::new(),
            batch_bytes: 0,
            roles: FileRoles::default(),
            role: None,
            bytes: 0,
            of: 0,
        }
    }

    /// Reads all files. Stops early if the store fails.
    pub fn run(mut self, paths: &[PathBuf]) {
        let groups: Vec<_> = paths.iter().map(|path| (path, files::below(path))).collect();
        self.of = files::size(groups.iter().flat_map(|(_, groups)| groups.iter().flatten()));
        for (path, groups) in groups {
            let result = match groups {
                Ok(group_files) => group_files.iter().try_for_each(|file| self.file(file, file == path)),
                Err(error) => self.bad(&path.display().to_string(), None, &error.to_string()),
            };
            if result.is_err() {
                break;
            }
        }
    }

    /// Reads one file. A file without resources is a fault if the caller named the file itself (`is_named`).
    fn file(&mut self, path: &Path, is_named: bool) -> Result<(), ReadHalt> {
        let name = path.display().to_string();
        self.send(ImportWork::File(name.clone()))?;
        self.role = self.roles.of(path);
        let read = match self.role {
            Some(FileRole::Manifest) => manifest::missing_files(path).into_iter().try_for_each(|file| {
                let reason = format!("it lists {file}, which is not in the folder; copy the whole export");
                self.bad(&name, None, &reason)
            }),
            Some(FileRole::Remarks) => {
                self.nothing(&name, false, "the manifest lists it under 'error': remarks about the export")
            }
            Some(FileRole::Record) => self.nothing(&name, false, "the record of a client about its download"),
            Some(FileRole::Output | FileRole::Deleted(_)) | None => {
                match files::open(path, self.teller(&name)) {
                    Ok(FileContent::Tar(archive)) => self.archive(&name, archive, is_named),
                    Ok(FileContent::Text(text)) => {
                        let size = path.metadata().map_or(0, |file| file.len());
                        self.text(&name, text, size, is_named)
                    }
                    Ok(FileContent::Other(reason)) => self.nothing(&name, is_named, reason),
                    Err(error) => Err(error.into()),
                }
            }
        };
        self.role = None;
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

    /// Reads NDJSON, a resource, a Bundle, or several of them. The text is NDJSON if the file name says so,
    /// or if the first line is a complete object and more text follows. `size` is the size of the file.
    fn text(
        &mut self,
        name: &str,
        mut source: Box<dyn BufRead>,
        size: u64,
        is_named: bool,
    ) -> Result<(), ReadHalt> {
        if files::has_lines(name) {
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
        let is_whole =
            text.starts_with(b"{") && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
        // The skipped line ends are inserted again, so that line numbers in messages are correct.
        first.splice(0..0, vec![b'\n'; blank_lines]);
        first.push(b'\n');
        if is_whole && has_more(&mut source, &mut first)? {
            return self.lines(name, &mut Cursor::new(first).chain(source));
        }
        let mut document = first;
        source.take((limit + 1).saturating_sub(document.len()) as u64).read_to_end(&mut document)?;
        self.documents(name, &document, is_named)
    }

    fn lines(&mut self, name: &str, source: &mut dyn BufRead) -> Result<(), ReadHalt> {
        let limit = self.options.line_bytes.min(self.options.rules.bytes);
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            number += 1;
            match files::next_line(source, &mut line, limit)? {
                InputLine::End => break,
                InputLine::Text if line.trim_ascii().is_empty() => {}
                InputLine::Text => match self.line(name, number, &line) {
                    Ok(()) => {}
                    Err(Defect::Halt(halt)) => return Err(halt),
                    Err(Defect::Body(error)) => {
                        self.bad(name, Some(number), &error.at_line(number).to_string())?;
                    }
                },
                InputLine::TooLong => {
                    self.bad(name, Some(number), &ResourceBodyError::TooBig { limit }.to_string())?;
                }
            }
            if number % self.options.lines == 0 {
                self.flush()?;
                self.send(ImportWork::Lines(name.to_owned(), number))?;
            } else if self.is_full() {
                self.flush()?;
            }
        }
        let lines = number - 1;
        self.flush()?;
        if lines % self.options.lines != 0 {
            self.send(ImportWork::Lines(name.to_owned(), lines))
        } else {
            Ok(())
        }
    }

    /// Reads a line of NDJSON: a resource, or a Bundle of requests.
    fn line(&mut self, name: &str, number: u64, text: &[u8]) -> Result<(), Defect> {
        // Few lines are Bundles, and most have their type at the beginning.
        let may_be_bundle = memmem::find(text, b"\"Bundle\"").is_some();
        if may_be_bundle && let Some(bundle) = self.carrier(text, &REQUESTS)? {
            return self.apply(name, Some(number), text, &bundle);
        }
        let prepared = self.resource(text)?;
        self.add(name, Some(number), prepared);
        Ok(())
    }

    /// Reads the files of an archive. In a FHIR package, examples are left out.
    fn archive(&mut self, name: &str, archive: Box<dyn Read>, is_named: bool) -> Result<(), ReadHalt> {
        let mut archive = tar::Archive::new(archive);
        let (mut is_package, mut is_empty) = (false, true);
        for entry in archive.entries()? {
            let mut entry = entry?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = entry.path()?.display().to_string();
            let full = format!("{name}:{path}");
            let inside = path.trim_start_matches("./");
            is_package |= inside == "package/package.json";
            let is_hidden = inside.split('/').any(|part| part.starts_with('.'));
            let is_example = is_package && EXAMPLES.iter().any(|folder| inside.starts_with(folder));
            if is_hidden || inside == "package/package.json" {
                self.nothing(&full, false, "it describes the archive")?;
            } else if is_example {
                self.nothing(&full, false, "it is an example of the package; unpack it to import it")?;
            } else if files::has_lines(inside) && !inside.ends_with(".gz") {
                is_empty = false;
                self.lines(&full, &mut BufReader::new(&mut entry))?;
            } else if inside.ends_with(".json") {
                is_empty = false;
                let mut text = Vec::new();
                entry.by_ref().take(self.options.bundle_bytes as u64 + 1).read_to_end(&mut text)?;
                self.documents(&full, &text, false)?;
            } else {
                self.nothing(&full, false, "its name ends neither with .json nor with .ndjson")?;
            }
            if self.is_full() {
                self.flush()?;
            }
        }
        match is_empty {
            true => self.nothing(name, is_named, "the archive contains no .json or .ndjson file"),
            false => Ok(()),
        }
    }

    /// Reads a text with one resource or Bundle, or with several, one after the other or in an array.
    fn documents(&mut self, name: &str, text: &[u8], is_named: bool) -> Result<(), ReadHalt> {
        let limit = self.options.bundle_bytes;
        let unmarked = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let line_at = |part: &[u8]| {
            let before = part.as_ptr() as usize - text.as_ptr() as usize;
            1 + text[..before].iter().filter(|byte| **byte == b'\n').count() as u64
        };
        if text.len() <= limit && unmarked.trim_ascii_start().starts_with(b"[") {
            let items: Vec<&RawValue> = match serde_json::from_slice(unmarked.trim_ascii_end()) {
                Ok(items) => items,
                Err(error) => {
                    let (line, column) = (error.line(), error.column());
                    let what = "the array of resources is not valid JSON";
                    return self.bad(name, None, &ResourceBodyError::Json { line, column, what }.to_string());
                }
            };
            if items.is_empty() {
                return self.nothing(name, is_named, "the array is empty");
            }
            let items = items.iter().map(|item| item.get().as_bytes());
            return self.each(name, items.map(|item| (line_at(item), item)), is_named);
        }
        let mut values = serde_json::Deserializer::from_slice(unmarked).into_iter::<&RawValue>();
        let first = values.next();
        let after_first = unmarked.get(values.byte_offset()..).unwrap_or_default();
        if text.len() > limit || !matches!(first, Some(Ok(_))) || after_first.trim_ascii().is_empty() {
            return match self.document(name, None, text) {
                Ok(()) => Ok(()),
                Err(Defect::Halt(halt)) => Err(halt),
                Err(Defect::Body(error @ ResourceBodyError::NoType)) => {
                    self.nothing(name, is_named, &error.to_string())
                }
                Err(Defect::Body(error)) => self.bad(name, None, &error.to_string()),
            };
        }
        let mut parts: Vec<&[u8]> = first.into_iter().flatten().map(|value| value.get().as_bytes()).collect();
        let mut offset = values.byte_offset();
        while let Some(value) = values.next() {
            match value {
                Ok(value) => parts.push(value.get().as_bytes()),
                // The rest is reported as one invalid part.
                Err(_) => {
                    parts.push(unmarked[offset..].trim_ascii());
                    break;
                }
            }
            offset = values.byte_offset();
        }
        self.each(name, parts.into_iter().map(|part| (line_at(part), part)), is_named)
    }

    /// Reads several texts of a file, each with the number of its line.
    fn each<'t>(
        &mut self,
        name: &str,
        texts: impl ExactSizeIterator<Item = (u64, &'t [u8])>,
        is_named: bool,
    ) -> Result<(), ReadHalt> {
        let (count, mut untyped) = (texts.len(), Vec::new());
        for (line, text) in texts {
            match self.document(name, Some(line), text) {
                Ok(()) => {}
                Err(Defect::Halt(halt)) => return Err(halt),
                Err(Defect::Body(ResourceBodyError::NoType)) => untyped.push(line),
                Err(Defect::Body(error)) => self.bad(name, Some(line), &error.at_line(line).to_string())?,
            }
            if self.is_full() {
                self.flush()?;
            }
        }
        let reason = ResourceBodyError::NoType.to_string();
        if untyped.len() == count {
            return self.nothing(name, is_named, &reason);
        }
        untyped.into_iter().try_for_each(|line| self.bad(name, Some(line), &reason))
    }

    /// Reads one text that is a resource or a Bundle, completely or not at all.
    fn document(&mut self, name: &str, line: Option<u64>, text: &[u8]) -> Result<(), Defect> {
        let limit = self.options.bundle_bytes;
        if text.len() > limit {
            return Err(ResourceBodyError::TooBig { limit }.into());
        }
        let unmarked = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        if let Some(bundle) = self.carrier(unmarked, &CARRIERS)? {
            return self.apply(name, line, unmarked, &bundle);
        }
        let prepared = self.resource(text)?;
        self.add(name, line, prepared);
        Ok(())
    }

    /// The Bundle in a text, if it is one of these types, and the import does not store it as a resource.
    fn carrier<'t>(
        &self,
        text: &'t [u8],
        types: &[&str],
    ) -> Result<Option<ParsedBundle<'t>>, ResourceBodyError> {
        let is_list = matches!(self.role, Some(FileRole::Deleted(_)));
        let is_kept = self.options.keep_bundles && !is_list;
        if is_kept || self.role == Some(FileRole::Output) {
            return Ok(None);
        }
        let head = ResourceHead::of(text).and_then(|head| head.kind);
        if head.is_none_or(|kind| kind != "Bundle") {
            return Ok(None);
        }
        let bundle = bundle::parse(text)?;
        Ok(Some(bundle).filter(|bundle| is_list || types.contains(&&*bundle.kind)))
    }

    /// Applies the requests of a Bundle, and stores resources without a request.
    fn apply(
        &mut self,
        name: &str,
        line: Option<u64>,
        text: &[u8],
        bundle: &ParsedBundle<'_>,
    ) -> Result<(), Defect> {
        if let Some(FileRole::Deleted(time)) = self.role {
            let deletions = bundle_requests::deletions_of(bundle, time)?;
            deletions.into_iter().for_each(|write| self.push(write));
            return Ok(());
        }
        // The requests of other types are those with which a server answered, or none.
        let is_request = REQUESTS.contains(&&*bundle.kind);
        let rules = self.options.rules;
        let (writes, faults) = match is_request {
            true => bundle_requests::writes_of(bundle, &mut self.new_id, &rules, &self.fhir_base)?,
            false => {
                let resources = bundle.resources();
                bundle_requests::writes_of(&resources, &mut self.new_id, &rules, &self.fhir_base)?
            }
        };
        match writes {
            BundleWrites::Known(writes) => {
                for write in writes {
                    match write {
                        EntryWrite::Put(prepared) => self.add(name, line, prepared),
                        EntryWrite::Delete(write) => self.push(write),
                    }
                }
            }
            BundleWrites::Conditional => {
                self.flush()?;
                let (file, bundle) = (name.to_owned(), text.to_vec());
                self.send(ImportWork::Requests { file, line, bundle })?;
            }
        }
        faults.into_iter().try_for_each(|fault| self.bad(name, line, &fault.to_string()))?;
        Ok(())
    }

    fn resource(&mut self, text: &[u8]) -> Result<PreparedResource, ResourceBodyError> {
        let (rules, base): (ResourceRules, _) = (self.options.rules, &self.fhir_base);
        let matches = self.matches.read().expect("no thread panics while it holds the lock");
        match prepare_named(text, None, IdSource::Own, &rules, base, Some(&matches)) {
            Err(ResourceBodyError::NoId) => {
                let id = (self.new_id)();
                prepare_named(text, None, IdSource::Given(&id), &rules, base, Some(&matches))
            }
            other => other,
        }
    }

    fn add(&mut self, name: &str, line: Option<u64>, prepared: PreparedResource) {
        if !prepared.defects.is_empty() {
            self.irregular.entry(name.to_owned()).or_default().add(line, &prepared);
        }
        let PreparedResource {
            kind, id, draft, compartments, terms, last_updated, has_imprecise_number, ..
        } = prepared;
        if has_imprecise_number {
            self.imprecise.push(format!("{kind}/{id}"));
        }
        self.batch_bytes += draft.bytes.len();
        let write = VersionWrite::put(ResourceKey::new(kind, id), draft, compartments).indexed(terms);
        self.push(VersionWrite { unless_same: true, ..write.from_source(last_updated) });
    }

    fn push(&mut self, write: VersionWrite) {
        self.batch.push(VersionWrite { unless_outdated: !self.options.overwrite, ..write });
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
        let irregular = mem::take(&mut self.irregular);
        if !irregular.is_empty() {
            self.send(ImportWork::Irregular(irregular))?;
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
