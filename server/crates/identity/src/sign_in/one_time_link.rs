//! One-time links: with one, a user who has no sign-in method, or has lost it, sets a password.
//!
//! A link contains 256 random bits, of which only the digest is stored. A user has at most one link. It ends
//! when it is used, when it expires, when a newer one is made, and with the user's epoch: at `disable`, a
//! new password, a sign-out everywhere and deletion. A restored or copied store has none, because a link may
//! have been used after the backup.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite, StoreError};

use crate::audit::{AuditEvent, RecordAction};
use crate::directory::user_directory::VersionedUser;
use crate::encoding;
use crate::ledger_keys;
use crate::model::user::User;
use crate::sign_in::sign_in_service::SignInService;
use crate::storage::records;

/// A new link. The secret is shown once.
#[derive(Debug)]
pub struct NewOneTimeLink {
    /// Id for the audit log, which is not secret.
    pub id: String,
    /// The secret of the address.
    pub secret: String,
    /// End of the link, if it is not used.
    pub expires: Timestamp,
}

/// The path of the page of a link, below the base URL.
pub const PAGE_PATH: &str = "/one-time-link";

impl NewOneTimeLink {
    /// The address of the page at a server.
    pub fn address(&self, base_url: &str) -> String {
        format!("{base_url}{PAGE_PATH}?key={}", self.secret)
    }
}

/// Reasons why no link is made.
#[derive(Debug, thiserror::Error)]
pub enum OneTimeLinkError {
    /// The user is disabled.
    #[error("the user is disabled; enable the user first")]
    Disabled,
    /// The provider of the user permits no own sign-in methods.
    #[error(
        "the user signs in with {0} only, whose setting own_methods is false; the password is changed there"
    )]
    NoOwnMethods(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The only live link of a user.
#[derive(Serialize, Deserialize)]
struct LinkRecord {
    id: String,
    digest: String,
    /// Time at which it was made. A database that went back in time has older ones.
    made: Timestamp,
    /// Epoch of the user when it was made.
    epoch: u64,
    /// `true` if the user was an administrator then. The link of another user is none for an administrator.
    administrator: bool,
}

/// The user of the link with a digest.
#[derive(Serialize, Deserialize)]
struct LinkOwner {
    sub: String,
}

/// A link that can be used.
struct LiveLink {
    user: VersionedUser,
    id: String,
    /// Revision of the record of the link.
    revision: u64,
}

impl SignInService {
    /// Makes a link for a user, which ends an earlier one.
    ///
    /// # Errors
    /// Returns [`OneTimeLinkError`] if the user may have none, or the store fails.
    pub async fn make_one_time_link(
        &self,
        user: &User,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<NewOneTimeLink, OneTimeLinkError> {
        if user.disabled {
            return Err(OneTimeLinkError::Disabled);
        }
        if let Some(provider) = self.only_provider(&user.sub, now).await? {
            return Err(OneTimeLinkError::NoOwnMethods(provider));
        }
        let link =
            NewOneTimeLink { id: self.random.id(), secret: self.random.secret(), expires: now + lifetime };
        let digest = encoding::sha256_base64url(&link.secret);
        let record = LinkRecord {
            id: link.id.clone(),
            digest: digest.clone(),
            made: now,
            epoch: user.epoch,
            administrator: user.administrator,
        };
        let of_user = ledger_keys::one_time_link_of(&user.sub);
        let owner = LinkOwner { sub: user.sub.clone() };
        let writes = vec![
            records::put_record(of_user, &record, Some(link.expires), Expect::Any),
            records::put_record(
                ledger_keys::one_time_link(&digest),
                &owner,
                Some(link.expires),
                Expect::Absent,
            ),
        ];
        self.ledger.write(writes, now).await?;
        self.record_one_time_link(RecordAction::Create, &user.sub, &link.id);
        Ok(link)
    }

    /// Returns the user of a link that can be used. Reading it does not use it.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read fails.
    pub async fn user_of_one_time_link(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        Ok(self.live_link(secret, now).await?.map(|link| link.user.user))
    }

    async fn live_link(&self, secret: &str, now: Timestamp) -> Result<Option<LiveLink>, StoreError> {
        let digest = encoding::sha256_base64url(secret);
        let by_digest = ledger_keys::one_time_link(&digest);
        let Some(owner) = self.ledger.read_record::<LinkOwner>(&by_digest, now).await? else {
            return Ok(None);
        };
        let sub = owner.value.sub;
        let of_user = ledger_keys::one_time_link_of(&sub);
        let Some(link) = self.ledger.read_record::<LinkRecord>(&of_user, now).await? else { return Ok(None) };
        let restored = self.ledger.read_record::<Timestamp>(ledger_keys::RESTORED, now).await?;
        let Some(user) = self.users.versioned_user(&sub, now).await? else { return Ok(None) };
        let is_live = link.value.digest == digest
            && link.value.epoch == user.user.epoch
            && (link.value.administrator || !user.user.administrator)
            && restored.is_none_or(|restored| restored.value < link.value.made)
            && !user.user.disabled
            && self.only_provider(&sub, now).await?.is_none();
        Ok(is_live.then_some(LiveLink { user, id: link.value.id, revision: link.revision }))
    }

    /// Uses a link: sets the password, and ends all sessions and tokens of the user. Returns `None` if the
    /// link cannot be used any more. Of several requests with the same link, on any node, one succeeds.
    ///
    /// # Errors
    /// Returns [`StoreError`] if a read or the write fails.
    pub async fn redeem_one_time_link(
        &self,
        secret: &str,
        phc: &str,
        now: Timestamp,
    ) -> Result<Option<User>, StoreError> {
        loop {
            let Some(link) = self.live_link(secret, now).await? else { return Ok(None) };
            let VersionedUser { mut user, revision } = link.user;
            (user.password, user.epoch) = (Some(phc.to_owned()), user.epoch + 1);
            let writes = vec![
                records::put_record(
                    ledger_keys::user_record(&user.sub),
                    &user,
                    None,
                    Expect::Revision(revision),
                ),
                LedgerWrite::delete(
                    ledger_keys::one_time_link_of(&user.sub),
                    Expect::Revision(link.revision),
                ),
            ];
            match self.ledger.write(writes, now).await {
                Ok(_) => {
                    self.record_one_time_link(RecordAction::Update, &user.sub, &link.id);
                    return Ok(Some(user));
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn record_one_time_link(&self, action: RecordAction, sub: &str, id: &str) {
        self.audit.record(AuditEvent::OneTimeLink { action, sub: sub.to_owned(), id: id.to_owned() });
    }
}
