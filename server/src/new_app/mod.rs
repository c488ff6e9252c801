//! `trefoil new-app`: registers a client and writes an example that signs in with it.
//!
//! | module | contents |
//! |---|---|
//! | `examples` | the programs, by kind of app and language |
//! | `administer` | commands of the administration |
//! | `page` | the questions as a page of the browser |
//! | here | the questions, the registration, the files and what to do next |

mod administer;
mod examples;
mod page;

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args as _, FromArgMatches as _, ValueEnum};
use command_line::question;
use command_line::text::{json_line, shell_word};
use serde_json::{Value, json};
use store::folder::make_folder;

use self::administer::administer;
use self::examples::{AppExample, AppKind, AppLanguage, EXAMPLES, find, value_name};
use crate::administration::arguments::DataArgs;
use crate::administration::client_keys::{KeyAlgorithm, es384_key_pem, generate_key, public_members};
use crate::administration::commands::client::REASONS_OF_REFUSALS;
use crate::config::exit_code;
use crate::node::development_certificate::write_private;

/// Registration and addresses, which the examples read. It can contain the secret of the client.
const SETTINGS: &str = "app.json";
/// Private key of a back end.
const PRIVATE_KEY: &str = "private.jwk";
/// The same for languages whose libraries read no JWKs, and the id of the key.
const PRIVATE_PEM: &str = "private.pem";
const KEY_ID: &str = "key-1";
/// Public key of a back end, as it is registered.
const PUBLIC_KEY: &str = "jwks.json";

/// Arguments of `trefoil new-app`.
#[derive(Debug, clap::Args)]
pub struct NewAppArgs {
    /// The data folder.
    #[command(flatten)]
    data: DataArgs,
    /// Client id of the app
    #[arg(required_unless_present = "page", default_value = "", hide_default_value = true)]
    name: String,
    /// Ask on a page of the browser, whose address is printed and works once
    #[arg(long, conflicts_with_all = ["name", "kind", "language", "out", "scope", "user", "port", "remove"])]
    page: bool,
    /// Kind of the app; on a terminal, it is asked for
    #[arg(long, value_enum)]
    kind: Option<AppKind>,
    /// Language of the example; on a terminal, it is asked for
    #[arg(long, value_enum)]
    language: Option<AppLanguage>,
    /// Folder for the example [default: a new folder with the name of the app]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Scopes that the app requests, separated by spaces [default: openid profile email, and system/*.rs for
    /// a back end]
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// User who signs in to the app, and whose allowed scopes are extended by those of the app after a
    /// question
    #[arg(long, value_name = "USERNAME")]
    user: Option<String>,
    /// Port of the example on this machine, for apps with pages
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    port: u16,
    /// Delete the registration and the files of the example
    #[arg(long, conflicts_with_all = ["kind", "language", "scope", "user"])]
    remove: bool,
}

/// Runs the command.
pub async fn run_new_app(args: NewAppArgs) -> ExitCode {
    let result = match (args.page, args.remove) {
        (true, _) => page::ask_on_page(Box::new(move |words| Box::pin(make(args.data.clone(), words)))).await,
        (false, true) => remove(&args).await,
        (false, false) => Box::pin(create(&args)).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            exit_code(&error)
        }
    }
}

/// Runs the command with the words of the page, and returns what to do next.
async fn make(data: DataArgs, words: Vec<String>) -> Result<String> {
    let command = NewAppArgs::augment_args(clap::Command::new("new-app"));
    let line = std::iter::once("new-app".to_owned()).chain(words);
    let mut args = NewAppArgs::from_arg_matches(&command.try_get_matches_from(line)?)?;
    args.data = data;
    create(&args).await?;
    next_steps(&args)
}

