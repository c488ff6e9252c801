//! The guide of the demo: its addresses, its users with their passwords, and commands to paste. The server
//! stores it in `DIR/guide.txt`, which only its owner can read, and prints it on standard error if a person
//! reads that.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use command_line::text::shell_word;
use serde_json::Value;

use crate::node::app::App;
use crate::node::development_certificate::write_private;

/// Name of the file in the data folder.
pub const GUIDE_FILE: &str = "guide.txt";

/// Writes the guide for a server, and returns its text and the path of its file.
///
/// # Errors
/// An error if `demo.json` cannot be read or the guide cannot be written.
pub fn write_guide(app: &App, ca: Option<&Path>) -> Result<(String, PathBuf)> {
    let data = std::path::absolute(&app.config.data)?;
    let demo = std::fs::read(data.join("demo.json")).context("failed to read demo.json")?;
    let text = render_guide(app, &data, ca, &serde_json::from_slice(&demo)?)?;
    let path = data.join(GUIDE_FILE);
    write_private(&path, &text).with_context(|| format!("failed to write {}", path.display()))?;
    Ok((text, path))
}

fn render_guide(app: &App, data: &Path, ca: Option<&Path>, demo: &Value) -> Result<String> {
    let (base, fhir) = (&app.address.base_url, &app.address.fhir_base);
    let (folder, quoted) = (data.display(), shell_word(data));
    let mut text = format!("Trefoil demo\n\n  base URL    {base}\n  FHIR base   {fhir}\n");
    if let Some(ca) = ca {
        writeln!(text, "  CA          {}", ca.display())?;
    }
    writeln!(text, "  secrets     {folder}/demo.json\n  this guide  {folder}/{GUIDE_FILE}")?;
    if ca.is_some() {
        text.push_str(
            "\nThe certificate\n\n  A browser warns about the certificate of this server, because it does not know the development CA of\n  \
             this folder. Continue to localhost in spite of the warning, or add the CA to the certificate stores of this\n  \
             machine; it is valid for localhost only:\n\n",
        );
        let trefoil = program("trefoil");
        writeln!(text, "  {trefoil} trust --data {quoted}\n  {trefoil} trust --data {quoted} --remove")?;
    }
    writeln!(text, "\nUsers who can sign in at {base}/sign-in\n")?;
    for user in demo["users"].as_array().into_iter().flatten() {
        let (name, password) = (member(user, "username"), member(user, "password"));
        writeln!(text, "  {name:<10} {password}   {}", member(&user["claims"], "name"))?;
    }
    text.push_str("\nCommands to paste\n\n");
    if let Some(ca) = ca {
        writeln!(text, "  export CURL_CA_BUNDLE={}", shell_word(ca))?;
    }
    writeln!(text, "  curl -s {fhir}/metadata | head -c 300; echo")?;
    // The other commands use this variable, so that no token is in the guide.
    writeln!(text, "  TOKEN=$({} token --demo {quoted})", program("trefoil-tui"))?;
    let (coding, codes) = (&demo["members"][0], &demo["subsumptions"][0]);
    writeln!(
        text,
        "  curl -sG -H \"Authorization: Bearer $TOKEN\" '{fhir}/ValueSet/$validate-code' -d url={} -d system={} -d code={}; echo",
        member(coding, "value_set"),
        member(coding, "system"),
        member(coding, "code"),
    )?;
    writeln!(
        text,
        "  curl -sG -H \"Authorization: Bearer $TOKEN\" '{fhir}/CodeSystem/$subsumes' -d system={} -d codeA={} -d codeB={}; echo",
        member(codes, "system"),
        member(codes, "codeA"),
        member(codes, "codeB"),
    )?;
    writeln!(
        text,
        "  curl -si -H \"Authorization: Bearer $TOKEN\" '{fhir}/Group/{}/$export?_outputFormat=ndjson' | grep -i ^content-location",
        demo["groups"][0].as_str().unwrap_or_default(),
    )?;
    Ok(text)
}

fn member<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The path of a program beside this one for a shell, or its name if it is not there.
fn program(name: &str) -> String {
    let program_here =
        std::env::current_exe().ok().map(|exe| exe.with_file_name(name)).filter(|path| path.is_file());
    program_here.map_or_else(|| name.to_owned(), |path| shell_word(&path))
}
