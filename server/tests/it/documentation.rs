//! Checks the examples of the documents with the programs that read them: TOML with `trefoil serve` or the
//! settings of the client, JSON with a parser, and commands with the command-line parser of the program,
//! without running the commands.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use regex::Regex;
use terminology_import::{Column, import_files};
use trefoil_server::cli::CommandLine;

use crate::reader_shell::{FencedBlock, fenced_blocks};
use crate::support::{TREFOIL, have};

#[test]
fn every_fenced_block_is_accepted_by_the_program_that_reads_it() {
    let proxies = [("nginx", 0), ("caddy", 0), ("haproxy", 0)];
    // The programs of `new-app`, which its tests run.
    let programs = [("bash", 0), ("javascript", 0), ("python", 0), ("java", 0), ("r", 0)];
    let mut pages = [
        &[("toml", 0), ("json", 0), ("yaml", 0), ("sh", 0), ("sql", 0), ("csv", 0), ("", 0)][..],
        &proxies,
        &programs,
    ]
    .concat();
    for block in documents().iter().flat_map(|(name, text)| fenced_blocks(name, text)) {
        let FencedBlock { place, language, text, .. } = &block;
        let count = pages.iter_mut().find(|(known, _)| known == language);
        count
            .unwrap_or_else(|| panic!("{place}: '{language}' is not checked by any reader; add one here"))
            .1 += 1;
        match language.as_str() {
            "toml" if place.starts_with("client-tui/") => check_client_settings(place, text),
            "toml" => check_configuration(place, text),
            "json" => drop(parse_json(place, text)),
            "sh" => {
                shell_commands(text).iter().for_each(|words| check_command(place, words, MayLack::Nothing))
            }
            "yaml" => check_scrape_configuration(place, text),
            "csv" => {
                let file = ("codes.csv".to_owned(), text.as_bytes().to_vec());
                let imported = import_files(vec![file]).unwrap_or_else(|error| panic!("{place}: {error}"));
                assert!(imported.index.faults().is_empty(), "{place}: {:?}", imported.index.faults());
            }
            // The journey with DuckDB runs these statements.
            "sql" => assert_eq!(place.split(':').next(), Some("server/docs/bulk-export.md"), "{place}"),
            // Output of a program or a diagram, which no program reads; the blocks of proxies and the
            // programs are run by other tests.
            _ => {}
        }
    }
    for (language, count) in pages {
        assert!(count > 0, "no document has a block of the language '{language}'");
    }
}

