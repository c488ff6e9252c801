//! The steps between a checked authorization request and its answer: sign-in, choice of a patient, consent,
//! grant (OpenID Connect Core sections 3.1.2.3 and 3.1.2.4; SMART App Launch 2.2).
//!
//! Between two pages the browser carries the state of the request as a *continuation*: readable JSON with a
//! message authentication code over the JSON and the browser's cookie. A continuation cannot be modified or
//! used in another browser. The server stores nothing before the grant, except requests that are too large
//! for an address (see [`large_request`](super::large_request)).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::StoreError;

use crate::audit::AuditEvent;
use crate::authorize::authorization_service::AuthorizationService;
use crate::authorize::pushed_request::PushedRequestRef;
use crate::authorize::refusal::{self, Refusal};
use crate::authorize::reply::{AuthorizationAnswer, AuthorizationError, PageError};
use crate::authorize::request::{AuthorizationRequest, IdTokenHint, RequestText};
use crate::encoding;
use crate::lifetimes;
use crate::model::client::ResponseType;
use crate::model::error_code::ErrorCode;
use crate::model::scope::{NamedScope, Scopes};
use crate::model::user::User;
use crate::params::Params;
use crate::sign_in::provider_id_token;
use crate::sign_in::session::Session;
use crate::tokens::grant::Grant;
use crate::tokens::id_token::IdTokenContext;

const MAC_PURPOSE: &str = "interaction";
/// Length of a message authentication code with the full stop before it, in bytes.
const MAC_BYTES: usize = 44;

/// State of an authorization request between two pages.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InteractionState {
    request: RequestSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pushed: Option<PushedRequestRef>,
    /// Time at which the request arrived. A sign-in or consent required by `prompt` must happen after this
    /// time.
    begun: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patient: Option<PatientChoice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<ConsentAnswer>,
}

/// Place of the text of the request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RequestSource {
    Inline(RequestText),
    /// In the record with this id.
    Record(String),
}

/// Maximum length of a continuation with the text of its request, before the user has answered, in bytes.
const MAX_CONTINUATION_BYTES: usize = 1024;

/// The user's answer on the consent page. It applies to this request only.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ConsentAnswer {
    Denied,
    Allowed { sub: String, scopes: String },
}

/// The patient that a user has selected.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PatientChoice {
    sub: String,
    patient: String,
}

/// The next step of an authorization request.
#[derive(Debug)]
pub enum NextStep {
    /// The request can be granted: call [`AuthorizationService::grant_request`].
    Grant(Box<GrantDecision>),
    /// Redirect to the client with an error.
    Reject(Refusal),
    /// The user must sign in.
    SignIn,
    /// The user must select a patient.
    ChoosePatient {
        /// The user who is signed in.
        user: User,
    },
    /// The user must consent.
    Consent {
        /// The user who is signed in.
        user: User,
        /// The scopes that would be granted.
        scopes: Scopes,
        /// The requested scopes that this user cannot grant.
        dropped: Scopes,
        /// Id of the patient whose data the scopes make accessible.
        patient: Option<String>,
    },
}

/// The content of a grant that all checks have approved: session, user, scopes and launch patient.
#[derive(Debug)]
pub struct GrantDecision {
    session: Session,
    user: User,
    scopes: Scopes,
    patient: Option<String>,
}

impl GrantDecision {
    /// The requested scopes that are not granted, because the user may not grant them.
    pub fn dropped_scopes(&self, request: &AuthorizationRequest) -> Scopes {
        refusal::dropped(&request.scopes, &self.scopes)
    }

    /// Subject of the user.
    pub fn sub(&self) -> &str {
        &self.user.sub
    }
}

impl InteractionState {
    /// Starts the interaction for a new request.
    pub fn new(request: &AuthorizationRequest, now: Timestamp) -> Self {
        Self {
            request: RequestSource::Inline(RequestText {
                query: request.query.clone(),
                launch: request.launch.clone(),
            }),
            pushed: request.pushed.clone(),
            begun: now,
            patient: None,
            consent: None,
        }
    }

