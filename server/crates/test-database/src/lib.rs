//! A private PostgreSQL server for tests and benchmarks: on a free port of the loopback address, with its own
//! folder, removed when the process ends. It uses the programs of Debian's packages `postgresql` and
//! `pgbouncer`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::{env, fs, io};

/// Environment variable with the folder of `postgres` and `initdb`, if they are in none of the usual ones.
pub const BIN_VARIABLE: &str = "TREFOIL_POSTGRES_BIN";
/// Folder in which Debian installs a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// The user that Debian's package adds. The server refuses to run as root.
const USER: &str = "postgres";

/// Whether the server waits until its writes are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Does not wait, which is faster. A crash of the server loses nothing, only one of the machine.
    Fast,
    /// Waits, as in production.
    Synced,
}

/// How the server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Ends all transactions and writes its data, as an administrator does.
    Fast,
    /// Ends at once, as in a crash. The next start recovers.
    Immediate,
}

impl Shutdown {
    fn command(self) -> &'static str {
        match self {
            Self::Fast => "stop fast",
            Self::Immediate => "stop immediate",
        }
    }
}

/// A private server.
pub struct TestDatabase {
    port: u16,
    pooled: u16,
    folder: PathBuf,
    bin: PathBuf,
    shell: Mutex<Shell>,
    databases: AtomicU32,
    _process: Child,
}

/// Returns a port of the loopback address for a server that is started later. It is below the ports that the
/// system assigns, and no other call in this process returns it, so that it stays free.
///
/// # Errors
/// An error if all ports are in use.
pub fn free_port() -> io::Result<u16> {
    const PORTS: Range<u32> = 20_000..32_000;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Processes that run at the same time begin at different ports.
    let begin = std::process::id() * 97 % count;
    for _ in PORTS {
        let port = PORTS.start + (begin + CALLS.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(port).expect("the range ends below 65,536");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other("all ports from 20000 to 31999 are in use"))
}

/// The commands to the script that runs the server, and its answers.
struct Shell {
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl TestDatabase {
    /// Starts a server.
    ///
    /// # Errors
    /// An error if PostgreSQL is not installed or does not start.
    pub fn start(durability: Durability) -> io::Result<Self> {
        Self::start_with(durability, &[])
    }

    /// Starts a server with further variables in its environment.
    ///
    /// # Errors
    /// An error if PostgreSQL is not installed or does not start.
    pub fn start_with(durability: Durability, variables: &[(&str, &str)]) -> io::Result<Self> {
        Self::launch(durability, variables, None)
    }

    /// Starts a standby of another server, which follows its writes.
    ///
    /// # Errors
    /// An error if the content of the primary cannot be copied, or the standby does not start.
    pub fn standby_of(primary: &Self) -> io::Result<Self> {
        Self::launch(Durability::Fast, &[], Some(primary.port))
    }

    fn launch(durability: Durability, variables: &[(&str, &str)], primary: Option<u16>) -> io::Result<Self> {
        let bin = programs().ok_or_else(|| {
            io::Error::other(format!(
                "PostgreSQL is not installed (Debian: postgresql; or set {BIN_VARIABLE})"
            ))
        })?;
        let (port, pooled) = (free_port()?, free_port()?);
        let fsync = if durability == Durability::Synced { "on" } else { "off" };
        let mut command = Command::new("sh");
        command.arg("-c").arg(include_str!("private_postgres.sh")).arg("sh");
        command.arg(&bin).arg(port.to_string()).arg(fsync).arg(pooled.to_string());
        command.args(primary.map(|port| port.to_string()));
        command.envs(variables.iter().copied());
        // The folder of the tests may not be readable by the other user.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        // A terminal that interrupts the tests (Ctrl-C) does not interrupt the server, which ends with them.
        command.process_group(0);
        if rustix::process::geteuid().is_root() {
            let (user, group) = user_ids()?;
            command.uid(user).gid(group);
        }
        let mut process = command.spawn()?;
        let missing = || io::Error::other("a pipe of the script is missing");
        let commands = process.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(missing)?);
        let mut shell = Shell { commands, answers };
        let folder = shell.expect("ready")?.into();
        Ok(Self {
            port,
            pooled,
            folder,
            bin,
            shell: Mutex::new(shell),
            databases: AtomicU32::new(0),
            _process: process,
        })
    }

    /// Returns the server that all tests of this process share, or `None` if PostgreSQL is not installed. The
    /// reason is reported once.
    ///
    /// # Panics
    /// Panics if PostgreSQL is installed, but does not start.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<TestDatabase>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            if programs().is_none() {
                println!("left out: PostgreSQL is not installed (Debian: postgresql; or set {BIN_VARIABLE})");
                return None;
            }
            Some(Self::start(Durability::Fast).expect("PostgreSQL is installed and must start"))
        });
        shared.as_ref()
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates an empty database and returns its URL.
    ///
    /// # Errors
    /// An error if the database cannot be created.
    pub fn create(&self) -> io::Result<String> {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let port = self.port.to_string();
        let status = Command::new(self.bin.join("createdb"))
            .args(["--host=127.0.0.1", "--username=trefoil", "--port", &port, &name])
            .current_dir("/")
            .output()?;
        if !status.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&status.stderr).into_owned()));
        }
        Ok(format!("postgres://trefoil@127.0.0.1:{port}/{name}?sslmode=disable"))
    }

    /// Adds a user who may read and write the tables that are created in a database, but not change them.
    /// Returns the URL of the database for this user.
    ///
    /// # Errors
    /// An error if the user cannot be added.
    pub fn add_user(&self, url: &str, user: &str) -> io::Result<String> {
        let name = format!("{user}_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let sql = format!(
            "CREATE USER {name}; \
             ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {name}; \
             ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO {name};"
        );
        let address = url.split('?').next().unwrap_or_default();
        let added = Command::new(self.bin.join("psql"))
            .args(["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--command", &sql, address])
            .current_dir("/")
            .output()?;
        if !added.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&added.stderr).into_owned()));
        }
        Ok(url.replacen("://trefoil@", &format!("://{name}@"), 1))
    }

    /// Returns the URL of the same database through PgBouncer in transaction mode, or `None` if it is not
    /// installed, which is reported once.
    pub fn pooled(&self, url: &str) -> Option<String> {
        static REPORT: Once = Once::new();
        if !has_pooler() {
            REPORT.call_once(|| println!("left out: PgBouncer is not installed (Debian: pgbouncer)"));
            return None;
        }
        Some(url.replace(&format!(":{}/", self.port), &format!(":{}/", self.pooled)))
    }

    /// Stops the server.
    ///
    /// # Errors
    /// An error if the script does not answer.
    pub fn stop(&self, shutdown: Shutdown) -> io::Result<()> {
        self.tell(shutdown.command(), "stopped")
    }

    /// Returns the CPU time that the server has used so far, in seconds, or `None` if the system does not
    /// report it.
    pub fn cpu_seconds(&self) -> Option<f64> {
        const TICKS: f64 = 100.0;
        let first = fs::read_to_string(self.folder.join("data/postmaster.pid")).ok()?;
        let server: u32 = first.lines().next()?.parse().ok()?;
        let fields = |pid: &str| -> Option<Vec<String>> {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name in parentheses may contain spaces. The state follows it.
            Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
        };
        let ticks =
            |fields: &[String], index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
        let own = fields(&server.to_string())?;
        // Its own time, and that of its processes that have ended.
        let mut sum: f64 = (11..15).filter_map(|index| ticks(&own, index)).sum();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let Some(of) = entry.file_name().to_str().and_then(fields) else { continue };
            if of.get(1).is_some_and(|parent| *parent == server.to_string()) {
                sum += (11..13).filter_map(|index| ticks(&of, index)).sum::<f64>();
            }
        }
        Some(sum / TICKS)
    }

    /// Starts the server again.
    ///
    /// # Errors
    /// An error if the server does not start.
    pub fn restart(&self) -> io::Result<()> {
        self.tell("start", "ready")
    }

    /// Makes a standby accept writes, as a failover does. It no longer follows its primary.
    ///
    /// # Errors
    /// An error if the server is not a standby.
    pub fn promote(&self) -> io::Result<()> {
        self.tell("promote", "promoted")
    }

    /// Makes a stopped standby a primary from its next start on, without a new timeline: a second server that
    /// claims to be the same one.
    ///
    /// # Errors
    /// An error if the script does not answer.
    pub fn forget_primary(&self) -> io::Result<()> {
        self.tell("forget primary", "forgotten")
    }

    /// Adds a line to the settings, which holds from the next start on.
    ///
    /// # Errors
    /// An error if the script does not answer.
    pub fn set(&self, line: &str) -> io::Result<()> {
        self.tell(&format!("set {line}"), "set")
    }

    fn tell(&self, command: &str, reply: &str) -> io::Result<()> {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(shell.commands, "{command}")?;
        shell.expect(reply).map(drop)
    }
}

