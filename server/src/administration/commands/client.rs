//! `trefoil client …`: clients and their secrets.

use std::path::PathBuf;

use clap::Args;
use identity::directory::client_registry::{ChangeClientError, VersionedClient};
use identity::model::client::{AuthMethod, Client};
use identity::model::client_metadata::ClientMetadata;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::administration::client_keys::{KeyAlgorithm, write_key_pair};
use crate::administration::command::AdminMethod::{Delete as DELETE, Get, Patch, Post};
use crate::administration::command::{
    AdminRoute, Answer, AnswerShape, Call, Command, CommandError, Doors, ListAnswer, RecordAnswer, StoreNeed,
    page_size,
};
use crate::administration::events::EventSink;
use crate::administration::member_flags::{ClientTable, MemberChanges, MemberFlags};
use crate::administration::registration_warnings::client_warnings;
use crate::administration::shown::{ShownClient, ShownSecret};

/// Maximum time during which replaced secrets stay valid, in seconds: 30 days.
const MAX_OVERLAP_S: u32 = 30 * 24 * 3600;

/// Where a developer finds the reason of a refusal, which the app itself does not receive.
pub const REASONS_OF_REFUSALS: &str = "if a sign-in is refused, the reason and the remedy are on the first page of the server (on this machine), in `trefoil status` and in the log";

/// Whether the client exists for the caller.
fn is_visible(call: &Call<'_>, client: &Client) -> bool {
    !call.is_remote() || call.services.identity.demo || !client.demo
}

/// The client with this id, if the record has the revision that the call requires.
async fn read_client(call: &Call<'_>, client_id: &str) -> Result<VersionedClient, CommandError> {
    let client = call.services.identity.clients.versioned_client(client_id, call.now()).await?;
    let client = client.filter(|client| is_visible(call, &client.client));
    let client = client.ok_or_else(|| ChangeClientError::Unknown(client_id.to_owned()))?;
    call.check_revision(client.revision, "client")?;
    Ok(client)
}

/// A client that was added or changed, with a new secret if it has one, and with warnings.
async fn changed(
    call: &Call<'_>,
    text: String,
    client: &VersionedClient,
    secret: Option<&str>,
) -> Result<RecordAnswer, CommandError> {
    let fields = ShownClient::new(&client.client, call.now()).with_secret(secret);
    let text = match secret {
        Some(secret) => format!("{text}\n{}", secret_text(secret)),
        None => text,
    };
    Ok(RecordAnswer {
        warnings: client_warnings(call.services.resources, &client.client).await,
        revision: Some(client.revision),
        ..RecordAnswer::new(text, fields)
    })
}

fn secret_text(secret: &str) -> String {
    format!(
        "client_secret {secret}\nsave the secret now: only a digest is stored, and it cannot be shown again"
    )
}

/// Register a client; a secret is generated if its authentication method needs one.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(
    after_help = "Example:\n  trefoil client add web --redirect-uri https://app.example/cb --scope 'openid profile' --with-secret"
)]
pub struct Add {
    /// Client id
    #[arg(value_name = "ID")]
    client_id: String,
    /// Generate a secret, which is accepted in the Authorization header and in the form unless --auth-method
    /// names one of them
    #[arg(long)]
    #[serde(default)]
    with_secret: bool,
    #[command(flatten)]
    #[serde(flatten)]
    members: MemberFlags<ClientTable>,
}

/// Adds the authentication methods of a client with a secret, unless the members name one with a secret.
/// Libraries differ in the method that they use by default.
fn add_secret_methods(members: &mut serde_json::Map<String, Value>) -> Result<(), CommandError> {
    let method_members = ["token_endpoint_auth_method", "token_endpoint_auth_methods"];
    if method_members.iter().any(|name| members.contains_key(*name)) {
        return Ok(());
    }
    if members.contains_key("jwks") || members.contains_key("jwks_uri") {
        let text = "a client with keys needs no secret; leave out with_secret, or name both methods";
        return Err(CommandError::Invalid(text.to_owned()));
    }
    let methods = json!([AuthMethod::ClientSecretBasic.name(), AuthMethod::ClientSecretPost.name()]);
    members.insert("token_endpoint_auth_methods".to_owned(), methods);
    Ok(())
}

impl Command for Add {
    const DOORS: Doors = Doors::all("Add a client", &[AdminRoute::new(Post, "clients")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownClient<'_>>();
    const STORE: StoreNeed = StoreNeed::CreatedWithNotice;

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let Self { client_id, with_secret, members: MemberFlags { mut members, .. } } = self;
        if with_secret {
            add_secret_methods(&mut members)?;
        }
        let metadata: ClientMetadata = serde_json::from_value(members.into())
            .map_err(|error| CommandError::Invalid(error.to_string()))?;
        let mut client = metadata.into_client(&client_id, None)?;
        let secret = client.needs_secret().then(|| call.services.clock.random.secret());
        if with_secret && secret.is_none() {
            let text = "none of the named authentication methods uses a secret; leave out with_secret";
            return Err(CommandError::Invalid(text.to_owned()));
        }
        client.secret_digests = secret.iter().map(|secret| Client::secret_digest(secret)).collect();
        let clients = &call.services.identity.clients;
        clients.add_client(&client, call.now()).await?;
        let added = clients.versioned_client(&client_id, call.now()).await?;
        let added = added.ok_or_else(|| ChangeClientError::Unknown(client_id.clone()))?;
        let text = match added.client.redirect_uris.is_empty() {
            true => format!("added client {client_id}"),
            false => format!("added client {client_id}\n{REASONS_OF_REFUSALS}"),
        };
        let record = changed(call, text, &added, secret.as_deref()).await?;
        Ok(RecordAnswer { location: Some(format!("clients/{client_id}")), ..record }.into())
    }
}

/// List all clients.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil client list --json | jq -r .client_id")]
pub struct List {
    /// Only the clients after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Only so many clients, from 1 to 500
    #[arg(long, value_name = "NUMBER")]
    count: Option<usize>,
}

impl Command for List {
    const DOORS: Doors = Doors::all("List", &[AdminRoute::new(Get, "clients")]);
    const ANSWER: AnswerShape = AnswerShape::list::<ShownClient<'_>>("clients");

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let count = page_size(self.count)?.unwrap_or(usize::MAX);
        let mut clients = call.services.identity.clients.all_clients(call.now()).await?;
        clients.retain(|client| {
            is_visible(call, client) && self.after.as_ref().is_none_or(|after| client.client_id > *after)
        });
        let has_more = clients.len() > count;
        clients.truncate(count);
        let next = clients.last().filter(|_| has_more).map(|client| client.client_id.clone());
        let entries = clients.iter().map(|client| {
            let label = match (client.demo, client.declared) {
                (true, _) => "  [demo]",
                (false, true) => "  [declared]",
                (false, false) => "",
            };
            let text = format!("{}  {}  {}{label}", client.client_id, client.name, client.scopes);
            (text, json!(ShownClient::new(client, call.now())))
        });
        Ok(ListAnswer { next, ..ListAnswer::new(entries) }.into())
    }
}

