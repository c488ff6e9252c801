//! Runs of the conformance suite against the server with one fault, and of tests with one fault. A run of the
//! suite ends at the first case that fails.

use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use test_server::{DataFolder, ServerProcess};

use super::plant::{Programs, with_fault};
use super::table::{Mutant, RustTest};
use xtask::workspace::target_dir;

/// Maximum duration of a run, and the time between two looks at its report.
const LIMIT: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(40);
/// Number of seeds of the simulation.
const SEEDS: &str = "60";

/// Result of the runs against a fault.
#[derive(Debug)]
pub enum Discovery {
    By {
        case: String,
        /// First difference that the case reports.
        differences: String,
    },
    /// All cases passed or were skipped.
    None,
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::By { case, differences } => {
                let line = differences.lines().next().unwrap_or_default();
                write!(f, "{case}: {}", line.chars().take(120).collect::<String>())
            }
            Self::None => f.write_str("NOT FOUND"),
        }
    }
}

/// The suite, and how it reaches the server.
pub struct Suite {
    pub programs: Programs,
    /// Whether the server is started outside of the suite.
    pub black_box: bool,
}

impl Suite {
    /// Runs the test of a fault, or its rows and, if they pass, all rows.
    pub fn find(&self, mutant: &Mutant) -> Result<Discovery> {
        if let Some(test) = &mutant.test {
            return if self.black_box { Ok(Discovery::None) } else { self.run_test(&mutant.name, test) };
        }
        match self.run(&mutant.name, &mutant.rows)? {
            Discovery::None => self.run(&mutant.name, &[]),
            discovery => Ok(discovery),
        }
    }

