//! The package in a Debian system whose first process is systemd, in a container of `systemd-nspawn`: the
//! unit, its restrictions and its answers to an operator. It needs root, debootstrap and systemd-container.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::debian_root::copy_minimal_debian;
use anyhow::{Context as _, Result, bail, ensure};
use xtask::workspace::{root, target_dir};

/// The packages of the system besides Debian's smallest set.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,ca-certificates,curl,openssl,sudo";
/// Time in which systemd and the service must have started.
const START: Duration = Duration::from_secs(60);
/// Settings of the service that use every folder which the unit permits.
const SETTINGS: &str = r#"
[backup]
to = "/var/backups/trefoil"
every_h = 1

[log]
folder = "/var/log/trefoil"
"#;
/// Runs a command as the user of the service.
const AS_USER: &str = "setpriv --reuid=trefoil --regid=trefoil --init-groups";

struct Container {
    root: PathBuf,
    nspawn: Child,
    leader: String,
}

impl Container {
    /// Copies a minimal system, which is made at the first run, and starts it.
    fn start(debian: &str) -> Result<Self> {
        let root = target_dir().join("systemd-trial");
        copy_minimal_debian("debian-systemd-2", debian, PACKAGES, &root)?;
        let log = fs::File::create(target_dir().join("systemd-trial.log"))?;
        let mut command = Command::new("systemd-nspawn");
        command.args(["--quiet", "--boot", "--register=no", "--keep-unit", "--directory"]).arg(&root);
        let nspawn = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let nspawn = nspawn.context("systemd-nspawn cannot be started (Debian: systemd-container)")?;
        let mut container = Self { root, nspawn, leader: String::new() };
        container.wait("systemd", |container| {
            let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", container.nspawn.id()));
            container.leader = children.ok()?.split_whitespace().next()?.to_owned();
            let state = container.output(&["systemctl", "is-system-running"]).ok()?.0;
            matches!(state.trim(), "running" | "degraded").then_some(())
        })?;
        Ok(container)
    }

