//! The subcommands: each one performs one operation, prints the result and ends with a documented exit code.
//!
//! Results are printed to stdout and everything else to stderr, so that a script can process the results.

mod batch;
mod compare;
mod export;
mod given_token;
mod hierarchy;
mod identity;
mod server;
mod terminology;

pub use self::export::exports;
pub use self::identity::decode_token;
pub use self::server::{completions, keys, man, setup};
use crate::api::Api;
use crate::args::Command;
use crate::failure::CommandFailure;

/// Runs a subcommand.
///
/// # Errors
/// The failure, from which [`CommandFailure::exit_code`] derives the exit code.
pub async fn run(api: &Api, command: Command) -> Result<(), CommandFailure> {
    match command {
        Command::Setup(_) | Command::Keys(_) | Command::Completions(_) | Command::Man(_) => Ok(()),
        Command::Doctor(args) => server::doctor(api, &args).await,
        Command::SignIn(args) => identity::sign_in(api, &args).await,
        Command::SignOut(args) => identity::sign_out(api, &args).await,
        Command::Userinfo(args) => identity::userinfo(api, &args).await,
        Command::ValidateCode(args) => terminology::validate_code(api, args).await,
        Command::ValidateBatch(args) => batch::validate_batch(api, args).await,
        Command::Subsumes(args) => terminology::subsumes(api, args).await,
        Command::Lookup(args) => terminology::lookup(api, args).await,
        Command::Expand(args) => terminology::expand(api, args).await,
        Command::Tree(args) => hierarchy::tree(api, args).await,
        Command::Compare(args) => compare::compare(api, args).await,
        Command::Path(args) => hierarchy::path(api, args).await,
        Command::Export(args) => export::export(api, args).await,
        Command::Exports(args) => exports(&args),
        Command::Cancel(args) => export::cancel(api, &args).await,
        Command::Token(args) => identity::token(api, &args).await,
    }
}
