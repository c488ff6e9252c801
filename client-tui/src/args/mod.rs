//! The command line: options of the profile, and one subcommand for each function of the screens.

pub mod man_sections;
mod vocabulary;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

pub use self::vocabulary::{
    CodePairArgs, CompareArgs, ComparedQuestion, ConceptArgs, PARALLEL_REQUESTS, PathArgs, TreeArgs,
    ValidateBatchArgs,
};

/// Default scope: the identity of the user, and reading terminology.
pub const USER_SCOPE: &str = "openid profile email user/ValueSet.rs user/CodeSystem.rs";
/// Default scope of a backend token.
pub const BACKEND_SCOPE: &str = "system/*.read";
/// Environment variable with the access token to send.
pub(crate) const TOKEN_VARIABLE: &str = "TREFOIL_TOKEN";
/// Default number of concurrent downloads of an export.
pub const PARALLEL_DOWNLOADS: usize = 4;

/// Terminal client for Trefoil and similar servers. Opens the screens if no subcommand is given.
#[derive(Debug, Parser)]
#[command(
    name = "trefoil-tui",
    version,
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage, 3 unreachable, 4 negative result (with --exit-status).\n\n\
        Example:\n  trefoil serve --demo --data ./demo &\n  trefoil-tui --demo ./demo"
)]
pub struct Args {
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Write all exchanges with the server to a file as an HTTP Archive, with masked secrets
    #[arg(long, global = true, value_name = "FILE")]
    pub har: Option<PathBuf>,
    /// Seconds after which a command ends with an error; an export can be resumed
    #[arg(long, global = true, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_time: Option<u64>,
    /// Print no progress on stderr; results and errors are printed
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Draw only ASCII characters
    #[arg(long)]
    pub ascii: bool,
    /// Draw without colours, as with the environment variable NO_COLOR
    #[arg(long)]
    pub no_color: bool,
    /// Subcommand to run instead of opening the screens.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Options that select the server and the credentials.
#[derive(Clone, Debug, Default, ClapArgs)]
#[command(next_help_heading = "Profile")]
pub struct ProfileArgs {
    /// Data folder of 'trefoil serve --demo', from which the server, clients and examples are read
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "base_url")]
    pub demo: Option<PathBuf>,
    /// Profile in the profile file, instead of the default one; 'trefoil-tui setup' stores profiles. The
    /// environment variable TREFOIL_PROFILE has the same effect if no option names a server
    #[arg(long, global = true, value_name = "NAME", conflicts_with_all = ["demo", "base_url"])]
    pub profile: Option<String>,
    /// Base address of the server, which is also its issuer
    #[arg(long, global = true, value_name = "URL")]
    pub base_url: Option<String>,
    /// Base address of FHIR R4, if it is not {base-url}/fhir/R4
    #[arg(long, global = true, value_name = "URL")]
    pub fhir_base: Option<String>,
    /// PEM file of the only certificates to trust, instead of those of the system
    #[arg(long, global = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// client_id for signing in users; must be registered with the redirect URI http://localhost/callback
    #[arg(long, global = true, value_name = "ID")]
    pub client_id: Option<String>,
    /// File with the secret of that client, if it is confidential
    #[arg(long, global = true, value_name = "FILE")]
    pub client_secret_file: Option<PathBuf>,
    /// Private key of that client, if it authenticates with private_key_jwt: JWK, JWK Set or PEM
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "client_secret_file")]
    pub client_key: Option<PathBuf>,
    /// Host of the redirect URI [default: localhost]
    #[arg(long, global = true, value_name = "HOST", value_parser = ["localhost", "127.0.0.1"])]
    pub redirect_host: Option<String>,
    /// Path of the redirect URI [default: /callback]
    #[arg(long, global = true, value_name = "PATH", value_parser = redirect_path)]
    pub redirect_path: Option<String>,
    /// client_id for requests without a user (SMART Backend Services)
    #[arg(long, global = true, value_name = "ID")]
    pub backend_client: Option<String>,
    /// Private key of the backend client: JWK, JWK Set or PEM
    #[arg(long, global = true, value_name = "FILE")]
    pub backend_key: Option<PathBuf>,
    /// File with the secret of the backend client, if it has no key
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "backend_key")]
    pub backend_secret_file: Option<PathBuf>,
    /// Algorithm of the backend key, if the key file does not state it
    #[arg(long, global = true, value_name = "ALG", value_parser = ["ES384", "RS384"])]
    pub backend_alg: Option<String>,
    /// Key id of the backend key, if the key file does not state it
    #[arg(long, global = true, value_name = "KID")]
    pub backend_kid: Option<String>,
    /// Disable the actions of the screens that change something on the server, such as exports
    #[arg(long, global = true)]
    pub read_only: bool,
    /// Host that may get the token of an export besides the server, such as files.example; may be repeated
    #[arg(long = "file-host", global = true, value_name = "HOST")]
    pub file_hosts: Vec<String>,
    /// Print the sign-in address instead of opening a browser
    #[arg(long, global = true)]
    pub no_browser: bool,
}

