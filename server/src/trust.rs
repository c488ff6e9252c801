//! `trefoil trust`: adds the development CA of a data folder to the certificate stores of this machine, or removes it.
//!
//! A change is a list of commands of the store's own tools, which are shown before they run:
//!
//! | store | tool |
//! |---|---|
//! | Debian and its derivatives | `update-ca-certificates`, with a file in `/usr/local/share/ca-certificates` |
//! | macOS | `security` |
//! | Chromium and Firefox | `certutil` of NSS, for each database below the home folder |

use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};

use crate::config::sections::DEFAULT_DATA_FOLDER;

/// Options of `trust`.
#[derive(Debug, Clone, clap::Args)]
pub struct TrustArgs {
    /// Folder of the server, with the CA in tls/ca.pem
    #[arg(long, default_value = DEFAULT_DATA_FOLDER, value_name = "FOLDER")]
    pub data: PathBuf,
    /// Remove the CA instead of adding it
    #[arg(long)]
    pub remove: bool,
    /// Print the commands and run none of them
    #[arg(long)]
    pub print: bool,
    /// Do not ask before the commands run
    #[arg(long)]
    pub yes: bool,
}

/// The machine whose stores are changed.
#[derive(Debug, Clone)]
pub struct TrustHost {
    /// The home folder, which contains the databases of the browsers.
    pub home: PathBuf,
    /// The folder of local certificates of Debian.
    pub debian_folder: PathBuf,
    /// The folders in which programs are searched, in the form of `PATH`.
    pub programs: OsString,
    /// The machine runs macOS.
    pub is_macos: bool,
    /// The process may change system folders.
    pub is_root: bool,
}

impl TrustHost {
    /// Returns this machine.
    ///
    /// # Errors
    /// Returns an error if the home folder is unknown.
    pub fn current() -> Result<Self> {
        Ok(Self {
            home: std::env::home_dir().context("the home folder is unknown; set HOME")?,
            debian_folder: PathBuf::from("/usr/local/share/ca-certificates"),
            programs: std::env::var_os("PATH").unwrap_or_default(),
            is_macos: cfg!(target_os = "macos"),
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    fn find_program(&self, name: &str) -> Option<PathBuf> {
        // Tools for administrators are often in folders that are not in the PATH of other users.
        let folders = std::env::split_paths(&self.programs);
        let folders = folders.chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// Returns the folders with an NSS database: those of Chromium, and the profiles of Firefox.
    fn nss_databases(&self) -> Vec<PathBuf> {
        let chromium = [".pki/nssdb", ".local/share/pki/nssdb", "snap/chromium/current/.pki/nssdb"];
        let firefox = [
            ".mozilla/firefox",
            ".config/mozilla/firefox",
            "snap/firefox/common/.mozilla/firefox",
            "Library/Application Support/Firefox/Profiles",
        ];
        let mut profiles: Vec<PathBuf> = firefox
            .iter()
            .filter_map(|folder| std::fs::read_dir(self.home.join(folder)).ok())
            .flat_map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())))
            .collect();
        profiles.sort();
        let folders = chromium.iter().map(|folder| self.home.join(folder)).chain(profiles);
        folders.filter(|folder| folder.join("cert9.db").is_file()).collect()
    }
}

/// The development CA of a data folder.
struct DevelopmentCa {
    path: PathBuf,
    /// The first eight digits of its SHA-256 fingerprint: each data folder has its own CA.
    fingerprint: String,
}

impl DevelopmentCa {
    fn read(data: &Path) -> Result<Self> {
        let path = data.join("tls/ca.pem");
        if !path.is_file() {
            bail!(
                "{} does not exist; start the server on this folder once, without a certificate of your own",
                path.display()
            );
        }
        let path = std::path::absolute(path)?;
        let certificate = CertificateDer::from_pem_file(&path)
            .with_context(|| format!("{} is not a certificate", path.display()))?;
        let digest = Sha256::digest(&certificate);
        let fingerprint = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, fingerprint })
    }

    fn nickname(&self) -> String {
        format!("Trefoil development CA {}", self.fingerprint)
    }
}

/// The commands that change one store.
struct StoreChange {
    store: String,
    commands: Vec<Vec<OsString>>,
}

/// The changes, and the stores that cannot be changed with the reason.
#[derive(Default)]
struct TrustPlan {
    changes: Vec<StoreChange>,
    left_out: Vec<String>,
}

