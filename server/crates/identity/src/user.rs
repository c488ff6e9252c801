//! Users: people who sign in.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{Action, Event};
use crate::scope::{ADMIN, Context, Permissions, Scopes, SmartScope};
use crate::{Identity, ledger};

/// The standard claims that a user may have (OpenID Connect Core 5.1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of OpenID Connect")]
pub struct Claims {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email_verified: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number_verified: Option<bool>,
}

/// A user, under `user/{sub}`; `username/{username}` leads to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct User {
    /// Subject identifier: random, never reused.
    pub sub: String,
    /// What is typed at sign-in.
    pub username: String,
    /// Claims for clients.
    pub claims: Claims,
    /// Issuer of the provider that set `email` and `email_verified`; `None` if an administrator did.
    #[serde(default)]
    pub email_verified_by: Option<String>,
    /// Scopes that this user may grant.
    pub allowed_scopes: Scopes,
    /// The FHIR resource that this user is (`Patient/x`, `Practitioner/y`).
    #[serde(default)]
    pub fhir_user: Option<String>,
    /// May this user have the admin scope?
    #[serde(default)]
    pub administrator: bool,
    /// PHC string; `None` where only a provider signs this user in.
    #[serde(default)]
    pub password: Option<String>,
    /// Disabled users neither sign in nor use tokens.
    #[serde(default)]
    pub disabled: bool,
    /// Counter copied into tokens; raised at global sign-out, which ends all tokens before it.
    #[serde(default)]
    pub epoch: u64,
    /// Does the user belong to the demo project?
    #[serde(default)]
    pub demo: bool,
}

impl User {
    /// The Patient that this user is.
    pub fn own_patient(&self) -> Option<&str> {
        self.fhir_user.as_deref()?.strip_prefix("Patient/")
    }

    /// May this user see Patients beside that one?
    pub fn sees_patients(&self) -> bool {
        self.allowed_scopes.allow(Context::User, "Patient", Permissions::GET)
    }

    /// May this user see this Patient?
    pub fn may_see_patient(&self, id: &str) -> bool {
        self.own_patient() == Some(id) || self.sees_patients()
    }

    /// May this user grant a scope (DESIGN, who may what)? What the user is allowed; who is a Patient also
    /// reading of that Patient's own data; and of one patient what is allowed of all.
    pub fn may_grant(&self, scope: &str) -> bool {
        if scope == ADMIN {
            return self.administrator;
        }
        if self.allowed_scopes.covers(scope) {
            return true;
        }
        match SmartScope::parse(scope).filter(|smart| smart.query.is_none()) {
            Some(smart) => {
                let own = self.own_patient().is_some() && Permissions::READ.contain(smart.permissions);
                let all = self.allowed_scopes.allow(Context::User, smart.kind, smart.permissions);
                match smart.context {
                    Context::Patient => own || all,
                    Context::User => own,
                    Context::System => false,
                }
            }
            None => match scope {
                "fhirUser" => self.fhir_user.is_some(),
                "launch/patient" => self.own_patient().is_some() || self.sees_patients(),
                _ => false,
            },
        }
    }
}

/// Why a user could not be added or changed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The name is taken.
    #[error("a user '{0}' exists already; choose another name")]
    Exists(String),
    /// The name cannot be one.
    #[error("user name '{0}' must have 1 to 100 characters, none of them space, '/' or control characters")]
    BadName(String),
    /// There is no such user.
    #[error("there is no user '{0}'; `trefoil user list` shows all")]
    Unknown(String),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Serialize, Deserialize)]
struct Username {
    sub: String,
}

impl Identity {
    /// The user of this subject, where it exists and may sign in or use tokens now.
    ///
    /// # Errors
    /// The store's.
    pub async fn user(&self, sub: &str, now: Timestamp) -> Result<Option<User>, StoreError> {
        let found = ledger::get::<User>(&self.store, &format!("user/{sub}"), now).await?;
        Ok(found.map(|stored| stored.value).filter(|user| !user.disabled && (self.demo || !user.demo)))
    }