    /// Records that the user denied the request: the client receives `access_denied`.
    #[must_use]
    pub fn denied(mut self) -> Self {
        self.consent = Some(ConsentAnswer::Denied);
        self
    }

    /// Records that the user allowed these scopes for this request.
    /// [`ConsentStore::allow_scopes`](crate::authorize::consent::ConsentStore::allow_scopes) stores the
    /// consent for later requests.
    #[must_use]
    pub fn allowed(mut self, user: &User, scopes: &Scopes) -> Self {
        self.consent = Some(ConsentAnswer::Allowed { sub: user.sub.clone(), scopes: scopes_digest(scopes) });
        self
    }

    /// The request, if the continuation would be too long with it.
    pub(super) fn large_request(&self) -> Option<&RequestText> {
        match &self.request {
            RequestSource::Inline(text) if self.encoded().len() + MAC_BYTES > MAX_CONTINUATION_BYTES => {
                Some(text)
            }
            _ => None,
        }
    }

    /// Refers to the record of the request from now on.
    pub(super) fn with_record(mut self, id: String) -> Self {
        self.request = RequestSource::Record(id);
        self
    }

    /// The id of the record of the request, if it has one.
    pub(super) fn record_id(&self) -> Option<&str> {
        match &self.request {
            RequestSource::Record(id) => Some(id),
            RequestSource::Inline(_) => None,
        }
    }

    /// The id of a pushed request.
    pub(super) fn pushed_id(&self) -> Option<&str> {
        self.pushed.as_ref().map(|pushed| pushed.id.as_str())
    }

    /// The time at which the interaction ends.
    pub(super) fn ends(&self) -> Timestamp {
        self.begun + lifetimes::INTERACTION
    }

    fn encoded(&self) -> String {
        let json = serde_json::to_vec(self).expect("a struct of strings and timestamps serializes to JSON");
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Reads the text of [`Self::encoded`]. It is not verified.
    fn decoded(text: &str) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }

    fn is_denied(&self) -> bool {
        matches!(self.consent, Some(ConsentAnswer::Denied))
    }

    fn is_allowed(&self, user: &User, requested: &Scopes) -> bool {
        matches!(&self.consent, Some(ConsentAnswer::Allowed { sub, scopes })
            if *sub == user.sub && *scopes == scopes_digest(requested))
    }

    /// Records the patient that the user selected.
    #[must_use]
    pub fn with_patient(mut self, user: &User, patient: &str) -> Self {
        self.patient = Some(PatientChoice { sub: user.sub.clone(), patient: patient.to_owned() });
        self
    }
}

impl AuthorizationService {
    /// Returns the continuation for this browser.
    pub fn sign_continuation(&self, interaction: &InteractionState, browser: &str) -> String {
        let text = interaction.encoded();
        let mac = self.server_secret.mac(MAC_PURPOSE, &format!("{browser} {text}"));
        format!("{text}.{mac}")
    }

    /// Verifies a continuation. Returns `None` if it is malformed, expired, or bound to another browser.
    pub fn verify_continuation(
        &self,
        continuation: &str,
        browser: &str,
        now: Timestamp,
    ) -> Option<InteractionState> {
        let (text, mac) = continuation.split_once('.')?;
        if !self.server_secret.verify_mac(MAC_PURPOSE, &format!("{browser} {text}"), mac) {
            return None;
        }
        let interaction = InteractionState::decoded(text)?;
        (now < interaction.ends()).then_some(interaction)
    }