async fn create(args: &NewAppArgs) -> Result<()> {
    let folder = args.folder();
    let name = args.name.as_str();
    if folder.join(SETTINGS).exists() {
        return show(args, &folder).await;
    }
    let (kind, language) = chosen(args)?;
    let Some(example) = find(kind, language) else {
        let examples = EXAMPLES.iter().filter(|example| example.kind == kind);
        let languages: Vec<_> = examples.map(|example| value_name(&example.language)).collect();
        bail!("no example of this kind exists in that language; use --language {}", languages.join(" or "));
    };
    let scope = args.scope.as_deref().unwrap_or(kind.default_scope());
    make_folder(&folder, 0o700).with_context(|| folder.display().to_string())?;
    for (file, _) in example.files {
        if folder.join(file).exists() {
            bail!("{} exists already; choose another folder with --out", folder.join(file).display());
        }
    }
    if let Some(username) = &args.user {
        allow_scopes(args, username, scope).await?;
    }
    let settings = register(args, example, scope, &folder).await?;
    for (file, content) in example.files {
        let path = folder.join(file);
        std::fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    }
    // It can contain a secret, and its existence says that the example is complete.
    write_private(&folder.join(SETTINGS), &format!("{settings:#}\n"))
        .with_context(|| format!("failed to write {}", folder.join(SETTINGS).display()))?;
    if !args.data.output.json {
        println!("registered the client '{name}' with the scopes: {scope}");
    }
    print_next_steps(args, example, &folder)
}

/// Returns kind and language. On a terminal, those that the command line does not state are asked for.
fn chosen(args: &NewAppArgs) -> Result<(AppKind, AppLanguage)> {
    let kind = match args.kind {
        Some(kind) => kind,
        None => ask("Where does the app run?", "kind", AppKind::value_variants())?,
    };
    let available: Vec<_> =
        EXAMPLES.iter().filter(|example| example.kind == kind).map(|example| example.language).collect();
    let language = match (args.language, &available[..]) {
        (Some(language), _) => language,
        (None, [only]) => *only,
        (None, several) => ask("In which language is the example?", "language", several)?,
    };
    Ok((kind, language))
}

fn ask<T: ValueEnum + Copy>(question: &str, option: &str, choices: &[T]) -> Result<T> {
    let names: Vec<_> = choices.iter().filter_map(ValueEnum::to_possible_value).collect();
    if !std::io::stdin().is_terminal() {
        let names: Vec<_> = names.iter().map(|name| name.get_name()).collect();
        bail!("state --{option}: {}", names.join(", "));
    }
    eprintln!("{question}");
    for (index, name) in names.iter().enumerate() {
        let help = name.get_help().map(ToString::to_string).unwrap_or_default();
        eprintln!("  {}  {:<10}  {help}", index + 1, name.get_name());
    }
    loop {
        eprint!("Number or name: ");
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            bail!("no answer was given; state --{option}");
        }
        let typed = line.trim();
        let by_number = typed.parse::<usize>().ok().and_then(|number| choices.get(number.wrapping_sub(1)));
        let by_name = names.iter().position(|name| name.get_name().eq_ignore_ascii_case(typed));
        if let Some(choice) = by_number.or(by_name.map(|index| &choices[index])) {
            return Ok(*choice);
        }
    }
}

/// Extends the scopes that a user may grant by those of the app, after a question.
async fn allow_scopes(args: &NewAppArgs, username: &str, scope: &str) -> Result<()> {
    let user_lines = administer(&args.data, &["user", "show", username]).await?;
    let allowed =
        user_lines.first().and_then(|user| user["allowed_scopes"].as_str()).unwrap_or_default().to_owned();
    let missing: Vec<_> = scope
        .split_whitespace()
        .filter(|scope| !allowed.split_whitespace().any(|one| one == *scope))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !args.data.output.yes {
        let missing = missing.join(" ");
        match question::ask(&format!("'{username}' may not grant {missing} yet. Allow it?")) {
            Some(true) => {}
            Some(false) => {
                bail!("nothing was changed; leave out --user, or request other scopes with --scope")
            }
            None => bail!("'{username}' may not grant {missing}; --yes allows it"),
        }
    }
    let extended = format!("{allowed} {}", missing.join(" "));
    administer(&args.data, &["user", "change", username, "--allowed-scopes", extended.trim()]).await?;
    Ok(())
}

