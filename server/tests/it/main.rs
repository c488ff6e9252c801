//! Tests of the whole server as its users see it: the real binary over HTTPS, killed and restarted, and the
//! accept loop with slow clients. Each area has a module.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod account;
mod administration;
mod attacks;
mod audit;
mod backups;
mod browser;
mod bucket;
mod bulk_data_client;
mod certificates;
mod ci_examples;
mod clients;
mod cluster;
mod command_line;
mod console;
mod crash;
mod damage;
mod database_drills;
mod deploy;
mod documentation;
mod downloads;
mod drills;
mod driver;
mod erasure;
mod exports;
mod full_disk;
mod golden;
mod hospital;
mod imports;
mod interface;
mod kills;
mod large_requests;
mod launch_patient;
mod listen;
mod metrics;
mod new_app;
mod node_faults;
mod nodes;
mod notes;
mod outgoing;
mod pages;
mod passkeys;
mod power_cut;
mod proxies;
mod refusals;
mod releases;
mod restarts;
mod sign_in;
mod support;
mod terminal_client;
mod terminology;
mod traces;
mod trust;
mod tutorials;
