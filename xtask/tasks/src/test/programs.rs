//! The test programs of the workspace: builds them once, and runs several side by side.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::check_sum::CheckSum;
use super::progress::{Progress, TestCount};
use xtask::workspace::{cargo, root};

/// Tests that only `cargo xtask ci` runs: databases, several nodes, kills, damage, and long journeys. The
/// first value is the package, the others are the beginnings of the names of tests.
pub const PIPELINE_TESTS: [(&str, &[&str]); 9] = [
    (
        "trefoil-bulk",
        &[
            "bucket::",
            "increments::law::increments_that_list_leavers_converge_in_a_database",
            "mirror::increments_that_are_imported_mirror_a_server_in_a_database",
            "power_cut::",
        ],
    ),
    ("trefoil-conformance", &["other_servers::", "wire_faults::faults", "wire_faults::variations"]),
    ("trefoil-identity", &["growth::a_database"]),
    ("trefoil-resources", &["power_cut::"]),
    (
        "trefoil-server",
        &[
            "attacks::",
            "backups::a_database",
            "backups::a_server_moves",
            "bucket::",
            "ci_examples::a_server",
            "clients::a_hundred_servers",
            "cluster::",
            "crash::",
            "damage::",
            "database_drills::",
            "drills::",
            "erasure::a_record_is_erased_from_a_database",
            "exports::the_end_of_an_export_is_logged_once_despite_kills",
            "imports::an_interrupted_import",
            "kills::",
            "large_requests::a_flood",
            "node_faults::",
            "nodes::",
            "pages::every_page_is_accessible",
            "power_cut::",
            "proxies::everything_works_behind",
            "releases::a_killed",
        ],
    ),
    ("trefoil-simulation", &["a_seed_gives_the_same_log"]),
    (
        "trefoil-store",
        &["damage::", "model::the_postgres_engine_behaves_as_the_model", "nodes::", "power_cut::"],
    ),
    ("trefoil-terminology", &["fuzz::"]),
    ("trefoil-terminology-import", &["fuzz::"]),
];

/// Programs that take longest. They start first, so that none of them runs alone at the end.
const LONGEST: [&str; 8] = [
    "trefoil-server it",
    "trefoil-conformance it",
    "trefoil-store it",
    "trefoil-simulation it",
    "trefoil-tui it",
    "trefoil-conformance rows",
    "trefoil-bulk it",
    "trefoil-resources it",
];

/// Number of programs that run at the same time.
const AT_ONCE: usize = 3;
/// Number of tests of the longest program that run at the same time. They wait for servers and browsers.
const JOURNEYS_AT_ONCE: &str = "4";

/// Values that property tests generate are the same in every run; a soak uses other seeds.
const PROPERTY_SEED: &str = "20261121";

#[derive(Debug, Clone)]
pub struct TestProgram {
    /// Package, such as `trefoil-server`.
    package: String,
    /// Package and target, such as `trefoil-server it`.
    name: String,
    executable: PathBuf,
    /// Folder of the package, in which Cargo runs its tests.
    folder: PathBuf,
}

#[derive(Deserialize)]
struct CargoMessage {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    profile: Option<ArtifactProfile>,
    target: Option<ArtifactTarget>,
    package_id: Option<String>,
}

#[derive(Deserialize)]
struct ArtifactProfile {
    test: bool,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    name: String,
    kind: Vec<String>,
}

/// Builds all programs and their tests in one run of Cargo, so that no crate is built with two sets of
/// features, and returns the test programs.
pub fn build(sum: &mut CheckSum) -> Result<Vec<TestProgram>> {
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-run", "--quiet", "--message-format=json-render-diagnostics"]);
    let mut building = command.stdout(Stdio::piped()).spawn().context("failed to start cargo")?;
    let (progress, mut programs) = (Progress::start(), Vec::new());
    for (ready, line) in building.stdout.take().into_iter().flat_map(lines).enumerate() {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(name) = message["target"]["name"].as_str() {
            progress.say(&format!("building: {} parts are ready, the last is {name}", ready + 1));
        }
        sum.log(format!("{line}\n").as_bytes())?;
        programs.extend(test_program(&line));
    }
    let status = building.wait()?;
    if !status.success() {
        bail!("ended with {status}");
    }
    programs.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    });
    Ok(programs)
}

