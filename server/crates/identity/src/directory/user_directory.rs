//! The users. Each user has two records: the user under the subject, and the subject under the user name.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, AuditSink, RecordAction, SignInMethod};
use crate::directory::account_links::LinkedAccount;
use crate::directory::patient_relations::PatientRelations;
use crate::directory::provider_rules::{ProviderRules, SignedInBy};
use crate::ledger_keys;
use crate::model::mapped_claims::MappedClaims;
use crate::model::provider::IdentityProvider;
use crate::model::scope::Scopes;
use crate::model::user::{User, default_scopes};
use crate::model::user_name::{self, UserNameDefect};
use crate::random::Random;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::records;

/// A user with the revision of the stored record.
pub struct VersionedUser {
    /// The user.
    pub user: User,
    /// Revision of the record, which changes with each write.
    pub revision: u64,
}

/// Reasons why a change of a user is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ChangeUserError {
    /// There is no such user.
    #[error("there is no such user")]
    Unknown,
    /// The record was changed since it was read.
    #[error("the user was changed since it was read; read it again")]
    Stale,
    /// The changed user would be invalid.
    #[error(transparent)]
    User(#[from] UserError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Specifies what happens to the other sign-in methods when a user is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherMethods {
    /// Keep passkeys, recovery codes and linked accounts.
    Keep,
    /// Remove passkeys, recovery codes and linked accounts in the same transaction, except the account for
    /// which the user was created: nobody else can have added it.
    RemoveAdded,
    /// Remove passkeys, recovery codes and all linked accounts in the same transaction.
    RemoveAll,
}

/// Specifies what happens to the external accounts of a user who is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountsOfDeleted {
    /// They stay known and can never sign in.
    Remember,
    /// They can sign in as another user.
    Forget,
}

/// Reasons why a user cannot be added or changed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Another user has this name.
    #[error("a user '{0}' exists already; choose another name")]
    Exists(String),
    /// The name is invalid.
    #[error("user name '{}' is not accepted: {defect}", name.escape_debug())]
    BadName {
        /// The name.
        name: String,
        /// The rule that it violates.
        defect: UserNameDefect,
    },
    /// There is no such user.
    #[error("user '{0}' does not exist; `trefoil user list` shows all users")]
    Unknown(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Number of index entries that are read at a time.
const INDEX_PAGE: usize = 256;

#[derive(Serialize, Deserialize)]
struct UserNameIndex {
    sub: String,
}

/// The users, stored in the ledger.
pub struct UserDirectory {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) relations: Arc<dyn PatientRelations>,
    pub(crate) providers: Arc<ProviderRules>,
    /// `true` if users of the demo project may sign in.
    pub(crate) demo: bool,
}

