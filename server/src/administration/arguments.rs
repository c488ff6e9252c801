//! Command-line arguments of the administration commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::sections::DEFAULT_DATA_FOLDER;

/// The commands on the data folder of a stopped or a running server.
#[derive(Debug, Subcommand)]
pub enum AdminSubcommand {
    /// Import resources and releases of code systems.
    ///
    /// Resources: NDJSON, JSON, Bundles, FHIR packages (.tgz) and folders, each also as .gz. Releases, as a folder or
    /// .zip: SNOMED CT RF2, LOINC, RxNorm, ICD-10-CM, ClaML, CSV.
    #[command(
        after_help = "Examples:\n  trefoil import --data ./data hl7.fhir.r4.core.tgz patients/\n  trefoil import --data ./data SnomedCT_International.zip SnomedCT_Extension.zip"
    )]
    Import {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// Module of a SNOMED CT edition, such as 900000000000207008, if the files do not suggest the right one
        #[arg(long, value_name = "MODULE")]
        edition: Option<String>,
        /// Date of a SNOMED CT release as YYYYMMDD, if the names of the files do not contain it
        #[arg(long, value_name = "DATE")]
        version: Option<String>,
        /// Files and folders to import
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Export resources to a folder as NDJSON.
    ///
    /// Writes one file per type, with all resources or those of the members of a Group.
    #[command(
        after_help = "Example:\n  trefoil export --data ./data --out ./today --type Patient,Observation"
    )]
    Export {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The resources to export, and the folder.
        #[command(flatten)]
        export: ExportArgs,
    },
    /// Manage users.
    #[command(after_help = "Example:\n  echo 'a long password' | trefoil user add ada --name 'Ada Example'")]
    User {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: UserSubcommand,
    },
    /// Manage clients.
    #[command(
        after_help = "Example:\n  trefoil client add web --redirect-uri https://app.example/cb --scope 'openid profile'"
    )]
    Client {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: ClientSubcommand,
    },
    /// Make a running server read its configuration again, as SIGHUP does.
    #[command(after_help = "Example:\n  trefoil reload --data ./data")]
    Reload {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Manage how a running server treats the clock of the machine.
    #[command(after_help = "Example:\n  trefoil clock accept --data ./data")]
    Clock {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: ClockSubcommand,
    },
    /// Manage signing keys.
    #[command(after_help = "Example:\n  trefoil keys rotate --data ./data")]
    Keys {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: KeysSubcommand,
    },
}

/// The option for the data folder that a command works on.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// Folder with the store, exports, keys and certificate
    #[arg(long, global = true, default_value = DEFAULT_DATA_FOLDER, value_name = "FOLDER")]
    pub data: PathBuf,
    /// Configuration file; required while the server is stopped if it names the key that encrypts secrets in the
    /// store
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Store engine while the server is stopped: file, or the URL of a PostgreSQL database [default: file]
    #[arg(long, global = true, value_name = "ENGINE")]
    pub store: Option<String>,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Folder to write to; must be new or empty
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Export only the members of the Group with this id
    #[arg(long, value_name = "ID")]
    pub group: Option<String>,
    /// Export only resources changed or deleted after this instant, such as 2026-01-31T00:00:00Z
    #[arg(long, value_name = "INSTANT")]
    pub since: Option<String>,
    /// Export only these resource types, separated by commas
    #[arg(long = "type", value_name = "TYPES")]
    pub types: Option<String>,
}

/// `trefoil user …`
#[derive(Debug, Subcommand)]
pub enum UserSubcommand {
    /// Add a user; the password is read from standard input.
    Add(NewUserArgs),
    /// Change a user. Members without a flag stay as they are.
    Change(ChangeUserArgs),
    /// List all users.
    List {
        /// Only users whose names are not accepted for new users, for example because they contain invisible characters.
        #[arg(long)]
        irregular_names: bool,
    },
    /// Show a user and the user's sign-in methods.
    Show {
        /// User name.
        name: String,
    },
    /// Set a password, read from standard input, and remove all other sign-in methods.
    SetPassword {
        /// User name.
        name: String,
        /// Keep passkeys, recovery codes and linked accounts.
        #[arg(long)]
        keep_other_methods: bool,
    },
    /// Disable a user: sign-in and all tokens are refused.
    Disable {
        /// User name.
        name: String,
    },
    /// Enable a disabled user.
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
    /// Remove sign-in methods, and end all sessions and tokens of the user.
    RemoveMethods {
        /// User name.
        name: String,
        /// The sign-in methods to remove.
        #[command(flatten)]
        methods: MethodArgs,
    },
}

