//! Users for administration: page by page, and changed by subject against the revision that was read.

use jiff::Timestamp;
use store::{Expect, Ledger as _, StoreError};

use crate::audit::{Action, Event, SignInMethod};
use crate::user::{User, UserError};
use crate::{Identity, ledger};

/// A user with the revision of the record.
pub struct Entry {
    /// The user.
    pub user: User,
    /// Changes with every change of the record.
    pub revision: u64,
}

/// Why a user was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such user.
    #[error("there is no such user")]
    Unknown,
    /// Somebody else changed the record since it was read.
    #[error("the user was changed since; read it again")]
    Stale,
    /// See there.
    #[error(transparent)]
    User(#[from] UserError),
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a change of a user does to the ways besides the password in which the user signs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherMethods {
    /// They stay.
    Keep,
    /// They are removed in the same commit.
    Remove,
}

impl Identity {
    /// Demo users are there only while the demo is served.
    fn is_there(&self, user: &User) -> bool {
        self.demo || !user.demo
    }

    /// Up to `limit` users behind the subject `after`, in the order of subjects, and where the next page
    /// begins.
    ///
    /// # Errors
    /// The store's.
    pub async fn users_page(
        &self,
        after: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<User>, Option<String>), StoreError> {
        let after = after.map(|sub| format!("user/{sub}"));
        // One more than asked for tells whether there is a next page.
        let mut page = self.store.scan("user/", after.as_deref(), limit + 1, now).await?;
        let more = page.len() > limit;
        page.truncate(limit);
        let next =
            page.last().filter(|_| more).and_then(|(key, _)| key.strip_prefix("user/")).map(str::to_owned);
        let users = page.iter().map(|(key, record)| ledger::decode::<User>(key, &record.value));
        let users = users.collect::<Result<Vec<_>, _>>()?;
        Ok((users.into_iter().filter(|user| self.is_there(user)).collect(), next))
    }

    /// The user of this subject, disabled ones included.
    ///
    /// # Errors
    /// The store's.
    pub async fn user_entry(&self, sub: &str, now: Timestamp) -> Result<Option<Entry>, StoreError> {
        let found = ledger::get::<User>(&self.store, &format!("user/{sub}"), now).await?;
        let found = found.filter(|stored| self.is_there(&stored.value));
        Ok(found.map(|stored| Entry { user: stored.value, revision: stored.revision }))
    }

    /// Changes a user. With a revision only that very record is changed; without one the change is tried again
    /// when somebody else was faster. The name stays what it is.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn change_entry(
        &self,
        sub: &str,
        revision: Option<u64>,
        now: Timestamp,
        change: impl Fn(&mut User) + Send,
    ) -> Result<Entry, ChangeError> {
        self.replace_entry(sub, revision, OtherMethods::Keep, now, change).await
    }

    /// Changes a user like [`Identity::change_entry`] and, with [`OtherMethods::Remove`], removes all ways to sign in
    /// besides the password in the same commit.
    pub(crate) async fn replace_entry(
        &self,
        sub: &str,
        revision: Option<u64>,
        others: OtherMethods,
        now: Timestamp,
        change: impl Fn(&mut User) + Send,
    ) -> Result<Entry, ChangeError> {
        loop {
            let found = self.user_entry(sub, now).await?.ok_or(ChangeError::Unknown)?;
            if revision.is_some_and(|revision| revision != found.revision) {
                return Err(ChangeError::Stale);
            }
            let mut user = found.user.clone();
            change(&mut user);
            (user.sub, user.username) = (found.user.sub, found.user.username);
            let expect = Expect::Revision(found.revision);
            let mut writes = vec![ledger::put(format!("user/{sub}"), &user, None, expect)];
            if others == OtherMethods::Remove {
                writes.extend(self.remove_methods(sub, now).await?);
            }
            match self.store.write(writes, now).await {
                Ok(revisions) => {
                    self.record(Event::User { action: Action::Update, sub: sub.to_owned() });
                    if others == OtherMethods::Remove {
                        self.record_method(Action::Delete, sub, SignInMethod::All);
                    }
                    return Ok(Entry { user, revision: revisions.first().copied().unwrap_or_default() });
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
