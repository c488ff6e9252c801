//! Benchmark of the terminal client as its user sees it: the time until the first screen, the CPU of an idle
//! client, and the memory with an export file of 1,000,000 lines.
//!
//! `cargo xtask bench client` runs it. The program runs in a pseudo-terminal that answers as a terminal
//! without colours does.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue fails")]

#[path = "../tests/it/pty.rs"]
mod pty;

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use trefoil_tui::api::{ExportManifest, KickOff, OutputFile};
use trefoil_tui::export::{ExportFolder, ExportJob, ExportPhase, ExportRegistry};

use pty::PseudoTerminal;

const STARTS: usize = 30;
const IDLE: Duration = Duration::from_secs(20);
const LINES: u64 = 1_000_000;
/// Time after which a filter has read the whole file.
const FILTER: Duration = Duration::from_secs(5);

fn main() {
    let state = tempfile::tempdir().unwrap();
    first_paint(state.path());
    idle(state.path());
    large_file(state.path());
}

fn client(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trefoil-tui"));
    command.args(["--base-url", "https://t.example"]);
    command.env("XDG_STATE_HOME", state).env("XDG_CONFIG_HOME", state).env("TERM", "xterm-256color");
    command
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn first_paint(state: &Path) {
    let mut times: Vec<_> = (0..STARTS)
        .map(|_| {
            let mut terminal = PseudoTerminal::new();
            let started = Instant::now();
            let mut child = terminal.spawn(&mut client(state));
            terminal.read_until("quit");
            let time = started.elapsed();
            end(&mut child);
            time
        })
        .collect();
    times.sort();
    println!(
        "first paint: median {:.1} ms, maximum {:.1} ms of {STARTS} (goal 30 ms)",
        ms(times[STARTS / 2]),
        ms(times[STARTS - 1])
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn idle(state: &Path) {
    let mut terminal = PseudoTerminal::new();
    let mut child = terminal.spawn(&mut client(state));
    terminal.read_until("quit");
    // The terminal shows a new second several times; its output is read so that the program does not block.
    let before = cpu_ticks(&child);
    std::thread::sleep(IDLE);
    let ticks = cpu_ticks(&child) - before;
    // Linux counts CPU time in hundredths of a second.
    let percent = ticks as f64 / IDLE.as_secs_f64();
    println!("idle: {percent:.2} % of a CPU in {} s (goal 0.1 %)", IDLE.as_secs());
    end(&mut child);
}

/// Returns the CPU time of a process in hundredths of a second (proc(5), fields 14 and 15 of stat).
fn cpu_ticks(child: &Child) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
}

fn large_file(state: &Path) {
    let folder = state.join("export");
    let mut job = ExportJob::new("https://t.example/fhir/R4", KickOff::default(), Timestamp::now());
    job.add_page(&ExportManifest {
        transaction_time: "2024-05-01T12:00:00Z".to_owned(),
        requires_access_token: true,
        output: vec![OutputFile { kind: "Patient".to_owned(), url: String::new(), count: Some(LINES) }],
        deleted: Vec::new(),
        error: Vec::new(),
        link: Vec::new(),
    });
    job.phase = ExportPhase::Complete;
    let export = ExportFolder::create(&folder).unwrap();
    export.save(&job).unwrap();
    ExportRegistry::at(&state.join("trefoil-tui/exports")).add(&folder).unwrap();
    let mut out = BufWriter::new(std::fs::File::create(folder.join("Patient.ndjson")).unwrap());
    for n in 0..LINES {
        writeln!(
            out,
            r#"{{"resourceType":"Patient","id":"p{n}","birthDate":"1970-01-01","name":[{{"given":["Ada"],"family":"Example {n}"}}],"address":[{{"line":["{n} Example Street"],"city":"Sampletown"}}]}}"#
        )
        .unwrap();
    }
    out.flush().unwrap();
    drop(out);
    let bytes = std::fs::metadata(folder.join("Patient.ndjson")).unwrap().len();

    let mut terminal = PseudoTerminal::new();
    let mut child = terminal.spawn(&mut client(state));
    terminal.read_until("quit");
    terminal.send("4");
    terminal.read_until("everything");
    let started = Instant::now();
    terminal.send("v");
    terminal.read_until("1000000");
    let opening_time = started.elapsed();
    let started = Instant::now();
    terminal.send("\x1b[F");
    terminal.read_until("p999999");
    let jumped = started.elapsed();
    // A frame contains only the cells that change, but at least one sequence that moves the cursor.
    for _ in 0..100 {
        terminal.send("\x1b[5~");
        terminal.read_until("\x1b[");
    }
    terminal.send("/Example 4\r");
    terminal.read_until("\x1b[");
    std::thread::sleep(FILTER);
    println!(
        "{LINES} lines of {} MB: opened in {:.0} ms, last line in {:.1} ms, peak memory {} MiB (goal 64 MiB)",
        bytes / 1_000_000,
        ms(opening_time),
        ms(jumped),
        peak_memory_mib(&child)
    );
    end(&mut child);
}

/// Returns the maximum resident memory of a process.
fn peak_memory_mib(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
