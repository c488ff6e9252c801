//! `cargo xtask board`: the conformance board of the servers of other makers in `conformance/board.toml` and
//! of Trefoil on its engines, in `target/board`.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::{build, check, root, target_dir};

/// Environment variable with the URL of an empty PostgreSQL database.
const DATABASE: &str = "TREFOIL_BOARD_DATABASE";
/// Folders of `conformance` that its configuration names.
const FOLDERS: [&str; 3] = ["tests", "profiles", "judged"];

/// Tests all servers, and writes the page.
pub fn run() -> Result<()> {
    check(&mut build(&["trefoil", "trefoil-conformance"]))?;
    let folder = target_dir().join("board");
    fs::create_dir_all(&folder)?;
    let suite = root().join("conformance");
    let mut config = fs::read_to_string(suite.join("board.toml"))?;
    for name in FOLDERS {
        config = config.replace(&format!("\"{name}/"), &format!("\"{}/", suite.join(name).display()));
    }
    let database = std::env::var(DATABASE).ok();
    if database.is_none() {
        println!("left out: Trefoil on PostgreSQL: {DATABASE} does not name an empty database");
    }
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
