//! Tests of `trefoil trust` with a temporary folder for certificates and a temporary home folder.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trefoil_server::trust::{TrustArgs, TrustHost, change_trust};

use crate::support::{Server, installed};

/// A machine in a folder, on which `update-ca-certificates` only writes down its arguments.
struct Machine {
    folder: TempDir,
    host: TrustHost,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        write_program(
            &bin.join("update-ca-certificates"),
            &format!("echo \"update $*\" >> {}/calls", folder.path().display()),
        );
        let host = TrustHost {
            home: folder.path().join("home"),
            debian_folder: folder.path().join("ca-certificates"),
            debian_links: folder.path().join("links"),
            programs: std::env::join_paths([bin, "/usr/bin".into(), "/bin".into()]).unwrap(),
            is_macos: false,
            is_root: true,
        };
        std::fs::create_dir(&host.home).unwrap();
        Self { folder, host }
    }

    /// Runs the command and returns whether it succeeded, and its output.
    fn run(&self, args: &TrustArgs, choice: bool) -> (bool, String) {
        let mut out = Vec::new();
        let result = change_trust(args, &self.host, &mut out, || Ok(choice));
        let mut text = String::from_utf8(out).unwrap();
        if let Err(error) = &result {
            text.push_str(&format!("error: {error:#}"));
        }
        (result.is_ok(), text)
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default()
    }

    /// Returns the files in the folder of local certificates.
    fn certificates(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.host.debian_folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn write_program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns a data folder with a development CA.
fn data_folder() -> Server {
    let mut server = Server::demo();
    server.stop();
    server
}

fn args(server: &Server) -> TrustArgs {
    TrustArgs { data: server.data().to_owned(), remove: false, print: false, yes: true }
}

#[test]
fn the_system_store_is_changed_only_after_a_confirmation() {
    let (server, machine) = (data_folder(), Machine::new());
    let args_of_question = TrustArgs { yes: false, ..args(&server) };
    let printed = machine.run(&TrustArgs { print: true, ..args_of_question.clone() }, true);
    assert!(printed.0 && printed.1.contains("add to the system:\n  install -D -m 644 "), "{}", printed.1);
    let denied = machine.run(&args_of_question, false);
    assert!(denied.0 && denied.1.contains("nothing was changed"), "{}", denied.1);
    assert_eq!((machine.certificates().len(), machine.calls()), (0, String::new()));

    let added = machine.run(&args_of_question, true);
    assert!(added.0 && added.1.contains("added to the system\n"), "{}", added.1);
    let files = machine.certificates();
    assert!(files[0].starts_with("trefoil-development-ca-") && files[0].ends_with(".crt"), "{files:?}");
    let removed = machine.run(&TrustArgs { remove: true, ..args(&server) }, false);
    assert!(removed.0 && removed.1.contains("removed from the system\n"), "{}", removed.1);
    assert_eq!((machine.certificates().len(), machine.calls().as_str()), (0, "update \nupdate --fresh\n"));
    let again = machine.run(&TrustArgs { remove: true, ..args(&server) }, false);
    assert!(again.0 && again.1.contains("nothing to remove"), "{}", again.1);
}

#[test]
fn cas_of_deleted_folders_and_links_of_a_failed_update_are_removed() {
    let (server, machine) = (data_folder(), Machine::new());
    let nothing = TrustArgs { data: machine.folder.path().join("nothing"), remove: true, ..args(&server) };
    std::fs::create_dir_all(&machine.host.debian_folder).unwrap();
    std::fs::write(machine.host.debian_folder.join("trefoil-development-ca-00000000.crt"), "").unwrap();
    std::fs::write(machine.host.debian_folder.join("other.crt"), "").unwrap();
    let removed = machine.run(&nothing, true);
    assert!(removed.0 && removed.1.contains("removed from the system\n"), "{}", removed.1);
    assert_eq!(machine.certificates(), ["other.crt"]);

    std::fs::create_dir_all(&machine.host.debian_links).unwrap();
    let link = machine.host.debian_links.join("trefoil-development-ca-00000000.pem");
    std::os::unix::fs::symlink("/nothing.crt", link).unwrap();
    let updated = machine.run(&nothing, true);
    assert!(updated.0 && updated.1.contains("removed from the system\n"), "{}", updated.1);
    assert_eq!(machine.calls(), "update --fresh\nupdate --fresh\n");
}

#[test]
fn a_database_that_cannot_be_read_is_an_error() {
    let (server, machine) = (data_folder(), Machine::new());
    let database = machine.host.home.join(".pki/nssdb");
    std::fs::create_dir_all(&database).unwrap();
    std::fs::write(database.join("cert9.db"), "").unwrap();
    write_program(&machine.folder.path().join("bin/certutil"), "echo 'bad database' >&2; exit 255");
    let failed = machine.run(&TrustArgs { remove: true, ..args(&server) }, true);
    assert!(!failed.0 && failed.1.contains("nssdb: bad database"), "{}", failed.1);
}

#[test]
fn a_ca_that_is_not_constrained_is_not_added() {
    let (server, machine) = (data_folder(), Machine::new());
    let path = server.data().join("tls/ca.pem");
    let own = std::fs::read_to_string(&path).unwrap();
    let leaf = std::fs::read_to_string(server.data().join("tls/cert.pem")).unwrap();
    for text in [
        leaf.clone(),
        format!("{own}{leaf}"),
        format!("{own}{}", leaf.replace("CERTIFICATE", "X509 CERTIFICATE")),
    ] {
        std::fs::write(&path, text).unwrap();
        let refusal = machine.run(&args(&server), true);
        assert!(!refusal.0 && refusal.1.contains("delete the folder tls"), "{}", refusal.1);
        assert!(machine.certificates().is_empty());
    }
}

#[test]
fn a_failed_command_and_a_missing_tool_are_reported() {
    let (server, mut machine) = (data_folder(), Machine::new());
    write_program(&machine.folder.path().join("bin/update-ca-certificates"), "echo 'disk full' >&2; exit 1");
    let failed = machine.run(&args(&server), true);
    assert!(!failed.0 && failed.1.contains("not changed: the system: disk full"), "{}", failed.1);
    let database = machine.host.home.join(".pki/nssdb");
    std::fs::create_dir_all(&database).unwrap();
    std::fs::write(database.join("cert9.db"), "").unwrap();
    // Without any tool.
    machine.host.programs = machine.folder.path().join("none").into();
    machine.host.is_root = false;
    let remaining = machine.run(&args(&server), true);
    assert!(!remaining.0 && remaining.1.contains("no store can be changed"), "{}", remaining.1);
    assert!(remaining.1.contains("libnss3-tools"), "{}", remaining.1);
    let missing = TrustArgs { data: machine.folder.path().join("nothing"), ..args(&server) };
    assert!(machine.run(&missing, true).1.contains("start the server on this folder once"));
}

#[test]
fn a_machine_without_a_database_gets_one() {
    if !installed("the certificate databases of browsers", Path::new("/usr/bin/certutil")) {
        return;
    }
    let (server, machine) = (data_folder(), Machine::new());
    let database = machine.host.home.join(".pki/nssdb");
    let added = machine.run(&args(&server), true);
    assert!(added.0 && added.1.contains("nssdb (new)\n"), "{}", added.1);
    assert!(added.1.contains("left out: Firefox: it has no profile yet"), "{}", added.1);
    for setting in ["--cacert ", "NODE_EXTRA_CA_CERTS=", "REQUESTS_CA_BUNDLE=", "CURL_CA_BUNDLE", "keytool "]
    {
        assert!(added.1.contains(setting), "{setting} is missing in {}", added.1);
    }
    let mode = std::fs::metadata(&database).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only the user reads the database");
    let list = Command::new("certutil").args(["-L", "-d"]).arg(&database).output().unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).contains("Trefoil development CA"));
    let removed = machine.run(&TrustArgs { remove: true, ..args(&server) }, true);
    assert!(removed.0 && removed.1.contains("nssdb\n"), "{}", removed.1);
    let again = machine.run(&args(&server), true);
    assert!(again.0 && !again.1.contains("(new)"), "{}", again.1);
}

