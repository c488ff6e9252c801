//! Files of lines that are only ever added to: the audit log and the export log.
//!
//! Lines go through a bounded channel to one thread, so that a request never waits for the disk unless it asks to
//! ([`LineLog::written`]): when the disk does not take them they wait in memory, and beyond the bound they are counted and
//! lost.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

/// Lines that wait for the disk at most.
pub(crate) const WAITING: usize = 10_000;
/// How long lines are gathered before they are written: waking a thread costs more than writing.
const GATHER: Duration = Duration::from_millis(50);
/// The pause before the disk is tried again.
const AGAIN: Duration = Duration::from_secs(1);

struct Line {
    file: String,
    text: String,
    /// Somebody waits until it is written, or until this is dropped.
    waits: Option<oneshot::Sender<()>>,
}

/// What the writer and those who ask share.
#[derive(Default)]
struct State {
    /// The disk did not take the last line.
    stuck: AtomicBool,
    /// Lines that were lost.
    lost: AtomicU64,
    /// The log is being closed: a disk that does not take the lines is not waited for.
    closing: AtomicBool,
}

/// The files of lines in a folder.
pub struct LineLog {
    /// What it is called in the server's log.
    name: &'static str,
    /// `None` once it is closed.
    sender: Mutex<Option<SyncSender<Line>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    state: Arc<State>,
}

impl LineLog {
    /// Opens a folder, which is made, readable by the owner alone, where there is none.
    ///
    /// # Errors
    /// The folder cannot be made, or the thread not started.
    pub fn open(folder: PathBuf, name: &'static str) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let (sender, receiver) = mpsc::sync_channel(WAITING);
        let state = Arc::new(State::default());
        let writer = Writer { folder, name, file: None, waiting: VecDeque::new(), state: state.clone() };
        let thread =
            std::thread::Builder::new().name(name.to_owned()).spawn(move || writer.run(&receiver))?;
        Ok(Self { name, sender: Mutex::new(Some(sender)), writer: Mutex::new(Some(thread)), state })
    }

    /// Adds a line, with its end, to a file of the folder. Never waits.
    pub fn add(&self, file: String, text: String) {
        if !self.send(Line { file, text, waits: None }) {
            let lost = self.state.lost.fetch_add(1, Ordering::Relaxed);
            // Said now and then: the server's own log is on the same disk, as a rule.
            if lost.is_multiple_of(1_000) {
                let name = self.name;
                tracing::error!(lost = lost + 1, "lines of the {name} are lost, for it cannot be written");
            }
        }
    }

    /// Waits until what was added to a file before is written, so that a process that is killed then has not lost it. A
    /// disk that does not take it is not waited for.
    pub async fn written(&self, file: String) {
        let (waits, written) = oneshot::channel();
        let sent = !self.is_stuck() && self.send(Line { file, text: String::new(), waits: Some(waits) });
        if sent {
            if let Some(writer) = &*self.writer.lock().expect("nobody panics while it holds the writer") {
                writer.thread().unpark();
            }
            // Written or given up: either way there is nothing more to wait for.
            drop(tokio::time::timeout(AGAIN, written).await);
        }
    }

    fn send(&self, line: Line) -> bool {
        let sender = self.sender.lock().expect("nobody panics while it holds the sender");
        sender.as_ref().is_some_and(|sender| sender.try_send(line).is_ok())
    }

    /// Did the disk not take the last line?
    pub fn is_stuck(&self) -> bool {
        self.state.stuck.load(Ordering::Relaxed)
    }

    /// How many lines were lost.
    pub fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }

    /// Writes all that waits and ends; tries a disk that does not take it only once more. May block.
    pub fn close(&self) {
        drop(self.sender.lock().expect("nobody panics while it holds the sender").take());
        let writer = self.writer.lock().expect("nobody panics while it holds the writer").take();
        let Some(writer) = writer else { return };
        self.state.closing.store(true, Ordering::Release);
        writer.thread().unpark();
        if writer.join().is_err() {
            tracing::error!("the writer of the {} panicked", self.name);
        }
        match self.lost() {
            0 => {}
            lost => tracing::error!(lost, "lines of the {} were lost", self.name),
        }
    }
}

impl Drop for LineLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread that writes.
struct Writer {
    folder: PathBuf,
    name: &'static str,
    /// The file that is open, and its name.
    file: Option<(String, File)>,
    waiting: VecDeque<Line>,
    state: Arc<State>,
}

impl Writer {
    fn run(mut self, receiver: &Receiver<Line>) {
        loop {
            let is_closing = self.state.closing.load(Ordering::Acquire);
            if self.state.stuck.load(Ordering::Relaxed) {
                if !is_closing {
                    std::thread::park_timeout(AGAIN);
                }
            } else if self.waiting.is_empty() {
                let Ok(line) = receiver.recv() else { return };
                if !is_closing && line.waits.is_none() {
                    std::thread::park_timeout(GATHER);
                }
                self.waiting.push_back(line);
            }
            // What came meanwhile goes in the same round; while the disk is stuck the channel is the bound.
            while self.waiting.len() < WAITING
                && let Ok(line) = receiver.try_recv()
            {
                self.waiting.push_back(line);
            }
            match self.write() {
                Ok(()) => {
                    if self.state.stuck.swap(false, Ordering::Relaxed) {
                        tracing::info!("the {} can be written again", self.name);
                    }
                }
                Err(error) => {
                    self.file = None;
                    if !self.state.stuck.swap(true, Ordering::Relaxed) {
                        let (name, folder) = (self.name, self.folder.display());
                        tracing::error!(%error, %folder, "the {name} cannot be written");
                    }
                    // Nobody is held up any longer.
                    self.waiting.retain(|line| line.waits.is_none());
                    if is_closing {
                        let left = self.waiting.len() + receiver.try_iter().count();
                        self.state.lost.fetch_add(left as u64, Ordering::Relaxed);
                        return;
                    }
                }
            }
        }
    }

    /// Writes the lines that wait, those of a file that follow each other in one go.
    fn write(&mut self) -> io::Result<()> {
        while let Some(name) = self.waiting.front().map(|line| line.file.clone()) {
            let count = self.waiting.iter().take_while(|line| line.file == name).count();
            let text: String = self.waiting.iter().take(count).map(|line| line.text.as_str()).collect();
            if self.file.as_ref().is_none_or(|(open, _)| *open != name) {
                let file = open(&self.folder.join(&name))?;
                self.file = Some((name, file));
            }
            if let Some((_, file)) = &mut self.file {
                file.write_all(text.as_bytes())?;
            }
            self.waiting.drain(..count);
        }
        Ok(())
    }
}

/// Opens a file for adding. A line that a crash cut off is ended, so that it spoils no other.
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

    #[tokio::test]
    async fn what_was_waited_for_is_written_and_a_lost_disk_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("log");
        let log = LineLog::open(folder.clone(), "test log").unwrap();
        log.written("a".to_owned()).await;
        log.add("a".to_owned(), "one\n".to_owned());
        log.add("b".to_owned(), "two\n".to_owned());
        log.written("b".to_owned()).await;
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!((&*text("a"), &*text("b")), ("one\n", "two\n"));
        std::fs::remove_dir_all(&folder).unwrap();
        log.add("c".to_owned(), "three\n".to_owned());
        log.written("c".to_owned()).await;
        assert!(log.is_stuck());
        log.written("c".to_owned()).await;
        log.close();
        assert_eq!(log.lost(), 1);
    }
}
