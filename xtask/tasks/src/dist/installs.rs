//! Installs the packages of a release from their files, as users of npm, pip and a shell do, and runs the
//! projects of `server/examples/tests` with them. The registries of npm and Python bring the test runners.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::files::copy_tree;
use super::platform::Platform;
use super::release::PROGRAMS;
use xtask::workspace::{check_silently, root, target_dir};

/// Archives of Java that JUnit needs, where Debian's package `junit5` puts them.
const JARS: &str = "/usr/share/java";
const JAR_PREFIXES: [&str; 5] =
    ["junit-jupiter", "junit-platform", "apiguardian-api", "opentest4j", "picocli"];

/// Installs and uses the packages in `target/dist`. Returns what could not be tried.
pub fn run() -> Result<Vec<String>> {
    let folder = target_dir().join("package-installs");
    drop(fs::remove_dir_all(&folder));
    copy_tree(&root().join("server/examples/tests"), &folder)?;
    let mut left_out = Vec::new();
    let mut run = |name: &str, trial: fn(&Path) -> Result<Option<&'static str>>| -> Result<()> {
        let missing = trial(&folder).with_context(|| format!("packages: {name}"))?;
        left_out.extend(missing.map(|missing| format!("packages: {name}: {missing}")));
        Ok(())
    };
    run("install.sh", install_script)?;
    run("npm", npm)?;
    run("pip", pip)?;
    run("JUnit", junit)?;
    fs::remove_dir_all(&folder)?;
    Ok(left_out)
}

/// Programs that `install.sh` has installed.
fn script_programs(folder: &Path) -> PathBuf {
    folder.join("programs")
}

fn install_script(folder: &Path) -> Result<Option<&'static str>> {
    let to = script_programs(folder);
    let install = |more: &[&str]| {
        let mut script = Command::new("sh");
        script.arg(target_dir().join("dist/install.sh")).arg("--to").arg(&to).args(more);
        check_silently(&mut script)
    };
    install(&[])?;
    install(&["--uninstall"])?;
    ensure!(fs::read_dir(&to)?.next().is_none(), "the programs are still there");
    install(&[])?;
    for program in PROGRAMS {
        check_silently(Command::new(to.join(program)).arg("--version"))?;
    }
    Ok(None)
}

fn npm(folder: &Path) -> Result<Option<&'static str>> {
    let command = |words: &[&str]| {
        let mut command = Command::new("npm");
        command.args(words).args(["--silent", "--no-audit", "--no-fund"]).current_dir(folder);
        command
    };
    if command(&["--version"]).output().is_err() {
        return Ok(Some("npm is not here"));
    }
    check_silently(&mut command(&["ci"]))?;
    // npm refuses to install the programs of another platform.
    let version = env!("CARGO_PKG_VERSION");
    let names = ["".to_owned(), format!("-linux-{}", Platform::of_this_machine()?.node)];
    let dist = target_dir().join("dist");
    let packages = names.map(|name| dist.join(format!("trefoil-server{name}-{version}.tgz")));
    check_silently(command(&["install", "--no-save", "--offline"]).args(packages))?;
    check_silently(Command::new("npx").args(["trefoil", "--version"]).current_dir(folder))?;
    for script in ["types", "vitest", "jest"] {
        check_silently(&mut command(&["run", script]))?;
    }
    let Some(chromium) = on_path("chromium") else {
        return Ok(Some("Playwright needs Chromium"));
    };
    check_silently(command(&["run", "playwright"]).env("CHROMIUM", chromium))?;
    Ok(None)
}

fn pip(folder: &Path) -> Result<Option<&'static str>> {
    let environment = folder.join("venv");
    check_silently(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let command = |name: &str, words: &[&str]| {
        let mut command = Command::new(environment.join("bin").join(name));
        command.args(words).current_dir(folder);
        command
    };
    check_silently(&mut command("pip", &["install", "--quiet", "--requirement", "pytest/requirements.txt"]))?;
    let mut install = command("pip", &["install", "--quiet", "--no-index", "--pre", "trefoil-server"]);
    check_silently(install.arg("--find-links").arg(target_dir().join("dist")))?;
    for program in PROGRAMS {
        check_silently(&mut command(program, &["--version"]))?;
    }
    check_silently(&mut command("pytest", &["-n", "2", "pytest"]))?;
    check_silently(&mut command("mypy", &["--strict", "pytest"]))?;
    check_silently(&mut command("mypy", &["--strict", "-p", "trefoil_server"]))?;
    Ok(None)
}

fn junit(folder: &Path) -> Result<Option<&'static str>> {
    let jars: Vec<PathBuf> = fs::read_dir(JARS)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            JAR_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    if jars.is_empty() || on_path("javac").is_none() {
        return Ok(Some("it needs a JDK and the Debian package junit5"));
    }
    let (sources, classes) = (folder.join("junit"), folder.join("classes"));
    let mut compile = Command::new("javac");
    compile.arg("-d").arg(&classes).arg("-cp").arg(env::join_paths(&jars)?);
    check_silently(compile.args([sources.join("Trefoil.java"), sources.join("PatientsTest.java")]))?;
    let mut test = Command::new("java");
    test.arg(format!("-Dtrefoil.program={}", script_programs(folder).join("trefoil").display()));
    test.arg("-cp").arg(env::join_paths([&classes].into_iter().chain(&jars))?);
    test.args(["org.junit.platform.console.ConsoleLauncher", "--fail-if-no-tests", "--scan-classpath"]);
    check_silently(test.arg(&classes))?;
    Ok(None)
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}
