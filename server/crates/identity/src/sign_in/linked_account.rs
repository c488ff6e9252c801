//! Accounts at external providers that are linked to users.
//!
//! Issuer and subject identify an account. An account is linked when its user signs in to this server, or automatically
//! if the provider's settings `create_users` or `link_by_email` allow it. Both settings are off by default.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{RecordAction, SignInMethod};
use crate::directory::user_directory::UserError;
use crate::encoding;
use crate::ledger_keys;
use crate::lifetimes;
use crate::model::provider::{ExternalUser, IdentityProvider};
use crate::model::user::User;
use crate::sign_in::provider_sign_in::is_same_browser;
use crate::sign_in::sign_in_methods::SignInService;
use crate::storage::records;

#[derive(Serialize, Deserialize)]
struct AccountLink {
    sub: String,
}

/// The user who is linked to an external account.
#[derive(Debug)]
pub enum LinkedUser {
    /// The account is not linked.
    None,
    /// The user may sign in now.
    Active(Box<User>),
    /// The user is disabled or is not served.
    Inactive,
}

/// An external account that is linked to a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedAccount {
    /// Id of the link in HTML forms.
    pub id: String,
    /// Name of the provider at the time of linking.
    pub provider: String,
    /// E-mail address, user name or display name at the provider.
    pub label: String,
    /// Time at which the account was linked.
    pub since: Timestamp,
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
        let user = self.users.active_user(&link.value.sub, now).await?;
        Ok(user.map_or(LinkedUser::Inactive, |user| LinkedUser::Active(Box::new(user))))
    }

    /// Returns the user of an external account. Links or creates a user if the account is not linked and the provider's
    /// settings allow it.
    ///
    /// # Errors
    /// Returns [`UserError`] if the user cannot be created or linked.
    pub async fn admit_external_user(
        &self,
        provider: &IdentityProvider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<LinkedUser, UserError> {
        let linked = self.linked_user(external, now).await?;
        if !matches!(linked, LinkedUser::None) {
            return Ok(linked);
        }
        if provider.link_by_email
            && let Some(user) = self.user_by_verified_email(external, now).await?
        {
            return match self.link_account(&user, &provider.name, external, now).await {
                Ok(()) => Ok(LinkedUser::Active(Box::new(user))),
                Err(LinkError::Store(error)) => Err(error.into()),
                // A concurrent sign-in has linked the account to another user.
                Err(LinkError::Taken | LinkError::OnlyWay) => Ok(self.linked_user(external, now).await?),
            };
        }
        if provider.create_users {
            return self.create_linked_user(provider, external, now).await;
        }
        Ok(LinkedUser::None)
    }

    /// Returns the only user with the e-mail address of an external account. The provider must have verified the
    /// address. For the user, an administrator or the same provider must have verified it, because another provider may
    /// allow anyone to claim an address. An administrator is never returned, because the owner of the mailbox would
    /// gain control of the server.
    async fn user_by_verified_email(
        &self,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        let claims = &external.claims;
        let Some(email) = claims.email.as_deref().filter(|_| claims.email_verified == Some(true)) else {
            return Ok(None);
        };
        let has = |user: &User| {
            let verified = user.claims.email_verified == Some(true);
            let is_trusted = user.email_verified_by.as_ref().is_none_or(|issuer| *issuer == external.issuer);
            verified
                && is_trusted
                && user.claims.email.as_deref().is_some_and(|known| known.eq_ignore_ascii_case(email))
        };
        let mut found = self.users.all_users(now).await?.into_iter().filter(has);
        let user = match (found.next(), found.next()) {
            (Some(user), None) if !user.administrator => user,
            _ => return Ok(None),
        };
        self.users.active_user(&user.sub, now).await
    }

    /// Creates a user for an external account, and the link, in one transaction. If a concurrent sign-in with the same
    /// account creates its user first, returns that user.
    async fn create_linked_user(
        &self,
        provider: &IdentityProvider,
        external: &ExternalUser,
        now: Timestamp,
    ) -> Result<LinkedUser, UserError> {
        let user = User {
            sub: self.random.id(),
            username: self.created_username(&provider.name),
            claims: external.claims.clone(),
            email_verified_by: Some(external.issuer.clone()),
            allowed_scopes: ["openid", "profile", "email", "phone"].into_iter().collect(),
            fhir_user: None,
            administrator: false,
            password: None,
            disabled: false,
            epoch: 0,
            demo: false,
        };
        let link = link_writes(&user.sub, &provider.name, external, now);
        match self.users.add_user_with(user, link.into(), now).await {
            Ok(user) => Ok(LinkedUser::Active(Box::new(user))),
            Err(error @ UserError::Exists(_)) => match self.linked_user(external, now).await? {
                LinkedUser::None => Err(error),
                linked => Ok(linked),
            },
            Err(error) => Err(error),
        }
    }

    /// Returns the name of a user who is created for an external account: the name of the provider without the characters
    /// that a user name must not have, and a random id.
    fn created_username(&self, provider: &str) -> String {
        let keep = |c: char| if c.is_control() || c.is_whitespace() || c == '/' { '-' } else { c };
        let prefix: String = provider.to_lowercase().chars().map(keep).take(50).collect();
        format!("{prefix}_{}", self.random.id())
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
        match self.ledger.write(link_writes(&user.sub, provider, external, now).into(), now).await {
            Ok(_) => {
                self.record_method(RecordAction::Create, &user.sub, SignInMethod::LinkedAccount);
                return Ok(());
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let link = self
            .ledger
            .read_record::<AccountLink>(&ledger_keys::account_link(&account_id(external)), now)
            .await?;
        if link.is_some_and(|link| link.value.sub == user.sub) { Ok(()) } else { Err(LinkError::Taken) }
    }

    /// Returns the external accounts of a user.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the read fails.
    pub async fn linked_accounts(&self, sub: &str, now: Timestamp) -> Result<Vec<LinkedAccount>, StoreError> {
        self.ledger.read_records(&ledger_keys::user_link(sub, ""), now).await
    }

    /// Unlinks an account unless it is the user's only sign-in method. Returns `false` if the user has no such account.
    ///
    /// # Errors
    /// Returns [`LinkError::OnlyWay`] if the account is the only sign-in method, or a store error.
    pub async fn unlink_account(&self, user: &User, id: &str, now: Timestamp) -> Result<bool, LinkError> {
        loop {
            let (factors, expect) = self.user_factors(&user.sub, now).await?;
            let links = self.linked_accounts(&user.sub, now).await?;
            if !links.iter().any(|link| link.id == id) {
                return Ok(false);
            }
            if user.password.is_none() && links.len() == 1 && factors.passkeys.is_empty() {
                return Err(LinkError::OnlyWay);
            }
            let unlink = unlink_writes(&user.sub, id).into();
            if self.write_factors(&user.sub, &factors, expect, unlink, now).await? {
                break;
            }
        }
        self.record_method(RecordAction::Delete, &user.sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Unlinks an account, even if it is the user's only sign-in method. Returns `false` if the user has no such
    /// account.
    pub(crate) async fn force_unlink_account(
        &self,
        sub: &str,
        id: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if !self.linked_accounts(sub, now).await?.iter().any(|link| link.id == id) {
            return Ok(false);
        }
        self.ledger.write(unlink_writes(sub, id).into(), now).await?;
        self.record_method(RecordAction::Delete, sub, SignInMethod::LinkedAccount);
        Ok(true)
    }

    /// Stores an account that is not linked until its user signs in to this server in the same browser. Returns the id
    /// of the stored account for the sign-in form.
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
        let found = self.ledger.read_record::<PendingLink>(&ledger_keys::pending_link(id), now).await?;
        let pending =
            found.map(|stored| stored.value).filter(|pending| is_same_browser(&pending.browser, browser));
        Ok(pending.map(|pending| (pending.provider, account_label(&pending.external))))
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
        let Some(stored) = self.ledger.read_record::<PendingLink>(&key, now).await? else {
            return Ok(());
        };
        let pending = stored.value;
        if !is_same_browser(&pending.browser, browser) {
            return Ok(());
        }
        let delete = LedgerWrite::Delete { key, expect: Expect::Revision(stored.revision) };
        match self.ledger.write(vec![delete], now).await {
            Ok(_) => self.link_account(user, &pending.provider, &pending.external, now).await,
            Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the writes that create both records of a link.
fn link_writes(sub: &str, provider: &str, external: &ExternalUser, now: Timestamp) -> [LedgerWrite; 2] {
    let id = account_id(external);
    let account = LinkedAccount {
        id: id.clone(),
        provider: provider.to_owned(),
        label: account_label(external),
        since: now,
    };
    [
        records::put_record(
            ledger_keys::account_link(&id),
            &AccountLink { sub: sub.to_owned() },
            None,
            Expect::Absent,
        ),
        records::put_record(ledger_keys::user_link(sub, &id), &account, None, Expect::Any),
    ]
}

fn unlink_writes(sub: &str, id: &str) -> [LedgerWrite; 2] {
    [ledger_keys::account_link(id), ledger_keys::user_link(sub, id)]
        .map(|key| LedgerWrite::Delete { key, expect: Expect::Any })
}

/// Returns a text by which the user recognizes the account.
fn account_label(external: &ExternalUser) -> String {
    let claims = &external.claims;
    let known = [&claims.email, &claims.preferred_username, &claims.name].into_iter().flatten().next();
    known.unwrap_or(&external.sub).chars().take(100).collect()
}

/// Returns the id of an external account: a digest of issuer and subject.
fn account_id(external: &ExternalUser) -> String {
    encoding::sha256_base64url(&format!("{} {}", external.issuer, external.sub))
}
