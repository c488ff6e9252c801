//! The header of the PROXY protocol, version 1 or 2, in which a TCP proxy says from which address its client
//! connects (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>). It precedes the bytes of the
//! client, TLS included. The protocol forbids guessing whether a connection begins with it.

use std::io;
use std::net::SocketAddr;

use ppp::{HeaderResult, v1, v2};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Length of the signature of version 2, and of version 2 up to the length of its rest. A header of version 1
/// is longer than the signature.
const SIGNATURE: usize = 12;
const FIXED: usize = 16;
/// Maximum length of a header of version 1.
const LONGEST_TEXT: usize = 107;
/// Maximum length of the rest of a header of version 2. Proxies send less than 300 bytes.
const LONGEST_REST: usize = 4_096;

/// Reads the header, and no byte more. Returns the address of the client; `None` if the connection is one of
/// the proxy itself, such as a health check.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the connection does not begin with a header; the error of the stream.
pub async fn read_client_address<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![0; SIGNATURE];
    stream.read_exact(&mut header).await?;
    if header == v2::PROTOCOL_PREFIX {
        header.resize(FIXED, 0);
        stream.read_exact(&mut header[SIGNATURE..]).await?;
        let rest = usize::from(u16::from_be_bytes([header[FIXED - 2], header[FIXED - 1]]));
        if rest > LONGEST_REST {
            return Err(invalid());
        }
        header.resize(FIXED + rest, 0);
        stream.read_exact(&mut header[FIXED..]).await?;
    } else if header.starts_with(b"PROXY ") {
        while !header.ends_with(b"\n") {
            if header.len() == LONGEST_TEXT {
                return Err(invalid());
            }
            header.push(stream.read_u8().await?);
        }
    } else {
        return Err(invalid());
    }
    client_address(&header)
}

fn client_address(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    match HeaderResult::parse(header) {
        HeaderResult::V1(Ok(header)) => Ok(match header.addresses {
            v1::Addresses::Tcp4(ip) => Some((ip.source_address, ip.source_port).into()),
            v1::Addresses::Tcp6(ip) => Some((ip.source_address, ip.source_port).into()),
            v1::Addresses::Unknown => None,
        }),
        HeaderResult::V2(Ok(header)) => Ok(match (header.command, header.addresses) {
            (v2::Command::Proxy, v2::Addresses::IPv4(ip)) => Some((ip.source_address, ip.source_port).into()),
            (v2::Command::Proxy, v2::Addresses::IPv6(ip)) => Some((ip.source_address, ip.source_port).into()),
            _ => None,
        }),
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Err(invalid()),
    }
}

fn invalid() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the connection does not begin with a header of the PROXY protocol; let the proxy send it \
         (`send-proxy-v2`), or remove its network from [server] proxy_protocol_from",
    )
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Reads a header. Returns the address, and the bytes that follow the header.
    fn read(mut bytes: &[u8]) -> io::Result<(Option<String>, &[u8])> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let address = runtime.block_on(read_client_address(&mut bytes))?;
        Ok((address.map(|address| address.to_string()), bytes))
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [v2::PROTOCOL_PREFIX, &[0x20 | command, family], &length, rest].concat()
    }

    #[test]
    fn both_versions_name_the_client_and_leave_its_bytes() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0xc0, 0, 1, 0xbb];
        let mut v6 = [0; 36];
        (v6[15], v6[33]) = (1, 9);
        let with_option = [&v4[..], &[4, 0, 1, 0]].concat();
        for (header, address) in [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 49152 443\r\n".to_vec(), Some("192.0.2.7:49152")),
            (b"PROXY TCP6 2001:db8::1 ::1 9 443\r\n".to_vec(), Some("[2001:db8::1]:9")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (binary(1, 0x11, &v4), Some("192.0.2.7:49152")),
            (binary(1, 0x11, &with_option), Some("192.0.2.7:49152")),
            (binary(1, 0x21, &v6), Some("[::1]:9")),
            (binary(0, 0x11, &v4), None),
            (binary(0, 0, &[]), None),
        ] {
            let bytes = [&header[..], b"GET /"].concat();
            let expected = (address.map(str::to_owned), &b"GET /"[..]);
            assert_eq!(read(&bytes).unwrap(), expected, "{:?}", String::from_utf8_lossy(&header));
        }
    }

    #[test]
    fn another_begin_is_an_error() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.7\r\n",
            b"PROXY TCP4 999.0.2.7 10.0.0.1 1 443\r\n",
            &[&b"PROXY "[..], &[b'x'; 200]].concat(),
            &binary(1, 0x11, &[1, 2, 3]),
            &binary(3, 0x11, &[0; 12]),
            &binary(1, 0x11, &[0; LONGEST_REST + 1]),
        ] {
            let error = read(bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(read(b"PROXY TCP4 192.0.2").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn no_header_panics(command in 0..4_u8, family: u8, rest in vec(any::<u8>(), 0..300), text in "PROXY [ -~]{0,120}\r\n") {
            drop(read(&binary(command, family, &rest)));
            drop(read(text.as_bytes()));
        }
    }
}
