//! Files of lines that are only ever appended to, one for each day: the audit log.
//!
//! One thread writes. Lines reach it through a queue, so that no request blocks on the disk. A request that
//! must not be answered before its lines are written awaits [`AppendLog::write`]; all requests that wait at
//! the same time share one `write` and one `fsync`. While writes fail, lines stay in memory up to a maximum;
//! further lines are counted and dropped.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use store::blocking;
use store::folder::make_folder;
use tokio::sync::oneshot;

use crate::records::retained_folder::RetainedFolder;

/// Maximum number of lines in memory; further ones are dropped.
pub(crate) const MAX_QUEUED: usize = 10_000;
/// Time during which lines are collected if no request waits for them: waking a thread costs more than
/// writing.
const BATCH_WINDOW: Duration = Duration::from_millis(50);
/// Pause before a failed write is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of files that are begun for the same lines, if another program removes one after the other.
const WRITE_ATTEMPTS: u32 = 3;
/// Interval at which the file is compared with its name if lines are not synchronized.
const COMPARE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for which a request waits for the disk. After that the log counts as failed until a write
/// succeeds.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// A line for the file of a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The day (`2026-11-25`).
    pub day: String,
    /// The text, which ends in a line feed.
    pub text: String,
}

struct LineBatch {
    lines: Vec<LogLine>,
    /// Notified when these lines and all before them are written; dropped when the write fails.
    waiter: Option<oneshot::Sender<()>>,
}

/// State shared by the writer and its callers.
#[derive(Default)]
struct LogState {
    /// Number of lines that were accepted and are not written yet.
    queued: AtomicUsize,
    /// The last write failed or did not end in time.
    has_failed: AtomicBool,
    lost: AtomicU64,
    /// The log is being closed; a failed write is then repeated only once.
    closing: AtomicBool,
}

/// A folder of files to which lines are appended.
pub struct AppendLog {
    /// Name in the log of the server.
    name: &'static str,
    /// `None` after the log is closed.
    sender: Mutex<Option<Sender<LineBatch>>>,
    writer: Mutex<Option<LogWriterPlace>>,
    state: Arc<LogState>,
}

/// The place of the open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilePlace {
    /// Its name leads to it.
    Own,
    /// Another name leads to it.
    Renamed,
    /// No name leads to it: its lines are lost.
    Removed,
}

enum LogWriterPlace {
    Thread(JoinHandle<()>),
    /// By the thread that adds them, if there is only one (see [`blocking`]).
    Caller(Box<LogWriter>, Receiver<LineBatch>),
}

impl AppendLog {
    /// Opens a folder, and creates it, accessible only by its owner, if it is missing. With `sync`, lines
    /// count as written once they are synchronized with the disk.
    ///
    /// # Errors
    /// An error if the folder cannot be created or the thread not started.
    pub fn open(folder: RetainedFolder, name: &'static str, sync: bool) -> io::Result<Self> {
        make_folder(folder.path(), 0o700)?;
        let (sender, receiver) = mpsc::channel();
        let state = Arc::new(LogState::default());
        let writer = LogWriter {
            folder,
            name,
            sync,
            file: None,
            compared: Instant::now(),
            waiting: VecDeque::new(),
            unsynced: Vec::new(),
            waiters: Vec::new(),
            state: state.clone(),
        };
        let writer = if blocking::is_kept_on_this_thread() {
            LogWriterPlace::Caller(Box::new(writer), receiver)
        } else {
            let thread = std::thread::Builder::new().name(name.to_owned());
            LogWriterPlace::Thread(thread.spawn(move || writer.run(&receiver))?)
        };
        Ok(Self { name, sender: Mutex::new(Some(sender)), writer: Mutex::new(Some(writer)), state })
    }

    /// Appends lines without waiting for the disk.
    pub fn add(&self, lines: Vec<LogLine>) {
        self.send(lines, None);
    }