    /// Runs the cases that the filters select until one fails.
    pub fn run(&self, fault: &str, filters: &[String]) -> Result<Discovery> {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let folder = target_dir().join(format!("mutants/runs/{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let result = self.run_in(&folder, fault, filters);
        if result.is_ok() {
            std::fs::remove_dir_all(&folder)?;
        }
        result
    }

    /// Runs a test. Only one test runs at a time, because tests measure times.
    pub fn run_test(&self, fault: &str, test: &RustTest) -> Result<Discovery> {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let path = target_dir().join(format!("mutants/runs/test-{}.log", std::process::id()));
        std::fs::create_dir_all(path.parent().context("the log has a folder")?)?;
        let log = std::fs::File::create(&path)?;
        let program = self
            .programs
            .tests
            .get(&(test.package.clone(), test.target()))
            .context("the test program was not built")?;
        let mut command = with_fault(program, fault);
        command
            .args([&test.filter, "--nocapture"])
            .env("TREFOIL_SIMULATION_SEEDS", SEEDS)
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut group = ProcessGroup::spawn(&mut command)?;
        let started = Instant::now();
        let exit_status = loop {
            if let Some(status) = group.0.try_wait()? {
                break status;
            }
            if started.elapsed() > LIMIT {
                bail!("the test took longer than {} s", LIMIT.as_secs());
            }
            std::thread::sleep(PAUSE);
        };
        let log = std::fs::read_to_string(&path)?;
        let result = result_of_test(&log, exit_status.success())?;
        std::fs::remove_file(&path)?;
        Ok(result)
    }

    fn run_in(&self, folder: &std::path::Path, fault: &str, filters: &[String]) -> Result<Discovery> {
        let report = folder.join("report.jsonl");
        let mut command = with_fault(&self.programs.suite, fault);
        command.arg("run").args(filters).arg("--report").arg(format!("json={}", report.display()));
        let server =
            self.black_box.then(|| RunningServer::start(&self.programs, fault, folder)).transpose()?;
        match &server {
            Some(server) => {
                command.args(["--house", "--write", "--target", server.process.address(), "--profile"]);
                command.arg(&server.profile);
            }
            None => {
                command.env("TREFOIL_BIN", &self.programs.server);
            }
        }
        let output = std::fs::File::create(folder.join("suite.log"))?;
        command.stdout(output.try_clone()?).stderr(output);
        let mut group = ProcessGroup::spawn(&mut command)?;
        let started = Instant::now();
        loop {
            let exit_status = group.0.try_wait()?;
            if let Some(failure) = first_failure(&std::fs::read_to_string(&report).unwrap_or_default()) {
                return Ok(failure);
            }
            match exit_status.and_then(|status: ExitStatus| status.code()) {
                Some(0) => return Ok(Discovery::None),
                Some(code) => {
                    let log = std::fs::read_to_string(folder.join("suite.log")).unwrap_or_default();
                    bail!("the suite ended with {code} and reported no failure:\n{log}")
                }
                None if exit_status.is_some() => bail!("the suite was killed"),
                None if started.elapsed() > LIMIT => bail!("the run took longer than {} s", LIMIT.as_secs()),
                None => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// The result of a test according to its output.
fn result_of_test(log: &str, is_success: bool) -> Result<Discovery> {
    let line = |begin: &str| log.lines().find(|line| line.starts_with(begin));
    if let Some(reason) = line("left out: ") {
        bail!("{reason}");
    }
    if is_success && line("running 0 tests").is_none() {
        return Ok(Discovery::None);
    }
    // The names of the tests that failed follow the last such line.
    let failed = log.rsplit_once("\nfailures:\n").and_then(|(_, names)| names.lines().next());
    let case = failed.with_context(|| format!("the test reported no failure:\n{log}"))?.trim().to_owned();
    let mut lines = log.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    let message = line("VIOLATION ").or_else(|| lines.next()).unwrap_or_default();
    Ok(Discovery::By { case, differences: message.to_owned() })
}

/// The first case that failed according to a report, which may still be incomplete.
fn first_failure(report: &str) -> Option<Discovery> {
    let complete = &report[..report.rfind('\n')?];
    let failed = complete.lines().filter(|line| line.contains("\"fail\""));
    let mut cases = failed.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let case = cases.find(|line| line["event"] == "case" && line["verdict"] == "fail")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Discovery::By { case: text(&case["id"]), differences: text(&case["differences"][0]) })
}

/// A process and all processes that it starts. They are killed when it is dropped.
struct ProcessGroup(Child);

impl ProcessGroup {
    fn spawn(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| format!("failed to start {name}"))?;
        Ok(Self(child))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        drop(Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status());
        drop(self.0.wait());
    }
}

/// A server with the demo project, and the profile that the suite needs for it.
struct RunningServer {
    process: ServerProcess,
    profile: PathBuf,
}

impl RunningServer {
    fn start(programs: &Programs, fault: &str, folder: &std::path::Path) -> Result<Self> {
        let data = folder.join("data");
        std::fs::create_dir_all(&data)?;
        let log = std::fs::File::create(folder.join("server.log"))?;
        let mut command = with_fault(&programs.server, fault);
        command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let process = ServerProcess::start(command.stderr(log))
            .with_context(|| format!("see {}", folder.join("server.log").display()))?;
        let files = DataFolder(&data);
        let mut profile = files.demo()?;
        profile["ca"] = files.endpoint()?["ca"].clone();
        let path = folder.join("profile.json");
        std::fs::write(&path, profile.to_string())?;
        Ok(Self { process, profile: path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_of_an_incomplete_report_is_found() {
        let report = "{\"event\":\"case\",\"id\":\"a\",\"verdict\":\"pass\"}\n\
                      {\"event\":\"case\",\"id\":\"b\",\"verdict\":\"fail\",\"differences\":[\"status\"]}\n{\"ev";
        let Some(Discovery::By { case, differences }) = first_failure(report) else { panic!("no failure") };
        assert_eq!((case.as_str(), differences.as_str()), ("b", "status"));
        assert!(first_failure("{\"event\":\"case\",\"verdict\":\"fail\"").is_none());
    }

    #[test]
    fn the_failure_of_a_test_is_found() {
        let log = "running 1 test\nVIOLATION used twice\nthread 'a::b' panicked at c.rs:1:1:\n1 violation\n\n\
                   failures:\n\nfailures:\n    a::b\n\ntest result: FAILED.";
        let Ok(Discovery::By { case, differences }) = result_of_test(log, false) else {
            panic!("no failure")
        };
        assert_eq!((case.as_str(), differences.as_str()), ("a::b", "VIOLATION used twice"));
        assert!(matches!(result_of_test("running 1 test\n", true), Ok(Discovery::None)));
        assert!(result_of_test("running 0 tests\n", true).is_err());
        assert!(result_of_test("running 1 test\nleft out: no database\n", true).is_err());
        assert!(result_of_test("running 1 test\nkilled", false).is_err());
    }
}
