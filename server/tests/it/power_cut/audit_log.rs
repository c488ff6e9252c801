//! Lines of the audit log: a line that was written before the response is there after a power cut.

use std::path::Path;

use trefoil_power_cut::{Exploration, NameRule, Recording, explore, mark, recorded_folder, recorded_session};
use trefoil_server::node::data_folder::make_data_folder;
use trefoil_server::records::append_log::{AppendLog, LogLine};
use trefoil_server::records::retained_folder::{RetainedFolder, RetentionLimits};

const TEST: &str = "power_cut::audit_log::lines_are_recorded";
const SESSIONS: usize = 2;
/// Number of states that the ordinary tests check, and for each planted fault.
const STATES: usize = 1_500;
const STATES_WITH_FAULT: usize = 500;
/// Number of lines in each session, and of lines in the file of a day.
const LINES: usize = 20;
const DAY_LINES: usize = 12;

fn line(number: usize) -> LogLine {
    let text = format!("{number} {}\n", "x".repeat(20 + 97 * (number % 9)));
    LogLine { day: format!("2026-11-{:02}", 1 + number / DAY_LINES), text }
}

/// If this process is recorded: writes the lines of a session and marks each of them. Otherwise: does so
/// without a recording.
#[test]
fn lines_are_recorded() {
    let Some(root) = recorded_folder() else {
        let dir = tempfile::TempDir::new().unwrap();
        (0..SESSIONS).for_each(|session| write(dir.path(), session, |_| {}));
        return check(dir.path(), &[&(SESSIONS * LINES - 1).to_string()]).unwrap();
    };
    write(&root, recorded_session(), |number| mark(&number.to_string()));
}

fn write(root: &Path, session: usize, acknowledged: impl Fn(usize)) {
    let data = root.join("data");
    make_data_folder(&data).unwrap();
    let limits = RetentionLimits { keep_days: 0, max_bytes: 0, removes_early: false };
    let folder = RetainedFolder::new(data.join("audit"), "audit-", ".ndjson", limits);
    let log = AppendLog::open(folder, "audit log", true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for number in session * LINES..(session + 1) * LINES {
        assert!(runtime.block_on(log.write(vec![line(number)])));
        acknowledged(number);
    }
}

fn check(root: &Path, marks: &[&str]) -> Result<(), String> {
    let acknowledged = marks.last().map_or(0, |mark| mark.parse::<usize>().unwrap() + 1);
    for number in 0..acknowledged {
        let LogLine { day, text } = line(number);
        // A line of a power cut may consist of zeros, or end early.
        let file = root.join(format!("data/audit/audit-{day}.ndjson"));
        let bytes = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        if !bytes.split_inclusive(|byte| *byte == b'\n').any(|line| line == text.as_bytes()) {
            return Err(format!("line {number} of {acknowledged} is missing"));
        }
    }
    Ok(())
}

#[test]
fn acknowledged_lines_survive_a_power_cut() {
    let Some(recording) = Recording::of_test(TEST, SESSIONS).unwrap() else { return };
    let report = explore(&recording, Exploration::of(NameRule::Strict, STATES), check);
    report.expect_no_failure(&recording, "power_cut::audit_log::acknowledged");

    for what in ["data/audit", ".ndjson"] {
        let (faulty, dropped) = recording.without_syncs(|path| path.ends_with(what));
        let report = explore(&faulty, Exploration::of_fault(NameRule::Strict, STATES_WITH_FAULT), check);
        assert!(!report.failures.is_empty(), "the check passes without {dropped} fsyncs of {what}");
    }
}
