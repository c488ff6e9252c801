//! The settings that are read at the start only. A reload compares them, and names those that need a restart.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use identity::sign_in::pending_quota::PendingLimits;
use terminology::SnomedDialects;

use super::audit::AuditConfig;
use super::backup::BackupSchedule;
use super::bulk::BulkConfig;
use super::traces::TracesConfig;
use super::{Config, ConnectionLimits, StoreEngine};

/// Declares the settings: the name that a person reads, a field, its type and its value.
macro_rules! restart_settings {
    ($config:ident; $($name:literal $field:ident: $type:ty = $value:expr;)+) => {
        /// The settings that are read at the start only.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct RestartSettings {
            $($field: $type,)+
        }

        impl RestartSettings {
            /// The settings of a configuration.
            pub fn of($config: &Config) -> Self {
                Self { $($field: $value,)+ }
            }

            /// The names of the settings that differ.
            pub fn changed(&self, other: &Self) -> Vec<&'static str> {
                let compared = [$((self.$field == other.$field, $name)),+];
                compared.into_iter().filter(|(is_same, _)| !is_same).map(|(_, name)| name).collect()
            }
        }
    };
}

restart_settings! { config;
    "[server] listen" listen: SocketAddr = config.listen;
    "[server] base_url" base_url: Option<String> = config.base_url.clone();
    "[server] certificate" certificate: Option<(PathBuf, PathBuf)> = config.certificate.clone();
    "[store]" store: (StoreEngine, PathBuf) = (config.engine.clone(), config.data.clone());
    "[identity] key_encryption_key" key_ids: [Option<String>; 2] = config.encryption.key_ids();
    "[bulk]" bulk: BulkConfig = config.bulk.clone();
    "[terminology] snomed_dialects" snomed_dialects: SnomedDialects = config.snomed_dialects.clone();
    "[files]" files: String = config.files.description.clone();
    "[backup]" backup: (Option<BackupSchedule>, Option<String>) =
        (config.backup.schedule.clone(), config.backup.key.as_ref().map(|key| key.id().to_owned()));
    "[audit]" audit: AuditConfig = config.audit.clone();
    "[node]" node: String = config.node.clone();
    "[traces]" traces: TracesConfig = config.traces.clone();
    "[server] idle_timeout_s" idle_timeout: Duration = config.idle_timeout;
    "[server] shutdown_grace_s" shutdown_grace: Duration = config.shutdown_grace;
    "[limits] body_memory_bytes" body_memory_bytes: usize = config.body_memory_bytes;
    "[limits] response_memory_bytes" response_memory_bytes: usize = config.response_memory_bytes;
    "[limits] pending" pending: PendingLimits = config.pending;
    "[limits] connections" connections: ConnectionLimits = config.connections;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_settings_are_named() {
        let read = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("trefoil.toml");
            std::fs::write(&path, text).unwrap();
            let flags = crate::config::ServeFlags { config: Some(path), ..Default::default() };
            RestartSettings::of(&Config::load(&flags).unwrap())
        };
        let before = read("");
        assert_eq!(before.changed(&before), [""; 0]);
        let after = read("[limits]\nconnections = 7\n[bulk]\nlease_s = 9\n[pages]\nname = \"Another\"\n");
        assert_eq!(before.changed(&after), ["[bulk]", "[limits] connections"]);
    }
}
