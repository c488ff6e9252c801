//! `trefoil release …`: imported releases of code systems.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::administration::command::AdminMethod::{Delete, Get};
use crate::administration::command::{
    AdminRoute, Answer, AnswerShape, Call, Command, CommandError, Doors, ListAnswer, RecordAnswer,
};
use crate::administration::events::EventSink;
use crate::administration::services::AdminServices;
use crate::node::releases::{Releases, RemoveReleaseError, ShownRelease};
use crate::node::saved_indexes::SavedIndexes;

/// The releases. `None` if the running server imports none, because its store is in memory.
fn releases<'a>(services: &AdminServices<'a>) -> Result<Option<Releases<'a>>, CommandError> {
    let indexes = match services.app {
        Some(app) => app.terminology_sync.indexes().cloned(),
        None => Some(SavedIndexes::open(services.data).map_err(anyhow::Error::from)?),
    };
    Ok(indexes.map(|indexes| Releases { indexes, resources: services.resources }))
}

fn unknown(id: &str) -> CommandError {
    CommandError::Unknown { record: "release", text: RemoveReleaseError::Unknown(id.to_owned()).to_string() }
}

/// List all releases: id, number of concepts, time of the import, URL and version.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil release list --json")]
pub struct List {}

impl Command for List {
    const DOORS: Doors = Doors::all("List", &[AdminRoute::new(Get, "releases")]);
    const ANSWER: AnswerShape = AnswerShape::list::<ShownRelease>("releases");

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let all = match releases(call.services)? {
            Some(releases) => releases.list().await?,
            None => Vec::new(),
        };
        let entries = all.into_iter().map(|release| {
            let json = json!(release);
            let ShownRelease { id, concepts, imported, url, version, .. } = release;
            let version = version.unwrap_or_else(|| "no version".to_owned());
            (format!("{id}  {concepts}  {imported}  {url}  {version}"), json)
        });
        Ok(ListAnswer::new(entries).if_empty("no release is imported").into())
    }
}

/// Show a release, with its languages and language reference sets, and the stored value sets that name it.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil release show loinc.org-2.80")]
pub struct Show {
    /// Id of the release
    id: String,
}

impl Command for Show {
    const DOORS: Doors = Doors::all("Show", &[AdminRoute::new(Get, "releases/{id}")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ShownRelease>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let releases = releases(call.services)?.ok_or_else(|| unknown(&self.id))?;
        let (release, named_by) = releases.show(&self.id).await?.ok_or_else(|| unknown(&self.id))?;
        let mut fields = json!(release);
        fields["named_by"] = named_by.into();
        Ok(RecordAnswer::pretty(fields).into())
    }
}

/// Remove a release, also from the other nodes.
///
/// Refused while stored value sets name its version.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil release remove loinc.org-2.79")]
pub struct Remove {
    /// Id of the release
    id: String,
    /// Remove it even if value sets name its version
    #[arg(long)]
    #[serde(default)]
    force: bool,
}

impl Command for Remove {
    const DOORS: Doors = Doors::all("Remove", &[AdminRoute::new(Delete, "releases/{id}")]);

    fn question(&self) -> Option<String> {
        Some(format!("Remove the release {}?", self.id))
    }

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        let Self { id, force } = self;
        let AdminServices { app, audit, clock, .. } = call.services;
        let releases = releases(call.services)?.ok_or_else(|| unknown(&id))?;
        match releases.remove(&id, force, *app, audit, clock).await {
            Ok(()) => Ok(Answer::Done(format!("removed {id}"))),
            Err(RemoveReleaseError::Unknown(_)) => Err(unknown(&id)),
            Err(RemoveReleaseError::Failed(error)) => Err(error.into()),
            Err(error) => Err(CommandError::Conflict { code: "in_use", text: error.to_string() }),
        }
    }
}
