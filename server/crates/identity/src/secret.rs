//! The server's own secret: one random key for each store, from which the marks on values that leave the
//! server and come back (forms, device cookies, refresh successors) are derived.

use std::sync::RwLock;

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, Store, StoreError};
use subtle::ConstantTimeEq;

use crate::audit::Event;
use crate::seal::{OpenError, Seal};
use crate::{Identity, Random};

const KEY: &str = "secret/server";

#[derive(Serialize, Deserialize)]
struct Record {
    secret: String,
}

impl Record {
    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes())
    }
}

/// The key of all marks.
pub(crate) struct Secret(RwLock<hmac::Key>);

impl Secret {
    /// Reads the secret, and makes one if there is none or if it is exposed (see `seal`). Of two nodes that make it
    /// at once one wins, and both use that one's.
    pub(crate) async fn open(
        store: &Store,
        seal: &Seal,
        random: &dyn Random,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        loop {
            let expect = match seal.get::<Record>(store, KEY, now).await? {
                Some(stored) if !stored.exposed => return Ok(Self(RwLock::new(stored.value.key()))),
                Some(stored) => Expect::Revision(stored.revision),
                None => Expect::Absent,
            };
            let record = Record { secret: random.secret() };
            match store.write(vec![seal.put(KEY, &record, expect)], now).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Identity {
    /// Replaces the secret. Everything that carries a mark of the old one becomes invalid: sign-ins under way, known
    /// browsers, user codes of devices, search cursors, and what was derived from a mark before.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the write fails.
    pub async fn rotate_server_secret(&self, now: Timestamp) -> Result<(), OpenError> {
        let record = Record { secret: self.random.secret() };
        self.store.write(vec![self.seal.put(KEY, &record, Expect::Any)], now).await?;
        *self.secret.0.write().expect("no thread panics while it holds the secret") = record.key();
        self.record(Event::KeysRotated);
        Ok(())
    }

    /// The mark of a text for one purpose: HMAC-SHA256 in base64url. A mark for one purpose is worth nothing
    /// for another.
    pub fn mark(&self, purpose: &str, text: &str) -> String {
        let key = self.secret.0.read().expect("no thread panics while it holds the secret");
        let mut context = hmac::Context::with_key(&key);
        context.update(purpose.as_bytes());
        // No purpose holds a zero byte, so that no two pairs read the same.
        context.update(&[0]);
        context.update(text.as_bytes());
        URL_SAFE_NO_PAD.encode(context.sign())
    }

    /// Is this the mark of the text for the purpose? Compared in constant time.
    pub fn is_marked(&self, purpose: &str, text: &str, mark: &str) -> bool {
        self.mark(purpose, text).as_bytes().ct_eq(mark.as_bytes()).into()
    }
}
