//! Flags and commands of the `trefoil` program (DESIGN 2). Exit codes: 0 done, 1 failed, 2 usage,
//! 3 configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

use crate::config::Flags;
use crate::{admin, serve};

/// Sign-in, terminology and bulk export for health apps, in one server.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server.
    #[command(after_help = "Example:\n  trefoil serve --demo --data ./demo --listen 127.0.0.1:8443")]
    Serve(ServeArgs),
    /// Load resources: NDJSON, JSON, Bundles, FHIR packages (.tgz), folders, each also .gz; and releases of code
    /// systems as folder or .zip: SNOMED CT RF2, LOINC, RxNorm, ICD-10-CM, ClaML, CSV.
    #[command(
        after_help = "Examples:\n  trefoil import --data ./data hl7.fhir.r4.core.tgz patients/\n  trefoil import --data ./data SnomedCT_International.zip SnomedCT_Extension.zip"
    )]
    Import {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
        /// Files and folders.
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Write resources into a folder as NDJSON, one file a type: everything, or the compartments of a Group's members.
    #[command(
        after_help = "Example:\n  trefoil export --data ./data --out ./today --type Patient,Observation"
    )]
    Export {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
        /// What to export.
        #[command(flatten)]
        export: ExportArgs,
    },
    /// People who sign in.
    #[command(after_help = "Example:\n  echo 'a long password' | trefoil user add ada --name 'Ada Example'")]
    User {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
        /// What to do with them.
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Programs that ask for tokens.
    #[command(
        after_help = "Example:\n  trefoil client add web --redirect-uri https://app.example/cb --scope 'openid profile'"
    )]
    Client {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
        /// What to do with them.
        #[command(subcommand)]
        command: ClientCommand,
    },
    /// Make a running server read its settings again; SIGHUP does the same.
    #[command(after_help = "Example:\n  trefoil reload --data ./data")]
    Reload {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
    },
    /// The clock of the machine, as a running server sees it.
    #[command(after_help = "Example:\n  trefoil clock accept --data ./data")]
    Clock {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
        /// What to do with it.
        #[command(subcommand)]
        command: ClockCommand,
    },
    /// Keys that sign tokens.
    #[command(after_help = "Example:\n  trefoil keys rotate --data ./data")]
    Keys {
        /// Where the data is.
        #[command(flatten)]
        data: DataArgs,
        /// What to do with them.
        #[command(subcommand)]
        command: KeysCommand,
    },
}

/// Where the data is.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Folder of store, files, keys and certificate.
    #[arg(long, global = true, default_value = "trefoil-data")]
    pub data: PathBuf,
    /// Settings; needed with the server stopped where they name the key that encrypts its secrets.
    #[arg(long, global = true)]
    pub config: Option<PathBuf>,
}

/// Flags of `export`.
#[derive(Debug, Args, Serialize, Deserialize)]
pub struct ExportArgs {
    /// Folder to write into; it must be new or empty.
    #[arg(long)]
    pub out: PathBuf,
    /// Only the members of the Group with this id.
    #[arg(long)]
    pub group: Option<String>,
    /// Only what was changed after this instant, and what was deleted.
    #[arg(long)]
    pub since: Option<String>,
    /// Only these types, with commas between.
    #[arg(long = "type")]
    pub types: Option<String>,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Settings; flags win over them.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Folder of store, files, keys and certificate [default: trefoil-data].
    #[arg(long)]
    data: Option<PathBuf>,
    /// memory or file [default: file].
    #[arg(long)]
    store: Option<String>,
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8443].
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Address that people and programs use [default: https://localhost:PORT].
    #[arg(long)]
    base_url: Option<String>,
    /// Add the demo project and serve it; loopback addresses only.
    #[arg(long)]
    demo: bool,
    /// Plain HTTP, loopback addresses only: for a TLS proxy in front, and for benchmarks.
    #[arg(long)]
    insecure_http: bool,
}

