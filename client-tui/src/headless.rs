//! The subcommands: each one performs one operation, prints the result and ends with a documented exit code.
//!
//! Results are printed to stdout and everything else to stderr, so that a script can process the results.

use std::io::IsTerminal as _;

use serde_json::json;
use tokio::sync::mpsc;

use crate::api::{
    Api, ApiError, Bearer, ExpandQuery, ExpandedCode, KickOff, LookupQuery, SubsumesQuery, UserTokens,
    ValidateCode,
};
use crate::args::{
    AskArgs, CancelArgs, Command, ExpandArgs, ExportArgs, ExportsArgs, LookupArgs, SignInArgs, SignOutArgs,
    SubsumesArgs, TerminologyArgs, TokenArgs, ValidateCodeArgs,
};
use crate::export::run::output_totals;
use crate::export::{
    ExportEvent, ExportFolder, ExportJob, ExportPhase, ExportRegistry, ExportRun, FileStatus,
    run as export_run,
};
use crate::failure::CommandFailure;
use crate::journey::{self, Step};
use crate::output::Output;

/// Runs a subcommand.
///
/// # Errors
/// Returns the failure, from which [`CommandFailure::exit_code`] derives the exit code.
pub async fn run(api: &Api, command: Command) -> Result<(), CommandFailure> {
    match command {
        Command::SignIn(args) => sign_in(api, &args).await,
        Command::SignOut(args) => sign_out(api, &args).await,
        Command::Userinfo(args) => userinfo(api, &args).await,
        Command::ValidateCode(args) => validate_code(api, args).await,
        Command::Subsumes(args) => subsumes(api, args).await,
        Command::Lookup(args) => lookup(api, args).await,
        Command::Expand(args) => expand(api, args).await,
        Command::Export(args) => export(api, args).await,
        Command::Exports(args) => exports(&args),
        Command::Cancel(args) => cancel(api, &args).await,
        Command::Token(args) => token(api, &args).await,
    }
}

async fn sign_in(api: &Api, args: &SignInArgs) -> Result<(), CommandFailure> {
    let tokens = user_signs_in(api, args).await?;
    let session = &tokens.session;
    Output { json: args.json }.result(&tokens.answer, || {
        let who = session.subject.as_deref().unwrap_or("a user whose name is unknown (no openid scope)");
        format!("signed in as {who}\nscope   {}\nexpires {}", session.scope, session.expires_at)
    })
}

/// Signs in a user with the method of the options.
async fn user_signs_in(api: &Api, args: &SignInArgs) -> Result<UserTokens, CommandFailure> {
    let output = Output { json: args.json };
    let tell = |step| report_step(api, output, step);
    let scope = args.scope.as_deref().unwrap_or(&api.profile().scope);
    if args.device {
        return Ok(journey::sign_in_on_device(api, scope, tell).await?);
    }
    let (sender, pasted) = mpsc::channel(1);
    if std::io::stdin().is_terminal() {
        // Uses a separate thread, because reading from a terminal cannot be cancelled when the browser responds first.
        std::thread::spawn(move || {
            let lines = std::io::stdin().lines().map_while(Result::ok);
            lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
        });
    }
    Ok(journey::sign_in(api, scope, pasted, tell).await?)
}

fn report_step(api: &Api, output: Output, step: Step) {
    match step {
        Step::GoTo { url, browser } => {
            let failure = browser.err().filter(|_| api.profile().open_browser);
            output.progress("open-browser", json!({ "url": url, "browserError": failure }), || {
                let failure = failure.as_ref().map(|reason| format!("No browser was opened: {reason}\n"));
                format!(
                    "{}Sign in at this address:\n{url}\nIf the browser does not return here, paste its last address.",
                    failure.unwrap_or_default()
                )
            });
        }
        Step::PasteRefused(reason) => {
            output.progress("paste-rejected", json!({ "message": reason }), || format!("Error: {reason}"));
        }
        Step::Device(prompt) => {
            let details = json!({
                "userCode": prompt.user_code, "address": prompt.address,
                "completeAddress": prompt.complete_address, "expiresAt": prompt.expires_at,
            });
            output.progress("enter-code", details, || {
                format!("Open {} on any device and enter the code {}", prompt.address, prompt.user_code)
            });
        }
    }
}