    /// Appends lines and waits until these and all before them are written. Returns whether they are. If
    /// writes fail, it returns immediately and the lines stay queued.
    pub async fn write(&self, lines: Vec<LogLine>) -> bool {
        let (waiter, written) = oneshot::channel();
        if !self.send(lines, Some(waiter)) || self.has_failed() {
            return false;
        }
        match &mut *self.writer.lock().expect("the lock of the writer is not poisoned") {
            Some(LogWriterPlace::Thread(thread)) => thread.thread().unpark(),
            Some(LogWriterPlace::Caller(writer, receiver)) => drop(writer.write_queued(receiver, false)),
            None => {}
        }
        let Ok(written) = tokio::time::timeout(MAX_WAIT, written).await else {
            if !self.state.has_failed.swap(true, Ordering::Relaxed) {
                tracing::error!("the {} was not written within {} s", self.name, MAX_WAIT.as_secs());
            }
            return false;
        };
        written.is_ok()
    }

    /// Returns whether the lines were accepted.
    fn send(&self, lines: Vec<LogLine>, waiter: Option<oneshot::Sender<()>>) -> bool {
        let count = lines.len();
        let queued = self.state.queued.fetch_add(count, Ordering::Relaxed);
        let sender = self.sender.lock().expect("the lock of the sender is not poisoned");
        let has_room = count == 0 || queued < MAX_QUEUED;
        let is_queued = has_room
            && sender.as_ref().is_some_and(|sender| sender.send(LineBatch { lines, waiter }).is_ok());
        if !is_queued && count > 0 {
            self.state.queued.fetch_sub(count, Ordering::Relaxed);
            let before = self.state.lost.fetch_add(count as u64, Ordering::Relaxed);
            let total = before + count as u64;
            // Not logged for each line: the log of the server is usually on the same disk.
            if before == 0 || before / 1_000 != total / 1_000 {
                tracing::error!(
                    total,
                    "lines of the {} were dropped, because it cannot be written",
                    self.name
                );
            }
        }
        is_queued
    }

    /// Returns whether the last write failed.
    pub fn has_failed(&self) -> bool {
        self.state.has_failed.load(Ordering::Relaxed)
    }

    /// The number of lines that are not written yet.
    pub fn queued(&self) -> usize {
        self.state.queued.load(Ordering::Relaxed)
    }

    /// The number of dropped lines.
    pub fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Writes all queued lines and ends. A failed write is repeated only once. May block.
    pub fn close(&self) {
        drop(self.sender.lock().expect("the lock of the sender is not poisoned").take());
        let writer = self.writer.lock().expect("the lock of the writer is not poisoned").take();
        let Some(writer) = writer else { return };
        self.state.closing.store(true, Ordering::Release);
        match writer {
            LogWriterPlace::Thread(thread) => {
                thread.thread().unpark();
                if thread.join().is_err() {
                    tracing::error!("the writer of the {} panicked", self.name);
                }
            }
            LogWriterPlace::Caller(mut writer, receiver) => drop(writer.write_queued(&receiver, true)),
        }
        match self.lost() {
            0 => {}
            lost => tracing::error!(lost, "lines of the {} were dropped", self.name),
        }
    }
}

impl Drop for AppendLog {
    fn drop(&mut self) {
        self.close();
    }
}

struct LogWriter {
    folder: RetainedFolder,
    name: &'static str,
    sync: bool,
    /// Name and handle of the open file.
    file: Option<(String, File)>,
    /// Time at which the file was last compared with its name.
    compared: Instant,
    waiting: VecDeque<LogLine>,
    /// Lines that are written but not synchronized with the disk. If synchronizing fails, the operating
    /// system may have dropped them, so they are written again.
    unsynced: Vec<LogLine>,
    waiters: Vec<oneshot::Sender<()>>,
    state: Arc<LogState>,
}

impl LogWriter {
    fn run(mut self, receiver: &Receiver<LineBatch>) {
        loop {
            let is_closing = self.state.closing.load(Ordering::Acquire);
            if self.state.has_failed.load(Ordering::Relaxed) {
                if !is_closing {
                    std::thread::park_timeout(RETRY_DELAY);
                }
            } else if self.waiting.is_empty() {
                let Ok(batch) = receiver.recv() else { return };
                if !is_closing && batch.waiter.is_none() {
                    std::thread::park_timeout(BATCH_WINDOW);
                }
                self.accept(batch);
            }
            if self.write_queued(receiver, is_closing).is_break() {
                return;
            }
        }
    }

