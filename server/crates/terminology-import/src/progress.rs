//! Progress of an import, in bytes on disk. Some files are read more than once, but each byte is counted
//! once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

/// Progress report of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseProgress<'a> {
    /// Path of the current file within the release.
    pub file: &'a str,
    /// Bytes read so far, in compressed form if the file is compressed.
    pub bytes: u64,
    /// Total number of bytes.
    pub of: u64,
}

/// Number of bytes between two reports.
const STEP: u64 = 1 << 20;

/// Progress of one source. One file of a source is read at a time.
#[derive(Clone, Default)]
pub(super) struct SourceProgress<'m>(Rc<RefCell<SourceState<'m>>>);

#[derive(Default)]
struct SourceState<'m> {
    meter: Option<Rc<ProgressMeter<'m>>>,
    /// Current file; empty before the first one.
    file: String,
    /// Number of bytes of the current file read since it was opened.
    at: u64,
    /// Number of reported bytes of each file. Nothing is reported before the first file is opened.
    reported: HashMap<String, u64>,
}

impl<'m> SourceProgress<'m> {
    /// Sends later reports to this meter.
    pub fn report_to(&self, meter: Rc<ProgressMeter<'m>>) {
        self.0.borrow_mut().meter = Some(meter);
    }

    /// Starts a file at its first byte.
    pub fn begin_file(&self, file: &str) {
        let state = &mut *self.0.borrow_mut();
        file.clone_into(&mut state.file);
        state.reported.entry(file.to_owned()).or_default();
        state.at = 0;
    }

    /// A reader that counts the bytes of the current file.
    pub fn counting_reader<R>(&self, inner: R) -> CountingReader<'m, R> {
        CountingReader { inner, pass: self.clone() }
    }

    fn add_read_bytes(&self, bytes: usize) {
        let state = &mut *self.0.borrow_mut();
        let Some(meter) = &state.meter else { return };
        state.at += bytes as u64;
        if let Some(reported) = state.reported.get_mut(&state.file).filter(|reported| **reported < state.at) {
            meter.add_bytes(&state.file, state.at - *reported);
            *reported = state.at;
        }
    }
}

/// A reader that counts bytes.
pub(super) struct CountingReader<'m, R> {
    inner: R,
    pass: SourceProgress<'m>,
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.pass.add_read_bytes(read);
        Ok(read)
    }
}

impl<R: Seek> Seek for CountingReader<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Adds up the bytes of all sources, and reports them for each file, every [`STEP`] bytes and at the end.
pub(super) struct ProgressMeter<'p> {
    sum: RefCell<ReportedBytes<'p>>,
}

struct ReportedBytes<'p> {
    bytes: u64,
    of: u64,
    file: String,
    reported: u64,
    progress: &'p mut dyn FnMut(ReleaseProgress<'_>),
}

impl<'p> ProgressMeter<'p> {
    /// A meter for this number of bytes.
    pub fn new(of: u64, progress: &'p mut dyn FnMut(ReleaseProgress<'_>)) -> Rc<Self> {
        let sum = ReportedBytes { bytes: 0, of, file: String::new(), reported: 0, progress };
        Rc::new(Self { sum: RefCell::new(sum) })
    }

    fn add_bytes(&self, file: &str, bytes: u64) {
        let sum = &mut *self.sum.borrow_mut();
        sum.bytes += bytes;
        if sum.file != file || sum.bytes - sum.reported >= STEP || sum.bytes == sum.of {
            file.clone_into(&mut sum.file);
            sum.reported = sum.bytes;
            (sum.progress)(ReleaseProgress { file, bytes: sum.bytes, of: sum.of });
        }
    }
}