/// Parses the path of a redirect URI.
fn redirect_path(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
    if text.starts_with('/') && text.chars().all(is_part) {
        return Ok(text.to_owned());
    }
    Err("a path begins with a slash and has neither a query nor blanks, such as /callback".to_owned())
}

impl ProfileArgs {
    /// Takes the name of the profile from the environment if no option names a server.
    #[must_use]
    pub fn or_environment(mut self) -> Self {
        if self.demo.is_none() && self.base_url.is_none() && self.profile.is_none() {
            self.profile = std::env::var("TREFOIL_PROFILE").ok().filter(|name| !name.is_empty());
        }
        self
    }

    /// The options that were given, except `--no-browser`: names without `--`, and values.
    pub fn options(&self) -> Vec<(String, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let all = [
            ("demo", path(&self.demo)),
            ("profile", self.profile.clone()),
            ("base-url", self.base_url.clone()),
            ("fhir-base", self.fhir_base.clone()),
            ("ca", path(&self.ca)),
            ("client-id", self.client_id.clone()),
            ("client-secret-file", path(&self.client_secret_file)),
            ("client-key", path(&self.client_key)),
            ("redirect-host", self.redirect_host.clone()),
            ("redirect-path", self.redirect_path.clone()),
            ("backend-client", self.backend_client.clone()),
            ("backend-key", path(&self.backend_key)),
            ("backend-secret-file", path(&self.backend_secret_file)),
            ("backend-alg", self.backend_alg.clone()),
            ("backend-kid", self.backend_kid.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

/// Subcommands, which run without the screens.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Store a profile: find the addresses of a server, register clients, make a key
    #[command(after_help = "Example:\n  trefoil-tui setup https://id.example --client-id my-app\n  \
        trefoil-tui setup --data ./trefoil-data        # registers clients with the command line of the server")]
    Setup(SetupArgs),
    /// Check a server from the point of view of a client
    #[command(after_help = "Example:\n  trefoil-tui doctor https://id.example")]
    Doctor(DoctorArgs),
    /// Print the keys of all actions in the form of the settings
    #[command(after_help = "Example:\n  trefoil-tui keys >> ~/.config/trefoil-tui/settings.toml")]
    Keys(KeysArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  trefoil-tui completions bash > ~/.local/share/bash-completion/completions/trefoil-tui"
    )]
    Completions(CompletionsArgs),
    /// Write man pages into a folder
    #[command(after_help = "Example:\n  trefoil-tui man --out ~/.local/share/man/man1")]
    Man(ManArgs),
    /// Sign in a user with the browser and print the granted scope
    #[command(after_help = "Example:\n  trefoil-tui sign-in --demo ./demo --json | jq -r .access_token")]
    SignIn(SignInArgs),
    /// Revoke the tokens of the signed-in user and delete them here
    #[command(after_help = "Example:\n  trefoil-tui sign-out --demo ./demo")]
    SignOut(SignOutArgs),
    /// Print the claims of the signed-in user
    #[command(
        after_help = "Example:\n  echo $TOKEN | trefoil-tui userinfo --demo ./demo --token-file - --json"
    )]
    Userinfo(AskArgs),
    /// Check whether a code is in a value set
    #[command(after_help = "Example:\n  trefoil-tui validate-code --demo ./demo \\\n    \
        --url https://trefoil.example/fhir/ValueSet/walking-aids \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code cane")]
    ValidateCode(ValidateCodeArgs),
    /// Check a file of codes, and print the results in its order
    #[command(
        after_help = "Example:\n  printf 'code,display\\ncane,Cane\\nx,\\n' | trefoil-tui validate-batch --demo ./demo - \\\n    \
        --url https://trefoil.example/fhir/ValueSet/walking-aids \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids"
    )]
    ValidateBatch(ValidateBatchArgs),
    /// Check whether one code subsumes another
    #[command(after_help = "Example:\n  trefoil-tui subsumes --demo ./demo \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code-a walking-aid --code-b cane")]
    Subsumes(SubsumesArgs),
    /// Print display, designations and properties of a code
    #[command(after_help = "Example:\n  trefoil-tui lookup --demo ./demo \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code cane")]
    Lookup(LookupArgs),
    /// List the codes of a value set
    #[command(after_help = "Example:\n  trefoil-tui expand --demo ./demo \\\n    \
        --url https://trefoil.example/fhir/ValueSet/walking-aids --json | jq -r '.codes[].code'")]
    Expand(ExpandArgs),
    /// Print a concept with the concepts directly above and below it
    #[command(after_help = "Example:\n  trefoil-tui tree --demo ./demo \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code cane")]
    Tree(TreeArgs),
    /// Print the chain of parents between two codes
    #[command(after_help = "Example:\n  trefoil-tui path --demo ./demo \\\n    \
        --system https://trefoil.example/fhir/CodeSystem/care-aids --code-a aid --code-b cane")]
    Path(PathArgs),
    /// Send a question to two servers and compare their answers
    #[command(
        after_help = "Example:\n  trefoil-tui compare --demo ./demo --other-url https://tx.fhir.org/r4 lookup \\\n    \
        --system http://hl7.org/fhir/administrative-gender --code male"
    )]
    Compare(CompareArgs),
    /// Export everything, all patients, or the patients of a Group, and download the files
    #[command(
        after_help = "Example:\n  trefoil-tui export --demo ./demo --group grp-walking --out ./export --delete"
    )]
    Export(ExportArgs),
    /// List the exports of this user, also those of the screens
    #[command(after_help = "Example:\n  trefoil-tui exports --json | jq -r '.[].folder'")]
    Exports(ExportsArgs),
    /// Cancel an export, or delete a complete one on the server; downloaded files are kept
    #[command(after_help = "Example:\n  trefoil-tui cancel --demo ./demo ./export")]
    Cancel(CancelArgs),
    /// Print an access token of the backend client
    #[command(after_help = "Example:\n  TOKEN=$(trefoil-tui token --demo ./demo)")]
    Token(TokenArgs),
}

