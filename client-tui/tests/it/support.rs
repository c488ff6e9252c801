//! Shared helpers: a profile, a model, and functions that press keys.

use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use trefoil_tui::api::{Api, ExportLevel, ExportManifest, KickOff, OutputFile, SignedInSession};
use trefoil_tui::clock::ClientClock;
use trefoil_tui::display::DisplayOptions;
use trefoil_tui::export::ExportJob;
use trefoil_tui::key;
use trefoil_tui::model::{Model, YES};
use trefoil_tui::msg::{Message, RuntimeEffect};
use trefoil_tui::profile::Profile;
use trefoil_tui::profile::{BackendProfile, ClientCredential, FormDefaults};
use trefoil_tui::update::update;
use trefoil_tui::user_programs::UserPrograms;

/// Two private keys as a JWK Set, the EC key first.
pub const JWKS: &str = include_str!("keys/jwks.json");

/// Returns the fixed time of these tests.
pub fn now() -> Timestamp {
    "2024-05-01T12:00:00Z".parse().unwrap()
}

/// The clock of these tests: the time is fixed, and waiting takes no time.
pub const CLOCK: ClientClock = ClientClock { now, wait: |_| Box::pin(std::future::ready(())) };

/// Returns a profile of a server at this address, with a client for users and a backend client.
pub fn profile(base_url: &str) -> Profile {
    let key = key::read(JWKS, None, None).unwrap();
    Profile {
        client_id: Some("native".to_owned()),
        backend: Some(BackendProfile {
            client_id: "backend".to_owned(),
            credential: ClientCredential::Key(key),
        }),
        open_browser: false,
        examples: FormDefaults {
            value_set: "https://t.example/ValueSet/aids".to_owned(),
            system: "https://t.example/CodeSystem/aids".to_owned(),
            code: "cane".to_owned(),
            hierarchy: "https://t.example/CodeSystem/aids".to_owned(),
            code_a: "aid".to_owned(),
            code_b: "cane".to_owned(),
            group: "g1".to_owned(),
            username: "willow".to_owned(),
            password_file: "demo/demo.json".to_owned(),
        },
        ..Profile::at(base_url).unwrap()
    }
}

/// Returns a client for the server at this address.
pub fn api(base_url: &str) -> Api {
    trefoil_tui::install_crypto();
    Api::new(profile(base_url), CLOCK, Box::new(drop)).unwrap()
}

/// Returns the initial model.
pub fn new_model() -> Model {
    Model::new(&profile("https://t.example"), DisplayOptions::default(), now())
}

/// Returns the initial model on the sign-in screen.
pub fn model() -> Model {
    let mut model = new_model();
    press(&mut model, KeyCode::Char('1'));
    model
}

/// Presses one key and returns the effects.
pub fn press(model: &mut Model, code: KeyCode) -> Vec<RuntimeEffect> {
    update(model, Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

/// Lets a second pass, so that a person has read a question.
pub fn wait(model: &mut Model) {
    update(model, Message::Tick(model.now + SignedDuration::from_secs(1)));
}

/// Answers a question with yes.
pub fn confirm(model: &mut Model) -> Vec<RuntimeEffect> {
    wait(model);
    press(model, KeyCode::Char(YES))
}

/// Types a text, character by character.
pub fn type_text(model: &mut Model, text: &str) {
    for c in text.chars() {
        assert_eq!(press(model, KeyCode::Char(c)), [], "typing '{c}' has no effects");
    }
}

pub fn session() -> SignedInSession {
    SignedInSession {
        subject: Some("s1".to_owned()),
        requested_scope: "openid profile user/Secret.rs".to_owned(),
        scope: "openid profile".to_owned(),
        expires_at: "2024-05-01T13:00:00Z".parse().unwrap(),
        renewable: true,
        not_stored: None,
    }
}

/// Returns the record of an export of a Group, which was not started yet.
pub fn job() -> ExportJob {
    let level = ExportLevel::Group("g1".to_owned());
    let request = KickOff { level, ..KickOff::default() };
    ExportJob::new("https://t.example/fhir/R4", request, now())
}

/// Returns a manifest of three files.
pub fn manifest() -> ExportManifest {
    let file = |kind: &str, count| OutputFile {
        kind: kind.to_owned(),
        url: format!("https://t.example/fhir/R4/bulk/j1/{kind}.ndjson"),
        count,
    };
    ExportManifest {
        transaction_time: "2024-05-01T12:00:00.000Z".to_owned(),
        requires_access_token: true,
        output: vec![file("Observation", Some(240)), file("Patient", Some(5))],
        deleted: vec![],
        error: vec![file("OperationOutcome", None)],
        link: vec![],
    }
}

/// Programs of a user who changes requests and reads nothing else.
pub struct Programs;

impl UserPrograms for Programs {
    fn edit(&mut self, text: &str) -> Result<Option<String>, String> {
        Ok(Some(text.replace("accept: ", "x-edited: ")))
    }

    fn page(&mut self, _: &str) -> Result<(), String> {
        Err("there is no pager".to_owned())
    }

    fn suspend(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn resume(&mut self) -> Result<(), String> {
        Ok(())
    }
}