/// `trefoil user …`
#[derive(Debug, Subcommand, Serialize, Deserialize)]
pub enum UserCommand {
    /// Add a user; the password is read from standard input.
    Add(NewUser),
    /// List all users.
    List,
    /// Show a user and the ways to sign in.
    Show {
        /// User name.
        name: String,
    },
    /// Set a password, which is read from standard input, and remove all other ways to sign in.
    SetPassword {
        /// User name.
        name: String,
        /// Keep passkeys, recovery codes and linked accounts.
        #[arg(long)]
        keep_other_methods: bool,
        /// Filled in from standard input.
        #[arg(skip)]
        password: String,
    },
    /// Lock a user out: neither sign-in nor tokens work.
    Disable {
        /// User name.
        name: String,
    },
    /// Let a disabled user in again.
    Enable {
        /// User name.
        name: String,
    },
    /// Delete a user.
    Delete {
        /// User name.
        name: String,
    },
    /// End all sessions and tokens of a user.
    SignOut {
        /// User name.
        name: String,
    },
    /// Remove ways to sign in, and end all sessions and tokens of the user.
    RemoveMethods {
        /// User name.
        name: String,
        /// What to remove.
        #[command(flatten)]
        methods: MethodArgs,
    },
}

/// Ways to sign in that are to be removed.
#[derive(Debug, Args, Serialize, Deserialize)]
#[group(required = true, multiple = false)]
pub struct MethodArgs {
    /// The passkey with this id.
    #[arg(long, value_name = "ID")]
    pub passkey: Option<String>,
    /// The linked account with this id.
    #[arg(long, value_name = "ID")]
    pub linked_account: Option<String>,
    /// All recovery codes.
    #[arg(long)]
    pub recovery_codes: bool,
    /// All passkeys, recovery codes and linked accounts.
    #[arg(long)]
    pub all: bool,
}

/// A user to add.
#[derive(Debug, Args, Serialize, Deserialize)]
pub struct NewUser {
    /// User name.
    pub username: String,
    /// Full name.
    #[arg(long)]
    pub name: Option<String>,
    /// Given name.
    #[arg(long)]
    pub given_name: Option<String>,
    /// Family name.
    #[arg(long)]
    pub family_name: Option<String>,
    /// E-mail address.
    #[arg(long)]
    pub email: Option<String>,
    /// Phone number.
    #[arg(long)]
    pub phone_number: Option<String>,
    /// Scopes that the user may grant.
    #[arg(long, default_value = "openid profile email phone")]
    pub allowed_scopes: String,
    /// FHIR resource that the user is, such as Patient/p1.
    #[arg(long)]
    pub fhir_user: Option<String>,
    /// May administer.
    #[arg(long)]
    pub administrator: bool,
    /// Filled in from standard input.
    #[arg(skip)]
    pub password: String,
}

/// `trefoil client …`
#[expect(clippy::large_enum_variant, reason = "one command is read in the life of a process")]
#[derive(Debug, Subcommand, Serialize, Deserialize)]
pub enum ClientCommand {
    /// Register a client; a secret is made where its way to authenticate needs one.
    Add(NewClient),
    /// List all clients.
    List,
    /// Show one client.
    Show {
        /// Client id.
        id: String,
    },
    /// Make a new secret in the place of all old ones.
    RotateSecret {
        /// Client id.
        id: String,
    },
    /// Delete a client; its tokens end.
    Delete {
        /// Client id.
        id: String,
    },
}

