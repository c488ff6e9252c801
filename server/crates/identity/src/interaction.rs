//! From a checked authorization request to its answer: sign in, choose a patient, consent, grant (OpenID
//! Connect Core 3.1.2.3, 3.1.2.4; SMART App Launch 2.2).
//!
//! Between two of our pages a request travels through the browser as a *sealed* value: its parameters, when
//! it came, and what the user has chosen since, marked with the server's secret for this very browser. Nothing
//! is stored for a request until it is granted, and nothing in it can be altered or carried to another browser.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::Identity;
use crate::audit::Event;
use crate::authorize::{ErrorCode, Hint, Refusal, Request};
use crate::client::ResponseType;
use crate::grant::Grant;
use crate::pushed::Pushed;
use crate::scope::Scopes;
use crate::session::Session;
use crate::token::{ACCESS_LIFE, Beside};
use crate::user::User;

/// How long a user may take.
pub const LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Longest query of a request, in bytes: sealed, it must still fit into an address.
pub const LONGEST_QUERY: usize = 8 * 1024;

const PURPOSE: &str = "interaction";

/// A request on its way through our pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interaction {
    /// The parameters.
    query: String,
    pushed: Option<Pushed>,
    /// When it came: what `prompt` asks for has to be done after that.
    begun: Timestamp,
    patient: Option<Choice>,
    consent: Option<ConsentAnswer>,
}

/// The user's answer to the consent page, for this request only.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ConsentAnswer {
    Denied,
    Allowed { sub: String, scopes: Scopes },
}

/// The patient that a user chose.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Choice {
    sub: String,
    patient: String,
}

/// What has to happen next.
#[derive(Debug)]
pub enum Step {
    /// Everything is settled: [`Identity::grant`].
    Grant(Box<Ready>),
    /// The client is told an error.
    Refuse(ErrorCode),
    /// Somebody has to sign in.
    SignIn,
    /// The user has to choose a patient.
    ChoosePatient {
        /// Who chooses.
        user: User,
    },
    /// The user is asked.
    Consent {
        /// Who is asked.
        user: User,
        /// What would be granted.
        scopes: Scopes,
        /// The patient whose data it is about.
        patient: Option<String>,
    },
}

/// What is granted, and by whom.
#[derive(Debug)]
pub struct Ready {
    session: Session,
    user: User,
    scopes: Scopes,
    patient: Option<String>,
}

impl Interaction {
    /// A request that has just come.
    pub fn new(request: &Request, now: Timestamp) -> Self {
        Self {
            query: request.query.clone(),
            pushed: request.pushed.clone(),
            begun: now,
            patient: None,
            consent: None,
        }
    }

    /// The user denied the request: the client receives `access_denied`.
    #[must_use]
    pub fn denied(mut self) -> Self {
        self.consent = Some(ConsentAnswer::Denied);
        self
    }

    /// The user allowed these scopes for this request. [`Identity::allow`] stores the consent for later requests.
    #[must_use]
    pub fn allowed(mut self, user: &User, scopes: &Scopes) -> Self {
        self.consent = Some(ConsentAnswer::Allowed { sub: user.sub.clone(), scopes: scopes.clone() });
        self
    }

    fn is_denied(&self) -> bool {
        matches!(self.consent, Some(ConsentAnswer::Denied))
    }

    fn is_allowed(&self, user: &User, wanted: &Scopes) -> bool {
        matches!(&self.consent, Some(ConsentAnswer::Allowed { sub, scopes })
            if *sub == user.sub && wanted.iter().all(|scope| scopes.covers(scope)))
    }

    /// The user chose this patient.
    #[must_use]
    pub fn with_patient(mut self, user: &User, patient: &str) -> Self {
        self.patient = Some(Choice { sub: user.sub.clone(), patient: patient.to_owned() });
        self
    }
}

