//! `trefoil trust`: adds the development CA of a data folder to the certificate stores of this machine, or
//! removes it.
//!
//! A change is a list of commands of the store's own tools, which are shown before they run:
//!
//! | store | tool |
//! |---|---|
//! | Debian and its derivatives | `update-ca-certificates`, with a file in `/usr/local/share/ca-certificates` |
//! | macOS | `security` |
//! | Chromium and Firefox | `certutil` of NSS, for each database below the home folder |

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use command_line::question;
use command_line::text::shell_word;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256};

use crate::config::sections::DEFAULT_DATA_FOLDER;
use crate::node::development_certificate::is_constrained_to_this_machine;

/// Start of the names of the files in the folders of Debian; the fingerprint follows.
const FILE_PREFIX: &str = "trefoil-development-ca-";
/// Start of the nicknames in NSS databases; the fingerprint follows.
const NICKNAME_PREFIX: &str = "Trefoil development CA ";

/// The database of Chromium, below the home folder.
const CHROMIUM_DATABASE: &str = ".pki/nssdb";

/// Options of `trust`.
#[derive(Debug, Clone, clap::Args)]
pub struct TrustArgs {
    /// Folder of the server, with the CA in tls/ca.pem
    #[arg(long, default_value = DEFAULT_DATA_FOLDER, value_name = "FOLDER")]
    pub data: PathBuf,
    /// Remove the CA, and those of other data folders, instead of adding it
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
    /// The folder with links to the certificates that the system trusts, of Debian.
    pub debian_links: PathBuf,
    /// The folders in which programs are searched, in the form of `PATH`.
    pub programs: OsString,
    /// The machine runs macOS.
    pub is_macos: bool,
    /// The process may change system folders.
    pub is_root: bool,
}

impl TrustHost {
    /// This machine.
    ///
    /// # Errors
    /// An error if the home folder is unknown.
    pub fn current() -> Result<Self> {
        Ok(Self {
            home: std::env::home_dir().context("the home folder is unknown; set HOME")?,
            debian_folder: PathBuf::from("/usr/local/share/ca-certificates"),
            debian_links: PathBuf::from("/etc/ssl/certs"),
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

    /// The folders with an NSS database: those of Chromium, and the profiles of Firefox.
    fn nss_databases(&self) -> Vec<PathBuf> {
        let chromium = [CHROMIUM_DATABASE, ".local/share/pki/nssdb", "snap/chromium/current/.pki/nssdb"];
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
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("{} is not a certificate", path.display()))?;
        let certificate = match certificates.as_slice() {
            // OpenSSL also reads certificates with other PEM labels.
            [one]
                if text.matches("-----BEGIN").count() == 1
                    && is_constrained_to_this_machine(one).unwrap_or(false) =>
            {
                one
            }
            _ => bail!(
                "{} is not a development CA that is valid for localhost only; delete the folder tls and start the \
                 server once",
                path.display()
            ),
        };
        let digest = Sha256::digest(certificate);
        let fingerprint = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, fingerprint })
    }