/// The test program in a message of Cargo, if it names one.
fn test_program(line: &str) -> Option<TestProgram> {
    let message: CargoMessage = serde_json::from_str(line).ok()?;
    let (profile, target) = (message.profile?, message.target?);
    if message.reason != "compiler-artifact" || !profile.test {
        return None;
    }
    let folder = message.manifest_path?.parent()?.to_owned();
    // `path+file:///folder#name@version`, without the name if it is that of the folder.
    let id = message.package_id?;
    let package = match id.rsplit_once('#')?.1.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name()?.to_string_lossy().into_owned(),
    };
    let target_name =
        if target.kind == ["test"] { target.name } else { format!("{} ({})", target.name, target.kind[0]) };
    Some(TestProgram {
        name: format!("{package} {target_name}"),
        package,
        executable: message.executable?,
        folder,
    })
}

/// The tests of a program that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestSelection {
    /// All but [`PIPELINE_TESTS`].
    Contributor,
    /// [`PIPELINE_TESTS`] only.
    Pipeline,
}

impl TestSelection {
    /// The arguments of a program, or `None` if it has no selected tests.
    fn arguments(self, program: &TestProgram) -> Option<Vec<&'static str>> {
        let of_pipeline = PIPELINE_TESTS.iter().find(|(package, _)| *package == program.package);
        let names =
            of_pipeline.filter(|_| program.name.ends_with(" it")).map_or(&[][..], |(_, names)| *names);
        match self {
            Self::Contributor => Some(names.iter().flat_map(|name| ["--skip", *name]).collect()),
            Self::Pipeline => (!names.is_empty()).then(|| names.to_vec()),
        }
    }
}

/// The output of a program that has ended.
struct EndedProgram {
    name: String,
    output: String,
    succeeded: bool,
    took: Duration,
}

/// Runs the selected tests of all programs, several programs at a time, and the examples in the
/// documentation.
pub fn run(programs: &[TestProgram], selection: TestSelection, sum: &mut CheckSum) -> Result<()> {
    let mut commands: VecDeque<(String, Command)> = programs
        .iter()
        .filter_map(|program| {
            let mut command = test_command(program);
            command.args(selection.arguments(program)?);
            Some((program.name.clone(), command))
        })
        .collect();
    if selection == TestSelection::Contributor {
        let mut examples = cargo();
        examples.args(["test", "--workspace", "--doc", "--quiet"]);
        commands.push_back(("examples in the documentation".to_owned(), examples));
    }
    let count = TestCount::of(programs.iter().map(|program| number_of_tests(program, selection)).sum());
    let waiting = Mutex::new(commands);
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (sender, waiting, count) = (sender.clone(), &waiting, &count);
            scope.spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((name, command)) = next else { return };
                    if sender.send(run_program(name, command, count)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        ended.iter().try_for_each(|program| record(program?, sum))
    })
}

/// The command that runs a program as Cargo does.
fn test_command(program: &TestProgram) -> Command {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).args(["--show-output", "--color", "never"]);
    command.env("CARGO_MANIFEST_DIR", &program.folder).env("CARGO_PKG_NAME", &program.package);
    command.env("INSTA_WORKSPACE_ROOT", root());
    if program.name == LONGEST[0] {
        command.env("RUST_TEST_THREADS", JOURNEYS_AT_ONCE);
    }
    command
}

/// The number of selected tests of a program, for the progress.
fn number_of_tests(program: &TestProgram, selection: TestSelection) -> usize {
    let Some(arguments) = selection.arguments(program) else { return 0 };
    let list_output = test_command(program).args(arguments).args(["--list", "--format", "terse"]).output();
    list_output.map_or(0, |output| String::from_utf8_lossy(&output.stdout).matches(": test\n").count())
}

