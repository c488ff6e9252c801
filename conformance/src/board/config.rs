//! The servers of a board, as a TOML file. Paths are relative to the file.
//!
//! ```toml
//! [[server]]
//! name = "node-oidc-provider"
//! start = ["node", "servers/oidc_provider.mjs"]
//! profile = "profiles/oidc-provider.toml"
//! judged = "judged/oidc-provider.toml"
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::profile::Profile;
use crate::spec::requirement::Level;

/// A list of servers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoardConfig {
    /// The servers, in the order of the columns.
    #[serde(rename = "server")]
    pub servers: Vec<BoardServer>,
}

/// A server of the board.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoardServer {
    /// Name of its column.
    pub name: String,
    /// Command that starts it. The first URL in its output is its address, unless `url` states it. The server
    /// is stopped after its run.
    #[serde(default)]
    start: Vec<String>,
    url: Option<String>,
    /// File or name of its profile.
    profile: Option<String>,
    /// File with its judged failures, in the format of a baseline.
    judged: Option<PathBuf>,
    /// Whether rows may create, change and delete data on it.
    #[serde(default)]
    pub write: bool,
    /// Lowest level of the requirements that are tested.
    #[serde(default = "must")]
    pub level: Level,
    #[serde(skip)]
    folder: PathBuf,
}

fn must() -> Level {
    Level::Must
}

/// A server that runs until it is dropped.
pub struct RunningServer {
    child: Child,
    address: Option<String>,
    /// Stays open, because some programs end when they cannot print.
    _output: BufReader<ChildStdout>,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // An error means that it has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl BoardConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// An error if the file cannot be read, or is not a list of servers with an address each.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let mut config: Self = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        for server in &mut config.servers {
            if server.start.is_empty() && server.url.is_none() {
                bail!("{}: '{}' has neither start nor url; add one of them", path.display(), server.name);
            }
            server.folder.clone_from(&folder);
        }
        Ok(config)
    }
}

impl BoardServer {
    /// The judged causes of its failures, by case.
    ///
    /// # Errors
    /// An error if the file cannot be read.
    pub fn judged(&self) -> Result<BTreeMap<String, String>> {
        let Some(file) = &self.judged else { return Ok(BTreeMap::new()) };
        let path = self.folder.join(file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        let gaps = crate::spec::gaps(&text).with_context(|| path.display().to_string())?;
        Ok(gaps.into_iter().map(|gap| (gap.case, gap.reason)).collect())
    }

    pub(super) fn profile(&self) -> Result<Profile> {
        let Some(name) = &self.profile else { return Ok(Profile::default()) };
        let file = self.folder.join(name);
        Profile::read(if file.is_file() { file.to_str().unwrap_or(name) } else { name })
    }

    /// Starts the server, and waits for its address. `None` if it runs already.
    pub(super) fn start(&self) -> Result<Option<RunningServer>> {
        let Some((program, args)) = self.start.split_first() else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if !self.folder.as_os_str().is_empty() {
            command.current_dir(&self.folder);
        }
        let mut child = command.spawn().with_context(|| format!("failed to start {program}"))?;
        let stdout = child.stdout.take().context("the output is a pipe")?;
        let mut running = RunningServer { child, address: None, _output: BufReader::new(stdout) };
        let mut line = String::new();
        while running._output.read_line(&mut line)? > 0 {
            let url_of_line = line
                .split_whitespace()
                .find(|word| word.starts_with("http://") || word.starts_with("https://"));
            if let Some(url) = url_of_line {
                running.address = Some(url.trim_end_matches(['/', '.', ',']).to_owned());
                return Ok(Some(running));
            }
            line.clear();
        }
        bail!("{program} ended before it printed a URL; let it print its address, or add url to the server")
    }

    pub(super) fn address(&self, running: Option<&RunningServer>) -> Result<String> {
        let printed = running.and_then(|running| running.address.clone());
        self.url.clone().or(printed).context("the server has no address")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a configuration from a folder, in which its servers start.
    fn read(text: &str) -> Result<(BoardConfig, tempfile::TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("board.toml");
        std::fs::write(&file, text).unwrap();
        Ok((BoardConfig::read(&file)?, folder))
    }

    #[test]
    fn the_first_url_of_the_output_is_the_address() {
        let text = "[[server]]\nname = \"one\"\nstart = [\"sh\", \"-c\", \"echo begin; echo listening on \
                    http://localhost:1/.; sleep 60\"]\n";
        let (config, _folder) = read(text).unwrap();
        let running = config.servers[0].start().unwrap();
        assert_eq!(config.servers[0].address(running.as_ref()).unwrap(), "http://localhost:1");
    }

    #[test]
    fn a_server_without_an_address_is_refused() {
        assert!(
            format!("{:#}", read("[[server]]\nname = \"one\"\n").unwrap_err())
                .contains("neither start nor url")
        );
        let silent = "[[server]]\nname = \"one\"\nstart = [\"true\"]\n";
        let (config, _folder) = read(silent).unwrap();
        let error = config.servers[0].start().map(drop).unwrap_err();
        assert!(error.to_string().contains("ended before it printed a URL"));
        assert!(read("[[server]]\nname = \"one\"\nurl = \"http://x\"\ntypo = 1\n").is_err());
    }
}