/// A client to register.
#[derive(Debug, Args, Serialize, Deserialize)]
pub struct NewClient {
    /// Client id.
    pub id: String,
    /// Name for people.
    #[arg(long)]
    pub name: Option<String>,
    /// Address that the browser is sent back to; repeat it for several.
    #[arg(long = "redirect-uri")]
    pub redirect_uris: Vec<String>,
    /// Address after sign-out; repeat it for several.
    #[arg(long = "post-logout-redirect-uri")]
    pub post_logout_redirect_uris: Vec<String>,
    /// code, token, id_token, 'id_token token' [default: code, where there is a redirect URI].
    #[arg(long = "response-type")]
    pub response_types: Vec<String>,
    /// authorization_code, refresh_token, client_credentials,
    /// urn:ietf:params:oauth:grant-type:device_code [default: by the rest].
    #[arg(long = "grant-type")]
    pub grant_types: Vec<String>,
    /// none, client_secret_basic, client_secret_post, private_key_jwt [default: none].
    #[arg(long = "auth-method")]
    pub auth_methods: Vec<String>,
    /// File with the client's public JWK Set.
    #[arg(long)]
    pub jwks: Option<PathBuf>,
    /// Scopes that the client may have.
    #[arg(long, default_value = "openid")]
    pub scope: String,
    /// Address of the client's public JWK Set.
    #[arg(long)]
    pub jwks_uri: Option<String>,
    /// Algorithm of its assertions: RS384, ES384, PS256, PS384, ES256, EdDSA, RS256; repeat it for several
    /// [default: RS384 and ES384].
    #[arg(long = "assertion-alg")]
    pub assertion_algs: Vec<String>,
    /// Algorithm of its ID tokens: RS256, ES256, ES384, EdDSA [default: RS256].
    #[arg(long)]
    pub id_token_alg: Option<String>,
    /// Our own: users are not asked whether they allow it.
    #[arg(long)]
    pub first_party: bool,
    /// It gets refresh tokens without asking for offline_access.
    #[arg(long)]
    pub always_refresh: bool,
    /// For so many seconds (up to 60) a spent refresh token gives its successor again.
    #[arg(long, default_value_t = 0)]
    pub refresh_grace_s: u32,
    /// Its authorization requests come by PAR only.
    #[arg(long)]
    pub require_par: bool,
    /// Its tokens are bound to a key (DPoP).
    #[arg(long)]
    pub dpop_bound: bool,
    /// It may introspect tokens of other clients.
    #[arg(long)]
    pub introspects: bool,
    /// PKCE may be left out (confidential clients only).
    #[arg(long)]
    pub pkce_optional: bool,
    /// A native app: loopback redirects may use any port.
    #[arg(long)]
    pub native: bool,
    /// Groups that it may export; repeat it; default all.
    #[arg(long = "group")]
    pub groups: Vec<String>,
    /// Content of the JWK Set file.
    #[arg(skip)]
    pub jwks_text: Option<String>,
}

/// `trefoil keys …`
#[derive(Debug, Subcommand, Serialize, Deserialize)]
pub enum KeysCommand {
    /// List all keys with their stages.
    List,
    /// Move every key one stage on: the next ones sign, the active ones retire. Refused while the next ones
    /// have not been published for as long as anybody may keep the key set (5 minutes).
    Rotate {
        /// Rotate at once; some clients will refuse tokens until they fetch the keys again.
        #[arg(long)]
        now: bool,
        /// Replace the server's own secret instead of the signing keys; the server must be stopped. Sign-ins under way,
        /// known browsers, user codes of devices, search cursors and signed addresses of export files become invalid.
        #[arg(long, conflicts_with = "now")]
        server_secret: bool,
    },
    /// Take a key away at once; what it signed is worth nothing.
    Revoke {
        /// Key id; one in 64 begins with a hyphen.
        #[arg(allow_hyphen_values = true)]
        kid: String,
    },
}

/// `trefoil clock …`
#[derive(Debug, Subcommand, Serialize, Deserialize)]
pub enum ClockCommand {
    /// Accept the time as it is now, after a jump ahead; writes are answered again. Times that are given to resources do
    /// not go back later.
    Accept,
}

/// Runs a command.
pub fn run(cli: Cli) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("the operating system gives threads");
    let code = match cli.command {
        Command::Serve(args) => runtime.block_on(serve::run(&Flags {
            config: args.config,
            data: args.data,
            store: args.store,
            listen: args.listen,
            base_url: args.base_url,
            demo: args.demo,
            insecure_http: args.insecure_http,
        })),
        Command::Import { data, paths } => {
            runtime.block_on(admin::run(&data, admin::Command::Import { paths }))
        }
        Command::Export { data, export } => {
            runtime.block_on(admin::run(&data, admin::Command::Export(export)))
        }
        Command::User { data, command } => runtime.block_on(admin::run(&data, admin::Command::User(command))),
        Command::Client { data, command } => {
            runtime.block_on(admin::run(&data, admin::Command::Client(command)))
        }
        Command::Keys { data, command } => runtime.block_on(admin::run(&data, admin::Command::Keys(command))),
        Command::Clock { data, command } => {
            runtime.block_on(admin::run(&data, admin::Command::Clock(command)))
        }
        Command::Reload { data } => runtime.block_on(admin::run(&data, admin::Command::Reload)),
    };
    // Blocking reads of standard input must not hold the process.
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_an_example() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn a_key_id_may_begin_with_a_hyphen() {
        assert!(Cli::try_parse_from(["trefoil", "keys", "revoke", "-x7_"]).is_ok());
    }
}