/// Registers the client, and returns the settings of the example.
async fn register(args: &NewAppArgs, example: &AppExample, scope: &str, folder: &Path) -> Result<Value> {
    let name = args.name.as_str();
    let mut settings = server_addresses(&args.data.data)?;
    for (member, stated) in [("kind", value_name(&example.kind)), ("language", value_name(&example.language))]
    {
        settings[member] = stated.into();
    }
    settings["client_id"] = name.into();
    settings["scope"] = scope.into();
    let mut words = vec!["client", "add", name, "--scope", scope];
    let page = format!("http://localhost:{}", args.port);
    let callback = format!("{page}/callback");
    let home = format!("{page}/");
    let jwks = folder.join(PUBLIC_KEY).display().to_string();
    match example.kind {
        AppKind::Browser => {
            words.extend(["--redirect-uri", &home]);
            settings["redirect_uri"] = home.as_str().into();
        }
        AppKind::Web => {
            words.extend(["--redirect-uri", &callback, "--with-secret"]);
            settings["redirect_uri"] = callback.as_str().into();
        }
        AppKind::Terminal => words.extend(["--native", "--redirect-uri", "http://127.0.0.1/callback"]),
        AppKind::Backend => {
            let private = generate_key(KeyAlgorithm::Es384, KEY_ID)?;
            let public = json!({ "keys": [public_members(&private)] });
            if example.language.reads_pem() {
                write_private(&folder.join(PRIVATE_PEM), &es384_key_pem(&private)?)?;
                settings["kid"] = KEY_ID.into();
            } else {
                write_private(&folder.join(PRIVATE_KEY), &serde_json::to_string_pretty(&private)?)?;
            }
            std::fs::write(folder.join(PUBLIC_KEY), serde_json::to_vec_pretty(&public)?)?;
            words.extend(["--auth-method", "private_key_jwt", "--grant-type", "client_credentials"]);
            words.extend(["--jwks", &jwks]);
        }
    }
    let results = administer(&args.data, &words).await?;
    if let Some(secret) = results.iter().find_map(|result| result["client_secret"].as_str()) {
        settings["client_secret"] = secret.into();
    }
    Ok(settings)
}

/// Issuer, FHIR base and certificate authority: those of the running server, or those that it will have by
/// default.
fn server_addresses(data: &Path) -> Result<Value> {
    let endpoint = match std::fs::read(data.join("endpoint.json")) {
        Ok(bytes) => serde_json::from_slice(&bytes).context("endpoint.json of the server")?,
        Err(_) => {
            let ca = std::path::absolute(data.join("tls/ca.pem"))?;
            let base = "https://localhost:8443";
            json!({ "base_url": base, "fhir_base": format!("{base}/fhir/R4"), "ca": ca })
        }
    };
    Ok(json!({ "issuer": endpoint["base_url"], "fhir_base": endpoint["fhir_base"], "ca": endpoint["ca"] }))
}

fn read_settings(folder: &Path) -> Result<Value> {
    let path = folder.join(SETTINGS);
    let read = || -> Result<Value> { Ok(serde_json::from_slice(&std::fs::read(&path)?)?) };
    read().with_context(|| format!("failed to read {}", path.display()))
}

/// The command that runs an example with these settings.
fn run_command(example: &AppExample, settings: &Value) -> String {
    let Some(ca) = settings["ca"].as_str() else { return example.run.to_owned() };
    let names = example.language.ca_variables().iter();
    let variables: String = names.map(|name| format!("{name}={} ", shell_word(ca))).collect();
    format!("{variables}{}", example.run)
}

