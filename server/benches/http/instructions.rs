//! The workloads under callgrind of valgrind, which counts the instructions of a request. The count is the
//! same on every machine of one architecture, whatever else the machine does. Instructions of the kernel are
//! not counted.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::connection::Connection;
use crate::server::Server;
use crate::{Bench, Work};

/// Requests of one measurement, after as many that fill the caches.
const REQUESTS: usize = 1_000;
/// Functions that are listed for each workload.
const FUNCTIONS: usize = 20;

/// Returns the command that starts the same program under callgrind, which counts nothing at first.
pub(crate) fn command(program: &Command, folder: &Path) -> Command {
    let mut command = Command::new("valgrind");
    // Threads take turns, so that one that waits in a loop does not stop the others.
    command.args(["--tool=callgrind", "--quiet", "--fair-sched=yes", "--instr-atstart=no"]);
    command.arg(format!("--callgrind-out-file={}/callgrind.%p", folder.display()));
    command.arg(program.get_program()).args(program.get_args());
    command
}

/// Prints the instructions of each workload, and its dearest functions.
pub(crate) fn measure(work: &[Work], bench: &Bench, floor: &Server, folder: &Path) {
    let base = count(floor, folder, &|connection, _| {
        floor.ask(connection, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    });
    println!("{:<56} {:>12} {:>16}", "work", "instructions", "above reference");
    println!("{:<56} {:>12.0}", "reference: bare hyper", base.total);
    for work in work {
        let prepared = (work.prepare)(bench, 2 * REQUESTS);
        let totals = count(&bench.trefoil, folder, &prepared);
        println!("{:<56} {:>12.0} {:>16.0}", work.name, totals.total, totals.total - base.total);
        for (instructions, function) in &totals.functions {
            println!("    {instructions:>8.0}  {function}");
        }
    }
}

/// The instructions of a request.
struct Counted {
    total: f64,
    /// The dearest functions, without those that they call.
    functions: Vec<(f64, String)>,
}

/// Counts the instructions of a request.
fn count(server: &Server, folder: &Path, send: &dyn Fn(&mut Connection, usize)) -> Counted {
    let mut connection = server.connect();
    (0..REQUESTS).for_each(|at| send(&mut connection, at));
    let before = dumps(folder);
    control(server, &["--instr=on"]);
    (REQUESTS..2 * REQUESTS).for_each(|at| send(&mut connection, at));
    control(server, &["--dump"]);
    control(server, &["--instr=off"]);
    let dump = dumps(folder).into_iter().find(|path| !before.contains(path)).expect("a dump was written");
    annotated(&dump)
}

fn control(server: &Server, args: &[&str]) {
    let mut control = Command::new("callgrind_control");
    let output = control.args(args).arg(server.process_id().to_string()).output();
    let output = output.expect("callgrind_control is installed with valgrind");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The files that callgrind has written.
fn dumps(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder exists").flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("callgrind.")).collect()
}

/// Reads the sums of a dump as `callgrind_annotate` prints them.
fn annotated(dump: &Path) -> Counted {
    let mut annotate = Command::new("callgrind_annotate");
    let output = annotate.args(["--auto=no", "--show-percs=no", "--threshold=100"]).arg(dump).output();
    let output = output.expect("callgrind_annotate is installed with valgrind");
    let text = String::from_utf8_lossy(&output.stdout);
    let rows = text.lines().filter_map(|line| {
        let (count, name) = line.trim_start().split_once(' ')?;
        let count: f64 = count.replace(',', "").parse().ok()?;
        Some((count / REQUESTS as f64, name.trim_start()))
    });
    let mut functions: Vec<(f64, String)> = Vec::new();
    // The row of the totals is wrong if counting was off before. A row of a function has the source file, a
    // colon, the function and the program in brackets.
    for (count, name) in rows.filter(|(_, name)| !name.starts_with("PROGRAM TOTALS")) {
        let function = name.split_once(':').map_or(name, |(_, function)| function);
        let function = function.rsplit_once(" [").map_or(function, |(function, _)| function);
        match functions.iter_mut().find(|(_, known)| known == function) {
            Some((sum, _)) => *sum += count,
            None => functions.push((count, function.to_owned())),
        }
    }
    functions.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let total = functions.iter().map(|(count, _)| count).sum();
    assert!(total > 0.0, "{text}{}", String::from_utf8_lossy(&output.stderr));
    functions.truncate(FUNCTIONS);
    Counted { total, functions }
}
