//! The delay is that which was asked for, and nothing else changes.

use super::*;
use std::net::Ipv4Addr;

const DELAY: Duration = Duration::from_millis(20);

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// A server that does something with each connection, behind a delay; where to reach it.
fn behind(delay: Duration, serve_one: impl Fn(TcpStream) + Send + Copy + 'static) -> SocketAddr {
    let (server, way) = (listener(), listener());
    let (to, address) = (server.local_addr().unwrap(), way.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming().flatten() {
            std::thread::spawn(move || serve_one(stream));
        }
    });
    std::thread::spawn(move || serve(&way, to, delay));
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

/// The shortest of some exchanges of a few bytes.
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
fn each_direction_takes_the_delay_longer() {
    let near = exchange(&mut connect(behind(Duration::ZERO, echo)));
    let far = exchange(&mut connect(behind(DELAY, echo)));
    let added = far - near.min(far);
    assert!(far >= 2 * DELAY, "{far:?}");
    assert!(added < 2 * DELAY + Duration::from_millis(5), "{added:?}");
}

#[test]
fn a_large_body_is_not_slowed_to_a_piece_per_delay() {
    const SIZE: usize = 64 << 20;
    let address = behind(DELAY, |mut stream| {
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
    // Of pieces of 64 KiB, one per delay, there would be 1,024, which is 20 s.
    assert!(
        took > 2 * DELAY && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn many_connections_have_their_own_bytes_and_ends() {
    let address = behind(Duration::from_millis(2), echo);
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
                // Its end comes after its last byte, the other direction being open until then.
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
fn where_the_server_refuses_the_connection_is_closed() {
    let (gone, way) = (listener().local_addr().unwrap(), listener());
    let address = way.local_addr().unwrap();
    std::thread::spawn(move || serve(&way, gone, DELAY));
    let mut read = [0; 1];
    let said = connect(address).read(&mut read);
    assert!(matches!(said, Ok(0) | Err(_)), "{said:?}");
}