    fn nickname(&self) -> String {
        format!("{NICKNAME_PREFIX}{}", self.fingerprint)
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
    /// Stores that do not need the change, or that the machine does not have.
    left_out: Vec<String>,
    /// Stores from which a CA may have to be removed.
    failed: Vec<String>,
}

impl TrustPlan {
    /// Records a store whose tool is missing.
    fn without_tool(&mut self, remove: bool, text: &str) {
        let list = if remove { &mut self.failed } else { &mut self.left_out };
        list.push(text.to_owned());
    }
}

/// A command line from its words.
fn command_line(words: &[&dyn AsRef<std::ffi::OsStr>]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

/// The plan that adds a CA or, without one, removes all development CAs.
fn plan(args: &TrustArgs, host: &TrustHost, ca: Option<&DevelopmentCa>) -> Result<TrustPlan> {
    let mut plan = TrustPlan::default();
    match host.is_macos {
        true => plan_macos(args, host, ca, &mut plan)?,
        false => plan_debian(host, ca, &mut plan)?,
    }
    plan_browsers(host, ca, &mut plan);
    Ok(plan)
}

fn plan_macos(
    args: &TrustArgs,
    host: &TrustHost,
    ca: Option<&DevelopmentCa>,
    plan: &mut TrustPlan,
) -> Result<()> {
    let keychain = host.home.join("Library/Keychains/login.keychain-db");
    let removed = std::path::absolute(args.data.join("tls/ca.pem"))?;
    let command = match ca {
        Some(ca) => {
            command_line(&[&"security", &"add-trusted-cert", &"-r", &"trustRoot", &"-k", &keychain, &ca.path])
        }
        None if removed.is_file() => command_line(&[&"security", &"remove-trusted-cert", &removed]),
        None => {
            let path = removed.display();
            plan.failed.push(format!(
                "the login keychain: {path} does not exist; delete 'Trefoil development CA' in Keychain Access"
            ));
            return Ok(());
        }
    };
    plan.changes.push(StoreChange { store: "the login keychain".to_owned(), commands: vec![command] });
    Ok(())
}

/// The files of development CAs in a folder, also links to files that no longer exist.
fn development_ca_files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("failed to read {}", folder.display()))?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(FILE_PREFIX) && name.ends_with(extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn plan_debian(host: &TrustHost, ca: Option<&DevelopmentCa>, plan: &mut TrustPlan) -> Result<()> {
    let files = development_ca_files(&host.debian_folder, ".crt")?;
    // A link without its file remains if an earlier update failed.
    let is_trusted = !files.is_empty() || !development_ca_files(&host.debian_links, ".pem")?.is_empty();
    if ca.is_none() && !is_trusted {
        plan.left_out.push("the system: does not contain a development CA".to_owned());
        return Ok(());
    }
    let Some(update) = host.find_program("update-ca-certificates") else {
        plan.without_tool(
            ca.is_none(),
            "the system: update-ca-certificates is missing (Debian: apt-get install ca-certificates); \
             on other systems, add or remove tls/ca.pem with the tool of the system",
        );
        return Ok(());
    };
    let mut commands = match ca {
        Some(ca) => {
            let file = host.debian_folder.join(format!("{FILE_PREFIX}{}.crt", ca.fingerprint));
            vec![command_line(&[&"install", &"-D", &"-m", &"644", &ca.path, &file]), command_line(&[&update])]
        }
        None => {
            let removals = files.iter().map(|file| command_line(&[&"rm", file]));
            removals.chain([command_line(&[&update, &"--fresh"])]).collect()
        }
    };
    if !host.is_root {
        let Some(sudo) = host.find_program("sudo") else {
            let text = "the system: its store can be changed only by root, and sudo is missing";
            plan.without_tool(ca.is_none(), text);
            return Ok(());
        };
        commands.iter_mut().for_each(|command| command.insert(0, sudo.clone().into()));
    }
    plan.changes.push(StoreChange { store: "the system".to_owned(), commands });
    Ok(())
}

fn plan_browsers(host: &TrustHost, ca: Option<&DevelopmentCa>, plan: &mut TrustPlan) {
    let databases = host.nss_databases();
    if databases.is_empty() && ca.is_none() {
        plan.left_out.push("Chromium and Firefox: no certificate database exists".to_owned());
        return;
    }
    let Some(certutil) = host.find_program("certutil") else {
        plan.without_tool(
            ca.is_none(),
            "Chromium and Firefox: certutil is missing (Debian: apt-get install libnss3-tools; macOS: brew install nss)",
        );
        return;
    };
    if let Some(ca) = ca.filter(|_| databases.is_empty()) {
        // On a new machine no browser has started yet. Chromium uses the database that it finds.
        let database = host.home.join(CHROMIUM_DATABASE);
        let folder = nss_folder(&database);
        let commands = vec![
            command_line(&[&"mkdir", &"-p", &"-m", &"700", &database]),
            command_line(&[&certutil, &"-N", &"-d", &folder, &"--empty-password"]),
            add_to_database(&certutil, &folder, ca),
        ];
        plan.changes.push(StoreChange { store: format!("{} (new)", database.display()), commands });
        plan.left_out.push("Firefox: it has no profile yet; start it once and repeat".to_owned());
        return;
    }
    for database in databases {
        let folder = nss_folder(&database);
        let store = database.display().to_string();
        let commands = match ca {
            Some(ca) => vec![add_to_database(&certutil, &folder, ca)],
            None => match listed_nicknames(&certutil, &folder) {
                Ok(nicknames) => nicknames
                    .iter()
                    .map(|nickname| command_line(&[&certutil, &"-D", &"-d", &folder, &"-n", nickname]))
                    .collect(),
                Err(error) => {
                    plan.failed.push(format!("{store}: {error:#}"));
                    continue;
                }
            },
        };
        match commands.is_empty() {
            true => plan.left_out.push(format!("{store}: does not contain a development CA")),
            false => plan.changes.push(StoreChange { store, commands }),
        }
    }
}

/// The name of an NSS database for certutil. Without the prefix, older versions read the former format.
fn nss_folder(database: &Path) -> OsString {
    let mut folder = OsString::from("sql:");
    folder.push(database);
    folder
}

fn add_to_database(certutil: &Path, folder: &OsString, ca: &DevelopmentCa) -> Vec<OsString> {
    let nickname = ca.nickname();
    command_line(&[&certutil, &"-A", &"-d", folder, &"-n", &nickname, &"-t", &"C,,", &"-i", &ca.path])
}

/// Settings of programs that do not use the certificates of the system, for a CA in this file.
fn program_settings(path: &Path) -> [(&'static str, String); 5] {
    let ca = shell_word(path);
    let r_text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    [
        ("curl", format!("curl --cacert {ca} …")),
        ("Node", format!("export NODE_EXTRA_CA_CERTS={ca}")),
        ("Python", format!("export SSL_CERT_FILE={ca} REQUESTS_CA_BUNDLE={ca}")),
        ("R", format!("Sys.setenv(CURL_CA_BUNDLE = \"{r_text}\")")),
        (
            "Java",
            format!(
                "keytool -importcert -noprompt -file {ca} -alias trefoil -keystore trefoil.p12 -storepass changeit; \
                 java -Djavax.net.ssl.trustStore=trefoil.p12 …"
            ),
        ),
    ]
}

/// The nicknames of the development CAs in an NSS database.
fn listed_nicknames(certutil: &Path, folder: &OsString) -> Result<Vec<String>> {
    let list = run_command(&command_line(&[&certutil, &"-L", &"-d", folder]))?;
    let fingerprints = list.lines().filter_map(|line| line.strip_prefix(NICKNAME_PREFIX));
    let fingerprints = fingerprints.filter_map(|rest| rest.split_whitespace().next());
    Ok(fingerprints.map(|fingerprint| format!("{NICKNAME_PREFIX}{fingerprint}")).collect())
}

/// Formats a command so that it can be pasted into a shell.
fn shell_text(command: &[OsString]) -> String {
    command.iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

/// Runs a command and returns its standard output.
fn run_command(command: &[OsString]) -> Result<String> {
    let (program, arguments) = command.split_first().context("the command is empty")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("failed to run {}", program.to_string_lossy()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    bail!("{} ({})", String::from_utf8_lossy(&output.stderr).trim(), output.status)
}

/// Changes the stores of a machine and writes what is done. `confirm` is asked before the first command runs.
///
/// # Errors
/// An error if the CA cannot be read, no store can be changed, or a command fails.
pub fn change_trust(
    args: &TrustArgs,
    host: &TrustHost,
    out: &mut impl Write,
    confirm: impl FnOnce() -> Result<bool>,
) -> Result<()> {
    let ca = if args.remove { None } else { Some(DevelopmentCa::read(&args.data)?) };
    let plan = plan(args, host, ca.as_ref())?;
    let doing = if args.remove { "remove from" } else { "add to" };
    if let Some(ca) = &ca {
        writeln!(out, "certificate  {} ({})", ca.path.display(), ca.nickname())?;
        writeln!(out, "valid for    localhost, 127.0.0.0/8 and ::1 only")?;
    }
    for change in &plan.changes {
        writeln!(out, "{doing} {}:", change.store)?;
        for command in &change.commands {
            writeln!(out, "  {}", shell_text(command))?;
        }
    }
    for text in &plan.left_out {
        writeln!(out, "left out: {text}")?;
    }
    for text in &plan.failed {
        writeln!(out, "not changed: {text}")?;
    }
    // `--print` shows the plan and changes nothing.
    if args.print {
        return Ok(());
    }
    if plan.changes.is_empty() {
        match args.remove {
            true if plan.failed.is_empty() => {
                writeln!(out, "nothing to remove")?;
                return Ok(());
            }
            _ => bail!("no store can be changed; see the lines above"),
        }
    }
    if !args.yes && !confirm()? {
        writeln!(out, "nothing was changed")?;
        return Ok(());
    }
    let mut failed = plan.failed.len();
    for change in &plan.changes {
        match change.commands.iter().try_for_each(|command| run_command(command).map(drop)) {
            Ok(()) if args.remove => writeln!(out, "removed from {}", change.store)?,
            Ok(()) => writeln!(out, "added to {}", change.store)?,
            Err(error) => {
                failed += 1;
                writeln!(out, "not changed: {}: {error:#}", change.store)?;
            }
        }
    }
    writeln!(out, "restart running browsers")?;
    if let Some(ca) = &ca {
        writeln!(out, "programs with certificates of their own:")?;
        for (program, setting) in program_settings(&ca.path) {
            writeln!(out, "  {program:<7} {setting}")?;
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} stores were not changed", plan.changes.len() + plan.failed.len()),
    }
}

/// Asks the person at the terminal.
fn confirm_on_terminal() -> Result<bool> {
    match question::ask("Run these commands?") {
        Some(choice) => Ok(choice),
        None => bail!("the change was not confirmed; use --yes, or run this command on a terminal"),
    }
}

/// Runs `trefoil trust`.
pub fn run_trust(args: &TrustArgs) -> ExitCode {
    let result = TrustHost::current()
        .and_then(|host| change_trust(args, &host, &mut std::io::stdout(), confirm_on_terminal));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