    /// The `client_id` in a continuation that may be invalid or expired. Nothing in it is verified: it serves
    /// only to find the registered address of the application to which a person may return.
    pub fn claimed_client_id(continuation: &str) -> Option<String> {
        let (text, _) = continuation.split_once('.')?;
        match InteractionState::decoded(text)?.request {
            RequestSource::Inline(text) => {
                Params::parse(text.query.as_bytes()).get("client_id").map(str::to_owned)
            }
            RequestSource::Record(_) => None,
        }
    }

    /// Checks the authorization request of an interaction again, because the client's registration may have
    /// changed.
    ///
    /// # Errors
    /// Returns [`AuthorizationError`] if the request is rejected.
    pub async fn check_interaction(
        &self,
        interaction: &InteractionState,
        now: Timestamp,
    ) -> Result<AuthorizationRequest, AuthorizationError> {
        let RequestText { query, launch } = match &interaction.request {
            RequestSource::Inline(text) => text.clone(),
            RequestSource::Record(id) => {
                let loaded = self.load_large_request(id, now).await;
                let loaded = loaded.map_err(|error| AuthorizationError::Show(error.into()))?;
                loaded.ok_or(AuthorizationError::Show(PageError::Ended))?
            }
        };
        self.check_request_params(&query, interaction.pushed.clone(), launch, now).await
    }

    /// Returns the next step, without side effects.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails; the client then receives an [`ErrorCode`].
    pub async fn next_step(
        &self,
        request: &AuthorizationRequest,
        interaction: &InteractionState,
        signed_in: Option<(Session, User)>,
        now: Timestamp,
    ) -> Result<NextStep, StoreError> {
        if interaction.is_denied() {
            return Ok(NextStep::Reject(ErrorCode::AccessDenied.into()));
        }
        let silent = request.prompt.none;
        let reject_or = |error: ErrorCode, step| if silent { NextStep::Reject(error.into()) } else { step };
        if let Some((session, _)) = &signed_in
            && let IdTokenHint::User(sub) = &request.hint
            && *sub != session.sub
            && session.started >= interaction.begun
        {
            // The user signed in during this interaction, but as another user than `id_token_hint` names.
            // Requiring another sign-in would loop.
            let reason = "the user who signed in is not the one of id_token_hint or of the launch";
            return Ok(NextStep::Reject(Refusal::new(ErrorCode::LoginRequired, reason)));
        }
        let signed_in =
            signed_in.filter(|(session, _)| satisfies_request(request, interaction, session, now));
        let Some((session, user)) = signed_in else {
            return Ok(reject_or(ErrorCode::LoginRequired, NextStep::SignIn));
        };
        // The scopes that the user can grant: requested, registered for the client and allowed for the user.
        // `launch/encounter` is granted only if the launch has an encounter.
        let has_encounter = request.launch.as_ref().is_some_and(|launch| launch.encounter.is_some());
        let scopes = request.scopes.filter(|scope| {
            user.may_grant(scope) && (scope != NamedScope::LaunchEncounter.name() || has_encounter)
        });
        // An application that asks for the records of a patient cannot work with a sign-in alone.
        let lacks_patient = request.scopes.is_launch() && !user.has_launch_patient();
        if lacks_patient && scopes.smart_scopes().next().is_none() {
            let reason = "the application asks for a patient, and the user has none";
            let remedy = "set fhir_user, patients or allowed_scopes of the user, such as \
                          trefoil user change NAME --patient ID";
            let refusal = Refusal::new(ErrorCode::AccessDenied, reason).with_value(Some(&user.sub));
            return Ok(NextStep::Reject(refusal.mended_by(remedy.to_owned())));
        }
        if scopes.is_empty() {
            let reason = "the user may grant none of the requested scopes";
            let refusal = Refusal::new(ErrorCode::AccessDenied, reason);
            return Ok(NextStep::Reject(refusal.with_value(Some(&request.scopes.to_string()))));
        }
        let patient = match self.launch_patient(request, &scopes, interaction, &user) {
            LaunchPatient::None => None,
            LaunchPatient::Patient(id) => Some(id),
            LaunchPatient::Choose => {
                return Ok(reject_or(ErrorCode::InteractionRequired, NextStep::ChoosePatient { user }));
            }
            LaunchPatient::Inaccessible => {
                let reason = "the user may not access the patient of the launch";
                let patient = request.launch.as_ref().and_then(|launch| launch.patient.as_deref());
                let refusal = Refusal::new(ErrorCode::AccessDenied, reason).with_value(patient);
                return Ok(NextStep::Reject(refusal));
            }
        };
        let each_time = request.prompt.consent || request.needs_interaction();
        if request.client.consent || each_time {
            let user_consent = self.consents.user_consent(&user.sub, &request.client.client_id, now).await?;
            let is_given = user_consent.is_some_and(|consent| consent.covers(&request.client, &scopes))
                && (!each_time || interaction.is_allowed(&user, &scopes));
            if !is_given {
                let dropped = refusal::dropped(&request.scopes, &scopes);
                let step = NextStep::Consent { user, scopes, dropped, patient };
                return Ok(reject_or(ErrorCode::ConsentRequired, step));
            }
        }
        Ok(NextStep::Grant(Box::new(GrantDecision { session, user, scopes, patient })))
    }