/// Returns the token of the user: that of an earlier run of the program, or that of a new sign-in.
async fn user_bearer(api: &Api, args: &SignInArgs) -> Result<Bearer, CommandFailure> {
    let restored = if args.scope.is_none() { api.restore_session().await } else { None };
    if restored.is_none() {
        user_signs_in(api, args).await?;
    }
    Ok(Bearer::User)
}

async fn sign_out(api: &Api, args: &SignOutArgs) -> Result<(), CommandFailure> {
    if api.restore_session().await.is_none() {
        return Err(ApiError::NotSignedIn.into());
    }
    let end_session = api.sign_out().await?;
    let output = Output { json: args.json };
    if args.browser {
        let url = end_session.ok_or_else(|| {
            ApiError::SignIn("the server has no address that ends the session of the browser".to_owned())
        })?;
        crate::browser::open(&url).map_err(ApiError::SignIn)?;
    }
    output.result(&json!({ "signedOut": true }), || "signed out; the tokens are revoked".to_owned())
}

async fn userinfo(api: &Api, args: &AskArgs) -> Result<(), CommandFailure> {
    let bearer = match &args.token {
        Some(token) => given(token)?,
        None => user_bearer(api, &args.sign_in).await?,
    };
    let claims = api.userinfo(&bearer).await?;
    Output { json: args.sign_in.json }.result(&claims, || {
        let width = claims.keys().map(String::len).max().unwrap_or(0);
        let line = |(name, value): (&String, &serde_json::Value)| match value.as_str() {
            Some(text) => format!("{name:width$}  {text}"),
            None => format!("{name:width$}  {value}"),
        };
        claims.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Returns the token for a terminology operation: the one on the command line, the one of the backend client, or the
/// one of a user who signs in.
async fn terminology_bearer(api: &Api, args: &TerminologyArgs) -> Result<Bearer, CommandFailure> {
    match &args.ask.token {
        Some(token) => given(token),
        None if args.sign_in_first => {
            user_signs_in(api, &args.ask.sign_in).await?;
            Ok(Bearer::User)
        }
        None if api.profile().backend.is_some() => Ok(Bearer::Backend),
        None if api.profile().is_anonymous() => Ok(Bearer::Anonymous),
        None => user_bearer(api, &args.ask.sign_in).await,
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
    Output { json: args.ask.ask.sign_in.json }.result(&found, || {
        let mut text = found.result.to_string();
        for more in [&found.display, &found.message].into_iter().flatten() {
            text.push_str(&format!("\n{more}"));
        }
        for issue in &found.issues {
            text.push_str(&format!("\n{}", issue.sentence()));
        }
        text
    })?;
    args.ask.verdict(found.result)
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
    Output { json: args.ask.ask.sign_in.json }
        .result(&found, || format!("{}\n{}", found.outcome, found.sentence(&query.code_a, &query.code_b)))?;
    args.ask.verdict(matches!(found.outcome.as_str(), "subsumes" | "equivalent"))
}

async fn lookup(api: &Api, args: LookupArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = LookupQuery {
        system: args.system,
        version: args.version.unwrap_or_default(),
        code: args.code,
        properties: args.properties,
    };
    let found = api.lookup(&query, &bearer).await?;
    Output { json: args.ask.ask.sign_in.json }.result(&found, || {
        let mut text = found.display.clone().unwrap_or_default();
        let facts = [("system", &found.name), ("version", &found.version), ("definition", &found.definition)];
        for (name, value) in facts {
            if let Some(value) = value {
                text.push_str(&format!("\n{name}  {value}"));
            }
        }
        for designation in &found.designations {
            let language = designation.language.as_deref().unwrap_or("-");
            text.push_str(&format!("\ndesignation  {language}  {}", designation.value));
        }
        for property in &found.properties {
            let description = property.description.as_deref().unwrap_or_default();
            text.push_str(&format!("\n{}  {}  {description}", property.code, property.value));
        }
        text
    })
}

async fn expand(api: &Api, args: ExpandArgs) -> Result<(), CommandFailure> {
    let bearer = terminology_bearer(api, &args.ask).await?;
    let query = ExpandQuery {
        url: args.url,
        filter: args.filter.unwrap_or_default(),
        offset: args.offset.map(|offset| offset.to_string()).unwrap_or_default(),
    };
    let found = api.expand(&query, &bearer).await?;
    Output { json: args.ask.ask.sign_in.json }.result(&found, || {
        let line = |code: &ExpandedCode| {
            let system = code.system.as_deref().unwrap_or_default();
            format!("{}\t{}\t{system}", code.code, code.display.as_deref().unwrap_or_default())
        };
        found.codes.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

impl TerminologyArgs {
    /// Turns a negative result into a failure if `--exit-status` is set.
    fn verdict(&self, positive: bool) -> Result<(), CommandFailure> {
        if self.exit_status && !positive { Err(CommandFailure::NegativeResult) } else { Ok(()) }
    }
}

async fn token(api: &Api, args: &TokenArgs) -> Result<(), CommandFailure> {
    let token = api.ask_backend_token(args.scope.as_deref().unwrap_or(&api.profile().backend_scope)).await?;
    Output { json: args.json }.result(&token, || token.access_token.clone())
}

async fn export(api: &Api, args: ExportArgs) -> Result<(), CommandFailure> {
    let bearer = export_bearer(api, args.token.as_deref()).await?;
    let output = Output { json: args.json };
    let watch = move |event| report_export(output, event);
    let run = match (&args.resume, &args.out) {
        (Some(folder), _) => ExportRun::resume(api, bearer.clone(), folder, watch)?,
        (None, Some(folder)) => {
            let registry = ExportRegistry::of_user()?;
            ExportRun::start(api, bearer.clone(), new_job(api, &args)?, folder, &registry, watch)?
        }
        (None, None) => {
            return Err(CommandFailure::Usage("--out DIR or --resume DIR is required".to_owned()));
        }
    };
    let folder = run.folder().to_owned();
    let (mut job, files) = match run.with_parallel_downloads(args.parallel).to_completion().await {
        Ok(complete) => complete,
        Err(error) => {
            if ExportFolder::read(&folder).is_ok_and(|job| job.can_resume()) {
                let command = format!("trefoil-tui export --resume {}", folder.display());
                output.progress("resumable", json!({ "command": command }), || {
                    format!("Resume with: {command}")
                });
            }
            return Err(error.into());
        }
    };
    if args.delete {
        job = export_run::delete(api, &bearer, &folder).await?;
        output.progress("deleted", json!({}), || "the export was deleted on the server".to_owned());
    }
    let (resources, bytes) = output_totals(&job, &files);
    let each = job.files.iter().zip(&files).map(|(file, progress)| {
        json!({
            "list": file.list, "type": file.kind, "name": file.name,
            "resources": progress.resources, "bytes": progress.bytes,
        })
    });
    let summary = json!({
        "transactionTime": job.transaction_time,
        "status": job.status_url,
        "deleted": job.phase == ExportPhase::Deleted,
        "folder": folder,
        "resources": resources,
        "bytes": bytes,
        "files": each.collect::<Vec<_>>(),
    });
    output.result(&summary, || {
        format!("{resources} resources in {} files, {bytes} bytes, in {}", files.len(), folder.display())
    })
}

/// Returns the token for an export: the one on the command line, that of the backend client, that of the signed-in user,
/// or none.
async fn export_bearer(api: &Api, token: Option<&str>) -> Result<Bearer, CommandFailure> {
    match token {
        Some(token) => given(token),
        None if api.profile().backend.is_some() => Ok(Bearer::Backend),
        None if api.restore_session().await.is_some() => Ok(Bearer::User),
        None if api.profile().is_anonymous() => Ok(Bearer::Anonymous),
        None => Ok(Bearer::Backend),
    }
}

/// Returns the record of the export that the command line describes.
fn new_job(api: &Api, args: &ExportArgs) -> Result<ExportJob, CommandFailure> {
    let base = &api.profile().fhir_base;
    if let Some(status_url) = &args.attach {
        return Ok(ExportJob::started_elsewhere(base, status_url, api.now()));
    }
    let request = KickOff {
        group: args.group.clone().unwrap_or_default(),
        types: args.types.clone().unwrap_or_default(),
        since: args.since.clone().unwrap_or_default(),
    };
    request.check().map_err(CommandFailure::Usage)?;
    Ok(ExportJob::new(base, request, api.now()))
}

/// Prints the progress of an export. Bytes on the way are not printed, only complete files.
fn report_export(output: Output, event: ExportEvent) {
    match event {
        ExportEvent::Record(job) => match &job.phase {
            ExportPhase::Running => {
                let status = job.status_url.as_deref().unwrap_or_default();
                output.progress("running", json!({ "status": status }), || {
                    format!("export started, its status is at {status}")
                });
            }
            ExportPhase::Downloading => {
                let (time, files) = (job.transaction_time.as_deref().unwrap_or_default(), job.files.len());
                output.progress("downloading", json!({ "transactionTime": time, "files": files }), || {
                    format!("complete as of {time}: {files} files")
                });
            }
            _ => {}
        },
        ExportEvent::Polled { progress, next_poll } => {
            output.progress("progress", json!({ "progress": progress, "nextPoll": next_poll }), || {
                format!("{}; next poll at {next_poll}", progress.as_deref().unwrap_or("running"))
            });
        }
        ExportEvent::Retrying { reason, next_attempt } => {
            output.progress("retrying", json!({ "message": reason, "nextAttempt": next_attempt }), || {
                format!("{reason}; next attempt at {next_attempt}")
            });
        }
        ExportEvent::File { index, progress } => match &progress.status {
            FileStatus::Done => output.progress(
                "file",
                json!({ "index": index, "resources": progress.resources, "bytes": progress.bytes }),
                || format!("file {}: {} resources, {} bytes", index + 1, progress.resources, progress.bytes),
            ),
            FileStatus::Retrying(reason) | FileStatus::Failed(reason) => {
                output.progress("file-error", json!({ "index": index, "message": reason }), || {
                    format!("file {}: {reason}", index + 1)
                });
            }
            FileStatus::Waiting | FileStatus::Downloading => {}
        },
    }
}

/// Lists the exports of this user.
///
/// # Errors
/// Returns [`CommandFailure`] if the list cannot be printed.
pub fn exports(args: &ExportsArgs) -> Result<(), CommandFailure> {
    let exports = ExportRegistry::of_user()?.list();
    let row = |export: &crate::export::registry::RegisteredExport| {
        let job = &export.job;
        json!({
            "folder": export.folder, "scope": job.scope(), "server": job.fhir_base, "startedAt": job.started_at,
            "phase": job.phase, "status": job.status_url, "files": job.files.len(),
        })
    };
    Output { json: args.json }.result(&exports.iter().map(row).collect::<Vec<_>>(), || {
        if exports.is_empty() {
            return "no exports".to_owned();
        }
        let line = |export: &crate::export::registry::RegisteredExport| {
            let job = &export.job;
            format!(
                "{}  {:<12}  {:<24}  {}",
                job.started_at,
                job.phase.name(),
                job.scope(),
                export.folder.display()
            )
        };
        exports.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Cancels an export, or deletes a complete one on the server.
async fn cancel(api: &Api, args: &CancelArgs) -> Result<(), CommandFailure> {
    let bearer = export_bearer(api, args.token.as_deref()).await?;
    let job = export_run::delete(api, &bearer, &args.folder).await?;
    let details = json!({ "status": job.status_url, "phase": job.phase });
    Output { json: args.json }.result(&details, || "the export was deleted on the server".to_owned())
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