    /// Writes all lines that wait and notifies the requests that wait for them. Breaks if the log is being
    /// closed and cannot be written.
    fn write_queued(&mut self, receiver: &Receiver<LineBatch>, is_closing: bool) -> ControlFlow<()> {
        receiver.try_iter().for_each(|batch| self.accept(batch));
        match self.write() {
            Ok(()) => {
                if self.state.has_failed.swap(false, Ordering::Relaxed) {
                    tracing::info!("the {} can be written again", self.name);
                }
                // A request that was cancelled does not wait.
                self.waiters.drain(..).for_each(|waiter| waiter.send(()).unwrap_or_default());
            }
            Err(error) => {
                self.file = None;
                self.unsynced.drain(..).rev().for_each(|line| self.waiting.push_front(line));
                if !self.state.has_failed.swap(true, Ordering::Relaxed) {
                    let (name, folder) = (self.name, self.folder.path().display());
                    tracing::error!(%error, %folder, "the {name} cannot be written");
                }
                self.waiters.clear();
                if is_closing {
                    let late: usize = receiver.try_iter().map(|batch| batch.lines.len()).sum();
                    let remaining = (self.waiting.len() + late) as u64;
                    self.state.lost.fetch_add(remaining, Ordering::Relaxed);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn accept(&mut self, batch: LineBatch) {
        self.waiting.extend(batch.lines);
        self.waiters.extend(batch.waiter);
    }

    /// Writes the waiting lines: consecutive lines of the same day in one call. A file that another program
    /// has removed or renamed is made again.
    fn write(&mut self) -> io::Result<()> {
        if !self.sync && self.compared.elapsed() >= COMPARE_INTERVAL {
            self.find_place()?;
        }
        for _ in 0..WRITE_ATTEMPTS {
            if self.write_waiting()? && self.complete()? {
                return Ok(());
            }
        }
        Err(io::Error::other("the file is removed again and again"))
    }

    /// Synchronizes the lines that are written to the open file. Returns `false` if the file was removed
    /// meanwhile: its lines wait again.
    fn complete(&mut self) -> io::Result<bool> {
        self.sync()?;
        if self.sync && self.find_place()? == FilePlace::Removed {
            self.unsynced.drain(..).rev().for_each(|line| self.waiting.push_front(line));
            return Ok(false);
        }
        self.state.queued.fetch_sub(self.unsynced.len(), Ordering::Relaxed);
        self.unsynced.clear();
        Ok(true)
    }

    /// Compares the open file with the one of its name, and closes it if it is another one.
    fn find_place(&mut self) -> io::Result<FilePlace> {
        self.compared = Instant::now();
        let Some((name, file)) = &self.file else { return Ok(FilePlace::Own) };
        let own = file.metadata()?;
        let is_own = match std::fs::metadata(self.folder.path().join(name)) {
            Ok(named) => (named.dev(), named.ino()) == (own.dev(), own.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if is_own {
            return Ok(FilePlace::Own);
        }
        let place = if own.nlink() == 0 { FilePlace::Removed } else { FilePlace::Renamed };
        tracing::error!(name, "the file of the {} was removed or renamed, and is made again", self.name);
        self.file = None;
        self.folder.forget_current();
        Ok(place)
    }

    /// Writes all waiting lines. Returns `false` if a file was removed of which lines wait again.
    fn write_waiting(&mut self) -> io::Result<bool> {
        while let Some(day) = self.waiting.front().map(|line| line.day.clone()) {
            let count = self.waiting.iter().take_while(|line| line.day == day).count();
            let text: String = self.waiting.iter().take(count).map(|line| line.text.as_str()).collect();
            let (name, removed) = self.folder.make_room(&day, text.len() as u64)?;
            removed.iter().for_each(|removed| tracing::warn!("{}: {removed}", self.name));
            if self.file.as_ref().is_none_or(|(open, _)| *open != name) {
                if !self.complete()? {
                    return Ok(false);
                }
                let file = open(&self.folder.path().join(&name))?;
                if self.sync {
                    // A new file is also a new entry of the folder.
                    File::open(self.folder.path())?.sync_all()?;
                }
                self.file = Some((name, file));
            }
            if let Some((_, file)) = &mut self.file {
                file.write_all(text.as_bytes())?;
            }
            let lines = self.waiting.drain(..count);
            if self.sync {
                self.unsynced.extend(lines);
            } else {
                drop(lines);
                self.state.queued.fetch_sub(count, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    /// Synchronizes the open file with the disk if it has unsynchronized lines.
    fn sync(&mut self) -> io::Result<()> {
        if let (Some((_, file)), false) = (&self.file, self.unsynced.is_empty()) {
            file.sync_data()?;
        }
        Ok(())
    }
}

/// Opens a file for appending. A line that a crash cut off is ended first, so that it does not damage the
/// next one.
fn open(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::retained_folder::RetentionLimits;

    const DAYS: [&str; 3] = ["2026-11-25", "2026-11-26", "2026-11-27"];

    fn line(day: &str, text: &str) -> Vec<LogLine> {
        vec![LogLine { day: day.to_owned(), text: format!("{text}\n") }]
    }

    fn open_log(folder: &Path, sync: bool) -> AppendLog {
        let limits = RetentionLimits { keep_days: 0, max_bytes: 0, removes_early: false };
        let folder = RetainedFolder::new(folder.to_owned(), "log-", ".ndjson", limits);
        AppendLog::open(folder, "test log", sync).unwrap()
    }

    #[tokio::test]
    async fn a_write_waits_for_all_lines_before_it_and_not_for_a_lost_disk() {
        for sync in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("log");
            let log = open_log(&folder, sync);
            assert!(log.write(Vec::new()).await);
            log.add(line(DAYS[0], "one"));
            assert!(log.write(line(DAYS[1], "two")).await);
            let text = |day: &str| std::fs::read_to_string(folder.join(format!("log-{day}.ndjson"))).unwrap();
            assert_eq!((&*text(DAYS[0]), &*text(DAYS[1])), ("one\n", "two\n"));
            std::fs::remove_dir_all(&folder).unwrap();
            assert!(!log.write(line(DAYS[2], "three")).await);
            assert!(log.has_failed());
            assert!(!log.write(line(DAYS[2], "four")).await);
            log.close();
            assert_eq!(log.lost(), 2);
        }
    }

    #[tokio::test]
    async fn a_file_that_is_removed_or_renamed_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let log = open_log(dir.path(), true);
        let file = |day: &str| dir.path().join(format!("log-{day}.ndjson"));
        let text = |day: &str| std::fs::read_to_string(file(day)).unwrap();
        assert!(log.write(line(DAYS[0], "one")).await);
        std::fs::remove_file(file(DAYS[0])).unwrap();
        assert!(log.write(line(DAYS[0], "two")).await);
        assert_eq!(text(DAYS[0]), "two\n", "an acknowledged line is in the file of its name");
        let renamed = dir.path().join("rotated");
        std::fs::rename(file(DAYS[0]), &renamed).unwrap();
        // This line is in the renamed file, and the next one in a new file.
        assert!(log.write(line(DAYS[0], "three")).await);
        assert!(log.write(line(DAYS[0], "four")).await);
        assert_eq!(std::fs::read_to_string(&renamed).unwrap(), "two\nthree\n");
        assert_eq!(text(DAYS[0]), "four\n");
        // Lines of two days, of which the first file is removed.
        std::fs::remove_file(file(DAYS[0])).unwrap();
        log.add(line(DAYS[0], "five"));
        assert!(log.write(line(DAYS[1], "six")).await);
        assert_eq!((text(DAYS[0]), text(DAYS[1])), ("five\n".to_owned(), "six\n".to_owned()));
        assert_eq!((log.lost(), log.queued()), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_that_wait_together_find_their_own_lines() {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(open_log(dir.path(), true));
        let write = |number: usize| {
            let (log, path) = (log.clone(), dir.path().join(format!("log-{}.ndjson", DAYS[0])));
            tokio::spawn(async move {
                let text = number.to_string();
                assert!(log.write(line(DAYS[0], &text)).await);
                std::fs::read_to_string(path).unwrap().lines().any(|line| line == text)
            })
        };
        for result in futures_util::future::join_all((0..200).map(write)).await {
            assert!(result.unwrap());
        }
        log.close();
        assert_eq!((log.lost(), log.state.queued.load(Ordering::Relaxed)), (0, 0));
    }
}
