//! A gRPC service with reflection: `http2-tonic RUN PORT http|https`.
//!
//! The server uses the certificate in the directory RUN, and writes a line per request to
//! `RUN/access.log` before it exits on SIGTERM.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use self::pb::greeter_server::{Greeter, GreeterServer};
use self::pb::{GreetRequest, GreetResponse};

/// The messages and the service of `greeter.proto`.
mod pb {
    tonic::include_proto!("floodmark.greeter");
}

/// Descriptors of `greeter.proto`.
const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("greeter");

/// The access log.
type Log = Arc<Mutex<BufWriter<File>>>;

struct LoggedGreeter(Log);

#[tonic::async_trait]
impl Greeter for LoggedGreeter {
    async fn greet(
        &self,
        request: Request<GreetRequest>,
    ) -> Result<Response<GreetResponse>, Status> {
        let line = self.0.lock().expect("no holder panics").write_all(b"HTTP/2.0 200\n");
        line.map_err(|error| Status::internal(error.to_string()))?;
        let greeting = format!("Hello {}", request.into_inner().name);
        Ok(Response::new(GreetResponse { greeting }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, port, scheme] = arguments.as_slice() else {
        return Err("usage: http2-tonic RUN PORT http|https".into());
    };
    let run = Path::new(run);
    let log: Log = Arc::new(Mutex::new(BufWriter::new(File::create(run.join("access.log"))?)));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()?;
    let mut server = Server::builder();
    if scheme == "https" {
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| std::fs::read(run.join(name)));
        let identity = Identity::from_pem(cert?, key?);
        server = server.tls_config(ServerTlsConfig::new().identity(identity))?;
    }
    let mut stop = signal(SignalKind::terminate())?;
    let routes = server
        .add_service(GreeterServer::new(LoggedGreeter(log.clone())))
        .add_service(reflection);
    let address = (Ipv4Addr::LOCALHOST, port.parse()?).into();
    routes
        .serve_with_shutdown(address, async move {
            stop.recv().await;
        })
        .await?;
    log.lock().expect("no holder panics").flush()?;
    Ok(())
}