/// The commands that install and run the example in the folder of these arguments.
fn next_steps(args: &NewAppArgs) -> Result<String> {
    let folder = args.folder();
    let settings = read_settings(&folder)?;
    let example = example_of(&settings, &folder)?;
    let [data, out] = [shell_word(&args.data.data), shell_word(&folder)];
    let is_running = args.data.data.join("endpoint.json").exists();
    let serve = if is_running { String::new() } else { format!("  trefoil serve --data {data} &\n") };
    let run = run_command(example, &settings);
    Ok(format!("{serve}  cd {out}\n  {}\n  {run}\n", example.install))
}

/// Prints the commands that install and run the example.
fn print_next_steps(args: &NewAppArgs, example: &AppExample, folder: &Path) -> Result<()> {
    if args.data.output.json {
        let settings = read_settings(folder)?;
        let run = run_command(example, &settings);
        let mut result = settings;
        if let Some(members) = result.as_object_mut() {
            members.remove("client_secret");
        }
        result["folder"] = folder.display().to_string().into();
        result["install"] = example.install.into();
        result["run"] = run.into();
        println!("{}", json_line(&result));
        return Ok(());
    }
    println!("the example is in {}; run it with:\n\n{}", folder.display(), next_steps(args)?);
    let [data, out] = [shell_word(&args.data.data), shell_word(folder)];
    println!("{REASONS_OF_REFUSALS}");
    println!("'trefoil new-app {} --data {data} --out {out} --remove' deletes both.", args.name);
    Ok(())
}

/// The example that the settings in a folder name.
fn example_of(settings: &Value, folder: &Path) -> Result<&'static AppExample> {
    let kind = AppKind::from_str(settings["kind"].as_str().unwrap_or_default(), false).ok();
    let language = AppLanguage::from_str(settings["language"].as_str().unwrap_or_default(), false).ok();
    kind.zip(language).and_then(|(kind, language)| find(kind, language)).with_context(|| {
        let path = folder.join(SETTINGS);
        format!("{} does not name an example; delete it, or choose another folder with --out", path.display())
    })
}

/// Shows what an earlier run has made.
async fn show(args: &NewAppArgs, folder: &Path) -> Result<()> {
    let registered = administer(&args.data, &["client", "show", &args.name]).await;
    registered.with_context(|| {
        let folder = folder.display();
        format!("{folder} has an example, but its client is not registered; delete {folder}, or choose --out")
    })?;
    let example = example_of(&read_settings(folder)?, folder)?;
    if !args.data.output.json {
        println!("the client '{}' was registered before", args.name);
    }
    print_next_steps(args, example, folder)
}

/// Deletes the registration and the files that an earlier run has made. Other files stay.
async fn remove(args: &NewAppArgs) -> Result<()> {
    let folder = args.folder();
    if !folder.join(SETTINGS).exists() {
        bail!("{} has no example of 'trefoil new-app'; name its folder with --out", folder.display());
    }
    administer(&args.data, &["client", "delete", &args.name]).await?;
    let files = EXAMPLES.iter().flat_map(|example| example.files).map(|(file, _)| *file);
    for file in files.chain([PRIVATE_KEY, PRIVATE_PEM, PUBLIC_KEY, SETTINGS]) {
        match std::fs::remove_file(folder.join(file)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| folder.join(file).display().to_string());
            }
            _ => {}
        }
    }
    // The folder stays if something else is in it, such as the libraries.
    let is_in_use = std::fs::remove_dir(&folder).is_err();
    if args.data.output.json {
        println!(
            "{}",
            json_line(&json!({ "client_id": args.name, "folder": folder, "folder_kept": is_in_use }))
        );
        return Ok(());
    }
    println!("deleted the client '{}' and its example", args.name);
    if is_in_use {
        println!("{} has other files, which were kept", folder.display());
    }
    Ok(())
}

impl NewAppArgs {
    fn folder(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from(&self.name))
    }
}
