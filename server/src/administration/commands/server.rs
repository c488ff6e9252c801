//! Commands about a running server: its state, its configuration and its clock.

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::administration::command::AdminMethod::{Get, Post};
use crate::administration::command::{AdminRoute, Answer, AnswerShape, Call, Command, CommandError, Doors};
use crate::administration::events::{CommandEvent, EventSink};
use crate::administration::status::{ServerStatus, show_status};
use crate::node::reload::reload_config;

/// Show the state of the server: version, store, sizes, exports, certificate, refusals and faults.
///
/// Ends with exit code 1 if a part does not work.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil status --json")]
pub struct Status {}

impl Command for Status {
    const DOORS: Doors = Doors::all("Show", &[AdminRoute::new(Get, "status")]);
    const ANSWER: AnswerShape = AnswerShape::record::<ServerStatus>();

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        Ok(show_status(call.services).await?.into())
    }
}

/// Make a running server read its configuration again, as SIGHUP does.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil reload")]
pub struct Reload {}

impl Command for Reload {
    const DOORS: Doors = Doors::all("Read the configuration again", &[AdminRoute::new(Post, "reload")]);

    async fn run(self, call: &Call<'_>, events: EventSink<'_>) -> Result<Answer, CommandError> {
        let app = call.services.app;
        let app = app.context("no server runs on this folder; its settings are read at the start")?;
        for line in reload_config(app).await? {
            events(CommandEvent::Line(line));
        }
        Ok(Answer::Told(0))
    }
}

/// Accept the present time after the clock jumped ahead, so that writes are possible again.
///
/// Timestamps already given to resources stay.
#[derive(Debug, Args, Serialize, Deserialize)]
#[command(after_help = "Example:\n  trefoil clock accept")]
pub struct AcceptClock {}

impl Command for AcceptClock {
    const DOORS: Doors = Doors::COMMAND_LINE;

    async fn run(self, call: &Call<'_>, _: EventSink<'_>) -> Result<Answer, CommandError> {
        // The clock is state of the running process.
        let app = call.services.app;
        let app = app.context("no server runs on this folder; the next start accepts the clock as it is")?;
        let moved = app.clock_check.guard.accept();
        tracing::warn!(moved_s = moved.as_secs(), "an operator accepted the clock");
        let (now, moved) = (app.clock.now(), moved.as_secs());
        Ok(Answer::Done(format!("accepted the clock, {now}; it had moved by {moved} s")))
    }
}
