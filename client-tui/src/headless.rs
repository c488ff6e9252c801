//! The subcommands: each one performs one operation, prints the result and ends with a documented exit code.
//!
//! Results are printed to stdout and everything else to stderr, so that a script can process the results.

use std::io::IsTerminal as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::api::{Api, ApiError, Bearer, ExportStatus, KickOff, SubsumesQuery, UserTokens, ValidateCode};
use crate::args::{
    AskArgs, Command, ExportArgs, SignInArgs, SubsumesArgs, TerminologyArgs, TokenArgs, ValidateCodeArgs,
};
use crate::journey::{self, Step};
use crate::profile::ProfileError;

/// Errors of a subcommand.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// The command line does not define a valid profile.
    #[error("{0}")]
    Profile(#[from] ProfileError),
    /// A request to the server failed.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// The token could not be read from stdin.
    #[error("failed to read a token from stdin: {0}")]
    Stdin(std::io::Error),
    /// The terminal cannot show the screens.
    #[error("the terminal cannot be used: {0}")]
    Terminal(std::io::Error),
}

impl CommandFailure {
    /// Returns the exit code: 1 for a failure, 2 for a usage error, 3 if the server cannot be reached.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Profile(_) | Self::Api(ApiError::Profile(_)) => 2,
            Self::Api(error) if error.is_unreachable() => 3,
            _ => 1,
        }
    }
}

/// Runs a subcommand.
///
/// # Errors
/// Returns the failure, from which [`CommandFailure::exit_code`] derives the exit code.
pub async fn run(api: &Api, command: Command) -> Result<(), CommandFailure> {
    match command {
        Command::SignIn(args) => sign_in(api, &args).await,
        Command::Userinfo(args) => userinfo(api, &args).await,
        Command::ValidateCode(args) => validate_code(api, args).await,
        Command::Subsumes(args) => subsumes(api, args).await,
        Command::Export(args) => export(api, args).await,
        Command::Token(args) => token(api, &args).await,
    }
}

/// Prints an answer as JSON or as text.
fn print(as_json: bool, answer: &impl Serialize, text: impl FnOnce() -> String) {
    let json = || serde_json::to_string(answer).expect("all keys of an answer are strings");
    println!("{}", if as_json { json() } else { text() });
}

async fn sign_in(api: &Api, args: &SignInArgs) -> Result<(), CommandFailure> {
    let tokens = by_browser(api, args).await?;
    let session = &tokens.session;
    print(args.json, &tokens.answer, || {
        let who = session.subject.as_deref().unwrap_or("a user whose name is unknown (no openid scope)");
        format!("signed in as {who}\nscope   {}\nexpires {}", session.scope, session.expires_at)
    });
    Ok(())
}

async fn by_browser(api: &Api, args: &SignInArgs) -> Result<UserTokens, CommandFailure> {
    let (sender, pasted) = mpsc::channel(1);
    if std::io::stdin().is_terminal() {
        // Uses a separate thread, because reading from a terminal cannot be cancelled when the browser responds first.
        std::thread::spawn(move || {
            let lines = std::io::stdin().lines().map_while(Result::ok);
            lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
        });
    }
    let tell = |step| match step {
        Step::GoTo { url, browser } => {
            if let Err(reason) = browser
                && api.profile().open_browser
            {
                eprintln!("No browser was opened: {reason}");
            }
            eprintln!("Sign in at this address:\n{url}");
            eprintln!("If the browser does not return here, paste its last address.");
        }
        Step::PasteRefused(reason) => eprintln!("Error: {reason}"),
    };
    Ok(journey::sign_in(api, &args.scope, pasted, tell).await?)
}

