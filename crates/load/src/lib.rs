//! floodmark-load
