//! `server/packages/install.sh` with releases that are whole, damaged, for other machines or not there, run
//! by the shells of this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::support::have;

/// Shells by the words that start them.
const SHELLS: [&[&str]; 3] = [&["sh"], &["bash"], &["busybox", "sh"]];
const PROGRAMS: [&str; 3] = ["trefoil", "trefoil-conformance", "trefoil-tui"];

/// A folder with a release of programs that only print their version, and the home of a user.
struct Installation {
    folder: TempDir,
    shell: &'static [&'static str],
}

impl Installation {
    fn new(shell: &'static [&'static str]) -> Self {
        let installation = Self { folder: tempfile::tempdir().unwrap(), shell };
        let release = installation.release();
        fs::create_dir_all(installation.home()).unwrap();
        for machine in ["x86_64", "aarch64"] {
            let name = format!("trefoil-1.2.3-{machine}-linux");
            fs::create_dir_all(release.join(&name)).unwrap();
            for program in PROGRAMS {
                let file = release.join(&name).join(program);
                fs::write(&file, format!("#!/bin/sh\necho {program} 1.2.3\n")).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            }
            run_in(&release, &format!("tar -czf {name}.tar.gz {name} && rm -r {name}"));
        }
        run_in(&release, "sha256sum *.tar.gz > SHA256SUMS");
        installation
    }

    fn release(&self) -> PathBuf {
        self.folder.path().join("release")
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Runs the script of the sources.
    fn run(&self, args: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/install.sh");
        self.shell(&[&[script.to_str().unwrap()], args].concat())
    }

    fn shell(&self, args: &[&str]) -> Output {
        let mut command = Command::new(self.shell[0]);
        command.args(&self.shell[1..]).args(args).env("HOME", self.home()).env_remove("XDG_BIN_HOME");
        command.current_dir(self.folder.path()).output().unwrap()
    }

    /// Runs the script with the release, and returns how it refused it.
    fn refusal(&self) -> String {
        let output = self.run(&["--from", "release"]);
        assert!(!output.status.success() && self.installed().is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The names of all files in the home.
    fn installed(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.home().join(".local/bin")) else {
            return Vec::new();
        };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn run_in(folder: &Path, line: &str) {
    assert!(Command::new("sh").args(["-c", line]).current_dir(folder).status().unwrap().success(), "{line}");
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn for_each_shell(check: impl Fn(&Installation)) {
    for shell in SHELLS {
        if Command::new(shell[0]).args(["--help"]).output().is_err() {
            println!("left out: install.sh in {}: it is not here", shell[0]);
            continue;
        }
        check(&Installation::new(shell));
    }
}

#[test]
fn programs_are_installed_replaced_and_removed() {
    for_each_shell(|installation| {
        let text = succeeds(&installation.run(&["--from", "release"]));
        assert_eq!(installation.installed(), PROGRAMS);
        assert!(text.contains("version: trefoil 1.2.3") && text.contains("is not in PATH; add it"), "{text}");

        // Over a program that runs, and beside a file of the user.
        fs::write(installation.home().join(".local/bin/own"), "").unwrap();
        succeeds(&installation.run(&["--from", "release"]));
        assert_eq!(installation.installed().len(), PROGRAMS.len() + 1);

        let text = succeeds(&installation.run(&["--uninstall"]));
        assert_eq!(text.matches("removed ").count(), PROGRAMS.len(), "{text}");
        assert_eq!(installation.installed(), ["own"]);
        let text = succeeds(&installation.run(&["--uninstall"]));
        assert!(text.starts_with("there is nothing to remove in "), "{text}");
    });
}

#[test]
fn a_script_in_the_folder_of_its_release_needs_no_options() {
    for_each_shell(|installation| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/install.sh");
        fs::copy(script, installation.release().join("install.sh")).unwrap();
        succeeds(&installation.shell(&["release/install.sh", "--to", "my programs"]));
        let programs = installation.folder.path().join("my programs");
        assert_eq!(fs::read_dir(programs).unwrap().count(), PROGRAMS.len());
    });
}

#[test]
fn nothing_is_installed_from_a_release_that_is_not_whole() {
    for_each_shell(|installation| {
        let machine = std::env::consts::ARCH;
        let archive = format!("trefoil-1.2.3-{machine}-linux.tar.gz");
        let (sums, file) = (installation.release().join("SHA256SUMS"), installation.release().join(&archive));
        let whole = fs::read(&file).unwrap();

        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        let refusal = installation.refusal();
        assert!(refusal.contains(&format!("{archive} has the SHA-256 digest ")), "{refusal}");
        assert!(refusal.contains("nothing was installed"), "{refusal}");

        // A digest that fits, of a file that is no archive.
        fs::write(&file, "no archive").unwrap();
        run_in(&installation.release(), "sha256sum *.tar.gz > SHA256SUMS");
        assert!(installation.refusal().contains("cannot be unpacked; nothing was installed"));

        fs::remove_file(&file).unwrap();
        assert!(installation.refusal().contains(&format!("cannot read release/{archive}")));

        for (text, expected) in [
            (String::new(), "names no archive for "),
            (format!("{} {archive}\n", "0".repeat(63)), "names no archive for "),
            (
                format!(
                    "{0}  trefoil-1-{machine}-linux.tar.gz\n{0}  trefoil-2-{machine}-linux.tar.gz\n",
                    "0".repeat(64)
                ),
                "names several archives for ",
            ),
            (format!("{}  ../trefoil-{machine}-linux.tar.gz\n", "0".repeat(64)), "names no archive for "),
        ] {
            fs::write(&sums, text).unwrap();
            let refusal = installation.refusal();
            assert!(refusal.contains(expected), "{refusal}");
        }
        fs::remove_file(sums).unwrap();
        assert!(installation.refusal().contains("cannot read release/SHA256SUMS"));
    });
}

#[test]
fn wrong_options_are_refused() {
    for_each_shell(|installation| {
        for (args, expected) in [
            (&["--form", "release"][..], "unknown option '--form'"),
            (&["--from"], "--from needs a value"),
            (&[], "no release is beside this script"),
            (&["--from", "release", "--to", "/proc/nowhere"], "pass --to FOLDER"),
        ] {
            let output = installation.run(args);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains(expected), "{args:?}: {text}");
        }
        assert!(succeeds(&installation.run(&["--help"])).starts_with("Usage: "));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_from_a_pipe_downloads_the_release() {
    if !have("curl", "install.sh from a pipe") {
        return;
    }
    let installation = Installation::new(SHELLS[0]);
    let server = MockServer::start().await;
    for file in fs::read_dir(installation.release()).unwrap() {
        let (name, body) = (file.as_ref().unwrap().file_name(), fs::read(file.unwrap().path()).unwrap());
        let response = ResponseTemplate::new(200).set_body_bytes(body);
        let at = path(format!("/v1/{}", name.to_str().unwrap()));
        Mock::given(method("GET")).and(at).respond_with(response).mount(&server).await;
    }
    let script =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/install.sh")).unwrap();
    let install = |releases: String| {
        let script = script.replace("@RELEASES@", &releases);
        fs::write(installation.folder.path().join("piped"), script).unwrap();
        installation.shell(&["-c", "sh < piped"])
    };
    let output = install(format!("{}/v2", server.uri()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot download "), "{output:?}");
    assert!(installation.installed().is_empty());
    succeeds(&install(format!("{}/v1", server.uri())));
    assert_eq!(installation.installed(), PROGRAMS);
}

#[test]
fn the_script_has_no_finding_of_shellcheck() {
    if have("shellcheck", "install.sh in shellcheck") {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/install.sh");
        succeeds(&Command::new("shellcheck").arg(script).output().unwrap());
    }
}