async fn userinfo(api: &Api, args: &AskArgs) -> Result<(), CommandFailure> {
    let bearer = match &args.token {
        Some(token) => given(token)?,
        None => {
            by_browser(api, &args.sign_in).await?;
            Bearer::User
        }
    };
    let claims = api.userinfo(&bearer).await?;
    print(args.sign_in.json, &claims, || {
        let width = claims.keys().map(String::len).max().unwrap_or(0);
        let line = |(name, value): (&String, &serde_json::Value)| match value.as_str() {
            Some(text) => format!("{name:width$}  {text}"),
            None => format!("{name:width$}  {value}"),
        };
        claims.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

/// Returns the token for a terminology operation: the one on the command line, the one of the backend client, or the
/// one of a user who signs in.
async fn terminology_bearer(api: &Api, args: &TerminologyArgs) -> Result<Bearer, CommandFailure> {
    match &args.ask.token {
        Some(token) => given(token),
        None if api.profile().backend.is_some() && !args.sign_in_first => Ok(Bearer::Backend),
        None => {
            by_browser(api, &args.ask.sign_in).await?;
            Ok(Bearer::User)
        }
    }
}

async fn validate_code(api: &Api, args: ValidateCodeArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = ValidateCode {
        url: args.url.unwrap_or_default(),
        id: args.id.unwrap_or_default(),
        system: args.system,
        code: args.code,
        display: args.display.unwrap_or_default(),
    };
    let found = api.validate_code(&query, &bearer).await?;
    print(args.ask.ask.sign_in.json, &found, || {
        let mut text = if found.result { "true" } else { "false" }.to_owned();
        for more in [&found.display, &found.message].into_iter().flatten() {
            text.push_str(&format!("\n{more}"));
        }
        text
    });
    Ok(())
}

async fn subsumes(api: &Api, args: SubsumesArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = SubsumesQuery {
        system: args.system.unwrap_or_default(),
        id: args.id.unwrap_or_default(),
        version: args.version.unwrap_or_default(),
        code_a: args.code_a,
        code_b: args.code_b,
    };
    let found = api.subsumes(&query, &bearer).await?;
    print(args.ask.ask.sign_in.json, &found, || {
        format!("{}\n{}", found.outcome, found.sentence(&query.code_a, &query.code_b))
    });
    Ok(())
}

async fn token(api: &Api, args: &TokenArgs) -> Result<(), CommandFailure> {
    let token = api.ask_backend_token(&args.scope).await?;
    print(args.json, &token, || token.access_token.clone());
    Ok(())
}

async fn export(api: &Api, args: ExportArgs) -> Result<(), CommandFailure> {
    let bearer = args.token.as_deref().map_or(Ok(Bearer::Backend), given)?;
    let query = KickOff {
        group: args.group.unwrap_or_default(),
        types: args.types.unwrap_or_default(),
        since: args.since.unwrap_or_default(),
    };
    let status_url = api.kick_off(&query, &bearer).await?;
    eprintln!("export started, its status is at {status_url}");
    let manifest = loop {
        match api.poll(&status_url, &bearer).await? {
            ExportStatus::Complete(manifest) => break manifest,
            ExportStatus::Running { progress, retry_after_s } => {
                let progress = progress.unwrap_or_else(|| "running".to_owned());
                eprintln!("{progress}; next poll in {retry_after_s} s");
                tokio::time::sleep(Duration::from_secs(retry_after_s.unsigned_abs())).await;
            }
        }
    };
    let total = manifest.output.len() + manifest.error.len();
    eprintln!("complete as of {}: {total} files", manifest.transaction_time);
    let files: Vec<_> = manifest.output.iter().chain(&manifest.error).collect();
    let watch = |piece: crate::api::FileProgress| {
        if piece.done {
            eprintln!("{}: {} resources, {} bytes", files[piece.index].kind, piece.lines, piece.bytes);
        }
    };
    let download = api.download(&manifest, &args.out, &bearer, watch).await?;
    if args.delete {
        api.delete_export(&status_url, &bearer).await?;
        eprintln!("the export was deleted on the server");
    }
    let summary = json!({
        "transactionTime": manifest.transaction_time,
        "status": status_url,
        "deleted": args.delete,
        "download": download,
    });
    print(args.json, &summary, || {
        format!(
            "{} resources in {} files, {} bytes, in {}",
            download.resources,
            total,
            download.bytes,
            args.out.display()
        )
    });
    Ok(())
}

/// Returns the token of the command line. `-` reads it from the first line of stdin.
fn given(token: &str) -> Result<Bearer, CommandFailure> {
    if token != "-" {
        return Ok(Bearer::Given(token.to_owned()));
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(CommandFailure::Stdin)?;
    Ok(Bearer::Given(line.trim().to_owned()))
}