    /// Repeats a question until there is an answer.
    fn wait<T>(&mut self, what: &str, mut ask: impl FnMut(&mut Self) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            if let Some(output) = ask(self) {
                return Ok(output);
            }
            if start.elapsed() > START {
                bail!(
                    "{what}: no answer within {} s; see systemd-trial.log in the target folder",
                    START.as_secs()
                );
            }
            sleep(Duration::from_millis(200));
        }
    }

    /// A program in the container, run as root.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.leader,
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wd=/",
        ]);
        command.arg("--").args([
            "env",
            "--chdir=/",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND=noninteractive",
        ]);
        command.args(words).stdin(Stdio::null());
        command
    }

    /// Runs a program, and returns its output and its exit code.
    fn output(&self, words: &[&str]) -> Result<(String, Option<i32>)> {
        let output = self.command(words).output()?;
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok((text.concat(), output.status.code()))
    }

    /// Runs a program that must succeed, and returns its output.
    fn run(&self, words: &[&str]) -> Result<String> {
        let (text, code) = self.output(words)?;
        ensure!(code == Some(0), "{words:?} ended with {code:?}: {text}");
        Ok(text)
    }

    /// Runs a line of a shell that must succeed.
    fn shell(&self, line: &str) -> Result<String> {
        self.run(&["sh", "-c", line])
    }

    /// Waits until the service is ready.
    fn until_ready(&mut self) -> Result<()> {
        self.until_ready_at("https://localhost:8443")
    }

    fn until_ready_at(&mut self, base: &str) -> Result<()> {
        let address = format!("{base}/health/ready");
        self.wait("/health/ready", |container| {
            let curl = ["curl", "-sk", &address];
            container.output(&curl).ok()?.0.starts_with("ready").then_some(())
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The container ends with its first process.
        drop(Command::new("kill").args(["-KILL", &self.leader]).status());
        drop(self.nspawn.wait());
        drop(fs::remove_dir_all(&self.root));
    }
}

/// Installs, uses, upgrades and removes the package as an operator does.
pub fn run(package: &Path, debian: &str) -> Result<()> {
    first_day(package, debian)?;
    let mut system = Container::start(debian)?;
    install(&mut system, package)?;
    use_commands(&system)?;
    make_backups(&mut system)?;
    reload(&mut system)?;
    renew_certificate(&mut system)?;
    restart_under_socket(&mut system)?;
    restore_drill(&system)?;
    upgrade_and_remove(&mut system)?;
    println!("the package was installed, used, upgraded and removed under systemd");
    Ok(())
}

/// Runs the commands of the documentation for the first day. A program takes the place of certbot: it makes a
/// certificate as certbot does, and runs the hook.
fn first_day(package: &Path, debian: &str) -> Result<()> {
    const CERTBOT: &str = "#!/bin/sh\nset -e\nfolder=/etc/letsencrypt/live/$4\nmkdir -p $folder\n\
        openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=$4 -addext subjectAltName=DNS:$4 \
        -keyout $folder/privkey.pem -out $folder/fullchain.pem 2>/dev/null\nRENEWED_LINEAGE=$folder $6\n";
    let page = fs::read_to_string(root().join("server/docs/installation.md"))?;
    let section = page.split("### The first day\n").nth(1).context("the page has no first day")?;
    let commands = section.split("```").nth(1).and_then(|block| block.strip_prefix("sh\n"));
    let commands = commands.context("the first day has no commands")?;
    let mut system = Container::start(debian)?;
    let folder = system.root.join("target/dist");
    fs::create_dir_all(&folder)?;
    fs::copy(package, folder.join("trefoil_0_amd64.deb"))?;
    let certbot = system.root.join("usr/bin/certbot");
    fs::write(&certbot, CERTBOT)?;
    fs::set_permissions(&certbot, fs::Permissions::from_mode(0o755))?;
    system.shell(&format!("set -e\n{commands}"))?;
    system.until_ready_at("https://localhost")?;
    let served = "openssl s_client -connect 127.0.0.1:443 -servername health.example </dev/null 2>/dev/null";
    let subject = system.shell(&format!("{served} | openssl x509 -noout -subject"))?;
    ensure!(subject.contains("health.example"), "another certificate is served: {subject}");
    // Of a text that a command reads, only the first line is a command.
    let mut is_text = false;
    let count = commands.lines().filter(|line| {
        let is_command = !is_text;
        is_text = if is_text { *line != "END" } else { line.ends_with("<<'END'") };
        is_command
    });
    println!("the first day of an operator has {} commands, and each of them succeeded", count.count());
    Ok(())
}

/// Installs the package, and starts its service.
fn install(system: &mut Container, package: &Path) -> Result<()> {
    fs::copy(package, system.root.join("trefoil.deb"))?;
    system.run(&["dpkg", "-i", "/trefoil.deb"])?;
    system.shell(&format!("cat >> /etc/trefoil/trefoil.toml <<'END'\n{SETTINGS}\nEND"))?;
    // `Type=notify`: the command returns when the server is ready.
    system.run(&["systemctl", "enable", "--now", "trefoil.service"])?;
    ensure!(system.output(&["systemctl", "is-active", "trefoil"])?.0.trim() == "active", "it is not active");
    system.until_ready()?;
    println!("started: {}", system.run(&["systemctl", "show", "-P", "StatusText", "trefoil"])?.trim());
    Ok(())
}

/// Commands without `--data` find the service, and refuse another user with the command that works.
fn use_commands(system: &Container) -> Result<()> {
    let output = system.output(&["trefoil", "user", "list"])?;
    ensure!(output.1 != Some(0) && output.0.contains("sudo -u trefoil trefoil user list"), "{output:?}");
    system.shell(&format!("echo 'a long password' | {AS_USER} trefoil user add ada"))?;
    let client =
        "trefoil client add reports --auth-method client_secret_basic --grant-type client_credentials";
    system.shell(&format!("{AS_USER} {client} --scope 'system/*.rs'"))?;
    Ok(())
}

/// Makes backups by hand and by schedule, and reads what else the service writes.
fn make_backups(system: &mut Container) -> Result<()> {
    system.shell(&format!("{AS_USER} trefoil backup"))?;
    let private = "find /var/backups/trefoil -type f ! -perm 0600 -o -type d ! -perm 0700";
    let public = system.shell(private)?;
    ensure!(public.is_empty(), "others may read {public}");
    system.wait("the backup by schedule", |system| {
        let status = system.shell("ls /var/backups/trefoil | grep -c Z").ok()?;
        (status.trim().parse::<u32>().ok()? >= 1).then_some(())
    })?;
    system.shell("ls /var/log/trefoil/*")?;
    let budget = system
        .shell("cat /proc/$(systemctl show -P MainPID trefoil)/status >/dev/null; grep -c . /proc/meminfo")?;
    ensure!(budget.trim() != "0", "the memory of the machine is hidden");
    let journal = system.run(&["journalctl", "-u", "trefoil", "--no-pager"])?;
    println!("journal: {} lines", journal.lines().count());
    Ok(())
}

/// A reload with invalid settings fails, and the settings of before stay.
fn reload(system: &mut Container) -> Result<()> {
    system.run(&["systemctl", "reload", "trefoil"])?;
    system.shell(
        "cp /etc/trefoil/trefoil.toml /tmp/good && echo 'nonsense = 1' >> /etc/trefoil/trefoil.toml",
    )?;
    let (_, code) = system.output(&["systemctl", "reload", "trefoil"])?;
    ensure!(code != Some(0), "a reload of invalid settings succeeded");
    system.shell("cat /tmp/good > /etc/trefoil/trefoil.toml")?;
    system.until_ready()?;
    Ok(())
}

/// After the hook of certbot the service serves the new certificate without a restart.
fn renew_certificate(system: &mut Container) -> Result<()> {
    let lineage = "/etc/letsencrypt/live/here";
    system.shell(&format!(
        "mkdir -p {lineage} && openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=renewed -addext \
         subjectAltName=DNS:localhost -keyout {lineage}/privkey.pem -out {lineage}/fullchain.pem 2>/dev/null"
    ))?;
    system.shell(&format!("RENEWED_LINEAGE={lineage} /usr/share/trefoil/certbot-hook.sh"))?;
    let certificate =
        "certificate = \"/etc/trefoil/tls/chain.pem\"\\nprivate_key = \"/etc/trefoil/tls/key.pem\"";
    system.shell(&format!("sed -i 's#^listen = .*#&\\n{certificate}#' /etc/trefoil/trefoil.toml"))?;
    system.run(&["systemctl", "restart", "trefoil"])?;
    system.until_ready()?;
    let subject = "echo | openssl s_client -connect 127.0.0.1:8443 -servername localhost 2>/dev/null | openssl x509 -noout -subject -serial";
    let first = system.shell(subject)?;
    ensure!(first.contains("renewed"), "the certificate is not that of certbot: {first}");
    system.shell(&format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 60 -subj /CN=renewed -addext subjectAltName=DNS:localhost -keyout \
         {lineage}/privkey.pem -out {lineage}/fullchain.pem 2>/dev/null"
    ))?;
    system.shell(&format!("RENEWED_LINEAGE={lineage} /usr/share/trefoil/certbot-hook.sh"))?;
    let second = system.shell(subject)?;
    ensure!(first != second, "the renewed certificate is not served after the hook");
    Ok(())
}

