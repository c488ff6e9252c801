//! The log on standard error, or in daily files. Threads append lines to a buffer in memory, and one thread
//! writes the buffer, so that no request waits for a slow terminal, pipe or disk. If the buffer is full,
//! lines are dropped and counted. Warnings and errors are written at once, with the lines before them, so
//! that a crash does not lose them.
//!
//! Each place in the code has a maximum number of lines in a minute; further lines are counted, and a line
//! with the count follows. A database that is away, or a stranger, thus cannot fill the disk. Lines about
//! requests are limited in [`super::request_log`].

use std::cell::RefCell;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use store::folder::make_folder;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{self, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{LogFormat, environment};
use crate::records::minute_counts::{Counted, MinuteCounts};
use crate::records::recent_errors::KeepErrors;
use crate::records::retained_folder::{RetainedFolder, RetentionLimits};

/// Maximum size of the buffer in bytes: some seconds of requests at full load.
const MAX_BUFFERED: usize = 4 << 20;
/// Time during which lines are collected before they are written: waking a thread costs more than a line.
const BATCH_WINDOW: Duration = Duration::from_millis(20);
/// Maximum time for which the end of the process waits until the buffer is written.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Target of the lines about requests.
pub const REQUESTS: &str = "trefoil::request";

/// Maximum number of lines of one place in the code in a minute.
const MAX_LINES: u64 = 60;

/// The lines of this minute, by their place in the code.
static REPEATED: LazyLock<MinuteCounts<(&'static str, u32)>> = LazyLock::new(|| MinuteCounts::new(10_000));

/// Logs the numbers of lines that were left out. Call it a few times a minute.
pub fn write_counts() {
    for minute_count in REPEATED.take_ended(MAX_LINES, Timestamp::now()) {
        let (file, line) = minute_count.key;
        let minute = fhir::instant::format(minute_count.minute);
        tracing::warn!(
            target: REQUESTS,
            minute,
            count = minute_count.further,
            "further lines of {file}:{line} were left out"
        );
    }
}

/// Leaves out the lines above the maximum of their place.
struct RepeatLimit;

impl<S: tracing::Subscriber> Layer<S> for RepeatLimit {
    fn event_enabled(&self, event: &Event<'_>, _: layer::Context<'_, S>) -> bool {
        let line = event.metadata();
        if line.target() == REQUESTS {
            return true;
        }
        let place = (line.module_path().unwrap_or_default(), line.line().unwrap_or_default());
        REPEATED.count(&place, MAX_LINES, Timestamp::now()) != Counted::Further
    }
}

/// The log of this process, once it is started.
static LOG: OnceLock<(LogFormat, LogBuffer<LogOutput>)> = OnceLock::new();

/// The beginning of a line.
pub(super) struct LineHead<'a> {
    /// Time in UTC, as in [`CachedTime`].
    pub(super) time: &'a str,
    /// Level.
    pub(super) level: Level,
}

/// Adds a line that the caller writes. Nothing happens before the log is started.
pub(super) fn add_line(
    level: Level,
    write: impl FnOnce(LogFormat, &LineHead<'_>, &mut String) -> fmt::Result,
) {
    let Some((format, buffer)) = LOG.get() else { return };
    LINE.with_borrow_mut(|line| {
        line.clear();
        // Writing to a text does not fail.
        if write(*format, &LineHead { time: &CachedTime::now(), level }, line).is_ok() {
            buffer.add(line.as_bytes());
        }
        if level <= Level::WARN {
            buffer.write_lines();
        }
    });
}

/// Starts the log. The returned guard writes the rest of the buffer when it is dropped.
pub fn start_log(format: LogFormat) -> LogGuard {
    let filter = EnvFilter::try_from_env(environment::LOG).unwrap_or_else(|_| EnvFilter::new("info"));
    let (buffer, mut guard) = LogBuffer::start(LogOutput::Stderr);
    guard.buffer = Some(buffer.clone());
    // A second server in the same process (in a test) uses the log of the first one.
    LOG.get_or_init(|| (format, buffer.clone()));
    let lines = tracing_subscriber::fmt::layer().with_timer(CachedTime).with_writer(buffer).with_ansi(false);
    let log = tracing_subscriber::registry().with(filter).with(RepeatLimit).with(KeepErrors);
    match format {
        LogFormat::Text => drop(log.with(lines).try_init()),
        LogFormat::Json => drop(log.with(lines.json().flatten_event(true)).try_init()),
    }
    guard
}

enum LogOutput {
    Stderr,
    Files(Box<LogFiles>),
}

struct LogFiles {
    folder: PathBuf,
    retained: RetainedFolder,
    /// Name and handle of the open file.
    file: Option<(String, File)>,
}

impl LogFiles {
    fn open(folder: PathBuf, limits: RetentionLimits) -> io::Result<Self> {
        make_folder(&folder, 0o700)?;
        let retained = RetainedFolder::new(folder.clone(), "server-", ".log", limits);
        Ok(Self { folder, retained, file: None })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let day = Timestamp::now().strftime("%Y-%m-%d").to_string();
        let (name, removed) = self.retained.make_room(&day, lines.len() as u64)?;
        if self.file.as_ref().is_none_or(|(open, _)| *open != name) {
            let path = self.folder.join(&name);
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
            self.file = Some((name, file));
        }
        let Some((_, file)) = &mut self.file else { return Ok(()) };
        for removed in removed {
            writeln!(file, "{} WARN {removed}", Timestamp::now())?;
        }
        file.write_all(lines)
    }
}

impl Write for LogOutput {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stderr => io::stderr().write_all(lines)?,
            // On a full disk, standard error may still have a reader.
            Self::Files(files) => {
                if files.append(lines).is_err() {
                    files.file = None;
                    io::stderr().write_all(lines)?;
                }
            }
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time of a line in UTC, such as `2026-11-21T08:00:00.000001Z`. Each thread converts only the first time
/// of a second to a date.
struct CachedTime;

thread_local! {
    /// The last second since 1970, and its text.
    static LAST_SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    /// The memory of the last line of [`add_line`], which is used again.
    static LINE: RefCell<String> = const { RefCell::new(String::new()) };
}

impl CachedTime {
    fn now() -> String {
        let now = Timestamp::now();
        let (second, micros) = (now.as_second(), now.subsec_microsecond().unsigned_abs());
        LAST_SECOND.with_borrow_mut(|(last, text)| {
            if *last != second {
                (*last, *text) = (second, now.strftime("%Y-%m-%dT%H:%M:%S").to_string());
            }
            // The leading one keeps the zeros after it.
            let mut digits = itoa::Buffer::new();
            [text.as_str(), ".", &digits.format(1_000_000 + micros)[1..], "Z"].concat()
        })
    }
}

impl FormatTime for CachedTime {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        out.write_str(&Self::now())
    }
}

/// Lines that wait to be written.
#[derive(Default)]
struct BufferedLines {
    text: Vec<u8>,
    /// Number of lines that did not fit since the last write.
    dropped: u64,
    is_closing: bool,
}

/// A buffer of lines. Clones share it.
struct LogBuffer<W> {
    shared: Arc<SharedBuffer<W>>,
}

struct SharedBuffer<W> {
    lines: Mutex<BufferedLines>,
    /// Notified when the buffer is not empty any more, and when it is closed.
    filled: Condvar,
    /// The output, and the memory of the last written lines, which is used again.
    out: Mutex<(W, Vec<u8>)>,
}

impl<W> Clone for LogBuffer<W> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Writes the rest of the buffer when it is dropped.
pub struct LogGuard {
    close: Box<dyn Fn() + Send + Sync>,
    done: Receiver<()>,
    buffer: Option<LogBuffer<LogOutput>>,
}

impl LogGuard {
    /// Writes further lines to daily files in a folder.
    ///
    /// # Errors
    /// An error if the folder cannot be created.
    pub fn write_to(&self, folder: PathBuf, limits: RetentionLimits) -> io::Result<()> {
        let files = LogFiles::open(folder, limits)?;
        if let Some(buffer) = &self.buffer {
            buffer.write_lines();
            let mut out = buffer.shared.out.lock().unwrap_or_else(PoisonError::into_inner);
            out.0 = LogOutput::Files(Box::new(files));
        }
        Ok(())
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        (self.close)();
        // The reader of standard error may have stopped reading; the process ends nevertheless.
        let _in_time = self.done.recv_timeout(MAX_WAIT);
    }
}

impl<W: Write + Send + 'static> LogBuffer<W> {
    /// Creates a buffer and starts the thread that writes it to `out`.
    fn start(out: W) -> (Self, LogGuard) {
        let shared = SharedBuffer {
            lines: Mutex::default(),
            filled: Condvar::new(),
            out: Mutex::new((out, Vec::new())),
        };
        let buffer = Self { shared: Arc::new(shared) };
        let (ended, done) = mpsc::channel();
        let (written, closed) = (buffer.clone(), buffer.clone());
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            written.write_until_closed();
            let _is_awaited = ended.send(());
        });
        // Without the thread the server still works; its log contains only warnings and errors.
        if let Err(error) = thread {
            eprintln!("error: failed to start the log: {error}");
        }
        let close = move || {
            closed.lines().is_closing = true;
            closed.shared.filled.notify_one();
        };
        (buffer, LogGuard { close: Box::new(close), done, buffer: None })
    }

    fn lines(&self) -> MutexGuard<'_, BufferedLines> {
        self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8]) {
        let mut lines = self.lines();
        if lines.text.len() + line.len() > MAX_BUFFERED {
            lines.dropped += 1;
            return;
        }
        let was_empty = lines.text.is_empty();
        lines.text.extend_from_slice(line);
        drop(lines);
        if was_empty {
            self.shared.filled.notify_one();
        }
    }

    fn write_until_closed(&self) {
        loop {
            let is_idle = |lines: &mut BufferedLines| lines.text.is_empty() && !lines.is_closing;
            let lines = self.shared.filled.wait_while(self.lines(), is_idle);
            let is_closing = lines.unwrap_or_else(PoisonError::into_inner).is_closing;
            if !is_closing {
                thread::sleep(BATCH_WINDOW);
            }
            self.write_lines();
            if is_closing {
                return;
            }
        }
    }

    /// Writes the lines of the buffer.
    fn write_lines(&self) {
        let mut out = self.shared.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (out, text) = &mut *out;
        let mut lines = self.lines();
        std::mem::swap(&mut lines.text, text);
        let dropped = std::mem::take(&mut lines.dropped);
        drop(lines);
        // Nothing can be reported if standard error cannot be written.
        drop(out.write_all(text));
        if dropped > 0 {
            drop(writeln!(out, "{dropped} lines of the log were dropped, because it is written too slowly"));
        }
        text.clear();
    }
}

