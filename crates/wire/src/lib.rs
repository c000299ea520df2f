//! floodmark-wire
