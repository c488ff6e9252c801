//! The records of external accounts that are or were linked to users.
//!
//! An account stays known after its link was removed: it never signs in as a second user. An administrator
//! frees it, and only then it can be linked to another user. Issuer and subject are stored as a digest only.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, LedgerWrite};

use crate::ledger_keys;
use crate::storage::records;

/// The user of an external account.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AccountLink {
    pub sub: String,
    /// `true` if the account no longer signs in, because the link was removed or the user was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
}

/// An external account that is or was linked to a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkedAccount {
    /// Id of the link in HTML forms: a digest of issuer and subject.
    pub id: String,
    /// Name of the provider at the time of linking.
    pub provider: String,
    /// Issuer of the account.
    #[serde(default)]
    pub issuer: String,
    /// E-mail address, user name or display name at the provider. Empty after the user was deleted.
    pub label: String,
    /// Time at which the account was linked.
    pub since: Timestamp,
    /// `true` if the user was created for this account. `None` for a link from before this was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<bool>,
    /// Time at which the link was removed. `None` for an account that signs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Timestamp>,
}

impl LinkedAccount {
    /// The writes that link an account to a user. `expected` is the condition on the record that
    /// contains the user of the account.
    pub(crate) fn link_writes(&self, sub: &str, expected: Expect) -> [LedgerWrite; 2] {
        let link = AccountLink { sub: sub.to_owned(), removed: self.removed.is_some() };
        [
            records::put_record(ledger_keys::account_link(&self.id), &link, None, expected),
            records::put_record(ledger_keys::user_link(sub, &self.id), self, None, Expect::Any),
        ]
    }

    /// The writes that remove the link. The account stays known.
    pub(crate) fn removal_writes(&self, sub: &str, now: Timestamp) -> [LedgerWrite; 2] {
        let removed = Some(self.removed.unwrap_or(now));
        Self { removed, ..self.clone() }.link_writes(sub, Expect::Any)
    }

    /// The writes that keep an account known after its user was deleted, without anything about the person.
    pub(crate) fn deletion_writes(&self, sub: &str, now: Timestamp) -> [LedgerWrite; 2] {
        Self { label: String::new(), ..self.clone() }.removal_writes(sub, now)
    }

    /// The writes that free an account for another user.
    pub(crate) fn forget_writes(&self, sub: &str) -> [LedgerWrite; 2] {
        [ledger_keys::account_link(&self.id), ledger_keys::user_link(sub, &self.id)]
            .map(|key| LedgerWrite::delete(key, Expect::Any))
    }
}
