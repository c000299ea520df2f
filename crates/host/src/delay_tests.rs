//! Tests that the proxy adds exactly the requested delay.

use super::*;
use std::net::Ipv4Addr;

const DELAY: Duration = Duration::from_millis(20);

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// Starts a server behind a proxy. Returns the address of the proxy.
fn behind_proxy(
    delay: Duration,
    serve_one: impl Fn(TcpStream) + Send + Copy + 'static,
) -> SocketAddr {
    let (server, proxy) = (listener(), listener());
    let (to, address) = (server.local_addr().unwrap(), proxy.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            std::thread::spawn(move || serve_one(stream));
        }
    });
    std::thread::spawn(move || serve(&proxy, to, delay));
    address
}

fn echo(mut stream: TcpStream) {
    let mut back = stream.try_clone().unwrap();
    let _ = io::copy(&mut stream, &mut back);
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Returns the shortest of ten round-trip times. Each round trip carries 5 bytes.
fn exchange(stream: &mut TcpStream) -> Duration {
    let one = |i: u8| {
        let begin = Instant::now();
        stream.write_all(&[i; 5]).unwrap();
        let mut read = [0; 5];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read, [i; 5]);
        begin.elapsed()
    };
    (0..10).map(one).min().unwrap()
}

#[test]
fn delays_each_direction() {
    let near = exchange(&mut connect(behind_proxy(Duration::ZERO, echo)));
    let far = exchange(&mut connect(behind_proxy(DELAY, echo)));
    let added = far - near.min(far);
    assert!(far >= 2 * DELAY, "{far:?}");
    assert!(added < 2 * DELAY + Duration::from_millis(5), "{added:?}");
}

#[test]
fn forwards_a_large_body_at_full_speed() {
    const SIZE: usize = 64 << 20;
    let address = behind_proxy(DELAY, |mut stream| {
        let _ = stream.read(&mut [0; 1]);
        let piece: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        for _ in 0..SIZE >> 20 {
            stream.write_all(&piece).unwrap();
        }
    });
    let mut stream = connect(address);
    let begin = Instant::now();
    stream.write_all(b"x").unwrap();
    let mut body = Vec::new();
    stream.read_to_end(&mut body).unwrap();
    let took = begin.elapsed();
    assert_eq!(body.len(), SIZE);
    assert!(body.iter().enumerate().all(|(i, byte)| *byte == i as u8));
    // If the proxy forwarded only 64 KiB per `DELAY`, the transfer would take 20 s.
    assert!(
        took > 2 * DELAY && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn keeps_connections_separate() {
    let address = behind_proxy(Duration::from_millis(2), echo);
    let threads: Vec<_> = (0..50u8)
        .map(|i| {
            std::thread::spawn(move || {
                let mut stream = connect(address);
                let sent = vec![i; 100_000];
                let mut out = stream.try_clone().unwrap();
                let writer = std::thread::spawn(move || {
                    out.write_all(&sent).unwrap();
                    out.shutdown(Shutdown::Write).unwrap();
                });
                let mut back = Vec::new();
                // EOF arrives after the last byte.
                stream.read_to_end(&mut back).unwrap();
                writer.join().unwrap();
                assert_eq!(back, vec![i; 100_000]);
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn closes_the_connection_if_the_server_refuses() {
    let (gone, proxy) = (listener().local_addr().unwrap(), listener());
    let address = proxy.local_addr().unwrap();
    std::thread::spawn(move || serve(&proxy, gone, DELAY));
    let mut buffer = [0; 1];
    let read = connect(address).read(&mut buffer);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}
