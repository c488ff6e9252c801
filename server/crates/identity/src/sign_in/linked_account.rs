//! Accounts at external providers that are linked to users.
//!
//! Issuer and subject identify an account. An account is linked when its user signs in to this server, or
//! automatically if the provider's settings `create_users` or `link_by_email` allow it. Both settings are off
//! by default.
//!
//! An account whose link was removed stays known and is refused (see
//! [`account_links`](crate::directory::account_links)).
//!
//! A verified e-mail address alone links only users who could not sign in otherwise. All others confirm the
//! link with their own sign-in method first. A user who has an account of the issuer is a different person to
//! that issuer, whatever the addresses are: issuers reassign addresses.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{RecordAction, SignInMethod};
use crate::directory::account_links::{AccountLink, LinkedAccount};
use crate::directory::user_directory::UserError;
use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::mapped_claims::MappedClaims;
use crate::model::provider::{ExternalUser, IdentityProvider};
use crate::model::user::{User, default_scopes};
use crate::model::user_name;
use crate::sign_in::provider_sign_in::is_same_browser;
use crate::sign_in::sign_in_service::SignInService;
use crate::storage::records;

/// The user who is linked to an external account.
#[derive(Debug)]
pub enum LinkedUser {
    /// The account is not linked.
    None,
    /// The user may sign in now.
    Active(Box<User>),
    /// The account may not sign in.
    Refused(AccountRefusal),
}

/// Why an account may not sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRefusal {
    /// The reason for the log.
    pub reason: &'static str,
    /// Subject of the user because of whom the account is refused.
    pub sub: String,
}

/// Result of looking for a user by the verified e-mail address of an account.
enum EmailLink {
    /// The account is linked to this user.
    Linked(Box<User>),
    /// The user has a sign-in method, and must sign in with it before the account is linked.
    NeedsConfirmation,
    /// The user has another account of the issuer, and is never linked to this one by the address.
    OtherAccount,
}

/// Reasons why an account cannot be linked or unlinked.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The account is linked to another user.
    #[error("this account is linked to another user")]
    Taken,
    /// The account is the user's only sign-in method.
    #[error("this is your only way to sign in; set a password or add a passkey first")]
    OnlyWay,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An external account that will be linked when its user signs in to this server.
#[derive(Serialize, Deserialize)]
struct PendingLink {
    provider: String,
    external: ExternalUser,
    browser: String,
}

impl SignInService {
    /// Returns the user who is linked to an external account.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn linked_user(
        &self,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<LinkedUser, StoreError> {
        let key = ledger_keys::account_link(&account_id(external));
        let Some(link) = self.ledger.read_record::<AccountLink>(&key, now).await? else {
            return Ok(LinkedUser::None);
        };
        let AccountLink { sub, removed } = link.value;
        let reason = match self.users.active_user(&sub, now).await? {
            Some(user) if !removed => return Ok(LinkedUser::Active(Box::new(user))),
            Some(_) => "the link of the account was removed from its user",
            None => "the user of the account is disabled or deleted",
        };
        Ok(LinkedUser::Refused(AccountRefusal { reason, sub }))
    }