/// Sign-in methods to remove.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct MethodArgs {
    /// Remove the passkey with this id
    #[arg(long, value_name = "ID")]
    pub passkey: Option<String>,
    /// Remove the linked account with this id
    #[arg(long, value_name = "ID")]
    pub linked_account: Option<String>,
    /// Remove all recovery codes
    #[arg(long)]
    pub recovery_codes: bool,
    /// Remove all passkeys, recovery codes and linked accounts
    #[arg(long)]
    pub all: bool,
}

/// A user to add.
#[derive(Debug, Args)]
pub struct NewUserArgs {
    /// User name.
    pub username: String,
    /// The members of the user.
    #[command(flatten)]
    pub members: UserMemberArgs,
}

/// A user to change.
#[derive(Debug, Args)]
pub struct ChangeUserArgs {
    /// User name.
    pub username: String,
    /// The new values.
    #[command(flatten)]
    pub members: UserMemberArgs,
    /// Restore the default of another flag, such as fhir-user; can be repeated
    #[arg(long, value_name = "FLAG")]
    pub unset: Vec<String>,
}

/// Members of a user.
#[derive(Debug, Args)]
pub struct UserMemberArgs {
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
    #[arg(long, value_name = "ADDRESS")]
    pub email: Option<String>,
    /// The e-mail address is verified
    #[arg(long)]
    pub email_verified: bool,
    /// Phone number.
    #[arg(long, value_name = "NUMBER")]
    pub phone_number: Option<String>,
    /// The phone number is verified
    #[arg(long)]
    pub phone_number_verified: bool,
    /// Scopes that the user may grant, separated by spaces [default: openid profile email phone]
    #[arg(long, value_name = "SCOPES")]
    pub allowed_scopes: Option<String>,
    /// FHIR resource that represents the user, such as Patient/p1
    #[arg(long, value_name = "REFERENCE")]
    pub fhir_user: Option<String>,
    /// Allow the user to administer the server
    #[arg(long)]
    pub administrator: bool,
}

/// `trefoil client …`
#[derive(Debug, Subcommand)]
pub enum ClientSubcommand {
    /// Register a client; a secret is generated if its authentication method needs one.
    Add(NewClientArgs),
    /// List all clients.
    List,
    /// Show a client.
    Show {
        /// Client id.
        id: String,
    },
    /// Change a client. Members without a flag stay as they are; its tokens and secrets stay valid.
    Change(ChangeClientArgs),
    /// Generate a new secret that replaces all old ones.
    RotateSecret {
        /// Client id.
        id: String,
        /// Seconds, up to 2592000, during which the old secrets stay valid
        #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=2_592_000))]
        overlap_s: u32,
    },
    /// Delete a client and end its tokens.
    Delete {
        /// Client id.
        id: String,
    },
}

/// A client to register.
#[derive(Debug, Args)]
pub struct NewClientArgs {
    /// Client id.
    pub id: String,
    /// The members of the client.
    #[command(flatten)]
    pub members: ClientMemberArgs,
}

/// A client to change.
#[derive(Debug, Args)]
pub struct ChangeClientArgs {
    /// Client id.
    pub id: String,
    /// The new values. A list replaces the earlier list.
    #[command(flatten)]
    pub members: ClientMemberArgs,
    /// Restore the default of another flag, such as first-party; can be repeated
    #[arg(long, value_name = "FLAG")]
    pub unset: Vec<String>,
}

