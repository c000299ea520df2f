//! floodmark-lab
