//! The program: reads the command line, then opens the screens or runs a subcommand.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser as _;
use trefoil_tui::api::Api;
use trefoil_tui::args::{Args, Command, ProfileArgs};
use trefoil_tui::clock::ClientClock;
use trefoil_tui::display::DisplayOptions;
use trefoil_tui::failure::CommandFailure;
use trefoil_tui::har;
use trefoil_tui::headless;
use trefoil_tui::output::{self, Output};
use trefoil_tui::private_files::private_file;
use trefoil_tui::profile::ProfileError;
use trefoil_tui::profile::choice::ProfileSource;
use trefoil_tui::{runtime, settings};

fn main() -> ExitCode {
    trefoil_tui::install_crypto();
    let args = Args::parse();
    if args.quiet {
        output::silence_progress();
    }
    let output = Output { json: args.command.as_ref().is_some_and(Command::json) };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            output.failure(&CommandFailure::Terminal(error));
            return ExitCode::FAILURE;
        }
    };
    let exit = runtime.block_on(run(args));
    // A file that is still being read does not delay the end.
    runtime.shutdown_background();
    match exit {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.needs_message() {
                output.failure(&failure);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(args: Args) -> Result<(), CommandFailure> {
    // These commands need no profile, or make one.
    let args = match args.command {
        Some(Command::Exports(args)) => return headless::exports(&args),
        Some(Command::Setup(setup)) => return headless::setup(&args.profile, setup).await,
        Some(Command::Keys(args)) => return headless::keys(&args),
        Some(Command::Completions(args)) => return headless::completions(&args),
        Some(Command::Man(args)) => return headless::man(&args),
        Some(Command::Doctor(ref doctor)) if doctor.url.is_some() => {
            let profile = ProfileArgs { base_url: doctor.url.clone(), ..args.profile };
            Args { profile, ..args }
        }
        _ => args,
    };
    let profiles = ProfileSource::of_user(args.profile.or_environment());
    let profile = match (profiles.selected(), &args.command) {
        (Err(ProfileError::NoServer), Some(Command::Token(token)))
            if let Some(inspect) = token.offline_inspection() =>
        {
            return headless::decode_token(inspect);
        }
        (profile, _) => profile?,
    };
    let Some(command) = args.command else {
        if std::env::var("TERM").is_ok_and(|term| term == "dumb") {
            let reason = "TERM is 'dumb', which shows no screens; 'trefoil-tui help' lists the commands";
            return Err(CommandFailure::Terminal(std::io::Error::other(reason)));
        }
        let settings = settings::read(&settings::path_of_user()?)?;
        let mut display = DisplayOptions::from_environment(args.ascii, settings.theme);
        if args.no_color {
            display = display.without_colours();
        }
        // The state of the screens is large, so that it is not part of this future.
        return Box::pin(runtime::open(profile, profiles, settings.keys, display, ClientClock::SYSTEM)).await;
    };
    let exchanges = Arc::new(Mutex::new(Vec::new()));
    let watched = exchanges.clone();
    // A batch has up to 100,000 exchanges, so they are kept only if they are written.
    let is_recorded = args.har.is_some();
    let watch = move |exchange| {
        if is_recorded {
            watched.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
        }
    };
    let api = Api::new(profile, ClientClock::SYSTEM, Box::new(watch))?;
    let running = headless::run(&api, command);
    let result = match args.max_time {
        None => running.await,
        Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), running)
            .await
            .unwrap_or(Err(CommandFailure::MaxTime(seconds))),
    };
    if let Some(path) = args.har {
        let exchanges = exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let archive = har::archive(exchanges.iter()).to_string();
        private_file(&path, true)
            .and_then(|mut file| file.write_all(archive.as_bytes()))
            .map_err(CommandFailure::Output)?;
    }
    result
}