/// With the socket of the service manager, a restart refuses no connection.
fn restart_under_socket(system: &mut Container) -> Result<()> {
    system.run(&["systemctl", "stop", "trefoil.service"])?;
    system.run(&["systemctl", "enable", "--now", "trefoil.socket"])?;
    system.run(&["systemctl", "start", "trefoil.service"])?;
    system.until_ready()?;
    let calls = "for i in $(seq 40); do curl -sk -m 20 -o /dev/null https://localhost:8443/health/live || echo refused; done";
    let restart = format!("({calls}) > /tmp/calls & systemctl restart trefoil.service; wait; cat /tmp/calls");
    let output = system.shell(&restart)?;
    ensure!(output.is_empty(), "connections were refused during a restart: {}", output.lines().count());
    Ok(())
}

/// Restores a backup into a folder of its own.
fn restore_drill(system: &Container) -> Result<()> {
    system.shell(&format!(
        "install -d -o trefoil -g trefoil /srv/drill && {AS_USER} trefoil restore --from /var/backups/trefoil --data \
         /srv/drill/data --drill"
    ))?;
    system.shell(&format!("{AS_USER} trefoil check --data /srv/drill/data"))?;
    Ok(())
}

/// An upgrade keeps the settings, and a removal stops socket and service.
fn upgrade_and_remove(system: &mut Container) -> Result<()> {
    system.run(&["dpkg", "-i", "/trefoil.deb"])?;
    system.until_ready()?;
    let status = system.shell(&format!("{AS_USER} trefoil status"))?;
    println!("{status}");
    system.run(&["dpkg", "--remove", "trefoil"])?;
    for unit in ["trefoil.service", "trefoil.socket"] {
        ensure!(system.output(&["systemctl", "is-active", unit])?.0.trim() != "active", "{unit} still runs");
    }
    Ok(())
}
