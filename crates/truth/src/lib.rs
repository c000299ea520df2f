//! floodmark-truth