impl Shell {
    /// Reads an answer and returns its second word, which may be missing.
    fn expect(&mut self, reply: &str) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        if words.next() == Some(reply) {
            return Ok(words.next().unwrap_or_default().to_owned());
        }
        Err(io::Error::other(format!("PostgreSQL did not start or stop: '{}'", line.trim())))
    }
}

/// Returns whether the script finds PgBouncer.
fn has_pooler() -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join("pgbouncer").is_file())
}

/// The folder of the programs, of the newest version.
fn programs() -> Option<PathBuf> {
    let has_programs = |bin: &PathBuf| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    if let Some(bin) = env::var_os(BIN_VARIABLE) {
        return Some(PathBuf::from(bin)).filter(has_programs);
    }
    let versions = fs::read_dir(DEBIAN).ok().into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| has_programs(bin))
        .collect();
    versions.sort_unstable();
    let newest = versions.pop().map(|(_, bin)| bin);
    newest.or_else(|| env::split_paths(&env::var_os("PATH")?).find(has_programs))
}

/// The user and group ids of [`USER`].
fn user_ids() -> io::Result<(u32, u32)> {
    let users = fs::read_to_string(Path::new("/etc/passwd"))?;
    let ids = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(USER)).then_some(())?;
        let mut ids = fields.skip(1).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    });
    ids.ok_or_else(|| {
        io::Error::other(format!("user '{USER}' does not exist, and PostgreSQL does not run as root"))
    })
}
