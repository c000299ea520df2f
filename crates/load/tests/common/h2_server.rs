//! Servers built on the crate `h2`.
#![allow(dead_code, reason = "each test binary uses a subset")]

use std::future::Future;
use std::net::{SocketAddr, TcpListener};

use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use hyper::body::Bytes;
use hyper::http::{HeaderMap, Request};
use tokio::net::TcpStream;

/// Starts a server on a thread that ends with the process. `serve` handles each connection.
pub fn start<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all();
        runtime.build().unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                tokio::spawn(serve(socket));
            }
        });
    });
    address
}

/// Answers all requests on a connection.
pub async fn answer_all<F: Future<Output = ()> + Send + 'static>(
    socket: TcpStream,
    mut answer: impl FnMut(Request<RecvStream>, SendResponse<Bytes>) -> F,
) {
    let Ok(mut connection) = Builder::new().handshake(socket).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond));
    }
}

/// Receives the body of a request.
pub async fn receive(mut body: RecvStream) -> Vec<u8> {
    let mut received = Vec::new();
    while let Some(Ok(part)) = body.data().await {
        received.extend_from_slice(&part);
        let _ = body.flow_control().release_capacity(part.len());
    }
    received
}

/// Returns the fields that contain a gRPC status and its message.
pub fn status_fields(status: &str, message: &str) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert("grpc-status", status.parse().unwrap());
    if !message.is_empty() {
        fields.insert("grpc-message", message.parse().unwrap());
    }
    fields
}
