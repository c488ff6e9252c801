//! How much of a release was read, in bytes as they lie on the disk. Some files are looked at more than once; each of
//! their bytes counts once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use super::Progress;

/// Bytes between two reports.
const STEP: u64 = 1 << 20;

/// What is being read of one source: a file at a time.
#[derive(Clone, Default)]
pub(super) struct Pass<'m>(Rc<RefCell<State<'m>>>);

#[derive(Default)]
struct State<'m> {
    meter: Option<Rc<Meter<'m>>>,
    /// The file; empty before the first.
    file: String,
    /// Bytes of it that were read since it was opened.
    at: u64,
    /// Bytes of each file that were told; none of what is read before the first.
    told: HashMap<String, u64>,
}

impl<'m> Pass<'m> {
    /// Tells this meter from now on.
    pub fn tell(&self, meter: Rc<Meter<'m>>) {
        self.0.borrow_mut().meter = Some(meter);
    }

    /// A file is being read from its beginning.
    pub fn begin(&self, file: &str) {
        let state = &mut *self.0.borrow_mut();
        file.clone_into(&mut state.file);
        state.told.entry(file.to_owned()).or_default();
        state.at = 0;
    }

    /// A reader whose bytes are those of the file.
    pub fn count<R>(&self, inner: R) -> Counted<'m, R> {
        Counted { inner, pass: self.clone() }
    }

    fn passed(&self, bytes: usize) {
        let state = &mut *self.0.borrow_mut();
        let Some(meter) = &state.meter else { return };
        state.at += bytes as u64;
        if let Some(told) = state.told.get_mut(&state.file).filter(|told| **told < state.at) {
            meter.add(&state.file, state.at - *told);
            *told = state.at;
        }
    }
}

/// A reader that is counted.
pub(super) struct Counted<'m, R> {
    inner: R,
    pass: Pass<'m>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.pass.passed(read);
        Ok(read)
    }
}

impl<R: Seek> Seek for Counted<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// Adds up what is told of a release, and passes it on now and then: with each file, each [`STEP`] and at the end.
pub(super) struct Meter<'p> {
    sum: RefCell<Sum<'p>>,
}

struct Sum<'p> {
    bytes: u64,
    of: u64,
    /// What was passed on last.
    file: String,
    told: u64,
    progress: &'p mut dyn FnMut(Progress<'_>),
}

impl<'p> Meter<'p> {
    /// A meter for so many bytes.
    pub fn new(of: u64, progress: &'p mut dyn FnMut(Progress<'_>)) -> Rc<Self> {
        let sum = Sum { bytes: 0, of, file: String::new(), told: 0, progress };
        Rc::new(Self { sum: RefCell::new(sum) })
    }

    /// More bytes of a file.
    fn add(&self, file: &str, bytes: u64) {
        let sum = &mut *self.sum.borrow_mut();
        sum.bytes += bytes;
        if sum.file != file || sum.bytes - sum.told >= STEP || sum.bytes == sum.of {
            file.clone_into(&mut sum.file);
            sum.told = sum.bytes;
            (sum.progress)(Progress { file, bytes: sum.bytes, of: sum.of });
        }
    }
}