impl Identity {
    /// The sealed value for this browser.
    pub fn seal(&self, interaction: &Interaction, browser: &str) -> String {
        let json = serde_json::to_vec(interaction).expect("our own records serialise");
        let text = URL_SAFE_NO_PAD.encode(json);
        let mark = self.mark(PURPOSE, &format!("{browser} {text}"));
        format!("{text}.{mark}")
    }

    /// Opens a sealed value; `None` when it is none, too old, or another browser's.
    pub fn open_seal(&self, sealed: &str, browser: &str, now: Timestamp) -> Option<Interaction> {
        let (text, mark) = sealed.split_once('.')?;
        if !self.is_marked(PURPOSE, &format!("{browser} {text}"), mark) {
            return None;
        }
        let interaction: Interaction = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (now < interaction.begun + LIFE).then_some(interaction)
    }

    /// Checks the request of an interaction once more: the client may have changed since.
    ///
    /// # Errors
    /// [`Refusal`].
    pub async fn check_interaction(
        &self,
        interaction: &Interaction,
        now: Timestamp,
    ) -> Result<Request, Refusal> {
        self.check_params(&interaction.query, interaction.pushed.clone(), now).await
    }

    /// What has to happen next. Nothing is changed by asking.
    ///
    /// # Errors
    /// The store's; the caller tells the client `server_error`.
    pub async fn next_step(
        &self,
        request: &Request,
        interaction: &Interaction,
        signed_in: Option<(Session, User)>,
        now: Timestamp,
    ) -> Result<Step, StoreError> {
        if interaction.is_denied() {
            return Ok(Step::Refuse(ErrorCode::AccessDenied));
        }
        let silent = request.prompt.none;
        let refuse_or = |error, step| if silent { Step::Refuse(error) } else { step };
        if let Some((session, _)) = &signed_in
            && let Hint::User(sub) = &request.hint
            && *sub != session.sub
            && session.auth_time >= interaction.begun
        {
            // Asked to be one, signed in as another: asking again would go round in circles.
            return Ok(Step::Refuse(ErrorCode::LoginRequired));
        }
        let signed_in = signed_in.filter(|(session, _)| suits(request, interaction, session, now));
        let Some((session, user)) = signed_in else {
            return Ok(refuse_or(ErrorCode::LoginRequired, Step::SignIn));
        };
        // What the user can grant of it: asked ∩ client ∩ user.
        let scopes = request.scopes.filter(|scope| user.may_grant(scope));
        if scopes.is_empty() {
            return Ok(Step::Refuse(ErrorCode::AccessDenied));
        }
        let patient = match self.launch_patient(&scopes, interaction, &user) {
            Launch::None => None,
            Launch::Patient(id) => Some(id),
            Launch::Choose => {
                return Ok(refuse_or(ErrorCode::InteractionRequired, Step::ChoosePatient { user }));
            }
            Launch::Nobody => return Ok(Step::Refuse(ErrorCode::AccessDenied)),
        };
        let each_time = request.prompt.consent || request.needs_interaction();
        if request.client.consent || each_time {
            let stored = self.consent(&user.sub, &request.client.client_id, now).await?;
            let given = stored.is_some_and(|stored| stored.covers(&request.client, &scopes))
                && (!each_time || interaction.is_allowed(&user, &scopes));
            if !given {
                let step = Step::Consent { user, scopes, patient };
                return Ok(refuse_or(ErrorCode::ConsentRequired, step));
            }
        }
        Ok(Step::Grant(Box::new(Ready { session, user, scopes, patient })))
    }

    fn launch_patient(&self, scopes: &Scopes, interaction: &Interaction, user: &User) -> Launch {
        if !scopes.is_launch() {
            return Launch::None;
        }
        let chosen = interaction.patient.as_ref().filter(|choice| choice.sub == user.sub);
        match (user.own_patient(), chosen) {
            (_, Some(choice)) if user.may_see_patient(&choice.patient) => {
                Launch::Patient(choice.patient.clone())
            }
            _ if user.sees_patients() => Launch::Choose,
            (Some(own), _) => Launch::Patient(own.to_owned()),
            (None, _) => Launch::Nobody,
        }
    }