fn check_scrape_configuration(place: &str, text: &str) {
    if !have("promtool", "the scrape configuration of the documentation") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, text).unwrap();
    let output =
        std::process::Command::new("promtool").args(["check", "config"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{place}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Checks commands in running text, such as `trefoil client add`. A sentence may omit required arguments. A
/// text with `<` or `…` is a pattern and is not checked.
#[test]
fn every_command_in_running_text_is_accepted() {
    let mut count = 0;
    for (name, text) in documents() {
        for span in inline_code(&text).filter(|span| !span.contains(['<', '…', '|', '{'])) {
            for words in shell_commands(span).iter().filter(|words| words.len() > 1) {
                check_command(&name, words, MayLack::Arguments);
                count += 1;
            }
        }
    }
    assert!(count > 0, "no document names a command in its text");
}

/// Returns the names and texts of the user documents.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut paths = vec![root.join("README.md"), root.join("client-tui/README.md")];
    let docs = std::fs::read_dir(root.join("server/docs")).unwrap().map(|entry| entry.unwrap().path());
    paths.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        (name, std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// Returns the texts between single backticks, outside of fenced blocks.
fn inline_code(text: &str) -> impl Iterator<Item = &str> {
    let outside = text.split("```").step_by(2);
    outside.flat_map(|part| part.split('`').skip(1).step_by(2))
}

fn parse_json(place: &str, text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"))
}

/// Reads settings of the terminal client.
fn check_client_settings(place: &str, text: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.toml");
    std::fs::write(&file, text).unwrap();
    let read = trefoil_tui::settings::read(&file);
    assert!(read.is_ok(), "{place}: the client does not read these settings: {}", read.unwrap_err());
}

/// Starts a server with a configuration. Its absolute paths are moved to a temporary folder in which the
/// files exist.
fn check_configuration(place: &str, text: &str) {
    let dir = tempfile::tempdir().unwrap();
    let parsed: toml::Table = toml::from_str(text).unwrap_or_else(|error| panic!("{place}: {error}"));
    let mut paths = Vec::new();
    collect_paths(&toml::Value::Table(parsed), "", &mut paths);
    let key = rcgen::generate_simple_self_signed(["id.example".to_owned()]).unwrap();
    let mut settings = text.to_owned();
    for (member, path) in &paths {
        let content = match member.as_str() {
            "certificate" => key.cert.pem(),
            "private_key" => key.signing_key.serialize_pem(),
            // A key of 32 bytes in base64.
            "key_encryption_key_file" => "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=".to_owned(),
            "jwks_file" => r#"{"keys":[]}"#.to_owned(),
            _ => "a secret".to_owned(),
        };
        let file = dir.path().join(path.trim_start_matches('/').replace('/', "-"));
        std::fs::write(&file, content).unwrap();
        settings = settings.replace(&format!("{path:?}"), &format!("{:?}", file.to_str().unwrap()));
    }
    let config = dir.path().join("trefoil.toml");
    std::fs::write(&config, settings).unwrap();
    let mut server = Command::new(TREFOIL)
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--data"])
        .arg(dir.path().join("data"))
        .arg("--config")
        .arg(&config)
        .env("TREFOIL_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    let output = server.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        line.starts_with("ready "),
        "{place}: the server does not start with this configuration: {stderr}"
    );
}

/// Collects the members whose value is an absolute path.
fn collect_paths(value: &toml::Value, member: &str, paths: &mut Vec<(String, String)>) {
    match value {
        toml::Value::String(text) if text.starts_with('/') => paths.push((member.to_owned(), text.clone())),
        toml::Value::Array(values) => values.iter().for_each(|value| collect_paths(value, member, paths)),
        toml::Value::Table(table) => {
            table.iter().for_each(|(member, value)| collect_paths(value, member, paths));
        }
        _ => {}
    }
}

/// Whether a command in a document may lack required arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MayLack {
    Nothing,
    Arguments,
}

/// Checks that a program of the workspace accepts the arguments of a command. Commands of other programs are
/// not checked.
pub fn check_command(place: &str, words: &[String], may_lack: MayLack) {
    let (program, args) = match words {
        [cargo, xtask, args @ ..] if cargo == "cargo" && xtask == "xtask" => ("xtask", args),
        [program, args @ ..] => (program.rsplit('/').next().unwrap(), args),
        [] => return,
    };
    let command_line = match program {
        "trefoil" => CommandLine::command(),
        "trefoil-tui" => trefoil_tui::args::Args::command(),
        "xtask" => return check_xtask(place, args),
        _ => return,
    };
    let Err(error) = command_line.try_get_matches_from(words) else { return };
    let is_accepted = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            may_lack == MayLack::Arguments
        }
        _ => false,
    };
    assert!(is_accepted, "{place}: '{}' is not accepted: {error}", words.join(" "));
}

/// Checks a command of xtask, which has no library. The option `--help` prevents the command from running. It
/// also hides missing arguments, but no command of xtask has required ones. Arguments that follow `--` are
/// those of another program and are not checked.
fn check_xtask(place: &str, args: &[String]) {
    let path = Path::new(TREFOIL).with_file_name("xtask");
    if !path.exists() {
        println!("left out: 'cargo xtask {}' (xtask was not built)", args.join(" "));
        return;
    }
    let own = args.split(|arg| arg == "--").next().unwrap_or_default();
    let output = Command::new(path).args(own).arg("--help").stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{place}: 'cargo xtask {}' is not accepted: {stderr}", args.join(" "));
}

