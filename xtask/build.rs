//! Nothing to do: without a build script the build dependencies, and so their features, would not count.

fn main() {}
