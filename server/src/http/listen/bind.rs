//! The sockets on which the server listens: those that a service manager holds, or its own.
//!
//! A socket of a service manager (`LISTEN_FDS`, sd_listen_fds(3)) stays open while the server restarts.
//! Clients that connect meanwhile wait in its queue instead of being refused.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use listenfd::ListenFd;
use tokio::net::TcpListener;

/// The sockets that this process inherited, or why one of them cannot be used. The services of a process can
/// start again, so that each start gets copies.
static INHERITED: LazyLock<io::Result<Vec<std::net::TcpListener>>> = LazyLock::new(|| {
    let mut sockets = ListenFd::from_env();
    (0..sockets.len()).filter_map(|index| sockets.take_tcp_listener(index).transpose()).collect()
});

/// Sockets that are bound and listen.
pub struct BoundListeners {
    /// At least one socket.
    pub sockets: Vec<TcpListener>,
    /// Whether a service manager holds them. Such a socket is not closed for new clients at a stop, because
    /// the next process serves them.
    pub is_inherited: bool,
}

/// Takes the inherited sockets, or else binds the address; for `127.0.0.1` also `[::1]` if the machine has
/// it.
///
/// # Errors
/// The operating system's error if the port is taken or must not be used, or if an inherited descriptor is
/// not a listening TCP socket.
pub async fn bind_listeners(listen: SocketAddr) -> io::Result<BoundListeners> {
    let inherited = INHERITED.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    if !inherited.is_empty() {
        let sockets = inherited.iter().map(|socket| {
            let socket = socket.try_clone()?;
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        });
        return Ok(BoundListeners { sockets: sockets.collect::<io::Result<_>>()?, is_inherited: true });
    }
    let first = TcpListener::bind(listen).await?;
    let port = first.local_addr()?.port();
    let mut sockets = vec![first];
    if listen.ip() == SocketAddr::from(([127, 0, 0, 1], 0)).ip()
        && let Ok(second) = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await
    {
        sockets.push(second);
    }
    Ok(BoundListeners { sockets, is_inherited: false })
}