/// Show a client.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil client show web")]
pub struct Show {
    /// Client id
    #[arg(value_name = "ID")]
    client_id: String,
}

impl Command for Show {
    const DOORS: Doors = Doors::all("Show", &[AdminRoute::new(Get, "clients/{client_id}")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownClient<'_>>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let VersionedClient { client, revision } = read_client(call, &self.client_id).await?;
        let record = RecordAnswer::pretty(ShownClient::new(&client, call.now()));
        Ok(RecordAnswer { revision: Some(revision), ..record }.into())
    }
}

/// Change a client. What is not given stays as it is; its tokens and secrets stay valid.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil client change web --redirect-uri https://app.example/new")]
pub struct Change {
    /// Client id
    #[arg(value_name = "ID")]
    client_id: String,
    #[command(flatten)]
    #[serde(flatten)]
    members: MemberChanges<ClientTable>,
}

impl Command for Change {
    const DOORS: Doors = Doors::all("Change", &[AdminRoute::new(Patch, "clients/{client_id}")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownClient<'_>>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let Self { client_id, members } = self;
        let clients = &call.services.identity.clients;
        let (client, secret) =
            clients.change_client(&client_id, call.revision, &members.members, call.now()).await?;
        let record = changed(call, format!("changed client {client_id}"), &client, secret.as_deref()).await?;
        Ok(record.into())
    }
}

/// Generate a new secret that replaces all old ones.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil client rotate-secret web --overlap-s 86400")]
pub struct RotateSecret {
    /// Client id
    #[arg(value_name = "ID")]
    client_id: String,
    /// Seconds, up to 2592000, during which the old secrets stay valid
    #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=2_592_000))]
    #[serde(default)]
    overlap_s: u32,
}

impl Command for RotateSecret {
    const DOORS: Doors =
        Doors::all("Replace the secret", &[AdminRoute::new(Post, "clients/{client_id}/secret")])
            .only_if(|client| client["secrets"] != 0);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownSecret<'_>>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let Self { client_id, overlap_s } = self;
        if overlap_s > MAX_OVERLAP_S {
            return Err(CommandError::Invalid(format!("overlap_s must be at most {MAX_OVERLAP_S}")));
        }
        let overlap = SignedDuration::from_secs(overlap_s.into());
        let clients = &call.services.identity.clients;
        let secret = clients.rotate_client_secret(&client_id, overlap, call.now()).await?;
        let output = ShownSecret { client_id: &client_id, client_secret: &secret };
        Ok(RecordAnswer::new(secret_text(&secret), output).into())
    }
}

/// Generate a key pair for a client that authenticates with a private key.
///
/// Needs no server: writes private.jwk for the client, and jwks.json for `client add --jwks`.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil client keygen --out ./nightly")]
pub struct Keygen {
    /// Folder for the two files
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    out: PathBuf,
    /// Algorithm of the key
    #[arg(long, value_enum, default_value_t)]
    alg: KeyAlgorithm,
    /// Id of the key; a new key of the same client needs another one
    #[arg(long, value_name = "ID", default_value = "key-1")]
    kid: String,
}

impl Command for Keygen {
    const DOORS: Doors = Doors::COMMAND_LINE;
    // The private key must not leave the machine of the client, so that no server is involved.
    const STORE: StoreNeed = StoreNeed::None;

    fn run_in_program(&self) -> Option<anyhow::Result<Answer>> {
        Some(write_key_pair(&self.out, self.alg, &self.kid))
    }

    async fn run(self, _: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        Ok(write_key_pair(&self.out, self.alg, &self.kid)?)
    }
}

/// Delete a client and end its tokens.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil client delete web --yes")]
pub struct Delete {
    /// Client id
    #[arg(value_name = "ID")]
    client_id: String,
}

impl Command for Delete {
    const DOORS: Doors = Doors::all("Delete", &[AdminRoute::new(DELETE, "clients/{client_id}")]);

    fn question(&self) -> Option<String> {
        Some(format!("Delete the client {} and end its tokens?", self.client_id))
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let id = &self.client_id;
        read_client(call, id).await?;
        call.services.identity.clients.delete_client(id, call.now()).await?;
        Ok(Answer::Done(format!("deleted client {id}; its tokens are no longer accepted")))
    }
}
