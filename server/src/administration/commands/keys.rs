//! `trefoil keys …`: signing keys and the server secret.

use clap::Args;
use identity::tokens::signing_keys::RotateError;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::administration::command::AdminMethod::{Delete, Get, Post};
use crate::administration::command::{
    AdminRoute, Answer, AnswerShape, Call, Command, CommandError, Doors, ListAnswer,
};
use crate::administration::events::EventSink;
use crate::administration::shown::ShownKey;

/// List all keys with their stages.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil keys list --json")]
pub struct List {}

impl Command for List {
    const DOORS: Doors = Doors::all("List", &[AdminRoute::new(Get, "keys")]);
    const ANSWER: AnswerShape = AnswerShape::list::<ShownKey<'_>>("keys");

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let keys = call.services.identity.signing_keys.list_keys(call.now()).await;
        let keys = keys.map_err(anyhow::Error::from)?;
        let records = keys.iter().map(ShownKey::new).map(|key| (key.line(), json!(key)));
        Ok(ListAnswer::new(records).into())
    }
}

/// Advance every key by one stage: the next keys become active, the active keys retire.
///
/// Refused until the next keys have been published for 5 minutes, as long as a client may cache the key set.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil keys rotate")]
pub struct Rotate {
    /// Rotate at once; some clients reject tokens until they fetch the key set again
    #[arg(long)]
    #[serde(default)]
    now: bool,
    /// Rotate the server secret instead of the signing keys
    ///
    /// Pending sign-ins, known browsers, user codes of devices, search cursors and signed URLs of export
    /// files become invalid.
    #[arg(long, conflicts_with = "now")]
    #[serde(default)]
    server_secret: bool,
}

impl Command for Rotate {
    const DOORS: Doors = Doors::all("Rotate the keys", &[AdminRoute::new(Post, "keys/rotate")]);

    fn question(&self) -> Option<String> {
        let question = "Rotate the server secret? Sign-ins in progress and signed URLs become invalid.";
        self.server_secret.then(|| question.to_owned())
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let identity = call.services.identity;
        if self.now && self.server_secret {
            let text = "now is for the signing keys; send either now or server_secret";
            return Err(CommandError::Invalid(text.to_owned()));
        }
        if self.server_secret {
            // The secret signs only short-lived values, so that the old one is not kept.
            identity.server_secret.rotate(call.now()).await.map_err(anyhow::Error::from)?;
            return Ok(Answer::Done(
                "rotated the server secret: sign-ins in progress, known browsers, user codes of devices, search cursors \
                 and signed URLs of export files are no longer valid"
                    .to_owned(),
            ));
        }
        match identity.signing_keys.rotate_keys(self.now, call.now()).await {
            Err(error @ RotateError::TooSoon { .. }) => {
                return Err(CommandError::Conflict { code: "too_soon", text: error.to_string() });
            }
            rotated => rotated.map_err(anyhow::Error::from)?,
        }
        Ok(Answer::Done(
            "rotated: the next keys are active now; the previous ones stay published until their tokens have expired"
                .to_owned(),
        ))
    }
}

/// Revoke a key at once; tokens signed with it are no longer accepted.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil keys revoke 1bYzvC5f --yes")]
pub struct Revoke {
    // Key ids are base64url, so one in 64 begins with a hyphen.
    /// Id of the key
    #[arg(allow_hyphen_values = true)]
    kid: String,
}

impl Command for Revoke {
    const DOORS: Doors = Doors::all("Revoke", &[AdminRoute::new(Delete, "keys/{kid}")]);

    fn question(&self) -> Option<String> {
        Some(format!("Revoke the key {}? Tokens signed with it are no longer accepted.", self.kid))
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let kid = &self.kid;
        let revoked = call.services.identity.signing_keys.revoke_key(kid, call.now()).await;
        if !revoked.map_err(anyhow::Error::from)? {
            return Err(CommandError::Unknown {
                record: "key",
                text: format!("key '{kid}' does not exist; `trefoil keys list` shows all keys"),
            });
        }
        Ok(Answer::Done(format!("revoked key {kid}; tokens signed with it are no longer accepted")))
    }
}
