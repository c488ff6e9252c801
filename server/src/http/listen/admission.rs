//! Admission of connections: a maximum for the server and one for each address. At a maximum, an idle
//! connection is closed for the new one; if there is none, the new one is refused.
//!
//! Connections of the address with the most connections are closed first, so that a client with few
//! connections is served even during a flood from other addresses.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::ConnectionLimits;

/// Maximum wait for an evicted connection to close.
const EVICTION_TIME: Duration = Duration::from_secs(1);

/// State shared by the accept loop, the stream and the HTTP service of a connection.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// Number of requests whose response is not complete.
    in_flight: AtomicU32,
    requests: AtomicU64,
    first_request: Notify,
    eviction: Notify,
}

impl ConnectionState {
    /// Counts a request until the returned guard is dropped.
    pub fn begin_request(self: &Arc<Self>) -> RequestGuard {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        if self.requests.fetch_add(1, Ordering::AcqRel) == 0 {
            self.first_request.notify_one();
        }
        RequestGuard(Arc::clone(self))
    }

    /// Returns whether no request is being served.
    pub fn is_waiting(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Waits for the first request.
    pub async fn first_request(&self) {
        if self.requests() == 0 {
            self.first_request.notified().await;
        }
    }

    /// Waits until the connection must close for another one.
    pub async fn evicted(&self) {
        self.eviction.notified().await;
    }
}

/// A request that is being served.
#[derive(Debug)]
pub struct RequestGuard(Arc<ConnectionState>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The open connections and their limits.
pub struct Admission {
    limits: ConnectionLimits,
    table: Mutex<ConnectionTable>,
    /// Notified when a connection is closed.
    closed: Notify,
}

#[derive(Default)]
struct ConnectionTable {
    total: usize,
    next_id: u64,
    addresses: HashMap<IpAddr, AddressConnections>,
}

/// The connections of one address, the oldest first.
#[derive(Default)]
struct AddressConnections {
    /// The address is a trusted proxy, which is exempt from the maximum per address.
    is_proxy: bool,
    connections: BTreeMap<u64, Arc<ConnectionState>>,
}

impl AddressConnections {
    fn oldest_waiting(&self) -> Option<u64> {
        self.connections.iter().find(|(_, state)| state.is_waiting()).map(|(id, _)| *id)
    }
}

/// An admitted connection; it leaves the table when this is dropped.
pub struct AdmittedConnection {
    admission: Arc<Admission>,
    /// The address by which the connection is counted.
    address: Mutex<IpAddr>,
    id: u64,
    /// The shared state of the connection.
    pub state: Arc<ConnectionState>,
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        let mut table = self.admission.table();
        table.remove(self.address(), self.id);
        table.total -= 1;
        drop(table);
        self.admission.closed.notify_waiters();
    }
}

impl AdmittedConnection {
    fn address(&self) -> IpAddr {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the connection of a proxy by the address of the client that it names, which has the maximum
    /// of any address. Returns `false` if the client has too many and none of them is idle.
    pub async fn count_by_client(&self, client: IpAddr) -> bool {
        let address = group(client);
        let moved = async {
            loop {
                let closing = self.admission.closed.notified();
                match self.move_to(address) {
                    AdmissionDecision::Admit(()) => return true,
                    AdmissionDecision::Refuse => return false,
                    AdmissionDecision::WaitForEviction => closing.await,
                }
            }
        };
        timeout(EVICTION_TIME, moved).await.unwrap_or(false)
    }

    fn move_to(&self, address: IpAddr) -> AdmissionDecision<()> {
        let mut table = self.admission.table();
        let before = self.address();
        if before == address {
            return AdmissionDecision::Admit(());
        }
        let own = table.addresses.get(&address);
        if own.is_some_and(|own| !own.is_proxy && own.connections.len() >= self.admission.limits.per_address)
        {
            return table.evict(address);
        }
        table.remove(before, self.id);
        let entry = table.addresses.entry(address).or_default();
        entry.connections.insert(self.id, Arc::clone(&self.state));
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
        AdmissionDecision::Admit(())
    }
}

/// The decision about a new connection.
enum AdmissionDecision<T> {
    Admit(T),
    /// Wait until the evicted connection has closed.
    WaitForEviction,
    Refuse,
}

impl Admission {
    /// A table without connections.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default(), closed: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.table().total
    }

    /// Waits until no connection is open.
    pub async fn all_closed(&self) {
        loop {
            let closing = self.closed.notified();
            if self.open() == 0 {
                return;
            }
            closing.await;
        }
    }

    /// Admits a connection, after closing an idle one if a maximum is reached. Returns `None` if there is no
    /// idle one.
    pub async fn admit(self: &Arc<Self>, peer: IpAddr, is_proxy: bool) -> Option<AdmittedConnection> {
        let address = group(peer);
        let state = Arc::new(ConnectionState::default());
        let admit = async {
            loop {
                let closing = self.closed.notified();
                match self.decide(address, is_proxy, &state) {
                    AdmissionDecision::Admit(id) => return Some(id),
                    AdmissionDecision::Refuse => return None,
                    AdmissionDecision::WaitForEviction => closing.await,
                }
            }
        };
        let id = timeout(EVICTION_TIME, admit).await.ok().flatten()?;
        Some(AdmittedConnection { admission: Arc::clone(self), address: Mutex::new(address), id, state })
    }

