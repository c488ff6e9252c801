//! The command line: flags of the profile and one subcommand for each thing the screens can do.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Default scope: the identity of the user, and reading terminology.
pub const USER_SCOPE: &str = "openid profile email user/ValueSet.rs user/CodeSystem.rs";
/// Default scope of a backend token.
pub const BACKEND_SCOPE: &str = "system/*.read";

/// Terminal client for Trefoil and servers like it. Without a subcommand the screens open.
#[derive(Debug, Parser)]
#[command(
    name = "trefoil-tui",
    version,
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage, 3 unreachable.\n\n\
        Example:\n  trefoil serve --demo --data ./demo &\n  trefoil-tui --demo ./demo"
)]
pub struct Args {
    /// Server and credentials.
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Command without screens.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options that select the server and the credentials.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Profile")]
pub struct ProfileArgs {
    /// The --data folder of 'trefoil serve --demo': server, clients and examples come from there
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "base_url")]
    pub demo: Option<PathBuf>,
    /// Base address of the server, which is its issuer
    #[arg(long, global = true, value_name = "URL")]
    pub base_url: Option<String>,
    /// Base address of FHIR R4, if it is not {base-url}/fhir/R4
    #[arg(long, global = true, value_name = "URL")]
    pub fhir_base: Option<String>,
    /// PEM file of the certificates to trust instead of the system's
    #[arg(long, global = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Our client_id when a person signs in; registered with http://localhost/callback
    #[arg(long, global = true, value_name = "ID")]
    pub client_id: Option<String>,
    /// Our client_id without a person (SMART Backend Services)
    #[arg(long, global = true, value_name = "ID")]
    pub backend_client: Option<String>,
    /// Private key of the backend client: JWK, JWK Set or PEM
    #[arg(long, global = true, value_name = "FILE")]
    pub backend_key: Option<PathBuf>,
    /// Algorithm of the backend key, when its file does not say it
    #[arg(long, global = true, value_name = "ALG", value_parser = ["ES384", "RS384"])]
    pub backend_alg: Option<String>,
    /// Key id of the backend key, when its file does not say it
    #[arg(long, global = true, value_name = "KID")]
    pub backend_kid: Option<String>,
    /// Show the address to sign in at, but open no browser
    #[arg(long, global = true)]
    pub no_browser: bool,
}

/// Commands without screens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sign a person in through the browser and say what was granted
    #[command(after_help = "Example:\n  trefoil-tui sign-in --demo ./demo --json | jq -r .access_token")]
    SignIn(SignInArgs),
    /// Show the claims of the person who is signed in
    #[command(after_help = "Example:\n  echo $TOKEN | trefoil-tui userinfo --demo ./demo --token - --json")]
    Userinfo(AskArgs),
    /// Ask whether a code is in a value set
    #[command(after_help = "Example:\n  trefoil-tui validate-code --demo ./demo \\\n    \
        --url https://trefoil.example/fhir/ValueSet/walking-aids \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code cane")]
    ValidateCode(ValidateCodeArgs),
    /// Ask whether one code subsumes another
    #[command(after_help = "Example:\n  trefoil-tui subsumes --demo ./demo \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code-a walking-aid --code-b cane")]
    Subsumes(SubsumesArgs),
    /// Export everything, or the patients of a Group, and download the files
    #[command(
        after_help = "Example:\n  trefoil-tui export --demo ./demo --group grp-walking --out ./export --delete"
    )]
    Export(ExportArgs),
    /// Print an access token of the backend client
    #[command(after_help = "Example:\n  TOKEN=$(trefoil-tui token --demo ./demo)")]
    Token(TokenArgs),
}

/// Flags of `sign-in`, and of commands that may have to sign in.
#[derive(Debug, ClapArgs)]
pub struct SignInArgs {
    /// Scopes to ask for, separated by spaces
    #[arg(long, default_value = USER_SCOPE)]
    pub scope: String,
    /// Print the answer as JSON; for sign-in that is the token answer, tokens included
    #[arg(long)]
    pub json: bool,
}

/// Flags of commands that ask one thing.
#[derive(Debug, ClapArgs)]
pub struct AskArgs {
    /// Access token to send; - reads it from stdin
    #[arg(long, value_name = "TOKEN|-")]
    pub token: Option<String>,
    /// How to sign in when no token is given.
    #[command(flatten)]
    pub sign_in: SignInArgs,
}

/// Flags of commands that a backend client may run as well.
#[derive(Debug, ClapArgs)]
pub struct TerminologyArgs {
    /// Sign in through the browser even when the profile has a backend client
    #[arg(long, conflicts_with = "token")]
    pub sign_in_first: bool,
    /// Token and output.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Flags of `validate-code`.
#[derive(Debug, ClapArgs)]
pub struct ValidateCodeArgs {
    /// Canonical URL of the value set
    #[arg(long, required_unless_present = "id")]
    pub url: Option<String>,
    /// Id of the value set, instead of its URL
    #[arg(long)]
    pub id: Option<String>,
    /// Code system of the code
    #[arg(long)]
    pub system: String,
    /// The code
    #[arg(long)]
    pub code: String,
    /// A display to be checked too
    #[arg(long)]
    pub display: Option<String>,
    /// Token and output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Flags of `subsumes`.
#[derive(Debug, ClapArgs)]
pub struct SubsumesArgs {
    /// Canonical URL of the code system
    #[arg(long, required_unless_present = "id")]
    pub system: Option<String>,
    /// Id of the code system, instead of its URL
    #[arg(long)]
    pub id: Option<String>,
    /// Version of the code system
    #[arg(long)]
    pub version: Option<String>,
    /// One code
    #[arg(long)]
    pub code_a: String,
    /// The other code
    #[arg(long)]
    pub code_b: String,
    /// Token and output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Flags of `export`.
#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    /// Id of a Group; without it everything is exported
    #[arg(long, value_name = "ID")]
    pub group: Option<String>,
    /// Folder for the files and manifest.json
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Resource types, with commas
    #[arg(long = "type", value_name = "T,..")]
    pub types: Option<String>,
    /// Only what changed after this instant
    #[arg(long, value_name = "INSTANT")]
    pub since: Option<String>,
    /// Delete the export on the server after the download
    #[arg(long)]
    pub delete: bool,
    /// Access token to send instead of the backend client's; - reads it from stdin
    #[arg(long, value_name = "TOKEN|-")]
    pub token: Option<String>,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `token`.
#[derive(Debug, ClapArgs)]
pub struct TokenArgs {
    /// Scopes to ask for, separated by spaces
    #[arg(long, default_value = BACKEND_SCOPE)]
    pub scope: String,
    /// Print the whole token answer as JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_shows_an_example() {
        let command = Args::command();
        command.clone().debug_assert();
        for command in command.get_subcommands().chain([&command]) {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example:"), "{help}");
        }
    }
}
