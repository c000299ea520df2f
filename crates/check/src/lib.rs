//! floodmark-check