/// Returns a command line from its words.
fn command_line(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

fn plan(host: &TrustHost, ca: &DevelopmentCa, remove: bool) -> TrustPlan {
    let mut plan = TrustPlan::default();
    match host.is_macos {
        true => plan_macos(host, ca, remove, &mut plan),
        false => plan_debian(host, ca, remove, &mut plan),
    }
    plan_browsers(host, ca, remove, &mut plan);
    plan
}

fn plan_macos(host: &TrustHost, ca: &DevelopmentCa, remove: bool, plan: &mut TrustPlan) {
    let keychain = host.home.join("Library/Keychains/login.keychain-db");
    let commands = match remove {
        false => vec![command_line(&[
            &"security",
            &"add-trusted-cert",
            &"-r",
            &"trustRoot",
            &"-k",
            &keychain,
            &ca.path,
        ])],
        true => vec![command_line(&[&"security", &"remove-trusted-cert", &ca.path])],
    };
    plan.changes.push(StoreChange { store: "the login keychain".to_owned(), commands });
}

fn plan_debian(host: &TrustHost, ca: &DevelopmentCa, remove: bool, plan: &mut TrustPlan) {
    let Some(update) = host.find_program("update-ca-certificates") else {
        plan.left_out.push(
            "the system: update-ca-certificates is missing (Debian: apt-get install ca-certificates); \
             on other systems, add tls/ca.pem with the tool of the system"
                .to_owned(),
        );
        return;
    };
    let file = host.debian_folder.join(format!("trefoil-development-ca-{}.crt", ca.fingerprint));
    if remove && !file.exists() {
        plan.left_out.push(format!("the system: {} does not exist", file.display()));
        return;
    }
    let mut commands = match remove {
        false => {
            vec![command_line(&[&"install", &"-D", &"-m", &"644", &ca.path, &file]), command_line(&[&update])]
        }
        true => vec![command_line(&[&"rm", &file]), command_line(&[&update, &"--fresh"])],
    };
    if !host.is_root {
        let Some(sudo) = host.find_program("sudo") else {
            plan.left_out
                .push("the system: its store can be changed only by root, and sudo is missing".to_owned());
            return;
        };
        commands.iter_mut().for_each(|command| command.insert(0, sudo.clone().into()));
    }
    plan.changes.push(StoreChange { store: "the system".to_owned(), commands });
}

fn plan_browsers(host: &TrustHost, ca: &DevelopmentCa, remove: bool, plan: &mut TrustPlan) {
    let databases = host.nss_databases();
    if databases.is_empty() {
        let text =
            "Chromium and Firefox: no certificate database exists yet; start the browser once and repeat";
        plan.left_out.push(text.to_owned());
        return;
    }
    let Some(certutil) = host.find_program("certutil") else {
        plan.left_out.push(
            "Chromium and Firefox: certutil is missing (Debian: apt-get install libnss3-tools; macOS: brew install nss)"
                .to_owned(),
        );
        return;
    };
    for database in databases {
        let mut folder = OsString::from("sql:");
        folder.push(&database);
        let nickname = ca.nickname();
        let command = match remove {
            false => command_line(&[
                &certutil, &"-A", &"-d", &folder, &"-n", &nickname, &"-t", &"C,,", &"-i", &ca.path,
            ]),
            true => command_line(&[&certutil, &"-D", &"-d", &folder, &"-n", &nickname]),
        };
        // Removing a certificate that the database does not contain would be an error.
        let is_known =
            Command::new(&certutil).args(["-L", "-d"]).arg(&folder).args(["-n", &nickname]).output();
        if remove && !is_known.is_ok_and(|output| output.status.success()) {
            plan.left_out.push(format!("{}: does not contain the CA", database.display()));
            continue;
        }
        plan.changes.push(StoreChange { store: database.display().to_string(), commands: vec![command] });
    }
}

/// Formats a command so that it can be pasted into a shell.
fn shell_text(command: &[OsString]) -> String {
    let quoted = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,=+@%".contains(c);
        match !word.is_empty() && word.chars().all(is_plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn run_command(command: &[OsString]) -> Result<()> {
    let (program, arguments) = command.split_first().context("the command is empty")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("failed to run {}", program.to_string_lossy()))?;
    if output.status.success() {
        return Ok(());
    }
    bail!("{} ({})", String::from_utf8_lossy(&output.stderr).trim(), output.status)
}

/// Changes the stores of a machine and writes what is done. `confirm` is asked before the first command runs.
///
/// # Errors
/// Returns an error if the CA cannot be read, no store can be changed, or a command fails.
pub fn change_trust(
    args: &TrustArgs,
    host: &TrustHost,
    out: &mut impl Write,
    confirm: impl FnOnce() -> Result<bool>,
) -> Result<()> {
    let ca = DevelopmentCa::read(&args.data)?;
    let plan = plan(host, &ca, args.remove);
    let doing = if args.remove { "remove from" } else { "add to" };
    writeln!(out, "certificate  {} ({})", ca.path.display(), ca.nickname())?;
    writeln!(out, "valid for    localhost, 127.0.0.1 and ::1 only")?;
    for change in &plan.changes {
        writeln!(out, "{doing} {}:", change.store)?;
        for command in &change.commands {
            writeln!(out, "  {}", shell_text(command))?;
        }
    }
    for text in &plan.left_out {
        writeln!(out, "left out: {text}")?;
    }
    if args.print {
        return Ok(());
    }
    if plan.changes.is_empty() {
        match args.remove {
            true => {
                writeln!(out, "nothing to remove")?;
                return Ok(());
            }
            false => bail!("no store can be changed; see the lines above"),
        }
    }
    if !args.yes && !confirm()? {
        writeln!(out, "nothing was changed")?;
        return Ok(());
    }
    let mut failed = 0;
    for change in &plan.changes {
        match change.commands.iter().try_for_each(|command| run_command(command)) {
            Ok(()) if args.remove => writeln!(out, "removed from {}", change.store)?,
            Ok(()) => writeln!(out, "added to {}", change.store)?,
            Err(error) => {
                failed += 1;
                writeln!(out, "not changed: {}: {error:#}", change.store)?;
            }
        }
    }
    writeln!(out, "restart running browsers")?;
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} stores were not changed", plan.changes.len()),
    }
}

/// Asks the person at the terminal.
fn confirm_on_terminal() -> Result<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        bail!("the change was not confirmed; use --yes, or run this command on a terminal");
    }
    eprint!("Run these commands? [y/N] ");
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Runs `trefoil trust`.
pub fn run_trust(args: &TrustArgs) -> ExitCode {
    let done = TrustHost::current()
        .and_then(|host| change_trust(args, &host, &mut std::io::stdout(), confirm_on_terminal));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