fn run_program(name: String, mut command: Command, count: &TestCount) -> Result<EndedProgram> {
    let started = Instant::now();
    command.env("INSTA_UPDATE", "no").env("PROPTEST_RNG_SEED", PROPERTY_SEED).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().with_context(|| format!("failed to start {name}"))?;
    let errors = program.stderr.take();
    let errors = std::thread::spawn(move || errors.into_iter().flat_map(lines).collect::<Vec<_>>());
    let mut output = String::new();
    for line in program.stdout.take().into_iter().flat_map(lines) {
        count.read(&name, &line);
        output += &line;
        output.push('\n');
    }
    for line in errors.join().unwrap_or_default() {
        output += &line;
        output.push('\n');
    }
    let succeeded = program.wait()?.success();
    Ok(EndedProgram { name, output, succeeded, took: started.elapsed() })
}

/// The lines of a program's output. Bytes that are no UTF-8 are replaced.
fn lines(output: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// Adds the results of a program, and prints its failures.
fn record(program: EndedProgram, sum: &mut CheckSum) -> Result<()> {
    sum.timings.add(&program.name, program.took);
    sum.log(format!("\n===== {}\n{}", program.name, program.output).as_bytes())?;
    let mut failed_tests = 0;
    let mut shows_failures = false;
    for line in program.output.lines() {
        if let Some((passed, failed)) = closing_line(line) {
            sum.add(passed, failed);
            failed_tests += failed;
            shows_failures = false;
        } else if let Some(what) = line.split("left out: ").nth(1) {
            sum.leave_out(what.to_owned());
        }
        shows_failures |= line == "failures:";
        if shows_failures || line.ends_with("... FAILED") {
            println!("{line}");
        }
    }
    if !program.succeeded && failed_tests == 0 {
        // A program that crashed counts as one failure.
        sum.add(0, 1);
        println!("FAILED {}:\n{}", program.name, program.output);
    }
    Ok(())
}

/// Parses `test result: ok. 3 passed; 0 failed; …` of one test program.
fn closing_line(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?.trim_end();
        before.rsplit([' ', ';']).next()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(closing_line(line), Some((12, 3)));
        assert_eq!(closing_line("running 3 tests"), None);
    }

    #[test]
    fn test_programs_are_found_in_messages_of_cargo() {
        let message = |id: &str, test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "package_id": id,
                "manifest_path": "/work/server/Cargo.toml",
                "target": { "name": "it", "kind": ["test"] },
                "profile": { "test": test },
                "executable": "/target/it-0",
            })
            .to_string()
        };
        let program = test_program(&message("path+file:///work/server#trefoil-server@0.1.0", true)).unwrap();
        assert_eq!(
            (program.package.as_str(), program.name.as_str()),
            ("trefoil-server", "trefoil-server it")
        );
        let program = test_program(&message("path+file:///work/server#0.1.0", true)).unwrap();
        assert_eq!(program.package, "server");
        assert!(test_program(&message("path+file:///work/server#trefoil-server@0.1.0", false)).is_none());
    }

    #[test]
    fn each_test_belongs_to_one_command() {
        let program = |package: &str, name: &str| TestProgram {
            package: package.to_owned(),
            name: format!("{package} {name}"),
            executable: PathBuf::new(),
            folder: PathBuf::new(),
        };
        for (package, names) in PIPELINE_TESTS {
            let skipped = TestSelection::Contributor.arguments(&program(package, "it")).unwrap();
            assert_eq!(
                skipped.iter().filter(|argument| **argument != "--skip").collect::<Vec<_>>(),
                names.iter().collect::<Vec<_>>()
            );
            assert_eq!(TestSelection::Pipeline.arguments(&program(package, "it")).unwrap(), names);
            assert_eq!(TestSelection::Pipeline.arguments(&program(package, "other")), None);
        }
    }
}
