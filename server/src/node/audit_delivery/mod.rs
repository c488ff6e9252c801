//! Delivery of audit events to a place outside of the server, besides the files: a collector of OpenTelemetry
//! (`otlp`), a syslog server (`syslog`) or standard output. `outcome` is what a destination says of them.
//!
//! Each event is delivered at least once, in order, and again after a crash: its id tells the receiver.

mod otlp;
mod outcome;
mod syslog;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use store::blocking::run_blocking;
use tokio::sync::Mutex;

use self::otlp::Collector;
use self::outcome::{Delivered, DeliveryError};
use self::syslog::SyslogServer;
use crate::config::audit::AuditDestination;
use crate::node::outbound::HttpCaller;
use crate::records::audit::queue::AuditQueue;

/// Number of events that are sent together.
const BATCH: usize = 500;
/// Pauses after the first failure and after many.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Longest pause that a destination can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// The delivery of the audit events of one server.
pub struct AuditDelivery {
    queue: Arc<AuditQueue>,
    /// Name of the destination, for errors.
    name: String,
    sender: Mutex<Sender>,
}

/// The state of the only task that sends.
struct Sender {
    destination: Destination,
    /// Number of events that are sent together.
    batch: usize,
    /// The pause after the last failure, and its end.
    pause: Duration,
    resume: Instant,
}

enum Destination {
    Collector(Collector),
    Syslog(SyslogServer),
    Stdout,
}

impl AuditDelivery {
    /// The delivery of the events in a queue. `node` is the name of this server.
    pub fn new(
        queue: Arc<AuditQueue>,
        to: &AuditDestination,
        node: String,
        http: Arc<dyn HttpCaller>,
    ) -> Self {
        let destination = match to.clone() {
            AuditDestination::Collector { address, authorization } => {
                Destination::Collector(Collector { http, address, authorization, node })
            }
            AuditDestination::Syslog { host, port, tls } => {
                Destination::Syslog(SyslogServer::new(host, port, tls, node))
            }
            AuditDestination::Stdout => Destination::Stdout,
        };
        let sender = Sender { destination, batch: BATCH, pause: Duration::ZERO, resume: Instant::now() };
        Self { queue, name: to.to_string(), sender: Mutex::new(sender) }
    }

    /// Sends what waits. After a failure it does nothing until the pause has ended.
    ///
    /// # Errors
    /// Why not all events were sent.
    pub async fn proceed(&self) -> Result<()> {
        let mut sender = self.sender.lock().await;
        self.queue.limit().await?;
        if Instant::now() >= sender.resume
            && let Err(error) = self.send_waiting(&mut sender).await
        {
            let (reason, asked) = match error {
                DeliveryError::Failed { reason, pause } => (reason, pause.unwrap_or_default()),
                DeliveryError::Refused(reason) => (format!("{reason} to one event"), Duration::ZERO),
            };
            sender.pause = (sender.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            sender.resume = Instant::now() + sender.pause.max(asked.min(LONGEST_ASKED));
            let fault = format!("audit events are not delivered to {}: {reason}", self.name);
            self.queue.set_fault(Some(fault));
        }
        match self.queue.fault() {
            Some(fault) => Err(anyhow!(fault)),
            None => self.queue.save().await,
        }
    }

    async fn send_waiting(&self, sender: &mut Sender) -> Result<(), DeliveryError> {
        let (queue, counts) = (&self.queue, &self.queue.counts);
        while let Some(batch) = queue.next(sender.batch).await.map_err(DeliveryError::failed)? {
            let count = batch.lines.len();
            match sender.destination.send(&batch.lines).await {
                Ok(Delivered { rejected }) => {
                    let (rejected, reason) = rejected.unwrap_or_default();
                    if rejected > 0 {
                        tracing::error!(rejected, reason, "the destination does not keep all audit events");
                    }
                    counts.sent.fetch_add((count as u64).saturating_sub(rejected), Ordering::Relaxed);
                    counts.rejected.fetch_add(rejected, Ordering::Relaxed);
                    sender.batch = BATCH.min(sender.batch * 2);
                }
                Err(DeliveryError::Refused(_)) if count > 1 => {
                    sender.batch = count / 2;
                    continue;
                }
                // The next attempt would be refused too, and nothing after this event could be sent.
                Err(DeliveryError::Refused(reason)) if !queue.refuses => {
                    tracing::error!(reason, "the destination refuses an audit event; it stays in the files");
                    counts.rejected.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
            queue.complete(batch).await.map_err(DeliveryError::failed)?;
            sender.pause = Duration::ZERO;
            queue.set_fault(None);
            queue.limit().await.map_err(DeliveryError::failed)?;
        }
        queue.set_fault(None);
        Ok(())
    }
}

impl Destination {
    async fn send(&mut self, lines: &[String]) -> Result<Delivered, DeliveryError> {
        match self {
            Self::Collector(collector) => collector.send(lines).await,
            Self::Syslog(server) => server.send(lines).await,
            Self::Stdout => {
                let text = lines.join("\n") + "\n";
                let write = move || io::stdout().write_all(text.as_bytes());
                run_blocking(write).await.map_err(DeliveryError::failed)?.map_err(DeliveryError::failed)?;
                Ok(Delivered::default())
            }
        }
    }
}