impl<'a, W: Write + Send + 'static> MakeWriter<'a> for LogBuffer<W> {
    type Writer = LineWriter<'a, W>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { buffer: self, is_urgent: false }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Self::Writer {
        LineWriter { buffer: self, is_urgent: *event.level() <= Level::WARN }
    }
}

/// Adds each written text to the buffer. The formatter writes each line at once.
struct LineWriter<'a, W> {
    buffer: &'a LogBuffer<W>,
    is_urgent: bool,
}

impl<W: Write + Send + 'static> Write for LineWriter<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.buffer.add(line);
        if self.is_urgent {
            self.buffer.write_lines();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose first write waits until it is allowed.
    struct SlowWriter {
        allowed: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for SlowWriter {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _is_allowed = self.allowed.recv();
            self.written.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_delays_nobody_and_dropped_lines_are_counted() {
        let (allow, allowed) = mpsc::channel();
        let output = Arc::new(Mutex::new(Vec::new()));
        let (buffer, guard) = LogBuffer::start(SlowWriter { allowed, written: Arc::clone(&output) });
        let line = vec![b'x'; 1 << 20];
        // The buffer is written and filled again at most once, because the first write waits.
        for _ in 0..20 {
            buffer.add(&line);
        }
        drop(allow);
        drop(guard);
        let text = String::from_utf8(output.lock().unwrap().clone()).unwrap();
        let lines = text.matches('x').count() / line.len();
        let dropped: usize = text
            .lines()
            .filter_map(|line| line.trim_start_matches('x').split_once(" lines of the log were dropped"))
            .map(|(count, _)| count.parse::<usize>().unwrap())
            .sum();
        assert!((4..=8).contains(&lines), "{lines}");
        assert_eq!(lines + dropped, 20);
    }

    #[test]
    fn the_time_of_a_line_is_written_like_an_instant() {
        for _ in 0..3 {
            let mut text = String::new();
            let before = Timestamp::now();
            CachedTime.format_time(&mut Writer::new(&mut text)).unwrap();
            let time: Timestamp = text.parse().unwrap();
            assert_eq!(text.len(), "2026-11-21T08:00:00.000001Z".len());
            assert!((0..10).contains(&time.duration_since(before).as_secs().abs()), "{text}");
        }
    }

    #[test]
    fn warnings_are_written_at_once_after_the_lines_before_them() {
        let (allow, allowed) = mpsc::channel();
        drop(allow);
        let output = Arc::new(Mutex::new(Vec::new()));
        let (buffer, _guard) = LogBuffer::start(SlowWriter { allowed, written: Arc::clone(&output) });
        let log = tracing_subscriber::fmt().without_time().with_writer(buffer).with_ansi(false).finish();
        tracing::subscriber::with_default(log, || {
            tracing::info!("first");
            tracing::warn!("second");
        });
        let text = String::from_utf8(output.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(lines, ["first", "second"]);
    }

    #[test]
    fn the_rest_is_written_at_the_end() {
        let (allow, allowed) = mpsc::channel();
        drop(allow);
        let output = Arc::new(Mutex::new(Vec::new()));
        let (buffer, guard) = LogBuffer::start(SlowWriter { allowed, written: Arc::clone(&output) });
        for line in 0..100 {
            buffer.add(format!("{line}\n").as_bytes());
        }
        drop(guard);
        assert_eq!(String::from_utf8(output.lock().unwrap().clone()).unwrap().lines().count(), 100);
    }
}