    fn decide(
        &self,
        address: IpAddr,
        is_proxy: bool,
        state: &Arc<ConnectionState>,
    ) -> AdmissionDecision<u64> {
        let mut table = self.table();
        let own = table.addresses.get(&address).map_or(0, |address| address.connections.len());
        let victim = if !is_proxy && own >= self.limits.per_address {
            address
        } else if table.total >= self.limits.total {
            let Some(heaviest) = table.heaviest(own, is_proxy) else { return AdmissionDecision::Refuse };
            heaviest
        } else {
            let id = table.next_id;
            table.next_id += 1;
            table.total += 1;
            let entry = table.addresses.entry(address).or_default();
            entry.is_proxy = is_proxy;
            entry.connections.insert(id, Arc::clone(state));
            return AdmissionDecision::Admit(id);
        };
        table.evict(victim)
    }
}

impl ConnectionTable {
    fn remove(&mut self, address: IpAddr, id: u64) {
        if let Some(own) = self.addresses.get_mut(&address) {
            own.connections.remove(&id);
            if own.connections.is_empty() {
                self.addresses.remove(&address);
            }
        }
    }

    /// Closes the oldest idle connection of an address.
    fn evict<T>(&mut self, address: IpAddr) -> AdmissionDecision<T> {
        let evicted = self.addresses.get_mut(&address).and_then(|victim| {
            let id = victim.oldest_waiting()?;
            victim.connections.remove(&id)
        });
        match evicted {
            None => AdmissionDecision::Refuse,
            Some(state) => {
                state.eviction.notify_one();
                AdmissionDecision::WaitForEviction
            }
        }
    }

    /// The address with the most connections, of those with an idle one and at least `own` connections.
    /// Proxies are exempt unless the new connection is that of a proxy.
    fn heaviest(&self, own: usize, is_proxy: bool) -> Option<IpAddr> {
        let mut largest: Option<(IpAddr, usize)> = None;
        for (ip, address) in &self.addresses {
            let count = address.connections.len();
            let is_more = largest.is_none_or(|(_, most)| count > most);
            if count >= own.max(1)
                && is_more
                && (is_proxy || !address.is_proxy)
                && address.oldest_waiting().is_some()
            {
                largest = Some((*ip, count));
            }
        }
        largest.map(|(ip, _)| ip)
    }
}

/// The address by which connections are counted.
fn group(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    /// A task that closes its connection when it is evicted, as those of the accept loop do.
    fn hold(admitted: AdmittedConnection) -> tokio::task::JoinHandle<()> {
        tokio::spawn(async move { admitted.state.evicted().await })
    }

    #[tokio::test]
    async fn a_client_with_few_connections_is_admitted_during_a_flood() {
        let admission = Admission::new(ConnectionLimits { total: 10, per_address: 8 });
        let flood: Vec<_> =
            futures_util::future::join_all((0..10).map(|n| admission.admit(ip(n % 2 + 1), false)))
                .await
                .into_iter()
                .map(|admitted| hold(admitted.expect("there is room")))
                .collect();
        let admitted =
            admission.admit(ip(9), false).await.expect("a waiting connection of the flood is closed");
        assert_eq!(admission.open(), 10);
        assert_eq!(flood.iter().filter(|task| task.is_finished()).count(), 1);
        drop(admitted);
        assert_eq!(admission.open(), 9);
    }

    #[tokio::test]
    async fn connections_with_a_request_under_way_are_not_closed() {
        let admission = Admission::new(ConnectionLimits { total: 2, per_address: 2 });
        let first = admission.admit(ip(1), false).await.unwrap();
        let second = admission.admit(ip(1), false).await.unwrap();
        let (busy, also_busy) = (first.state.begin_request(), second.state.begin_request());
        assert!(admission.admit(ip(2), false).await.is_none());
        drop(also_busy);
        let second = hold(second);
        assert!(admission.admit(ip(2), false).await.is_some());
        second.await.unwrap();
        drop(busy);
    }

    #[tokio::test]
    async fn one_address_has_its_own_maximum_and_a_proxy_has_none() {
        let admission = Admission::new(ConnectionLimits { total: 10, per_address: 2 });
        let admissions: Vec<_> =
            [admission.admit(ip(1), false).await, admission.admit(ip(1), false).await].into();
        let busy: Vec<_> =
            admissions.iter().flatten().map(|admitted| admitted.state.begin_request()).collect();
        assert!(admission.admit(ip(1), false).await.is_none());
        assert!(admission.admit(ip(2), false).await.is_some());
        let mut proxied = Vec::new();
        for _ in 0..5 {
            proxied.push(admission.admit(ip(3), true).await.expect("a proxy has no maximum of its own"));
        }
        drop((busy, admissions));
    }

    #[tokio::test]
    async fn a_client_behind_a_proxy_has_the_maximum_of_an_address() {
        let admission = Admission::new(ConnectionLimits { total: 100, per_address: 2 });
        let mut admissions = Vec::new();
        for _ in 0..2 {
            let admitted = admission.admit(ip(3), true).await.unwrap();
            assert!(admitted.count_by_client(ip(7)).await);
            admissions.push(admitted);
        }
        let busy: Vec<_> = admissions.iter().map(|admitted| admitted.state.begin_request()).collect();
        let third = admission.admit(ip(3), true).await.unwrap();
        assert!(!third.count_by_client(ip(7)).await, "both connections of the client are busy");
        assert!(third.count_by_client(ip(8)).await, "another client");
        drop(busy);
        let idle: Vec<_> = admissions.into_iter().map(hold).collect();
        let fourth = admission.admit(ip(3), true).await.unwrap();
        assert!(fourth.count_by_client(ip(7)).await, "the oldest connection of the client is closed");
        assert_eq!(idle.iter().filter(|task| task.is_finished()).count(), 1);
        drop((third, fourth));
        assert_eq!(admission.open(), 1);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let [a, b]: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()];
        assert_eq!(group(a), group(b));
        assert_eq!(group("::ffff:10.0.0.1".parse().unwrap()), IpAddr::from([10, 0, 0, 1]));
    }
}