    /// The user of this name, disabled ones included.
    ///
    /// # Errors
    /// The store's.
    pub async fn user_named(&self, username: &str, now: Timestamp) -> Result<Option<User>, StoreError> {
        let key = format!("username/{}", username.to_lowercase());
        let Some(name) = ledger::get::<Username>(&self.store, &key, now).await? else { return Ok(None) };
        Ok(ledger::get::<User>(&self.store, &format!("user/{}", name.value.sub), now).await?.map(|s| s.value))
    }

    /// The user of this name who may sign in now.
    ///
    /// # Errors
    /// The store's.
    pub async fn user_for_sign_in(&self, username: &str, now: Timestamp) -> Result<Option<User>, StoreError> {
        Ok(self.user_named(username, now).await?.filter(|user| !user.disabled && (self.demo || !user.demo)))
    }

    /// All users.
    ///
    /// # Errors
    /// The store's.
    pub async fn users(&self, now: Timestamp) -> Result<Vec<User>, StoreError> {
        ledger::all(&self.store, "user/", now).await
    }

    /// Adds a user; `sub` is made here.
    ///
    /// # Errors
    /// [`UserError`]: what to change.
    pub async fn add_user(&self, mut user: User, now: Timestamp) -> Result<User, UserError> {
        let name = &user.username;
        if name.is_empty()
            || name.chars().count() > 100
            || name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '/')
        {
            return Err(UserError::BadName(name.clone()));
        }
        user.sub = self.random.id();
        let by_name = Username { sub: user.sub.clone() };
        let writes = vec![
            ledger::put(format!("username/{}", name.to_lowercase()), &by_name, None, Expect::Absent),
            ledger::put(format!("user/{}", user.sub), &user, None, Expect::Absent),
        ];
        match self.store.write(writes, now).await {
            Ok(_) => {
                self.record(Event::User { action: Action::Create, sub: user.sub.clone() });
                Ok(user)
            }
            Err(StoreError::Conflict { .. }) => Err(UserError::Exists(user.username)),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes a user in one compare-and-set, tried again when somebody else was faster.
    ///
    /// # Errors
    /// [`UserError::Unknown`] and the store's.
    pub async fn change_user(
        &self,
        username: &str,
        now: Timestamp,
        change: impl Fn(&mut User) + Send,
    ) -> Result<User, UserError> {
        let unknown = || UserError::Unknown(username.to_owned());
        loop {
            let found = self.user_named(username, now).await?.ok_or_else(unknown)?;
            let key = format!("user/{}", found.sub);
            let mut stored = ledger::get::<User>(&self.store, &key, now).await?.ok_or_else(unknown)?;
            change(&mut stored.value);
            let write = ledger::put(key, &stored.value, None, Expect::Revision(stored.revision));
            match self.store.write(vec![write], now).await {
                Ok(_) => {
                    self.record(Event::User { action: Action::Update, sub: stored.value.sub.clone() });
                    return Ok(stored.value);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Global sign-out: every session and token of the user ends now.
    ///
    /// # Errors
    /// [`UserError::Unknown`] and the store's.
    pub async fn sign_out_everywhere(&self, username: &str, now: Timestamp) -> Result<(), UserError> {
        let user = self.change_user(username, now, |user| user.epoch += 1).await?;
        self.record(Event::SignOutEverywhere { sub: user.sub });
        Ok(())
    }

    /// Deletes a user; sessions and tokens end now.
    ///
    /// # Errors
    /// [`UserError::Unknown`] and the store's.
    pub async fn delete_user(&self, username: &str, now: Timestamp) -> Result<(), UserError> {
        let user =
            self.user_named(username, now).await?.ok_or_else(|| UserError::Unknown(username.to_owned()))?;
        let keys = [format!("username/{}", user.username.to_lowercase()), format!("user/{}", user.sub)];
        let mut writes = self.remove_methods(&user.sub, now).await?;
        writes.extend(keys.map(|key| LedgerWrite::Delete { key, expect: Expect::Any }));
        self.store.write(writes, now).await?;
        self.record(Event::User { action: Action::Delete, sub: user.sub });
        Ok(())
    }
}
