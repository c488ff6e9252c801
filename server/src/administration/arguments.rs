//! Command-line arguments of the administration commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::client_keys::KeygenArgs;
use super::member_flags::{ClientTable, MemberFlags, UserTable};
use crate::config::ServeFlags;
use crate::config::sections::DEFAULT_DATA_FOLDER;

/// The commands on the data folder of a stopped or a running server.
#[derive(Debug, Subcommand)]
pub enum AdminSubcommand {
    /// Import resources and releases of code systems.
    ///
    /// Resources: NDJSON, JSON, Bundles, FHIR packages (.tgz), other .tar.gz and folders, each also as .gz.
    /// The requests of batch and transaction Bundles are applied. In the folder of an export, the deletions
    /// that its manifest.json lists are applied, too. Releases, as a folder or .zip: SNOMED CT RF2, LOINC,
    /// RxNorm, OMOP, ICD-10-CM, ClaML, CSV.
    #[command(
        after_help = "Examples:\n  trefoil import hl7.fhir.r4.core.tgz patients/\n  trefoil import SnomedCT_International.zip SnomedCT_Extension.zip\n  trefoil import hl7.fhir.us.core#6.1.0"
    )]
    Import {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// Module of a SNOMED CT edition, such as 900000000000207008, if the files do not suggest the right
        /// one
        #[arg(long, value_name = "MODULE")]
        edition: Option<String>,
        /// Date of a SNOMED CT release as YYYYMMDD, if the names of the files do not contain it
        #[arg(long, value_name = "DATE")]
        version: Option<String>,
        /// State that a SNOMED CT release is not published: its version is a URI of the namespace xsct
        #[arg(long)]
        unpublished: bool,
        /// Store batch and transaction Bundles as resources instead of applying their requests
        #[arg(long)]
        keep_bundles: bool,
        /// Files and folders to import, and FHIR packages as NAME#VERSION from the package cache, with the
        /// packages on which they depend
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Package cache [default: ~/.fhir/packages]
        #[arg(long, value_name = "FOLDER")]
        package_cache: Option<PathBuf>,
    },
    /// Export resources to a folder as NDJSON.
    ///
    /// Writes one file per type, with all resources or those of the members of a Group.
    #[command(after_help = "Example:\n  trefoil export --out ./today --type Patient,Observation")]
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
    /// Back up the store, while the server runs or not.
    ///
    /// A backup is one moment: all versions of resources, users, clients, keys, and the files of releases and
    /// exports. It contains what was written since the last one, unless that is missing. Keep the
    /// configuration and the files that it names apart from it.
    #[command(
        after_help = "Examples:\n  trefoil backup --to ./backups\n  trefoil backup --to s3://bucket/trefoil --full"
    )]
    Backup {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// Folder for the backups, or s3://BUCKET/PREFIX [default: that of `[backup] to`]
        #[arg(long, value_name = "LOCATION")]
        to: Option<String>,
        /// Contain everything again
        #[arg(long)]
        full: bool,
    },
    /// Erase a patient with all versions of the whole record, or a deleted resource.
    ///
    /// A Patient is erased with everything that was ever in its compartment, and with the Binaries that this
    /// names. Resources that belong to other patients too are kept and listed. All exports end, because their
    /// files may contain it. Backups contain it until they are removed. Ends when the files of the store are
    /// rewritten.
    #[command(after_help = "Examples:\n  trefoil purge Patient/p1\n  trefoil purge Binary/scan-7 --yes")]
    Purge {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// Patient/ID, or TYPE/ID of a deleted resource
        #[arg(value_name = "RESOURCE")]
        resource: String,
    },
    /// Rewrite the files of the store, so that they no longer contain what was replaced or deleted in it.
    ///
    /// A secret, password or key that was replaced, and a record that was deleted, stays in the files until
    /// the store rewrites them by itself. This command waits until that is done. It does not shorten the
    /// history of resources.
    #[command(after_help = "Example:\n  trefoil keys rotate --server-secret && trefoil compact")]
    Compact {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Show the state of the server: version, store, sizes, exports, certificate, refusals and faults.
    ///
    /// Ends with exit code 1 if a part does not work.
    #[command(after_help = "Example:\n  trefoil status --json")]
    Status {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Check configuration, certificate, store, releases and files of exports.
    ///
    /// Reads all versions of all resources, and compares them with the change feed and the search index. Ends
    /// with exit code 1 if something is wrong. `trefoil restore --verify` checks a backup.
    #[command(after_help = "Example:\n  trefoil check --data ./trefoil-data")]
    Check {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Make a running server read its configuration again, as SIGHUP does.
    #[command(after_help = "Example:\n  trefoil reload")]
    Reload {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
    },
    /// Manage how a running server treats the clock of the machine.
    #[command(after_help = "Example:\n  trefoil clock accept")]
    Clock {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: ClockSubcommand,
    },
    /// Manage imported releases of code systems.
    #[command(after_help = "Example:\n  trefoil release list")]
    Release {
        /// The data folder.
        #[command(flatten)]
        data: DataArgs,
        /// The action.
        #[command(subcommand)]
        command: ReleaseSubcommand,
    },
    /// Manage signing keys.
    #[command(after_help = "Example:\n  trefoil keys rotate")]
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
#[derive(Debug, Clone, Args)]
pub struct DataArgs {
    /// Folder with the store, exports, keys and certificate
    #[arg(long, global = true, default_value = DEFAULT_DATA_FOLDER, value_name = "FOLDER")]
    pub data: PathBuf,
    /// Configuration file; required while the server is stopped if it names the key that encrypts secrets in
    /// the store
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Store engine while the server is stopped: file, or the URL of a PostgreSQL database [default: file]
    #[arg(long, global = true, value_name = "ENGINE")]
    pub store: Option<String>,
    /// How the command asks and prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl DataArgs {
    /// The flags of a server with this data, which determine its configuration.
    pub fn serve_flags(&self) -> ServeFlags {
        ServeFlags {
            config: self.config.clone(),
            data: Some(self.data.clone()),
            store: self.store.clone(),
            ..ServeFlags::default()
        }
    }
}

/// Options of all administration commands for scripts.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Print the result as JSON, one value on each line
    #[arg(long, global = true)]
    pub json: bool,
    /// Do not print progress
    #[arg(long, global = true)]
    pub quiet: bool,
    /// Do not ask before something is deleted or revoked; without a terminal, nothing is asked
    #[arg(long, global = true)]
    pub yes: bool,
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
    /// Export only resources changed or deleted after this instant, such as 2026-01-31T00:00:00Z, or after
    /// the export in this folder
    #[arg(long, value_name = "INSTANT|FOLDER")]
    pub since: Option<String>,
    /// Export only these resource types, separated by commas
    #[arg(long = "type", value_name = "TYPES")]
    pub types: Option<String>,
}

/// `trefoil user …`
#[derive(Debug, Subcommand)]
pub enum UserSubcommand {
    /// Add a user; the password is read from standard input.
    #[command(
        after_help = "Example:\n  echo 'a long password' | trefoil user add ada --name 'Ada Example' --email ada@example.org"
    )]
    Add(NewUserArgs),
    /// Change a user. Members without a flag stay as they are.
    #[command(after_help = "Example:\n  trefoil user change ada --fhir-user Patient/p1")]
    Change(ChangeUserArgs),
    /// List all users.
    #[command(after_help = "Example:\n  trefoil user list --json | jq -r .username")]
    List {
        /// Only users whose names are not accepted for new users, for example because they contain invisible
        /// characters, and users whom apps see with the name of another user.
        #[arg(long)]
        irregular_names: bool,
    },
    /// Show a user and the user's sign-in methods.
    #[command(after_help = "Example:\n  trefoil user show ada --json")]
    Show {
        /// User name.
        name: String,
    },
    /// Set a password, read from standard input, and remove all other sign-in methods.
    #[command(after_help = "Example:\n  echo 'another long password' | trefoil user set-password ada")]
    SetPassword {
        /// User name.
        name: String,
        /// Keep passkeys, recovery codes and linked accounts.
        #[arg(long)]
        keep_other_methods: bool,
    },
    /// Disable a user: sign-in and all tokens are refused.
    #[command(after_help = "Example:\n  trefoil user disable ada")]
    Disable {
        /// User name.
        name: String,
    },
    /// Enable a disabled user.
    #[command(after_help = "Example:\n  trefoil user enable ada")]
    Enable {
        /// User name.
        name: String,
    },
    /// Delete a user. The accounts of the user at providers cannot sign in any more.
    #[command(after_help = "Example:\n  trefoil user delete ada --yes")]
    Delete {
        /// User name, or with `--forget` the subject of a deleted user.
        name: String,
        /// Let the accounts of the user at providers sign in as other users.
        #[arg(long)]
        forget: bool,
    },
    /// End all sessions and tokens of a user.
    #[command(after_help = "Example:\n  trefoil user sign-out ada")]
    SignOut {
        /// User name.
        name: String,
    },
    /// Remove sign-in methods, and end all sessions and tokens of the user.
    #[command(after_help = "Example:\n  trefoil user remove-methods ada --recovery-codes")]
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
    /// Forget the account with this id that is or was linked, so that it can be linked to another user
    #[arg(long, value_name = "ID")]
    pub forget_account: Option<String>,
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
    pub members: MemberFlags<UserTable>,
}