    /// Returns the user of an external account. Links or creates a user if the account is not linked and the
    /// provider's settings allow it.
    ///
    /// # Errors
    /// Returns [`UserError`] if the user cannot be created or linked.
    pub async fn admit_external_user(
        &self,
        provider: &IdentityProvider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<LinkedUser, UserError> {
        match self.linked_user(external, now).await? {
            LinkedUser::Active(user) => {
                let user = self.renew_email(*user, external, now).await?;
                let user = self.renew_rights(user, provider, external, now).await?;
                return Ok(LinkedUser::Active(Box::new(user)));
            }
            LinkedUser::Refused(refusal) => return Ok(LinkedUser::Refused(refusal)),
            LinkedUser::None => {}
        }
        if provider.link_by_email
            && let Some(user) = self.disabled_user_by_email(external, now).await?
        {
            let reason = "the user with the e-mail address of the account is disabled";
            return Ok(LinkedUser::Refused(AccountRefusal { reason, sub: user.sub }));
        }
        if provider.link_by_email
            && let Some(user) = self.user_by_verified_email(external, now).await?
        {
            match self.link_by_email(user, provider, external, now).await? {
                EmailLink::Linked(user) => {
                    let user = self.renew_rights(*user, provider, external, now).await?;
                    return Ok(LinkedUser::Active(Box::new(user)));
                }
                EmailLink::NeedsConfirmation => return Ok(LinkedUser::None),
                EmailLink::OtherAccount => {}
            }
        }
        if provider.create_users {
            return self.create_linked_user(provider, external, now).await;
        }
        Ok(LinkedUser::None)
    }

    /// The only user with the e-mail address of an external account. The provider must have verified the
    /// address. For the user, an administrator or the same provider must have verified it, because another
    /// provider may allow anyone to claim an address. An administrator is never returned, because the owner
    /// of the mailbox would gain control of the server.
    async fn user_by_verified_email(
        &self,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        let claims = &external.claims;
        let Some(email) = claims.email.as_deref().filter(|_| claims.email_verified == Some(true)) else {
            return Ok(None);
        };
        let has_verified = |user: &User| {
            let is_trusted = user.email_verified_by.as_ref().is_none_or(|issuer| *issuer == external.issuer);
            user.claims.email_verified == Some(true) && is_trusted
        };
        let users = self.users.users_by_email(email, now).await?;
        let mut matches = users.into_iter().filter(has_verified);
        let user = match (matches.next(), matches.next()) {
            (Some(user), None) if !user.administrator => user,
            _ => return Ok(None),
        };
        self.users.active_user(&user.sub, now).await
    }

    /// A disabled user with the e-mail address of an external account. A person whom an administrator has
    /// disabled must not return as a new user. This needs no verified address, because it gives no right.
    async fn disabled_user_by_email(
        &self,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        let Some(email) = external.claims.email.as_deref() else { return Ok(None) };
        Ok(self.users.users_by_email(email, now).await?.into_iter().find(|user| user.disabled))
    }

    /// Links an account to the user with its verified e-mail address, if the user has no sign-in method. The
    /// issuer answers for the address from then on.
    async fn link_by_email(
        &self,
        user: User,
        provider: &IdentityProvider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<EmailLink, StoreError> {
        loop {
            let (factors, expect) = self.user_factors(&user.sub, now).await?;
            let accounts = self.linked_accounts(&user.sub, now).await?;
            let is_of_issuer = |account: &LinkedAccount| {
                account.issuer == external.issuer || account.provider == provider.name
            };
            if accounts.iter().any(is_of_issuer) {
                return Ok(EmailLink::OtherAccount);
            }
            // Read after the factors, whose condition below fails if a method is added at the same time.
            let Some(current) = self.users.versioned_user(&user.sub, now).await? else {
                return Ok(EmailLink::OtherAccount);
            };
            let has_method = current.user.password.is_some()
                || !accounts.is_empty()
                || !factors.passkeys.is_empty()
                || !factors.recovery.is_empty();
            if has_method {
                return Ok(EmailLink::NeedsConfirmation);
            }
            let mut linked = current.user;
            linked.email_verified_by = Some(external.issuer.clone());
            let account = new_account(&provider.name, external, false, now);
            let mut writes: Vec<LedgerWrite> = account.link_writes(&linked.sub, Expect::Absent).into();
            let key = ledger_keys::user_record(&linked.sub);
            writes.push(records::put_record(key, &linked, None, Expect::Revision(current.revision)));
            if self.write_factors(&linked.sub, &factors, expect, writes, now).await? {
                self.record_method(RecordAction::Create, &linked.sub, SignInMethod::LinkedAccount);
                return Ok(EmailLink::Linked(Box::new(linked)));
            }
            // A concurrent sign-in may have linked the account to another user.
            if let LinkedUser::Active(user) = self.linked_user(external, now).await? {
                return Ok(EmailLink::Linked(user));
            }
        }
    }

    /// Copies the e-mail address from the issuer that answers for it. A sign-in without an address changes
    /// nothing: not all providers send the claim each time.
    async fn renew_email(
        &self,
        user: User,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<User, UserError> {
        let claims = &external.claims;
        let is_current =
            user.claims.email == claims.email && user.claims.email_verified == claims.email_verified;
        let answers = user.email_verified_by.as_ref() == Some(&external.issuer);
        if is_current || !answers || claims.email.is_none() {
            return Ok(user);
        }
        let renew = |user: &mut User| {
            // An administrator may have set the address meanwhile.
            if user.email_verified_by.as_ref() == Some(&external.issuer) {
                user.claims.email.clone_from(&claims.email);
                user.claims.email_verified = claims.email_verified;
            }
        };
        self.users.change_user(&user.username, now, renew).await
    }

    /// Sets the rights that the claims of this sign-in give, and renews claims, as the provider's settings
    /// say.
    async fn renew_rights(
        &self,
        user: User,
        provider: &IdentityProvider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<User, UserError> {
        let mapping = &provider.mapping;
        if !mapping.is_effective() {
            return Ok(user);
        }
        let mut renewed = user.clone();
        apply_claims(provider, &mut renewed, external, now);
        // A write for each sign-in would invalidate what is cached of all users.
        if renewed == user {
            return Ok(user);
        }
        let apply = |user: &mut User| apply_claims(provider, user, external, now);
        self.users.change_user(&user.username, now, apply).await?;
        Ok(self.users.active_user(&user.sub, now).await?.unwrap_or(user))
    }

    /// Creates a user for an external account, and the link, in one transaction. If a concurrent sign-in with
    /// the same account creates its user first, returns that user.
    async fn create_linked_user(
        &self,
        provider: &IdentityProvider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<LinkedUser, UserError> {
        let mut user = User {
            sub: self.random.id(),
            claims: external.claims.clone(),
            email_verified_by: Some(external.issuer.clone()),
            allowed_scopes: default_scopes(),
            ..User::default()
        };
        apply_claims(provider, &mut user, external, now);
        // A new user has no tokens.
        user.epoch = 0;
        let link = new_account(&provider.name, external, true, now).link_writes(&user.sub, Expect::Absent);
        // Apps tell users apart by this name, so that it is unique here whatever the provider sends.
        let wish = external.claims.preferred_username.as_deref();
        let wish = wish.and_then(|name| user_name::check_new_name(name).ok());
        let names = wish.into_iter().chain([self.created_username(&provider.name)]);
        let mut last_error = UserError::Exists(provider.name.clone());
        for name in names {
            user.username.clone_from(&name);
            user.claims.preferred_username = Some(name);
            match self.users.add_user_with(user.clone(), link.clone().into(), now).await {
                Ok(user) => return Ok(LinkedUser::Active(Box::new(user))),
                Err(error @ UserError::Exists(_)) => match self.linked_user(external, now).await? {
                    LinkedUser::None => last_error = error,
                    linked => return Ok(linked),
                },
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    /// The name of a user who is created for an external account without a free name: that of the provider
    /// without the characters that a user name must not have, and a random id.
    fn created_username(&self, provider: &str) -> String {
        let keep = |c: char| if c.is_control() || c.is_whitespace() || c == '/' { '-' } else { c };
        let prefix: String = provider.to_lowercase().chars().map(keep).take(50).collect();
        let name = format!("{prefix}_{}", self.random.id());
        match user_name::check_new_name(&name) {
            Ok(name) => name,
            // The name of a provider is any text.
            Err(_) => format!("user_{}", self.random.id()),
        }
    }

    /// Links an external account to a signed-in user. Has no effect if they are already linked.
    ///
    /// # Errors
    /// Returns [`LinkError::Taken`] if the account is linked to another user, or a store error.
    pub async fn link_account(
        &self,
        user: &User,
        provider: &str,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<(), LinkError> {
        let account = new_account(provider, external, false, now);
        let key = ledger_keys::account_link(&account.id);
        loop {
            let link_record = self.ledger.read_record::<AccountLink>(&key, now).await?;
            let expect = match &link_record {
                None => Expect::Absent,
                Some(link) if link.value.sub != user.sub => return Err(LinkError::Taken),
                Some(link) if !link.value.removed => return Ok(()),
                Some(link) => Expect::Revision(link.revision),
            };
            match self.ledger.write(account.link_writes(&user.sub, expect).into(), now).await {
                Ok(_) => {
                    self.record_method(RecordAction::Create, &user.sub, SignInMethod::LinkedAccount);
                    return Ok(());
                }
                // Another request has linked or freed the account: read its record again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the external accounts of a user that sign in.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn linked_accounts(&self, sub: &str, now: Timestamp) -> Result<Vec<LinkedAccount>, StoreError> {
        let user_account = self.users.known_accounts(sub, now).await?;
        Ok(user_account.into_iter().filter(|account| account.removed.is_none()).collect())
    }

    /// Returns the name of the configured provider that keeps own sign-in methods from a user, if one does.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn only_provider(&self, sub: &str, now: Timestamp) -> Result<Option<String>, StoreError> {
        let providers = self.users.providers.current();
        if providers.iter().all(|provider| provider.own_methods) {
            return Ok(None);
        }
        let linked = self.linked_accounts(sub, now).await?;
        let is_only = |provider: &&IdentityProvider| {
            !provider.own_methods && linked.iter().any(|account| account.issuer == provider.issuer)
        };
        Ok(providers.iter().find(is_only).map(|provider| provider.name.clone()))
    }

    /// Unlinks an account unless it is the user's only sign-in method. Returns `false` if the user has no
    /// such account.
    ///
    /// # Errors
    /// Returns [`LinkError::OnlyWay`] if the account is the only sign-in method, or a store error.
    pub async fn unlink_account(&self, user: &User, id: &str, now: Timestamp) -> Result<bool, LinkError> {
        loop {
            let (factors, expect) = self.user_factors(&user.sub, now).await?;
            let links = self.linked_accounts(&user.sub, now).await?;
            let Some(link) = links.iter().find(|link| link.id == id) else { return Ok(false) };
            if user.password.is_none() && links.len() == 1 && factors.passkeys.is_empty() {
                return Err(LinkError::OnlyWay);
            }
            let unlink = link.removal_writes(&user.sub, now).into();
            if self.write_factors(&user.sub, &factors, expect, unlink, now).await? {
                break;
            }
        }
        self.record_method(RecordAction::Delete, &user.sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Unlinks an account, even if it is the user's only sign-in method. Returns `false` if the user has no
    /// such account.
    pub(crate) async fn force_unlink_account(
        &self,
        sub: &str,
        id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let links = self.linked_accounts(sub, now).await?;
        let Some(link) = links.iter().find(|link| link.id == id) else { return Ok(false) };
        self.ledger.write(link.removal_writes(sub, now).into(), now).await?;
        self.record_method(RecordAction::Delete, sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Frees an account that is or was linked to a user, so that it can be linked to another. Returns `false`
    /// if the user never had such an account.
    pub(crate) async fn forget_account(
        &self,
        sub: &str,
        id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let user_account = self.users.known_accounts(sub, now).await?;
        let Some(account) = user_account.iter().find(|account| account.id == id) else { return Ok(false) };
        self.ledger.write(account.forget_writes(sub).into(), now).await?;
        self.record_method(RecordAction::Delete, sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Stores an account that is not linked until its user signs in to this server in the same browser.
    /// Returns the id of the stored account for the sign-in form.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the write fails.
    pub async fn store_pending_link(
        &self,
        provider: &str,
        external: ExternalUser,
        browser: &str,
        now: Timestamp,
    ) -> Result<String, StoreError> {
        let id = self.random.secret();
        let browser = encoding::sha256_base64url(browser);
        let pending = PendingLink { provider: provider.to_owned(), external, browser };
        let write = records::put_record(
            ledger_keys::pending_link(&id),
            &pending,
            Some(now + lifetimes::PROVIDER_SIGN_IN),
            Expect::Absent,
        );
        self.ledger.write(vec![write], now).await?;
        Ok(id)
    }

    /// Returns the provider's name and the account's label, if `id` was issued to this browser.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn pending_link(
        &self,
        id: &str,
        browser: &str,
        now: Timestamp,
    ) -> Result<Option<(String, String)>, StoreError> {
        let link = self.ledger.read_record::<PendingLink>(&ledger_keys::pending_link(id), now).await?;
        let pending =
            link.map(|record| record.value).filter(|pending| is_same_browser(&pending.browser, browser));
        Ok(pending.map(|pending| (pending.provider, pending.external.label())))
    }

    /// Links a pending account to the user who has signed in. The pending account is deleted.
    ///
    /// # Errors
    /// Returns [`LinkError`] if the account is linked to another user or the store fails.
    pub async fn link_pending_account(
        &self,
        id: &str,
        browser: &str,
        user: &User,
        now: Timestamp,
    ) -> Result<(), LinkError> {
        let key = ledger_keys::pending_link(id);
        let Some(record) = self.ledger.read_record::<PendingLink>(&key, now).await? else {
            return Ok(());
        };
        let pending = record.value;
        if !is_same_browser(&pending.browser, browser) {
            return Ok(());
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(record.revision) };
        match self.ledger.write(vec![delete], now).await {
            Ok(_) => self.link_account(user, &pending.provider, &pending.external, now).await,
            Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sets what the claims of a sign-in give. The time of the sign-in is stored with a precision of 5 minutes,
/// so that few sign-ins write the user.
fn apply_claims(provider: &IdentityProvider, user: &mut User, external: &ExternalUser, now: Timestamp) {
    provider.mapping.apply(user, &external.rights, &external.claims);
    if !provider.mapping.gives_rights() && provider.mapping.passed_on.is_empty() {
        return;
    }
    let rights = &external.rights;
    let mapped = MappedClaims {
        issuer: Some(external.issuer.clone()),
        at: now,
        values: Some(rights.values.clone()),
        fhir_user: rights.fhir_user.clone(),
        passed_on: rights.passed_on.clone(),
    };
    let precision = SignedDuration::from_mins(5).min(provider.rights_max_age / 10);
    let is_current = user.mapped.as_ref().is_some_and(|rights| {
        MappedClaims { at: rights.at, ..mapped.clone() } == *rights
            && now.duration_since(rights.at) < precision
    });
    if !is_current {
        user.mapped = Some(mapped);
    }
}

/// An account to be linked. `origin` says that its user is created for it.
fn new_account(provider: &str, external: &ExternalUser, origin: bool, now: Timestamp) -> LinkedAccount {
    LinkedAccount {
        id: account_id(external),
        provider: provider.to_owned(),
        issuer: external.issuer.clone(),
        label: external.label(),
        since: now,
        origin: Some(origin),
        removed: None,
    }
}

/// The id of an external account: a digest of issuer and subject.
fn account_id(external: &ExternalUser) -> String {
    encoding::sha256_base64url(&format!("{} {}", external.issuer, external.sub))
}
