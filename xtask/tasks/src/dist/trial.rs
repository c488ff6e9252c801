//! `cargo xtask soak --only package`: the Debian package of the server in a new system. It is installed,
//! started as its unit starts it, used, upgraded and removed. It needs root, debootstrap, `setpriv` and curl;
//! with bubblewrap, the service also runs as confined as the unit makes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use test_server::{DataFolder, ServerProcess};

use super::DistArgs;
use super::debian_root::copy_minimal_debian;
use xtask::workspace::{build, check, root, target_dir};

const DEBIAN: &str = "bookworm";
/// Data folder and settings in the new system.
const DATA: &str = "var/lib/trefoil";
const SETTINGS: &str = "etc/trefoil/trefoil.toml";
/// A setting of the operator, which an upgrade must keep.
const OWN_SETTING: &str = "\n[log]\nformat = \"json\"\n";

/// A Debian system in a folder.
struct DebianRoot(PathBuf);

impl DebianRoot {
    fn create(folder: &Path) -> Result<Self> {
        copy_minimal_debian("debian-root", DEBIAN, "", folder)?;
        Ok(Self(folder.to_owned()))
    }

    /// A program of the system, run as root.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.0).args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Runs a program as root, and returns its output.
    fn run(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).stdin(Stdio::null()).output()?;
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        ensure!(output.status.success(), "{words:?} ended with {}: {}", output.status, text.concat());
        let [stdout, _] = text;
        Ok(stdout)
    }

    /// Runs a command of `trefoil` as the user of the service.
    fn trefoil(&self, words: &[&str]) -> Result<String> {
        let as_user = ["setpriv", "--reuid=trefoil", "--regid=trefoil", "--clear-groups", "trefoil"];
        self.run(&[&as_user[..], words, &["--data", "/var/lib/trefoil"]].concat())
    }

    /// Starts the service with the command, the user and the limit of its unit.
    fn start(&self) -> Result<ServerProcess> {
        let unit = fs::read_to_string(self.0.join("usr/lib/systemd/system/trefoil.service"))?;
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let command = command.context("the unit has no ExecStart")?;
        let script = format!("ulimit -n 65536; umask 0077; exec {command}");
        let mut command = self.command(&[
            "setpriv",
            "--reuid=trefoil",
            "--regid=trefoil",
            "--clear-groups",
            "--no-new-privs",
            "--bounding-set=-all",
            "sh",
            "-c",
            &script,
        ]);
        Ok(ServerProcess::start(command.stderr(Stdio::null()))?)
    }

    /// Starts the service as its unit confines it: a read-only system, a data folder, a credential, no
    /// capabilities, no home and no variables. `around` is a folder for both.
    fn start_confined(&self, around: &Path) -> Result<ServerProcess> {
        let [user, group] = [self.run(&["id", "-u", "trefoil"])?, self.run(&["id", "-g", "trefoil"])?];
        let [data, credentials] = ["data", "credentials"].map(|name| around.join(name));
        fs::create_dir_all(&data)?;
        fs::create_dir_all(&credentials)?;
        // A key of 32 bytes in base64, and the settings that name it as the unit's documentation says.
        fs::write(credentials.join("kek"), "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")?;
        let settings = "[server]\nlisten = \"127.0.0.1:0\"\n[store]\ndata = \"/var/lib/trefoil\"\n[identity]\n\
                        key_encryption_key_file = \"/run/credentials/trefoil.service/kek\"\n";
        fs::write(credentials.join("trefoil.toml"), settings)?;
        let owner = format!("{}:{}", user.trim(), group.trim());
        check(Command::new("chown").args(["-R", &owner]).arg(around))?;
        fs::create_dir_all(self.path("run/credentials/trefoil.service"))?;
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={}", user.trim())).arg(format!("--regid={}", group.trim()));
        command.args(["--clear-groups", "bwrap", "--die-with-parent", "--ro-bind"]).arg(&self.0).arg("/");
        command.arg("--bind").arg(&data).arg("/var/lib/trefoil");
        command.arg("--ro-bind").arg(&credentials).arg("/run/credentials/trefoil.service");
        command.args([
            "--tmpfs",
            "/tmp",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--unshare-pid",
            "--unshare-ipc",
        ]);
        command.args(["--unshare-uts", "--new-session", "--cap-drop", "ALL", "--clearenv"]);
        command.args([
            "/usr/bin/trefoil",
            "serve",
            "--config",
            "/run/credentials/trefoil.service/trefoil.toml",
        ]);
        Ok(ServerProcess::start(command.stderr(Stdio::null()))?)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Installs, uses, upgrades and removes the package.
pub fn run() -> Result<()> {
    build_package()?;
    let package = package_file()?;
    let folder = target_dir().join("package-root");
    let system = DebianRoot::create(&folder)?;
    fs::copy(&package, system.path("trefoil.deb"))?;
    println!("{}", system.run(&["dpkg", "-i", "/trefoil.deb"])?);
    // The folder that systemd makes for the unit.
    system.run(&["install", "-d", "-m", "0700", "-o", "trefoil", "-g", "trefoil", "/var/lib/trefoil"])?;
    for page in ["trefoil.1.gz", "trefoil-serve.1.gz"] {
        ensure!(system.path("usr/share/man/man1").join(page).exists(), "the man page {page} is missing");
    }

    let service = system.start()?;
    use_service(&system, service.address())?;
    ensure!(service.stop()?.success(), "the service did not end well");

    if Command::new("bwrap").arg("--version").output().is_ok() {
        // The user of the service must reach it.
        let around = std::env::temp_dir().join("trefoil-package-trial");
        drop(fs::remove_dir_all(&around));
        fs::create_dir(&around)?;
        let service = system.start_confined(&around)?;
        let output =
            Command::new("curl").args(["-sk", &format!("{}/health/ready", service.address())]).output()?;
        ensure!(output.stdout.starts_with(b"ready"), "the confined service is not ready");
        drop(service);
        fs::remove_dir_all(&around)?;
        println!("the service ran with a read-only system, a credential, no capabilities and no home");
    } else {
        println!("left out: the confined service: bubblewrap is not installed");
    }

    // An upgrade keeps the settings and the data.
    let settings = fs::read_to_string(system.path(SETTINGS))? + OWN_SETTING;
    fs::write(system.path(SETTINGS), &settings)?;
    println!("{}", system.trefoil(&["upgrade-check", "--config", "/etc/trefoil/trefoil.toml"])?);
    system.run(&["dpkg", "-i", "/trefoil.deb"])?;
    ensure!(fs::read_to_string(system.path(SETTINGS))? == settings, "the upgrade has changed the settings");
    let service = system.start()?;
    ensure!(system.trefoil(&["client", "list"])?.contains("reports"), "the upgrade has lost a client");
    drop(service);

    system.run(&["dpkg", "--remove", "trefoil"])?;
    ensure!(!system.path("usr/bin/trefoil").exists(), "the program is still there");
    ensure!(system.path(SETTINGS).exists(), "the removal has removed the settings");
    ensure!(system.path(DATA).join("store").exists(), "the removal has removed the data");
    system.run(&["dpkg", "--purge", "trefoil"])?;
    ensure!(!system.path(SETTINGS).exists(), "the settings are still there");
    ensure!(system.path(DATA).join("store").exists(), "the data belong to the operator");
    fs::remove_dir_all(&folder)?;
    println!("the package was installed, used, upgraded and removed");
    Ok(())
}

/// The same with systemd as the first process of the system (see [`super::systemd`]).
pub fn run_under_systemd() -> Result<()> {
    if Command::new("systemd-nspawn").arg("--version").output().is_err() {
        println!("left out: systemd-nspawn is not installed (Debian: systemd-container)");
        return Ok(());
    }
    build_package()?;
    super::systemd::run(&package_file()?, DEBIAN)
}

/// Builds the package from programs that are not optimized.
fn build_package() -> Result<()> {
    check(&mut build(&["trefoil", "trefoil-tui", "trefoil-conformance"]))?;
    super::run(&DistArgs { programs: Some(target_dir().join("debug")), releases: None })
}

/// Imports resources, registers a client, and exports with its token.
fn use_service(system: &DebianRoot, base: &str) -> Result<()> {
    let patients = root().join("fixtures/data/patients/Patient.ndjson");
    fs::copy(&patients, system.path(DATA).join("patients.ndjson"))?;
    system.run(&["chown", "trefoil:trefoil", "/var/lib/trefoil/patients.ndjson"])?;
    system.trefoil(&["import", "/var/lib/trefoil/patients.ndjson", "--quiet"])?;
    let added = system.trefoil(&[
        "client",
        "add",
        "reports",
        "--auth-method",
        "client_secret_basic",
        "--grant-type",
        "client_credentials",
        "--scope",
        "system/*.rs",
        "--json",
    ])?;
    let secret = added.lines().find_map(|line| {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(value["client_secret"].as_str()?.to_owned())
    });
    let secret = secret.with_context(|| format!("no secret in {added}"))?;
    let data = system.path(DATA);
    let ca = DataFolder(&data).ca()?.context("the server has no CA of its own")?;
    // The path is one of the new system.
    let ca = system.path(ca.to_string_lossy().trim_start_matches('/'));
    let curl = |words: &[&str]| -> Result<String> {
        let mut command = Command::new("curl");
        command.args(["-sS", "--fail-with-body", "--cacert"]).arg(&ca).args(words);
        let output = command.output().context("curl cannot be started")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        Ok(text)
    };
    curl(&[&format!("{base}/health/ready")])?;
    let form = "grant_type=client_credentials&scope=system/*.rs";
    let token = curl(&["-u", &format!("reports:{secret}"), "-d", form, &format!("{base}/oauth2/token")])?;
    let token: Value = serde_json::from_str(&token)?;
    let bearer = format!("Authorization: Bearer {}", token["access_token"].as_str().context("no token")?);
    let kick_off = [
        "-H",
        &bearer,
        "-H",
        "Prefer: respond-async",
        "-H",
        "Accept: application/fhir+json",
        "-D",
        "-",
        "-o",
        "/dev/null",
        &format!("{base}/fhir/R4/$export?_type=Patient"),
    ];
    let head = curl(&kick_off)?;
    let status = head.lines().find_map(|line| line.strip_prefix("content-location: "));
    let status = status.with_context(|| format!("no Content-Location in {head}"))?.trim();
    for _ in 0..100 {
        let output = curl(&["-H", &bearer, status])?;
        let Ok(manifest) = serde_json::from_str::<Value>(&output) else {
            std::thread::sleep(std::time::Duration::from_millis(100));
            continue;
        };
        let file = manifest["output"][0]["url"].as_str().context("no file")?;
        let lines = curl(&["-H", &bearer, file])?.lines().count();
        let expected = fs::read_to_string(&patients)?.lines().count();
        ensure!(lines == expected, "{lines} of {expected} patients were exported");
        println!("exported {lines} patients from the service in the new system");
        return Ok(());
    }
    bail!("the export did not end")
}

fn package_file() -> Result<PathBuf> {
    let entries = fs::read_dir(target_dir().join("dist"))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("trefoil_") && name.ends_with(".deb")
    };
    paths.find(is_package).context("cargo xtask dist has made no package")
}
