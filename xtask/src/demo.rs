//! `cargo xtask demo`: starts the server with the demo project, prints a guide, and opens the terminal client.

use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{build, check, root, target_dir};

#[derive(clap::Args)]
pub struct DemoArgs {
    /// Do not open the terminal client.
    #[arg(long)]
    no_tui: bool,
    /// Folder for the data of the demo.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:8443")]
    listen: String,
}

/// Runs until the user quits the terminal client, or until the server stops.
pub fn run(args: &DemoArgs) -> Result<()> {
    eprintln!("building (the first time takes some minutes) …");
    check(&mut build(&["trefoil", "trefoil-tui"]))?;
    let data = args.data.clone().unwrap_or_else(|| target_dir().join("demo"));
    std::fs::create_dir_all(&data)?;
    let with_tui = !args.no_tui && std::io::stdout().is_terminal();
    // The log would overwrite the screen of the terminal client.
    let log = if with_tui {
        Stdio::from(std::fs::File::create(data.join("server.log"))?)
    } else {
        Stdio::inherit()
    };
    let mut server = Command::new(target_dir().join("debug/trefoil"))
        .args(["serve", "--demo", "--listen", &args.listen, "--data"])
        .arg(&data)
        .current_dir(root())
        .env("TREFOIL_LOG", std::env::var("TREFOIL_LOG").unwrap_or_else(|_| "warn".to_owned()))
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("failed to start the server")?;
    let ready = wait_until_ready(&mut server);
    if let Err(error) = ready {
        drop(server.kill());
        return Err(error);
    }
    print_guide(&data)?;
    if with_tui {
        let mut client = Command::new(target_dir().join("debug/trefoil-tui"));
        let left = check(client.arg("--demo").arg(&data));
        stop(&mut server)?;
        return left;
    }
    println!("\nStop it with Ctrl-C.");
    // Ctrl-C is also sent to the server, which then stops.
    server.wait()?;
    Ok(())
}

fn wait_until_ready(server: &mut Child) -> Result<()> {
    let output = server.stdout.take().context("the output of the server is not piped")?;
    let mut lines = BufReader::new(output).lines();
    match lines.next() {
        Some(line) if line.as_deref().is_ok_and(|line| line.starts_with("ready ")) => Ok(()),
        _ => bail!("the server ended before it was ready; see its messages above or in server.log"),
    }
}

fn stop(server: &mut Child) -> Result<()> {
    check(Command::new("kill").arg(server.id().to_string()))?;
    server.wait()?;
    Ok(())
}

fn read(path: PathBuf) -> Result<Value> {
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

/// Prints addresses, users and commands to paste.
fn print_guide(data: &std::path::Path) -> Result<()> {
    let endpoint = read(data.join("endpoint.json"))?;
    let demo = read(data.join("demo.json"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (base, fhir, ca) = (text(&endpoint["base_url"]), text(&endpoint["fhir_base"]), text(&endpoint["ca"]));
    println!("\nTrefoil demo\n\n  base URL    {base}\n  FHIR base   {fhir}\n  trust       {ca}");
    println!(
        "  secrets     {}\n\nUsers who can sign in at {base}/sign-in\n",
        data.join("demo.json").display()
    );
    for user in demo["users"].as_array().into_iter().flatten() {
        let (name, password) = (text(&user["username"]), text(&user["password"]));
        println!("  {name:<10} {password}   {}", text(&user["claims"]["name"]));
    }
    let member = &demo["members"][0];
    let subsumption = &demo["subsumptions"][0];
    println!("\nCommands to paste\n");
    println!("  export CURL_CA_BUNDLE={ca}");
    println!("  curl -s {fhir}/metadata | head -c 300; echo");
    println!(
        "  TOKEN=$({} token --demo {})",
        target_dir().join("debug/trefoil-tui").display(),
        data.display()
    );
    println!(
        "  curl -sG -H \"Authorization: Bearer $TOKEN\" '{fhir}/ValueSet/$validate-code' -d url={} -d system={} -d code={}; echo",
        text(&member["value_set"]),
        text(&member["system"]),
        text(&member["code"]),
    );
    println!(
        "  curl -sG -H \"Authorization: Bearer $TOKEN\" '{fhir}/CodeSystem/$subsumes' -d system={} -d codeA={} -d codeB={}; echo",
        text(&subsumption["system"]),
        text(&subsumption["codeA"]),
        text(&subsumption["codeB"]),
    );
    println!(
        "  curl -si -H \"Authorization: Bearer $TOKEN\" '{fhir}/Group/{}/$export?_outputFormat=ndjson' | grep -i ^content-location",
        text(&demo["groups"][0]),
    );
    Ok(())
}