/// A user to change.
#[derive(Debug, Args)]
pub struct ChangeUserArgs {
    /// User name.
    pub username: String,
    /// The new values.
    #[command(flatten)]
    pub members: MemberFlags<UserTable>,
    /// Restore the default of another flag, such as fhir-user; can be repeated
    #[arg(long, value_name = "FLAG")]
    pub unset: Vec<String>,
}

/// `trefoil client …`
#[derive(Debug, Subcommand)]
pub enum ClientSubcommand {
    /// Register a client; a secret is generated if its authentication method needs one.
    #[command(
        after_help = "Example:\n  trefoil client add web --redirect-uri https://app.example/cb --scope 'openid profile'"
    )]
    Add(NewClientArgs),
    /// List all clients.
    #[command(after_help = "Example:\n  trefoil client list --json | jq -r .client_id")]
    List,
    /// Show a client.
    #[command(after_help = "Example:\n  trefoil client show web")]
    Show {
        /// Client id.
        id: String,
    },
    /// Change a client. Members without a flag stay as they are; its tokens and secrets stay valid.
    #[command(after_help = "Example:\n  trefoil client change web --redirect-uri https://app.example/new")]
    Change(ChangeClientArgs),
    /// Generate a new secret that replaces all old ones.
    #[command(after_help = "Example:\n  trefoil client rotate-secret web --overlap-s 86400")]
    RotateSecret {
        /// Client id.
        id: String,
        /// Seconds, up to 2592000, during which the old secrets stay valid
        #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=2_592_000))]
        overlap_s: u32,
    },
    /// Generate a key pair for a client that authenticates with a private key.
    ///
    /// Needs no server: writes private.jwk for the client, and jwks.json for `client add --jwks`.
    #[command(after_help = "Example:\n  trefoil client keygen --out ./nightly")]
    Keygen(KeygenArgs),
    /// Delete a client and end its tokens.
    #[command(after_help = "Example:\n  trefoil client delete web --yes")]
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
    pub members: MemberFlags<ClientTable>,
}

