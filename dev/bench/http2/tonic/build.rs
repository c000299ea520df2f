//! Compiles `greeter.proto`, and stores its descriptors for reflection.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=greeter.proto");
    let descriptors = protox::compile(["greeter.proto"], ["."])?;
    let file = PathBuf::from(std::env::var("OUT_DIR")?).join("greeter.bin");
    std::fs::write(file, descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