impl UserDirectory {
    /// Returns the user of a session or grant if the user exists and may use it now, with the rights that
    /// count after this sign-in.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn signed_in_user(
        &self,
        sub: &str,
        by: SignedInBy<'_>,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        let Some(user) = self.served_user(sub, now).await? else { return Ok(None) };
        let providers = self.providers.current();
        let provider = match by {
            SignedInBy::OwnMethod => None,
            SignedInBy::Provider(name) => providers.iter().find(|provider| provider.name == name),
            SignedInBy::UnnamedProvider => {
                let issuer = user.mapped.as_ref().and_then(|mapped| mapped.issuer.as_ref());
                let is_issuer = |provider: &&IdentityProvider| {
                    provider.mapping.gives_rights() && issuer.is_none_or(|issuer| *issuer == provider.issuer)
                };
                providers.iter().find(is_issuer)
            }
        };
        Ok(Some(self.with_relations(user.with_counted_rights(provider, now), now).await?))
    }

    /// Returns the user with this subject if the user exists and may sign in now, with all rights that any
    /// sign-in gave.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn active_user(&self, sub: &str, now: Timestamp) -> Result<Option<User>, StoreError> {
        match self.served_user(sub, now).await? {
            Some(user) => Ok(Some(self.with_relations(user, now).await?)),
            None => Ok(None),
        }
    }

    async fn served_user(&self, sub: &str, now: Timestamp) -> Result<Option<User>, StoreError> {
        let record = self.ledger.read_record::<User>(&ledger_keys::user_record(sub), now).await?;
        Ok(record.map(|record| record.value).filter(|user| !user.disabled && self.is_served(user)))
    }

    /// Returns the user with this name, disabled or not. White space around the name is ignored.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn user_by_name(&self, username: &str, now: Timestamp) -> Result<Option<User>, StoreError> {
        // A name from before the rules for names is stored in lower case; its user must not become another
        // one.
        let username = username.trim();
        let own_name = username.to_lowercase();
        let mapped = user_name::mapped_name(username).filter(|mapped| *mapped != own_name);
        for name in [Some(own_name), mapped].into_iter().flatten() {
            let key = ledger_keys::user_name(&name);
            if let Some(index) = self.ledger.read_record::<UserNameIndex>(&key, now).await? {
                let key = ledger_keys::user_record(&index.value.sub);
                return Ok(self.ledger.read_record::<User>(&key, now).await?.map(|record| record.value));
            }
        }
        Ok(None)
    }

    /// Returns the users with this e-mail address, verified or not. Reads only these users.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn users_by_email(&self, email: &str, now: Timestamp) -> Result<Vec<User>, StoreError> {
        let prefix = ledger_keys::user_email(email, "");
        let mut users = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page = self.ledger.scan(&prefix, after.as_deref(), INDEX_PAGE, now).await?;
            let Some((last, _)) = page.last() else { return Ok(users) };
            after = Some(last.clone());
            for sub in page.iter().filter_map(|(key, _)| key.strip_prefix(&prefix)) {
                let record = self.ledger.read_record::<User>(&ledger_keys::user_record(sub), now).await?;
                users.extend(record.map(|record| record.value));
            }
        }
    }

    /// Adds the users of an earlier version of this server to the index of e-mail addresses, once.
    pub(crate) async fn index_emails(&self, now: Timestamp) -> Result<(), StoreError> {
        if self.ledger.get(ledger_keys::USER_EMAIL_INDEX, now).await?.is_some() {
            return Ok(());
        }
        for user in self.all_users(now).await? {
            let entries = email_index_writes(None, Some(&user));
            if !entries.is_empty() {
                self.ledger.write(entries, now).await?;
            }
        }
        let marker = LedgerWrite::put(ledger_keys::USER_EMAIL_INDEX, "", Expect::Any);
        self.ledger.write(vec![marker], now).await.map(drop)
    }

    /// Adds to the scopes of users what has become part of the default, once. Only users whose scopes equal
    /// the previous default are changed: an administrator has chosen those of all others.
    pub(crate) async fn extend_default_scopes(&self, now: Timestamp) -> Result<(), StoreError> {
        let marker = ledger_keys::USER_DEFAULT_SCOPES;
        if self.ledger.get(marker, now).await?.is_some() {
            return Ok(());
        }
        let previous: Scopes = ["openid", "profile", "email", "phone"].into_iter().collect();
        for user in self.all_users(now).await? {
            let key = ledger_keys::user_record(&user.sub);
            while let Some(record) = self.ledger.read_record::<User>(&key, now).await?
                && record.value.allowed_scopes == previous
            {
                let user = User { allowed_scopes: default_scopes(), ..record.value };
                let write = records::put_record(key.clone(), &user, None, Expect::Revision(record.revision));
                match self.ledger.write(vec![write], now).await {
                    // Another change came first: read the user again.
                    Ok(_) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.ledger.write(vec![LedgerWrite::put(marker, "", Expect::Any)], now).await.map(drop)
    }

    /// Gives the rights of mappings from before their claims were stored the time of the upgrade, once, from
    /// which their age counts.
    pub(crate) async fn date_mapped_rights(&self, now: Timestamp) -> Result<(), StoreError> {
        let marker = ledger_keys::USER_MAPPED_RIGHTS;
        if self.ledger.get(marker, now).await?.is_some() {
            return Ok(());
        }
        for user in self.all_users(now).await? {
            let key = ledger_keys::user_record(&user.sub);
            while let Some(record) = self.ledger.read_record::<User>(&key, now).await?
                && record.value.is_mapped
                && record.value.mapped.is_none()
            {
                let fhir_user = record.value.fhir_user.clone();
                let mapped = Some(MappedClaims {
                    issuer: None,
                    at: now,
                    values: None,
                    fhir_user,
                    passed_on: BTreeMap::new(),
                });
                let user = User { mapped, ..record.value };
                let write = records::put_record(key.clone(), &user, None, Expect::Revision(record.revision));
                match self.ledger.write(vec![write], now).await {
                    // Another change came first: read the user again.
                    Ok(_) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.ledger.write(vec![LedgerWrite::put(marker, "", Expect::Any)], now).await.map(drop)
    }

    /// Returns the user with this name if the user may sign in now.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn active_user_by_name(
        &self,
        username: &str,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        Ok(self.user_by_name(username, now).await?.filter(|user| !user.disabled && self.is_served(user)))
    }

    /// The user with the patients to whom the user is related now, and with the scopes of declared claims.
    async fn with_relations(&self, mut user: User, now: Timestamp) -> Result<User, StoreError> {
        user.claim_scopes = self.providers.claims().iter().map(|claim| claim.scope.as_str()).collect();
        if user.depends_on_resources() {
            user.related_patients = self.relations.patients_of(&user, now).await?;
        }
        Ok(user)
    }

    /// Returns all users.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn all_users(&self, now: Timestamp) -> Result<Vec<User>, StoreError> {
        self.ledger.read_records(ledger_keys::USERS, now).await
    }

    /// Adds a user with a new subject.
    ///
    /// # Errors
    /// Returns [`UserError`] if the name is invalid or taken.
    pub async fn add_user(&self, user: User, now: Timestamp) -> Result<User, UserError> {
        self.add_user_with(User { sub: self.random.id(), ..user }, Vec::new(), now).await
    }

    /// Adds a user whose subject is set, together with other writes.
    pub(crate) async fn add_user_with(
        &self,
        user: User,
        others: Vec<LedgerWrite>,
        now: Timestamp,
    ) -> Result<User, UserError> {
        let username = user_name::check_new_name(&user.username)
            .map_err(|defect| UserError::BadName { name: user.username.clone(), defect })?;
        let user = User { username, ..user };
        // A name from before the rules for names may have the same mapped form and another key.
        if self.user_by_name(&user.username, now).await?.is_some() {
            return Err(UserError::Exists(user.username));
        }
        let by_name = UserNameIndex { sub: user.sub.clone() };
        let name_key = ledger_keys::user_name(&user_name::counted_name(&user.username));
        let mut writes = vec![
            records::put_record(name_key, &by_name, None, Expect::Absent),
            records::put_record(ledger_keys::user_record(&user.sub), &user, None, Expect::Absent),
        ];
        writes.extend(email_index_writes(None, Some(&user)));
        writes.extend(others);
        match self.ledger.write(writes, now).await {
            Ok(_) => {
                self.audit.record(AuditEvent::User { action: RecordAction::Create, sub: user.sub.clone() });
                Ok(user)
            }
            Err(StoreError::Conflict { .. }) => Err(UserError::Exists(user.username)),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes a user by compare-and-set, and retries after a concurrent change.
    ///
    /// # Errors
    /// Returns [`UserError::Unknown`] if there is no such user, or a store error.
    pub async fn change_user(
        &self,
        username: &str,
        now: Timestamp,
        change: impl Fn(&mut User) + Send,
    ) -> Result<User, UserError> {
        let unknown = || UserError::Unknown(username.to_owned());
        loop {
            let entry = self.user_by_name(username, now).await?.ok_or_else(unknown)?;
            let key = ledger_keys::user_record(&entry.sub);
            let mut user_record = self.ledger.read_record::<User>(&key, now).await?.ok_or_else(unknown)?;
            let before = user_record.value.clone();
            change(&mut user_record.value);
            let mut writes = email_index_writes(Some(&before), Some(&user_record.value));
            writes.push(records::put_record(
                key,
                &user_record.value,
                None,
                Expect::Revision(user_record.revision),
            ));
            match self.ledger.write(writes, now).await {
                Ok(_) => {
                    self.audit.record(AuditEvent::User {
                        action: RecordAction::Update,
                        sub: user_record.value.sub.clone(),
                    });
                    return Ok(user_record.value);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends all sessions and tokens of a user.
    ///
    /// # Errors
    /// Returns [`UserError::Unknown`] if there is no such user, or a store error.
    pub async fn sign_out_everywhere(&self, username: &str, now: Timestamp) -> Result<(), UserError> {
        let user = self.change_user(username, now, |user| user.epoch += 1).await?;
        self.audit.record(AuditEvent::SignOutEverywhere { sub: user.sub });
        Ok(())
    }

    /// Deletes a user, and thereby ends the user's sessions and tokens. The external accounts of the user
    /// stay known and can never sign in, unless they are forgotten. The accounts of a user who was deleted
    /// can be forgotten later, by the subject in place of the name.
    ///
    /// # Errors
    /// Returns [`UserError::Unknown`] if there is no such user, or a store error.
    pub async fn delete_user(
        &self,
        username: &str,
        accounts: AccountsOfDeleted,
        now: Timestamp,
    ) -> Result<(), UserError> {
        let Some(user) = self.user_by_name(username, now).await? else {
            let account_name = self.known_accounts(username, now).await?;
            // The records of the accounts of a user who exists are not found by the subject.
            let is_deleted = self.versioned_user(username, now).await?.is_none();
            if accounts == AccountsOfDeleted::Remember || account_name.is_empty() || !is_deleted {
                return Err(UserError::Unknown(username.to_owned()));
            }
            let writes = account_name.iter().flat_map(|account| account.forget_writes(username)).collect();
            return Ok(self.ledger.write(writes, now).await.map(drop)?);
        };
        // The name has one of two keys (see `user_by_name`); the other one can belong to another user.
        let mut keys = vec![ledger_keys::user_record(&user.sub)];
        for name in [user.username.to_lowercase(), user_name::counted_name(&user.username)] {
            let key = ledger_keys::user_name(&name);
            let index = self.ledger.read_record::<UserNameIndex>(&key, now).await?;
            keys.extend(index.filter(|index| index.value.sub == user.sub).map(|_| key));
        }
        keys.dedup();
        let mut writes: Vec<_> =
            [ledger_keys::user_factors(&user.sub), ledger_keys::one_time_link_of(&user.sub)]
                .map(|key| LedgerWrite::delete(key, Expect::Any))
                .into();
        for account in self.known_accounts(&user.sub, now).await? {
            writes.extend(match accounts {
                AccountsOfDeleted::Remember => account.deletion_writes(&user.sub, now),
                AccountsOfDeleted::Forget => account.forget_writes(&user.sub),
            });
        }
        writes.extend(email_index_writes(Some(&user), None));
        writes.extend(keys.into_iter().map(|key| LedgerWrite::Delete { key, expect: Expect::Any }));
        self.ledger.write(writes, now).await?;
        self.audit.record(AuditEvent::User { action: RecordAction::Delete, sub: user.sub });
        Ok(())
    }

    /// `false` for a demo user if the demo project is disabled.
    fn is_served(&self, user: &User) -> bool {
        self.demo || !user.demo
    }

    /// Returns a page of up to `limit` users with subjects greater than `after`, ordered by subject, and the
    /// value of `after` for the next page.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn users_page(
        &self,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<User>, Option<String>), StoreError> {
        let after = after.map(ledger_keys::user_record);
        // The scan reads one user more than `limit`, to find out whether there is a next page.
        let mut page = self.ledger.scan(ledger_keys::USERS, after.as_deref(), limit + 1, now).await?;
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page
            .last()
            .filter(|_| more)
            .and_then(|(key, _)| key.strip_prefix(ledger_keys::USERS))
            .map(str::to_owned);
        let users = page.iter().map(|(key, record)| records::decode_record::<User>(key, &record.value));
        let users = users.collect::<Result<Vec<_>, _>>()?;
        Ok((users.into_iter().filter(|user| self.is_served(user)).collect(), next))
    }

    /// Returns the user with this subject, disabled or not.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn versioned_user(
        &self,
        sub: &str,
        now: Timestamp,
    ) -> Result<Option<VersionedUser>, StoreError> {
        let record = self.ledger.read_record::<User>(&ledger_keys::user_record(sub), now).await?;
        let record = record.filter(|record| self.is_served(&record.value));
        Ok(record.map(|record| VersionedUser { user: record.value, revision: record.revision }))
    }

    /// Changes a user. If `revision` is given, fails if the record was changed since that revision; otherwise
    /// retries after a concurrent change. The user name is not changed.
    ///
    /// # Errors
    /// Returns [`ChangeUserError`] if the user is missing or was changed, or the change cannot be written.
    pub async fn change_versioned_user(
        &self,
        sub: &str,
        revision: Option<u64>,
        now: Timestamp,
        change: impl Fn(&mut User) + Send,
    ) -> Result<VersionedUser, ChangeUserError> {
        self.change_user_and_methods(sub, revision, OtherMethods::Keep, now, change).await
    }

    /// Changes a user as [`UserDirectory::change_versioned_user`] does, and removes sign-in methods other
    /// than the password in the same transaction.
    pub(crate) async fn change_user_and_methods(
        &self,
        sub: &str,
        revision: Option<u64>,
        others: OtherMethods,
        now: Timestamp,
        change: impl Fn(&mut User) + Send,
    ) -> Result<VersionedUser, ChangeUserError> {
        loop {
            let versioned_user = self.versioned_user(sub, now).await?.ok_or(ChangeUserError::Unknown)?;
            if revision.is_some_and(|revision| revision != versioned_user.revision) {
                return Err(ChangeUserError::Stale);
            }
            let before = versioned_user.user;
            let mut user = before.clone();
            change(&mut user);
            (user.sub, user.username) = (before.sub.clone(), before.username.clone());
            let expect = Expect::Revision(versioned_user.revision);
            // The condition is first, so that a conflict is about the revision of the user.
            let mut writes = vec![records::put_record(ledger_keys::user_record(sub), &user, None, expect)];
            writes.extend(email_index_writes(Some(&before), Some(&user)));
            if others != OtherMethods::Keep {
                writes.extend(self.method_removals(&before, others, now).await?);
            }
            match self.ledger.write(writes, now).await {
                Ok(revisions) => {
                    self.audit.record(AuditEvent::User { action: RecordAction::Update, sub: sub.to_owned() });
                    if others != OtherMethods::Keep {
                        let method = SignInMethod::All;
                        self.audit.record(AuditEvent::SignInMethod {
                            action: RecordAction::Delete,
                            sub: sub.to_owned(),
                            method,
                        });
                    }
                    return Ok(VersionedUser {
                        user,
                        revision: revisions.first().copied().unwrap_or_default(),
                    });
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets a password hash and ends all sessions and tokens of the user. If `revision` is given, fails if
    /// the record was changed since that revision.
    ///
    /// # Errors
    /// Returns [`ChangeUserError`] if the user is missing or was changed, or the change cannot be written.
    pub async fn reset_password(
        &self,
        sub: &str,
        revision: Option<u64>,
        phc: &str,
        others: OtherMethods,
        now: Timestamp,
    ) -> Result<VersionedUser, ChangeUserError> {
        let set = |user: &mut User| (user.password, user.epoch) = (Some(phc.to_owned()), user.epoch + 1);
        self.change_user_and_methods(sub, revision, others, now, set).await
    }

    /// The writes that remove sign-in methods other than the password.
    async fn method_removals(
        &self,
        user: &User,
        others: OtherMethods,
        now: Timestamp,
    ) -> Result<Vec<LedgerWrite>, StoreError> {
        let mut writes = vec![LedgerWrite::delete(ledger_keys::user_factors(&user.sub), Expect::Any)];
        for account in self.known_accounts(&user.sub, now).await? {
            // A link from before its origin was stored is that of the issuer that answers for the address.
            let is_issuer = || user.email_verified_by.as_ref() == Some(&account.issuer);
            let is_origin = account.origin.unwrap_or_else(is_issuer);
            if account.removed.is_none() && (others == OtherMethods::RemoveAll || !is_origin) {
                writes.extend(account.removal_writes(&user.sub, now));
            }
        }
        Ok(writes)
    }

    /// Returns the external accounts that are or were linked to a user, of whom only the subject may be left.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn known_accounts(&self, sub: &str, now: Timestamp) -> Result<Vec<LinkedAccount>, StoreError> {
        self.ledger.read_records(&ledger_keys::user_link(sub, ""), now).await
    }
}

/// The writes that change the index of e-mail addresses with a user record.
pub(crate) fn email_index_writes(before: Option<&User>, after: Option<&User>) -> Vec<LedgerWrite> {
    let key_of = |user: &User| Some(ledger_keys::user_email(user.claims.email.as_deref()?, &user.sub));
    let (before, after) = (before.and_then(key_of), after.and_then(key_of));
    if before == after {
        return Vec::new();
    }
    let removed = before.map(|key| LedgerWrite::delete(key, Expect::Any));
    let added = after.map(|key| LedgerWrite::put(key, "", Expect::Any));
    removed.into_iter().chain(added).collect()
}