    /// Grants the request; gives the address that carries the answer to the client. `None`: it was pushed and
    /// has been granted before.
    ///
    /// # Errors
    /// The store's; the caller tells the client `server_error`.
    pub async fn grant(
        &self,
        request: &Request,
        ready: Ready,
        now: Timestamp,
    ) -> Result<Option<String>, StoreError> {
        let Ready { session, user, scopes, patient } = ready;
        let grant = Grant {
            client_id: request.client.client_id.clone(),
            generation: request.client.generation.clone(),
            sub: session.sub,
            scopes,
            granted: now,
            auth_time: session.auth_time,
            amr: session.amr,
            sid: session.sid,
            epoch: session.epoch,
            nonce: request.nonce.clone(),
            family: self.random.id(),
            patient,
            jkt: request.jkt.clone(),
        };
        self.record(Event::Granted {
            sub: grant.sub.clone(),
            client_id: grant.client_id.clone(),
            scope: grant.scopes.to_string(),
            family: grant.family.clone(),
        });
        let once = request.pushed.as_ref().map(|pushed| pushed.use_up(now));
        let reply = &request.reply;
        if request.response_type == ResponseType::Code {
            let to = reply.to.clone();
            return match self.issue_code(grant, to, request.challenge.clone(), once, now).await {
                Ok(code) => Ok(Some(reply.address(vec![("code", &code)], false))),
                Err(StoreError::Conflict { .. }) => Ok(None),
                Err(error) => Err(error),
            };
        }
        if let Some(once) = once {
            match self.store.write(vec![once], now).await {
                Ok(_) => {}
                Err(StoreError::Conflict { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let with_access = request.response_type != ResponseType::IdToken;
        let access_token = with_access.then(|| self.mint_access_token(&grant, now));
        let beside = Beside { access_token: access_token.as_deref(), user: Some(&user) };
        let id_token =
            grant.scopes.has("openid").then(|| self.mint_id_token(&request.client, &grant, beside, now));
        let expires_in = ACCESS_LIFE.as_secs().to_string();
        let mut pairs = Vec::new();
        pairs.extend(id_token.as_deref().map(|token| ("id_token", token)));
        if let Some(token) = &access_token {
            pairs.extend([
                ("access_token", token.as_str()),
                ("token_type", "bearer"),
                ("expires_in", &expires_in),
            ]);
        }
        // RFC 6749 4.2.2: the scope is told where it differs from what was asked.
        let granted = grant.scopes.to_string();
        if grant.scopes != request.scopes {
            pairs.push(("scope", &granted));
        }
        Ok(Some(reply.address(pairs, true)))
    }
}

enum Launch {
    /// No patient's data is asked for.
    None,
    Patient(String),
    Choose,
    /// There is no patient that this user could open.
    Nobody,
}

/// Is this session what the request asks for?
fn suits(request: &Request, interaction: &Interaction, session: &Session, now: Timestamp) -> bool {
    let since = session.auth_time >= interaction.begun;
    // To the millisecond: `max_age=0` asks for a sign-in like `prompt=login` does.
    let age = now.duration_since(session.auth_time);
    let fresh = since || request.max_age.is_none_or(|max| age <= SignedDuration::from_secs(max));
    let again = since || !(request.prompt.login || request.prompt.select_account);
    let provider = request.identity_provider.is_none() || session.provider == request.identity_provider;
    let expected = match &request.hint {
        Hint::Nobody => true,
        Hint::User(sub) => *sub == session.sub,
        // Nothing can be answered silently for somebody who is not known; a page shows who it is.
        Hint::Unreadable => since || !request.prompt.none,
    };
    fresh && again && provider && expected
}
