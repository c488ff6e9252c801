//! `cargo xtask board`: the conformance board of the servers of other makers in `conformance/board.toml` and
//! of Trefoil on its engines, in `target/board`.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use test_database::TestDatabase;

use crate::helios::{self, HeliosServer};
use xtask::command_line::BoardArgs;
use xtask::workspace::{build, check, root, target_dir};

/// The servers of Helios: the name of the column, and of the files that belong to it.
const HELIOS: [(HeliosServer, &str, &str); 2] = [
    (helios::TERMINOLOGY, "Helios terminology 0.2", "helios"),
    (helios::FHIR, "Helios FHIR 0.2", "helios-fhir"),
];

/// Variables with the FHIR base URL of a running server of SMART, which is not published as a package, and
/// with its profile, which `init` writes.
const BULK_DATA_SERVER: [&str; 2] = ["TREFOIL_BULK_DATA_SERVER", "TREFOIL_BULK_DATA_PROFILE"];

/// Folders that the configuration of the servers of other makers names, relative to `conformance`.
const FOLDERS: [&str; 4] = ["tests", "profiles", "judged", "../target"];

/// Which servers are tested.
/// Tests all servers, and writes the page.
pub fn run(args: &BoardArgs) -> Result<()> {
    check(&mut build(&["trefoil", "trefoil-conformance"]))?;
    let folder = target_dir().join("board");
    fs::create_dir_all(&folder)?;
    let suite = root().join("conformance");
    let mut config = fs::read_to_string(suite.join("board.toml"))?;
    for name in FOLDERS {
        for before in ['"', '='] {
            let (relative, absolute) = (format!("{before}{name}/"), suite.join(name));
            config = config.replace(&relative, &format!("{before}{}/", absolute.display()));
        }
    }
    for (server, name, files) in HELIOS {
        let program = if args.helios { Some(server.build()?) } else { server.built() };
        let Some(program) = program else { continue };
        let script = suite.join("tests/servers").join(format!("{files}.py"));
        config += &format!(
            "\n[[server]]\nname = \"{name}\"\nstart = [\"env\", \"{}={}\", \"python3\", \"{}\"]\n\
             profile = \"{}\"\njudged = \"{}\"\n",
            server.variable,
            program.display(),
            script.display(),
            suite.join("profiles").join(format!("{files}.toml")).display(),
            suite.join("judged").join(format!("{files}.toml")).display()
        );
    }
    if let (Ok(url), Ok(profile)) = (std::env::var(BULK_DATA_SERVER[0]), std::env::var(BULK_DATA_SERVER[1])) {
        let profile = fs::canonicalize(&profile).with_context(|| format!("failed to find {profile}"))?;
        config += &format!(
            "\n[[server]]\nname = \"SMART bulk-data-server\"\nurl = \"{url}\"\nprofile = \"{}\"\njudged = \"{}\"\n",
            profile.display(),
            suite.join("judged/bulk-data-server.toml").display()
        );
    }
    let database = TestDatabase::shared().map(TestDatabase::create).transpose()?;
    let engines =
        [("files", Some("file".to_owned())), ("memory", Some("memory".to_owned())), ("PostgreSQL", database)];
    for (name, engine) in engines {
        let Some(engine) = engine else { continue };
        let data = folder.join(name);
        drop(fs::remove_dir_all(&data));
        let trefoil = target_dir().join("debug/trefoil");
        config += &format!(
            "\n[[server]]\nname = \"Trefoil, {name}\"\nstart = [\"{}\", \"serve\", \"--demo\", \"--data\", \"{}\", \
             \"--store\", \"{engine}\", \"--listen\", \"127.0.0.1:0\"]\nprofile = \"{}\"\njudged = \"{}\"\nwrite = true\nlevel = \"SHOULD\"\n",
            trefoil.display(),
            data.display(),
            data.join("demo.json").display(),
            suite.join("specs/gaps.toml").display()
        );
    }
    let file = folder.join("board.toml");
    fs::write(&file, config)?;
    let mut command = Command::new(target_dir().join("debug/trefoil-conformance"));
    command.arg("board").arg(&file).arg("--out").arg(folder.join("index.html"));
    check(command.arg("--history").arg(folder.join("history.jsonl")))
        .context("a server has a failure that is not judged; the page has it")
}