#[test]
fn the_databases_of_browsers_contain_the_ca_until_it_is_removed() {
    if !installed("the certificate databases of browsers", Path::new("/usr/bin/certutil")) {
        return;
    }
    let (server, machine) = (data_folder(), Machine::new());
    let databases =
        [".pki/nssdb", ".mozilla/firefox/x1.default"].map(|folder| machine.host.home.join(folder));
    for database in &databases {
        std::fs::create_dir_all(database).unwrap();
        let output =
            Command::new("certutil").args(["-N", "--empty-password", "-d"]).arg(database).status().unwrap();
        assert!(output.success());
    }
    let list_of = |database: &Path| {
        let output = Command::new("certutil").args(["-L", "-d"]).arg(database).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let added = machine.run(&args(&server), true);
    assert!(added.0, "{}", added.1);
    for database in &databases {
        let lines = list_of(database);
        let line =
            lines.lines().find(|line| line.contains("Trefoil development CA")).expect("the CA is listed");
        assert!(line.trim_end().ends_with("C,,"), "{line}");
    }
    let removed = machine.run(&TrustArgs { remove: true, ..args(&server) }, true);
    assert!(removed.0, "{}", removed.1);
    for database in &databases {
        assert!(!list_of(database).contains("Trefoil"), "{}", list_of(database));
    }
}
