//! The program: reads the command line, then opens the screens or runs a subcommand.

use std::process::ExitCode;

use clap::Parser as _;
use jiff::Timestamp;
use trefoil_tui::api::Api;
use trefoil_tui::args::Args;
use trefoil_tui::headless::{self, CommandFailure};
use trefoil_tui::profile::Profile;
use trefoil_tui::runtime;

#[tokio::main]
async fn main() -> ExitCode {
    trefoil_tui::install_crypto();
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("Error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(args: Args) -> Result<(), CommandFailure> {
    let profile = Profile::read(&args.profile)?;
    let Some(command) = args.command else { return runtime::open(profile, Timestamp::now).await };
    let api = Api::new(profile, Timestamp::now, Box::new(drop))?;
    headless::run(&api, command).await
}