/// A client to change.
#[derive(Debug, Args)]
pub struct ChangeClientArgs {
    /// Client id.
    pub id: String,
    /// The new values. A list replaces the earlier list.
    #[command(flatten)]
    pub members: MemberFlags<ClientTable>,
    /// Restore the default of another flag, such as first-party; can be repeated
    #[arg(long, value_name = "FLAG")]
    pub unset: Vec<String>,
}

/// `trefoil release …`
#[derive(Debug, Subcommand)]
pub enum ReleaseSubcommand {
    /// List all releases: id, number of concepts, time of the import, URL and version.
    #[command(after_help = "Example:\n  trefoil release list --json")]
    List,
    /// Show a release as JSON, with its languages and language reference sets.
    #[command(after_help = "Example:\n  trefoil release show loinc.org-2.80")]
    Show {
        /// Id of the release
        id: String,
    },
    /// Remove a release, also from the other nodes.
    ///
    /// Refused while stored value sets name its version.
    #[command(after_help = "Example:\n  trefoil release remove loinc.org-2.79")]
    Remove {
        /// Id of the release
        id: String,
        /// Remove it even if value sets name its version
        #[arg(long)]
        force: bool,
    },
}

/// `trefoil keys …`
#[derive(Debug, Subcommand)]
pub enum KeysSubcommand {
    /// List all keys with their stages.
    #[command(after_help = "Example:\n  trefoil keys list --json")]
    List,
    /// Advance every key by one stage: the next keys become active, the active keys retire.
    ///
    /// Refused until the next keys have been published for 5 minutes, as long as a client may cache the key
    /// set.
    #[command(after_help = "Example:\n  trefoil keys rotate")]
    Rotate {
        /// Rotate at once; some clients reject tokens until they fetch the key set again
        #[arg(long)]
        now: bool,
        /// Rotate the server secret instead of the signing keys; the server must be stopped.
        ///
        /// Pending sign-ins, known browsers, user codes of devices, search cursors and signed URLs of export
        /// files become invalid.
        #[arg(long, conflicts_with = "now")]
        server_secret: bool,
    },
    /// Revoke a key at once; tokens signed with it are no longer accepted.
    #[command(after_help = "Example:\n  trefoil keys revoke 1bYzvC5f --yes")]
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
    #[command(after_help = "Example:\n  trefoil clock accept")]
    Accept,
}
