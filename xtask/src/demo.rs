//! `cargo xtask demo`: starts the server with the demo project, prints the guide that the server writes, and
//! opens the terminal client.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use test_server::ServerProcess;

use xtask::command_line::DemoArgs;
use xtask::workspace::{build_with_progress, check, root, target_dir};

/// Runs until the user quits the terminal client, or until the server stops.
pub fn run(args: &DemoArgs) -> Result<()> {
    eprintln!("building the server and the terminal client (the first time takes some minutes) …");
    let programs = build_programs()?;
    let data = args.data.clone().unwrap_or_else(|| target_dir().join("demo"));
    std::fs::create_dir_all(&data)?;
    let with_tui = !args.no_tui && std::io::stdout().is_terminal();
    // The log would overwrite the screen of the terminal client.
    let log = if with_tui {
        Stdio::from(std::fs::File::create(data.join("server.log"))?)
    } else {
        Stdio::inherit()
    };
    let mut command = Command::new(programs.join("trefoil"));
    command
        .args(["serve", "--demo", "--listen", &args.listen, "--data"])
        .arg(&data)
        .current_dir(root())
        .env("TREFOIL_LOG", std::env::var("TREFOIL_LOG").unwrap_or_else(|_| "warn".to_owned()))
        .stderr(log);
    let server = ServerProcess::start(&mut command).context("see the messages above, or in server.log")?;
    let guide = data.join("guide.txt");
    println!("\n{}", std::fs::read_to_string(&guide).context("failed to read the guide")?);
    if with_tui {
        println!("The terminal client opens when you press Enter. The guide stays in {}.", guide.display());
        std::io::stdin().lock().read_line(&mut String::new())?;
        let mut client = Command::new(programs.join("trefoil-tui"));
        let client_exit = check(client.arg("--demo").arg(&data));
        eprintln!(
            "The demo server stops with the client. To run it without the client: cargo xtask demo --no-tui\n\
             Its data stay in {}.",
            data.display()
        );
        server.stop()?;
        return client_exit;
    }
    // Ctrl-C is also sent to the server, which then stops.
    server.wait()?;
    Ok(())
}

/// Builds the programs and returns their folder. In a checkout in which no server is built yet, the profile
/// `quick` is used, which needs the least time; otherwise the profile of the tests, whose crates are built
/// already.
fn build_programs() -> Result<PathBuf> {
    let mut command = build_with_progress(&["trefoil", "trefoil-tui"]);
    let debug = target_dir().join("debug");
    if debug.join("trefoil").exists() {
        check(&mut command)?;
        return Ok(debug);
    }
    check(command.args(["--profile", "quick"]))?;
    Ok(target_dir().join("quick"))
}
