//! floodmark-serve
