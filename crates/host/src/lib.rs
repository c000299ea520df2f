//! floodmark-host
