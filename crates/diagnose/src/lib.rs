//! floodmark-diagnose