    fn launch_patient(
        &self,
        request: &AuthorizationRequest,
        scopes: &Scopes,
        interaction: &InteractionState,
        user: &User,
    ) -> LaunchPatient {
        // The patient of the portal, if the user has access.
        if let Some(patient) = request.launch.as_ref().and_then(|launch| launch.patient.as_deref()) {
            return match user.may_see_patient(patient) {
                true => LaunchPatient::Patient(patient.to_owned()),
                false => LaunchPatient::Inaccessible,
            };
        }
        if !scopes.is_launch() {
            return LaunchPatient::None;
        }
        let patient_choice = interaction.patient.as_ref().filter(|choice| choice.sub == user.sub);
        match (&user.patients()[..], patient_choice) {
            (_, Some(choice)) if user.may_see_patient(&choice.patient) => {
                LaunchPatient::Patient(choice.patient.clone())
            }
            _ if user.sees_patients() => LaunchPatient::Choose,
            ([], _) => LaunchPatient::Inaccessible,
            ([only], _) => LaunchPatient::Patient((*only).to_owned()),
            (_, _) => LaunchPatient::Choose,
        }
    }

    /// Grants the request and returns the answer to the client. Returns `None` for a pushed request that was
    /// granted before.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails; the client then receives an [`ErrorCode`].
    pub async fn grant_request(
        &self,
        request: &AuthorizationRequest,
        decision: GrantDecision,
        now: Timestamp,
    ) -> Result<Option<AuthorizationAnswer>, StoreError> {
        let GrantDecision { session, user, scopes, patient } = decision;
        let grant = Grant {
            client_id: request.client.client_id.clone(),
            generation: request.client.generation.clone(),
            sub: session.sub,
            scopes,
            granted: now,
            auth_time: session.auth_time,
            amr: session.amr,
            provider: session.provider,
            sid: session.sid,
            session_ends: session.ends,
            epoch: session.epoch,
            nonce: request.nonce.clone(),
            family: self.random.id(),
            patient,
            encounter: request.launch.as_ref().and_then(|launch| launch.encounter.clone()),
            need_patient_banner: request.launch.as_ref().is_none_or(|launch| launch.need_patient_banner),
            jkt: request.jkt.clone(),
            resource: request.resource.clone(),
            fhir_context: request
                .launch
                .as_ref()
                .map(|launch| launch.fhir_context.clone())
                .unwrap_or_default(),
            intent: request.launch.as_ref().and_then(|launch| launch.intent.clone()),
        };
        self.audit.record(AuditEvent::Granted {
            sub: grant.sub.clone(),
            client_id: grant.client_id.clone(),
            scope: grant.scopes.to_string(),
            family: grant.family.clone(),
        });
        let consumption = request.pushed.as_ref().map(|pushed| pushed.consume(now));
        let reply = &request.reply;
        if request.response_type == ResponseType::Code {
            let to = reply.to.clone();
            return match self
                .grants
                .issue_authorization_code(
                    grant,
                    to,
                    request.challenge.clone(),
                    consumption,
                    request.client.authorization_code_lifetime(),
                    now,
                )
                .await
            {
                Ok(code) => Ok(Some(reply.answer(vec![("code", &code)], false))),
                Err(StoreError::Conflict { .. }) => Ok(None),
                Err(error) => Err(error),
            };
        }
        if let Some(consumption) = consumption {
            match self.ledger.write(vec![consumption], now).await {
                Ok(_) => {}
                Err(StoreError::Conflict { .. }) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let with_access = request.response_type != ResponseType::IdToken;
        let access_token = with_access
            .then(|| self.tokens.mint_access_token(&grant, Some(&user), lifetimes::ACCESS_TOKEN, now));
        let context = IdTokenContext { access_token: access_token.as_deref(), user: Some(&user) };
        let id_token = match grant.scopes.has(NamedScope::Openid) {
            true => Some(self.tokens.mint_id_token(&request.client, &grant, context, now).await?),
            false => None,
        };
        let expires_in = lifetimes::ACCESS_TOKEN.as_secs().to_string();
        let mut pairs = Vec::new();
        pairs.extend(id_token.as_deref().map(|token| ("id_token", token)));
        if let Some(token) = &access_token {
            pairs.extend([
                ("access_token", token.as_str()),
                ("token_type", "bearer"),
                ("expires_in", &expires_in),
            ]);
        }
        // RFC 6749 section 4.2.2: the response must contain `scope` if the granted scope differs from the
        // requested one.
        let scope_text = grant.scopes.to_string();
        if grant.scopes != request.scopes {
            pairs.push(("scope", &scope_text));
        }
        Ok(Some(reply.answer(pairs, true)))
    }
}

/// The digest by which the scopes of an answer are compared with those that would be granted.
fn scopes_digest(scopes: &Scopes) -> String {
    encoding::sha256_base64url(&scopes.to_string())
}

enum LaunchPatient {
    /// No scope makes the data of a patient accessible.
    None,
    Patient(String),
    Choose,
    /// The user cannot access any patient.
    Inaccessible,
}

/// `true` if the session satisfies `prompt`, `max_age`, `id_token_hint` and `identity_provider` of the
/// request.
fn satisfies_request(
    request: &AuthorizationRequest,
    interaction: &InteractionState,
    session: &Session,
    now: Timestamp,
) -> bool {
    let since = session.started >= interaction.begun;
    // The clock of a provider may differ, and `auth_time` is in seconds.
    let leeway = SignedDuration::from_secs(match session.provider {
        Some(_) if since => provider_id_token::CLOCK_LEEWAY_S,
        _ => 0,
    });
    let authenticated = since && session.auth_time.is_some_and(|time| time + leeway >= interaction.begun);
    // The age is compared in milliseconds: `max_age=0` requires a new sign-in, as `prompt=login` does.
    let is_within =
        |max| session.is_authenticated_within(SignedDuration::from_secs(max).saturating_add(leeway), now);
    let fresh = authenticated || request.max_age.is_none_or(is_within);
    let again = (authenticated || !request.prompt.login) && (since || !request.prompt.select_account);
    let provider = request.identity_provider.is_none() || session.provider == request.identity_provider;
    let expected = match &request.hint {
        IdTokenHint::Missing => true,
        IdTokenHint::User(sub) => *sub == session.sub,
        // The user of the hint is unknown, so the session is accepted only if the user signed in again or can
        // see a page.
        IdTokenHint::Unreadable => since || !request.prompt.none,
    };
    fresh && again && provider && expected
}