/// Splits a shell script into commands, and each command into words. Commands are separated by line ends,
/// pipes, `;`, `&` and the parentheses of a substitution. Redirections are left out, and variables are not
/// expanded.
pub fn shell_commands(script: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => word.get_or_insert_default().push(escaped),
            },
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                while let Some(quoted) = chars.next().filter(|quoted| *quoted != c) {
                    let escaped = (quoted == '\\' && c == '"').then(|| chars.next()).flatten();
                    word.push(escaped.unwrap_or(quoted));
                }
            }
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            ' ' | '\t' => words.extend(word.take()),
            '\n' | '|' | ';' | '&' | '(' | ')' => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    for words in &mut commands {
        let is_redirection = |word: &String| word.trim_start_matches(|c: char| c.is_ascii_digit()) == ">";
        while let Some(at) = words.iter().position(is_redirection) {
            words.drain(at..words.len().min(at + 2));
        }
    }
    commands.retain(|words| !words.is_empty());
    commands
}

#[test]
fn a_script_is_split_into_commands_and_words() {
    let script =
        "echo 'a b' | one --x \"c \\\"d\\\"\" \\\n  e   # a comment\nT=$(two f) && three g#h > i 2> j &";
    let expected: &[&[&str]] =
        &[&["echo", "a b"], &["one", "--x", "c \"d\"", "e"], &["T=$"], &["two", "f"], &["three", "g#h"]];
    assert_eq!(shell_commands(script), expected);
}

#[test]
fn fenced_blocks_and_inline_code_are_separated() {
    let text = "Text `a`.\n\n```sh\nb `c`\n```\n\n```\nd\n```\nThen `e`.\n";
    let block = |place: &str, language: &str, text: &str, follows_block| FencedBlock {
        place: place.to_owned(),
        language: language.to_owned(),
        text: text.to_owned(),
        follows_block,
    };
    let expected = [block("x.md:3", "sh", "b `c`\n", false), block("x.md:7", "", "d\n", true)];
    assert_eq!(fenced_blocks("x.md", text), expected);
    assert_eq!(inline_code(text).collect::<Vec<_>>(), ["a", "e"]);
}

#[test]
fn invalid_examples_are_detected() {
    #[track_caller]
    fn fails(check: impl FnOnce() + std::panic::UnwindSafe) {
        assert!(std::panic::catch_unwind(check).is_err());
    }
    let words = |command: &str| command.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for command in [
        "trefoil no-such-command",
        "trefoil serve --no-such-flag",
        "trefoil serve --listen nowhere",
        "target/debug/trefoil-tui --no-such-flag",
    ] {
        fails(|| check_command("x", &words(command), MayLack::Arguments));
    }
    for incomplete in ["trefoil user remove-methods ada", "trefoil user", "trefoil-tui validate-code"] {
        fails(|| check_command("x", &words(incomplete), MayLack::Nothing));
        check_command("x", &words(incomplete), MayLack::Arguments);
    }
    check_command("x", &words("curl --no-such-flag"), MayLack::Nothing);
    check_command("x", &words("trefoil user add --help"), MayLack::Nothing);
    fails(|| check_configuration("x", "[server]\nno_such_member = 1\n"));
}