/// Members of a client.
#[derive(Debug, Args)]
pub struct ClientMemberArgs {
    /// Display name
    #[arg(long)]
    pub name: Option<String>,
    /// Redirect URI; can be repeated
    #[arg(long = "redirect-uri", value_name = "URI")]
    pub redirect_uris: Vec<String>,
    /// Address of the browser after sign-out; can be repeated
    #[arg(long = "post-logout-redirect-uri", value_name = "URI")]
    pub post_logout_redirect_uris: Vec<String>,
    /// Response type: code, token, id_token or 'id_token token'; can be repeated [default: code if there is a
    /// redirect URI]
    #[arg(long = "response-type", value_name = "TYPE")]
    pub response_types: Vec<String>,
    /// Grant type: authorization_code, refresh_token, client_credentials or
    /// urn:ietf:params:oauth:grant-type:device_code; can be repeated [default: derived from the other flags]
    #[arg(long = "grant-type", value_name = "TYPE")]
    pub grant_types: Vec<String>,
    /// Authentication method: none, client_secret_basic, client_secret_post or private_key_jwt; can be repeated
    /// [default: none]
    #[arg(long = "auth-method", value_name = "METHOD")]
    pub auth_methods: Vec<String>,
    /// File with the client's public JWK Set
    #[arg(long, value_name = "FILE")]
    pub jwks: Option<PathBuf>,
    /// Scopes that the client may request, separated by spaces [default: openid]
    #[arg(long, value_name = "SCOPES")]
    pub scope: Option<String>,
    /// URL of the client's public JWK Set
    #[arg(long, value_name = "URL")]
    pub jwks_uri: Option<String>,
    /// Algorithm of the client's assertions: RS384, ES384, PS256, PS384, ES256, EdDSA, Ed25519 or RS256; can be repeated
    /// [default: RS384 and ES384]
    #[arg(long = "assertion-alg", value_name = "ALGORITHM")]
    pub assertion_algs: Vec<String>,
    /// Audience of the client's assertions: token_endpoint_or_issuer or issuer [default: token_endpoint_or_issuer]
    #[arg(long, value_name = "AUDIENCE")]
    pub assertion_audience: Option<String>,
    /// Algorithm of the client's ID tokens: RS256, ES256, ES384 or EdDSA [default: RS256]
    #[arg(long, value_name = "ALGORITHM")]
    pub id_token_alg: Option<String>,
    /// Put all claims of the granted scopes into ID tokens
    #[arg(long)]
    pub claims_in_id_token: bool,
    /// First-party client: no consent of the user is required
    #[arg(long)]
    pub first_party: bool,
    /// Issue refresh tokens also without the scope offline_access
    #[arg(long)]
    pub always_refresh: bool,
    /// Seconds, 0 to 60, during which a used refresh token returns its successor again [default: 0]
    #[arg(long, value_name = "SECONDS")]
    pub refresh_grace_s: Option<u32>,
    /// Lifetime of access tokens, except in the token flow [default: that of the server]
    #[arg(long, value_name = "SECONDS")]
    pub access_token_lifetime_s: Option<u32>,
    /// Lifetime of ID tokens [default: that of the server]
    #[arg(long, value_name = "SECONDS")]
    pub id_token_lifetime_s: Option<u32>,
    /// Lifetime of refresh tokens, counted from the first one of a grant [default: that of the server]
    #[arg(long, value_name = "SECONDS")]
    pub refresh_token_lifetime_s: Option<u32>,
    /// Maximum age of a sign-in, for requests without max_age [default: none]
    #[arg(long, value_name = "SECONDS")]
    pub default_max_age: Option<u32>,
    /// Require pushed authorization requests (PAR)
    #[arg(long)]
    pub require_par: bool,
    /// Bind all tokens of the client to a key (DPoP)
    #[arg(long)]
    pub dpop_bound: bool,
    /// Allow the client to introspect tokens of other clients
    #[arg(long)]
    pub introspects: bool,
    /// Do not require PKCE (confidential clients only)
    #[arg(long)]
    pub pkce_optional: bool,
    /// Native app: loopback redirect URIs match with any port
    #[arg(long)]
    pub native: bool,
    /// Group that the client may export; can be repeated [default: all]
    #[arg(long = "group", value_name = "ID")]
    pub groups: Vec<String>,
}

/// `trefoil keys …`
#[derive(Debug, Subcommand)]
pub enum KeysSubcommand {
    /// List all keys with their stages.
    List,
    /// Advance every key by one stage: the next keys become active, the active keys retire.
    ///
    /// Refused until the next keys have been published for 5 minutes, as long as a client may cache the key set.
    Rotate {
        /// Rotate at once; some clients reject tokens until they fetch the key set again
        #[arg(long)]
        now: bool,
        /// Rotate the server secret instead of the signing keys; the server must be stopped.
        ///
        /// Pending sign-ins, known browsers, user codes of devices, search cursors and signed URLs of export files become
        /// invalid.
        #[arg(long, conflicts_with = "now")]
        server_secret: bool,
    },
    /// Revoke a key at once; tokens signed with it are no longer accepted.
    Revoke {
        // Key ids are base64url, so one in 64 begins with a hyphen.
        /// Id of the key
        #[arg(allow_hyphen_values = true)]
        kid: String,
    },
}

/// `trefoil clock …`
#[derive(Debug, Subcommand)]
pub enum ClockSubcommand {
    /// Accept the present time after the clock jumped ahead, so that writes are possible again.
    ///
    /// Timestamps already given to resources stay.
    Accept,
}