impl TokenArgs {
    /// The options of `token inspect` if it needs no server: the token is given, and the server is not asked.
    pub fn offline_inspection(&self) -> Option<&InspectArgs> {
        match &self.action {
            Some(TokenAction::Inspect(args)) if args.file.is_some() && !args.introspect => Some(args),
            _ => None,
        }
    }
}

/// Options of `setup`. Some are also options of a profile, but have another effect here.
#[derive(Debug, ClapArgs)]
pub struct SetupArgs {
    /// Base address of the server, or of FHIR
    #[arg(value_name = "URL", required_unless_present = "data")]
    pub url: Option<String>,
    /// Data folder of a Trefoil server on this machine
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub data: Option<PathBuf>,
    /// Name of the profile [default: host of the server]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print the profile as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Base address of the server [default: that of the profile]
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `keys`.
#[derive(Debug, ClapArgs)]
pub struct KeysArgs {
    /// Print the table as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `completions`.
#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// Shell
    pub shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, ClapArgs)]
pub struct ManArgs {
    /// Folder for the pages
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Options of `sign-in`, and of commands that may sign in a user.
#[derive(Debug, ClapArgs)]
pub struct SignInArgs {
    /// Scopes to request, separated by spaces [default: those of the profile]
    #[arg(long)]
    pub scope: Option<String>,
    /// Enter a code in a browser on any device, instead of signing in with the browser of this machine
    #[arg(long)]
    pub device: bool,
    /// Seconds to wait for the browser [default: 300 without a terminal, no limit with one]
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Print the response as JSON; for sign-in, this is the token response, which contains the tokens
    #[arg(long)]
    pub json: bool,
}

/// Options of `sign-out`.
#[derive(Debug, ClapArgs)]
pub struct SignOutArgs {
    /// Also end the session of the browser at the server
    #[arg(long)]
    pub browser: bool,
    /// Delete tokens that could not be revoked, too. They are valid until they expire
    #[arg(long)]
    pub forget: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// A token that is sent instead of that of the profile. It is not an argument, because all users of this
/// machine can read arguments.
#[derive(Debug, ClapArgs)]
pub struct TokenSource {
    /// File with the access token to send; - reads it from stdin. The environment variable TREFOIL_TOKEN is
    /// the token itself
    #[arg(long, value_name = "FILE|-")]
    pub token_file: Option<PathBuf>,
}

/// Options of commands that send one request.
#[derive(Debug, ClapArgs)]
pub struct AskArgs {
    #[command(flatten)]
    pub token: TokenSource,
    /// Options for the sign-in if there is no `--token`.
    #[command(flatten)]
    pub sign_in: SignInArgs,
}

/// Options of commands that can also use the token of the backend client.
#[derive(Debug, ClapArgs)]
pub struct TerminologyArgs {
    /// Sign in a user with the browser even if the profile has a backend client
    #[arg(long, conflicts_with = "token_file")]
    pub sign_in_first: bool,
    /// End with exit code 4 if the answer is negative (false, or neither equivalent nor subsumes)
    #[arg(long)]
    pub exit_status: bool,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// Options of `validate-code`.
#[derive(Debug, ClapArgs)]
pub struct ValidateCodeArgs {
    /// Canonical URL of the value set
    #[arg(long, required_unless_present = "id")]
    pub url: Option<String>,
    /// Id of the value set, instead of its URL
    #[arg(long, conflicts_with = "url")]
    pub id: Option<String>,
    /// Code system of the code
    #[arg(long)]
    pub system: String,
    /// Code to validate
    #[arg(long)]
    pub code: String,
    /// Display to validate together with the code
    #[arg(long)]
    pub display: Option<String>,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Options of `subsumes`.
#[derive(Debug, ClapArgs)]
pub struct SubsumesArgs {
    /// Canonical URL of the code system
    #[arg(long, required_unless_present = "id")]
    pub system: Option<String>,
    /// Id of the code system, instead of its URL
    #[arg(long)]
    pub id: Option<String>,
    #[command(flatten)]
    pub codes: CodePairArgs,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Options of `lookup`.
#[derive(Debug, ClapArgs)]
pub struct LookupArgs {
    #[command(flatten)]
    pub concept: ConceptArgs,
    /// Property to return; may be repeated; by default, the server selects the properties
    #[arg(long = "property", value_name = "CODE")]
    pub properties: Vec<String>,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Options of `expand`.
#[derive(Debug, ClapArgs)]
pub struct ExpandArgs {
    /// Canonical URL of the value set
    #[arg(long)]
    pub url: String,
    /// Text that the displays must contain
    #[arg(long)]
    pub filter: Option<String>,
    /// Number of codes to skip; one response contains at most 100 codes
    #[arg(long)]
    pub offset: Option<u64>,
    /// Options for the token and the output.
    #[command(flatten)]
    pub ask: TerminologyArgs,
}

/// Options of `export`.
#[derive(Debug, ClapArgs)]
pub struct ExportArgs {
    /// Id of a Group whose patients are exported; by default, everything is exported
    #[arg(long, value_name = "ID")]
    pub group: Option<String>,
    /// Export all patients
    #[arg(long, conflicts_with = "group")]
    pub patients: bool,
    /// New folder for the downloaded files and manifest.json
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    pub out: Option<PathBuf>,
    /// Continue the export in this folder after an interruption
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "group", "types", "since", "attach"])]
    pub resume: Option<PathBuf>,
    /// Download an export that another program started, from the address of its status
    #[arg(long, value_name = "URL", conflicts_with_all = ["group", "types", "since"])]
    pub attach: Option<String>,
    /// Number of concurrent downloads
    #[arg(long, value_name = "N", default_value_t = PARALLEL_DOWNLOADS)]
    pub parallel: usize,
    /// Resource types, separated by commas
    #[arg(long = "type", value_name = "T,..")]
    pub types: Option<String>,
    /// Export only resources that changed after this instant, or after the export in this folder
    #[arg(long, value_name = "INSTANT|DIR")]
    pub since: Option<String>,
    /// Export only resources that changed before this instant
    #[arg(long, value_name = "INSTANT")]
    pub until: Option<String>,
    /// Search that limits a type, such as 'Observation?status=final'; can be repeated
    #[arg(long = "type-filter", value_name = "SEARCH")]
    pub type_filters: Vec<String>,
    /// Elements to export, separated by commas
    #[arg(long, value_name = "E,..")]
    pub elements: Option<String>,
    /// Ids of the patients to export, separated by commas
    #[arg(long = "patient", value_name = "ID,..")]
    pub patient_ids: Option<String>,
    /// Associated data to include, such as LatestProvenanceResources
    #[arg(long, value_name = "NAME,..")]
    pub associated_data: Option<String>,
    /// Delete the export on the server after the download
    #[arg(long)]
    pub delete: bool,
    #[command(flatten)]
    pub token: TokenSource,
    /// Print a summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `exports`.
#[derive(Debug, ClapArgs)]
pub struct ExportsArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `cancel`.
#[derive(Debug, ClapArgs)]
pub struct CancelArgs {
    /// Folder of the export
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub token: TokenSource,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `token`.
#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TokenArgs {
    /// Subcommand to run instead of printing a token.
    #[command(subcommand)]
    pub action: Option<TokenAction>,
    /// Scopes to request, separated by spaces [default: those of the profile]
    #[arg(long)]
    pub scope: Option<String>,
    /// Print the complete token response as JSON
    #[arg(long)]
    pub json: bool,
}

impl Command {
    /// Returns whether the output is JSON.
    pub fn json(&self) -> bool {
        match self {
            Self::Setup(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Keys(args) => args.json,
            Self::Completions(_) | Self::Man(_) => false,
            Self::SignIn(args) => args.json,
            Self::SignOut(args) => args.json,
            Self::Userinfo(args) => args.sign_in.json,
            Self::ValidateCode(args) => args.ask.ask.sign_in.json,
            Self::ValidateBatch(args) => args.ask.ask.sign_in.json,
            Self::Subsumes(args) => args.ask.ask.sign_in.json,
            Self::Lookup(args) => args.ask.ask.sign_in.json,
            Self::Expand(args) => args.ask.ask.sign_in.json,
            Self::Tree(args) => args.ask.ask.sign_in.json,
            Self::Path(args) => args.ask.ask.sign_in.json,
            Self::Compare(args) => args.question.options().ask.sign_in.json,
            Self::Export(args) => args.json,
            Self::Exports(args) => args.json,
            Self::Cancel(args) => args.json,
            Self::Token(TokenArgs { action: Some(TokenAction::Inspect(args)), .. }) => args.json,
            Self::Token(args) => args.json,
        }
    }
}

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Print header and claims of a token, and check its signature
    #[command(
        after_help = "Example:\n  trefoil-tui token --demo ./demo | trefoil-tui token inspect --demo ./demo -"
    )]
    Inspect(InspectArgs),
}

/// Options of `token inspect`.
#[derive(Debug, ClapArgs)]
pub struct InspectArgs {
    /// File with the token to inspect; - reads it from stdin [default: the access token of the signed-in
    /// user]
    #[arg(value_name = "FILE|-")]
    pub file: Option<PathBuf>,
    /// Inspect the ID token of the signed-in user
    #[arg(long, conflicts_with = "file")]
    pub id_token: bool,
    /// Ask the server whether the token is valid (RFC 7662), as a confidential client of the profile
    #[arg(long)]
    pub introspect: bool,
    /// Print the content as JSON
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