/// The texts of Rust code without its tests and comments.
fn texts_of(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = Regex::new(r#""([^"\\]*)""#).unwrap();
    let names = lines
        .flat_map(|line| text.captures_iter(line).map(|capture| capture[1].to_owned()).collect::<Vec<_>>());
    names.collect()
}

/// Each reason of a refused authorization request and of a rejected client has a row, and each row of these
/// tables quotes a text of the server.
#[test]
fn the_reasons_of_refusals_are_in_the_page_about_trouble() {
    let page = include_str!("../../docs/troubleshooting.md");
    let identity = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/identity/src");
    let read = |file: &str| std::fs::read_to_string(identity.join(file)).unwrap();
    let mut reasons = Vec::new();
    for file in ["authorize/request.rs", "authorize/interaction.rs", "client_auth/error.rs"] {
        reasons.extend(texts_of(&read(file)));
    }
    // Texts with words. Of those with values, the longest part without one is quoted.
    let parts = reasons.iter().filter_map(|text| {
        text.split(['{', '}', '('])
            .map(|part| part.trim_matches([' ', ':', '\'']))
            .max_by_key(|part| part.len())
    });
    let is_reason = |part: &&str| part.len() > 10 && part.contains(' ');
    let others =
        ["a struct of strings", "the messages say it", "the application may mean", "; the operator changes"];
    let missing: Vec<_> = parts
        .filter(is_reason)
        .filter(|part| !others.iter().any(|other| part.contains(other)))
        .filter(|part| !page.contains(*part))
        .collect();
    assert!(missing.is_empty(), "without a row: {missing:?}");

    let (_, tables) = page.split_once("## The app gets an error").unwrap();
    let (tables, _) = tables.split_once("## FHIR and exports").unwrap();
    let rows = tables.lines().filter(|line| line.starts_with("| `"));
    let quoted = rows.flat_map(|row| {
        let cell = row.split(" | ").next().unwrap();
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    });
    let sources: String =
        ["authorize/request.rs", "authorize/interaction.rs", "client_auth/error.rs"].map(read).concat();
    let invented: Vec<_> = quoted.filter(|text| !sources.contains(text.as_str())).collect();
    assert!(invented.is_empty(), "no text of the server: {invented:?}");
}

/// The page about terminology lists the names of the columns of tables.
#[test]
fn the_headings_of_tables_are_in_their_page() {
    let page = include_str!("../../docs/terminology.md");
    for (begin, column) in [
        ("| code, required |", Column::CODE),
        ("| display |", Column::DISPLAY),
        ("| parents, several separated by a bar |", Column::PARENT),
    ] {
        let row = page.lines().find_map(|line| line.strip_prefix(begin)).unwrap();
        let names: Vec<_> = row.split('`').skip(1).step_by(2).collect();
        assert_eq!(names, column.0, "{begin}");
    }
}

/// Each row of the page about trouble has an address of its own, to which an answer in a forum can point.
#[test]
fn each_row_of_the_page_about_trouble_has_an_address() {
    let page = include_str!("../../docs/troubleshooting.md");
    let address = Regex::new(r#"<a id="([a-z0-9-]+)"></a> \| "#).unwrap();
    let is_row = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| you see") && !line.starts_with("| reason in the log")
    };
    let rows: Vec<_> = page.lines().filter(is_row).collect();
    let addresses: BTreeSet<_> = rows
        .iter()
        .map(|row| address.captures(row).unwrap_or_else(|| panic!("{row}"))[1].to_owned())
        .collect();
    assert!(rows.len() > 60 && addresses.len() == rows.len(), "{} rows, {addresses:?}", rows.len());
}

/// Each parameter that the OAuth endpoints read and each error code that they send is in the page about
/// them.
#[test]
fn the_parameters_and_error_codes_of_oauth_are_in_their_page() {
    let page = [include_str!("../../docs/interface/oauth.md"), include_str!("../../docs/interface/pages.md")];
    let page = page.concat();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let parameter = Regex::new(r#"(?:params|form|parameters)\s*\.get\("([a-z_]+)"\)"#).unwrap();
    let code = Regex::new(
        &(r#""((?:invalid|unsupported|insufficient|unauthorized|login|consent|interaction|account|request)_[a-z_]+"#
            .to_owned()
            + r#"|(?:server|use|slow|expired|access|authorization|temporarily)_[a-z_]+)""#),
    )
    .unwrap();
    let (mut parameters, mut codes) = (BTreeSet::new(), BTreeSet::new());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let files = |name: &str| {
        let entries = std::fs::read_dir(folder.join(name)).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect::<Vec<_>>()
    };
    for path in [files("src/http/oauth"), files("crates/identity/src/authorize")].concat() {
        let text = std::fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
        parameters.extend(parameter.captures_iter(&text).map(|capture| capture[1].to_owned()));
    }
    for name in [
        "crates/identity/src/model/error_code.rs",
        "src/http/problem/identity_errors.rs",
        "src/http/oauth/token.rs",
        "src/http/oauth/device_authorization.rs",
    ] {
        codes.extend(code.captures_iter(&read(name)).map(|capture| capture[1].to_owned()));
    }
    assert!(parameters.len() > 25 && codes.len() > 15, "{parameters:?} {codes:?}");
    let missing: Vec<_> =
        parameters.union(&codes).filter(|name| !page.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "not in server/docs/interface: {missing:?}");
}
