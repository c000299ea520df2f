//! floodmark-observe
